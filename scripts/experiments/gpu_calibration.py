#!/usr/bin/env python3
"""How long does a kernel of gpu_cases take, and how much longer with planted work?  Apart from any judge.

One process, both variants captured as CUDA graphs over the same buffers, as many as a judge's segment takes, replayed
in turn in a random order, with a rest and inputs drawn anew before each: the clocks are to be those of a judge's duel.
Medians of paired log ratios of device events. Prints a line of JSON, a list with a row for every EXTRA, each of which
is a part.

    scripts/experiments/gpu_calibration.py WORKSPACE softmax 16 400
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import os
import random
import statistics
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import frame
import gpu_cases
import torch

SLOTS = {"softmax": 450, "small": 3072, "gemm": 40}
SHAPES = {"softmax": (4096, 4096), "small": (256, 1024), "gemm": (4096, 4096)}
ROUNDS = 30
REST_SECONDS = 0.04
"""Before each replay, about as long as a judge draws and compares: a GPU at work all the time lowers its clocks."""


def main() -> None:
    options = _parse()
    workspace = options.workspace.resolve()
    output = frame.Output(options.output, {"workspace": workspace, "kind": options.kind})
    rows: list[dict[str, Any]] = output.found.setdefault("rows", [])
    slots = make_slots(options.kind)
    base = capture(load(workspace, gpu_cases.SHORT_TAIL), slots)
    have = {row["extra"] for row in rows}
    for extra in [extra for extra in dict.fromkeys(options.extras) if extra not in have]:
        other = capture(load(workspace, gpu_cases.SHORT_TAIL + extra), slots)
        for graph in (base, other) * 3:
            graph.replay()
        ratios, times = [], []
        for _ in range(ROUNDS):
            pair = [base, other]
            order = random.sample((0, 1), 2)
            seconds = {i: replay(pair[i], slots) / len(slots) for i in order}
            ratios.append(math.log(seconds[1] / seconds[0]))
            times.append(seconds[0])
        error = 1.2533 * statistics.stdev(ratios) / math.sqrt(ROUNDS)  # of a median
        effect = math.exp(statistics.median(ratios)) - 1
        rows.append({"extra": extra, "seconds": statistics.median(times), "effect": effect, "error": error})
        output.save()
    found = {row["extra"]: row for row in rows}
    print(json.dumps([found[extra] for extra in options.extras]))


def make_slots(kind: str) -> list[tuple[torch.Tensor, ...]]:
    inputs = 2 if kind == "gemm" else 1
    return [
        tuple(torch.randn(SHAPES[kind], dtype=torch.bfloat16, device="cuda") for _ in range(inputs + 1))
        for _ in range(SLOTS[kind])
    ]


def load(workspace: Path, extra: int) -> ModuleType:
    """A module of its own for every variant: the planted steps are a constant read at import."""
    os.environ["EXTRA"] = str(extra)
    spec = importlib.util.spec_from_file_location(f"kernel_{extra}", workspace / "kernel.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def capture(module: Any, slots: list[tuple[torch.Tensor, ...]]) -> torch.cuda.CUDAGraph:
    module.run(*slots[0])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for slot in slots:
            module.run(*slot)
    return graph


def replay(graph: torch.cuda.CUDAGraph, slots: list[tuple[torch.Tensor, ...]]) -> float:
    """Seconds of one replay, by device events, after a rest and one that is not timed."""
    time.sleep(REST_SECONDS)
    for *inputs, output in slots:
        for tensor in inputs:
            tensor.normal_()
        output.fill_(float("nan"))
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    start.record()
    graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) / 1e3


def _parse() -> argparse.Namespace:
    parser = frame.make_parser(__doc__)
    parser.add_argument(
        "workspace", type=Path, metavar="WORKSPACE", help="folder of a kernel.py by gpu_cases.write_case"
    )
    parser.add_argument("kind", choices=gpu_cases.KINDS)
    parser.add_argument(
        "extras", type=int, nargs="+", metavar="EXTRA", help="steps planted beyond gpu_cases.SHORT_TAIL"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
