#!/usr/bin/env python3
"""How long does a process take to make and to end a CUDA context, by what its environment says of queues?

Each row starts so many plain processes at once: milliseconds until the last has a context and has written to memory,
milliseconds until the last has ended, and of the first and the last one what cuInit and the context took.

    scripts/experiments/gpu_births.py --output docs/evidence/gpu_births.json
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SETTINGS: tuple[dict[str, str], ...] = (
    {},
    *({"CUDA_DEVICE_MAX_CONNECTIONS": count} for count in "1248"),
    {"CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"},
    {"CUDA_DEVICE_MAX_CONNECTIONS": "2", "CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"},
    {"CUDA_DEVICE_MAX_CONNECTIONS": "1", "CUDA_SCALE_LAUNCH_QUEUES": "0.25x"},
)
TOGETHER = (1, 4, 10)

CHILD = """
import ctypes, json, os, sys, time
cuda = ctypes.CDLL("libcuda.so.1")
device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
times = [time.perf_counter()]
assert cuda.cuInit(0) == 0
times.append(time.perf_counter())
cuda.cuDeviceGet(ctypes.byref(device), 0)
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
times.append(time.perf_counter())
cuda.cuCtxSetCurrent(context)
cuda.cuMemAlloc_v2(ctypes.byref(memory), 1 << 20)
cuda.cuMemsetD8_v2(memory, ctypes.c_ubyte(0), 1 << 20)
cuda.cuCtxSynchronize()
print(json.dumps([round(1e3 * (b - a), 1) for a, b in zip(times, times[1:])]), flush=True)
sys.stdin.readline()
os._exit(0)
"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    output: Path = parser.parse_args().output
    rows = []
    for setting in SETTINGS:
        for count in TOGETHER:
            rows.append(measure(setting, count))
            print(json.dumps(rows[-1]), flush=True)
            output.write_text(json.dumps(rows, indent=1) + "\n")


def measure(setting: dict[str, str], count: int) -> dict[str, Any]:
    """One generation, born and ended together."""
    command, pipe = [sys.executable, "-S", "-c", CHILD], subprocess.PIPE
    started = time.perf_counter()
    born = [
        subprocess.Popen(command, stdin=pipe, stdout=pipe, env=os.environ | setting, text=True)
        for _ in range(count)
    ]
    steps = [json.loads(process.stdout.readline()) for process in born if process.stdout]
    ready = time.perf_counter() - started
    ending = time.perf_counter()
    for process in born:
        if process.stdin:
            process.stdin.close()
    for process in born:
        process.wait()
    ended = time.perf_counter() - ending
    return {
        "environment": setting,
        "together": count,
        "ready_ms": round(1e3 * ready),
        "end_ms": round(1e3 * ended),
        "init_and_context_ms": [steps[0], steps[-1]],
    }


if __name__ == "__main__":
    main()
