#!/usr/bin/env python3
"""How far do identical kernels in fresh pairs of processes scatter on a GPU, by which clock, and what makes it worse?

Every row is some fresh pairs of one workspace against itself, measured as the judge measures: within pairs the
standard deviation of a block's log ratio, between pairs that of the pairs' values beside what the blocks explain.

    scripts/experiments/gpu_noise.py --kinds softmax gemm --output docs/evidence/gpu_noise.json

Variants: `as judged`; `not seated` (the system chooses every process's core); `compilers beside` (eight processes
compile, as they do ahead of a climb's candidates); both of these; `not fed` (timed calls are launched on an idle
device); `contexts beside` (another process makes and destroys CUDA contexts all the time); `not evicted` (the L2 keeps
what the judge's drawing left in it). `--raw` keeps every segment's three times. Every row is a part.
"""

from __future__ import annotations

import argparse
import gzip
import json
import math
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import patch

import frame
import gpu_cases

from hillclimb.harness.case.case import Case
from hillclimb.harness.duel.process.launch_spec import SegmentPlan
from hillclimb.harness.duel.workload import Workload
from hillclimb.harness.judge.__main__ import open_judge
from hillclimb.harness.records import Pair, Progress, Side
from hillclimb.harness.statistics.readings import (
    ReadClock,
    event_seconds,
    log_ratio,
    wall_seconds,
    wall_seconds_with_lead_in,
)

CLOCKS: dict[str, ReadClock] = {
    "events": event_seconds,
    "clock": wall_seconds,
    "with lead-in": wall_seconds_with_lead_in,
}

CONTEXT = """
import ctypes, time
cuda = ctypes.CDLL("libcuda.so.1")
device, context = ctypes.c_int(), ctypes.c_void_p()
cuda.cuInit(0)
cuda.cuDeviceGet(ctypes.byref(device), 0)
cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device)
time.sleep(0.05)
"""

COMPILE = """
import os, sys, tempfile
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(dir=sys.argv[1])
from pathlib import Path
import torch
from hillclimb.harness.candidate.offline_compiler import compile_only
from hillclimb.harness.channel.layout import CallSignature
from hillclimb.harness.candidate.runner import import_kernel
shape = (4096, 4096)
arrays = [(name, shape, "bfloat16") for name in sys.argv[3].split()]
print(compile_only(import_kernel(sys.argv[2], "kernel.py:run"), {"main": CallSignature(arrays, {})}, 90)["ok"])
"""
COMPILERS = 8

VARIANTS = (
    "as judged",
    "not seated",
    "compilers beside",
    "not seated, compilers beside",
    "not fed",
    "contexts beside",
    "not evicted",
)


def main() -> None:
    options = _parse()
    if options.child:
        measure_here(options.child, options)
        return
    output = frame.Output(options.output, {"pairs": options.pairs})
    rows: list[dict[str, Any]] = output.found.setdefault("rows", [])
    for kind in options.kinds:
        have = {row["variant"] for row in rows if row["kind"] == kind}
        variants = [variant for variant in options.variants if variant not in have]
        for row in measure_apart(kind, variants, options) if variants else ():
            rows.append(row)
            output.save()
            print(row, flush=True)


