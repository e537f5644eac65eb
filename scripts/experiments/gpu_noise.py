#!/usr/bin/env python3
"""How far do identical kernels in fresh pairs of processes scatter on a GPU, by which clock, and what makes it worse?

Every row is some fresh pairs of one workspace against itself, measured as the judge measures: within pairs the
standard deviation of a block's log ratio, between pairs that of the pairs' values beside what the blocks explain.

    scripts/experiments/gpu_noise.py --kinds softmax gemm --output docs/evidence/gpu_noise.json

Variants: `as judged`; `not fed` (timed calls are launched on an idle device); `contexts beside` (another process makes
and destroys CUDA contexts all the time); `not evicted` (the L2 keeps what the judge's drawing left in it).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import gpu_cases

from harness.candidate.arena import Arena
from harness.candidate.process import CandidateProcess, Timing
from harness.case.case import Case
from harness.judge.__main__ import take_up
from harness.judge.duel import clock_log_ratio, log_ratio, whole_log_ratio
from harness.judge.judge import CaseJudge
from harness.judge.protocol import Progress
from harness.records import Block, Pair, Side

CLOCKS: dict[str, Callable[[Block], float]] = {
    "events": log_ratio,
    "clock": clock_log_ratio,
    "with lead-in": whole_log_ratio,
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


def main() -> None:
    options = _parse()
    if len(options.kinds) > 1:  # one process a judge: CUDA is taken up once
        for kind in options.kinds:
            command = [sys.executable, __file__, "--kinds", kind, "--pairs", str(options.pairs)]
            subprocess.run([*command, "--output", options.output], check=True)
        return
    rows = json.loads(options.output.read_text()) if options.output.exists() else []
    for row in measure(options.kinds[0], options.pairs):
        rows.append(row)
        options.output.write_text(json.dumps(rows, indent=1) + "\n")
        print(row, flush=True)


def measure(kind: str, pairs: int) -> Iterator[dict[str, Any]]:
    """The variants of one kernel that can be had from one judge."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-noise-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        case = gpu_cases.write_case(folder, kind, 0.0025, pair_blocks=6, report_pairs=pairs)
        judge = take_up(Case(case), trust_workspace=False)
        side = Side(tree=str(case / "workspace"))
        device: Any = judge._bench.device
        provenance = judge.describe().model_dump()
        yield {"provenance": provenance, **_row(judge, side, kind, "as judged")}
        with not_fed():
            yield _row(judge, side, kind, "not fed")
        with contexts_beside():
            yield _row(judge, side, kind, "contexts beside")
        device.flush_cache = lambda: None
        yield _row(judge, side, kind, "not evicted")
        judge.close()


@contextmanager
def not_fed() -> Iterator[None]:
    """Segments as single calls are timed, which nothing may run before."""
    fed = CandidateProcess.time

    def unfed(
        process: CandidateProcess, arena: Arena, lead: int, count: int, prove: Any, late: Any
    ) -> Timing:
        return fed(process, arena, lead, count, prove, late or (lambda: None))

    with patch.object(CandidateProcess, "time", unfed):
        yield


@contextmanager
def contexts_beside() -> Iterator[None]:
    """Somebody else's comings and goings on the same GPU."""
    over = threading.Event()

    def come_and_go() -> None:
        while not over.is_set():
            subprocess.run([sys.executable, "-S", "-c", CONTEXT])

    thread = threading.Thread(target=come_and_go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _row(judge: CaseJudge, side: Side, kind: str, variant: str) -> dict[str, Any]:
    found = judge.compare(side, side, "noise", _ignore)
    row: dict[str, Any] = {"kind": kind, "variant": variant, "us": found.seconds_per_call[0] * 1e6}
    row |= {"pairs": len(found.pairs), "dropped": sum(pair.dropped for pair in found.pairs)}
    return row | {name: spread(found.pairs, ratio) for name, ratio in CLOCKS.items()}


def spread(pairs: tuple[Pair, ...], ratio: Callable[[Block], float]) -> dict[str, float]:
    """Standard deviations in percent: of a block, of a pair's mean, and of that as far as blocks explain it."""
    within = [[ratio(block) for block in pair.blocks] for pair in pairs]
    block = math.sqrt(statistics.fmean(statistics.variance(values) for values in within))
    means = [statistics.fmean(values) for values in within]
    explained = block / math.sqrt(len(within[0]))
    figures = {"block": block, "pair": statistics.stdev(means), "explained": explained}
    return {name: round(100 * value, 4) for name, value in figures.items()}


def _ignore(progress: Progress) -> None:
    """Progress is for screens."""


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kinds", nargs="+", choices=gpu_cases.KINDS, default=list(gpu_cases.KINDS))
    parser.add_argument("--pairs", type=int, default=12, help="fresh pairs of each row")
    parser.add_argument("--output", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