def measure_apart(kind: str, variants: list[str], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows of one kernel, from a process of its own: CUDA is taken up once by each judge."""
    command = [sys.executable, __file__, "--child", kind, "--pairs", str(options.pairs)]
    command += ["--raw", options.raw] if options.raw else []
    command += ["--variants", *variants, "--output", options.output]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        yield from (json.loads(line) for line in child.stdout if line.startswith("{"))
    if child.returncode:
        raise SystemExit(f"measuring {kind} ended with status {child.returncode}; what it said stands above")


def measure_here(kind: str, options: argparse.Namespace) -> None:
    """Print the rows of one kernel, a line of JSON each."""
    for row, pairs in measure(kind, options.pairs, options.variants):
        if options.raw:
            segments = {"kind": kind, "variant": row["variant"], "pairs": raw(pairs)}
            with gzip.open(options.raw, "at") as file:
                file.write(json.dumps(segments) + "\n")
        print(json.dumps(row), flush=True)


def measure(kind: str, pairs: int, variants: list[str]) -> Iterator[tuple[dict[str, Any], tuple[Pair, ...]]]:
    """A row for each variant of one kernel, and the pairs it was made from."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-noise-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        case = gpu_cases.write_case(folder, kind, 0.0025, pair_blocks=6, report_pairs=pairs)
        judge = open_judge(Case(case), trust_workspace=False)
        workspace = case / "workspace"
        side = Side(tree=str(workspace))
        device: Any = judge._duels.device
        arrays = "a b c" if kind == "gemm" else "x y"
        around: dict[str, Callable[[], AbstractContextManager[Any]]] = {
            "as judged": nullcontext,
            "not seated": lambda: patch.object(device, "cores", lambda: ()),
            "compilers beside": lambda: beside(COMPILERS, COMPILE, str(folder), str(workspace), arrays),
            "not fed": not_fed,
            "contexts beside": lambda: beside(1, CONTEXT),
            "not evicted": lambda: patch.object(device, "flush_cache", lambda: None),
        }
        for variant in variants:
            with ExitStack() as stack:
                for each in variant.split(", "):
                    stack.enter_context(around[each]())
                found = judge.compare(side, side, "noise", _ignore)
            row = {"kind": kind, "variant": variant, "us": found.seconds_per_call[0] * 1e6}
            row |= {"pairs": len(found.pairs), "dropped": sum(pair.dropped for pair in found.pairs)}
            row |= {name: spread(found.pairs, clock) for name, clock in CLOCKS.items()}
            yield {"provenance": judge.describe().model_dump(), **row}, found.pairs
        judge.close()


def raw(pairs: tuple[Pair, ...]) -> list[list[list[Any]]]:
    """Of every pair's blocks: order, and each segment's seconds per call by events, by the clock, with the lead-in."""
    return [[[b.order, b.events, b.seconds, b.whole] for b in pair.blocks] for pair in pairs]


@contextmanager
def not_fed() -> Iterator[None]:
    """Segments as single calls are timed, which nothing may run before."""

    def turn(workload: Workload, side: int) -> SegmentPlan:
        return SegmentPlan(workload.calls[side], workload.lead_in_calls)

    with patch.object(Workload, "turn", turn):
        yield


@contextmanager
def beside(count: int, script: str, *arguments: str) -> Iterator[None]:
    """So many processes at a time that run a script, again and again."""
    over = threading.Event()

    def run() -> None:
        while not over.is_set():
            subprocess.run([sys.executable, "-c", script, *arguments], stdout=subprocess.DEVNULL, check=True)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()


def spread(pairs: tuple[Pair, ...], clock: ReadClock) -> dict[str, float]:
    """Standard deviations in percent: of a block, of a pair's mean, and of that as far as blocks explain it."""
    within = [[log_ratio(block, clock) for block in pair.blocks] for pair in pairs]
    block = math.sqrt(statistics.fmean(statistics.variance(values) for values in within))
    means = [statistics.fmean(values) for values in within]
    explained = block / math.sqrt(len(within[0]))
    figures = {"block": block, "pair": statistics.stdev(means), "explained": explained}
    return {name: round(100 * value, 4) for name, value in figures.items()}


def _ignore(progress: Progress) -> None:
    """Progress is for screens."""


def _parse() -> argparse.Namespace:
    parser = frame.make_parser(__doc__, required=True)
    parser.add_argument("--kinds", nargs="+", choices=gpu_cases.KINDS, default=list(gpu_cases.KINDS))
    parser.add_argument("--pairs", type=int, default=12, help="fresh pairs of each row")
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--raw", type=Path, help="append what every segment took to this .json.gz")
    parser.add_argument("--child", choices=gpu_cases.KINDS, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
