#!/usr/bin/env python3
"""How much do two processes running identical code differ, and what makes them differ less?  On cases/demo/cpu_matmul.

A/A pairs on one and two threads, with and without precedence over other processes, with and without busy loops that
compete for the CPUs. Reports the standard deviation of a pair's value when that is the mean, and when it is the median,
of its blocks.

    scripts/experiments/cpu_noise.py --pairs 12 --loads 0 1 --output docs/evidence/cpu_noise.json
"""

from __future__ import annotations

import argparse
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import product
from typing import Any

import frame
import torch

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.device.cpu import cpu
from hillclimb.harness.duel.duel_factory import DuelFactory
from hillclimb.harness.duel.process.launcher import CandidateLauncher
from hillclimb.harness.records import Pair, Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from hillclimb.harness.statistics.readings import log_ratio

CASE = frame.ROOT / "cases/demo/cpu_matmul"
TUNED = {"MM_ORDER": "ikj", "MM_UNROLL": "8", "MM_ROWS": "2", "MM_FASTMATH": "1", "MM_TILE_N": "256"}


def main() -> None:
    options = _parse()
    output = frame.Output(options.output, {"pairs": options.pairs})
    output.provenance |= {"device": cpu.name(), "software": cpu.software()}
    rows: list[dict[str, Any]] = output.found.setdefault("rows", [])
    torch.set_num_threads(1)
    case = Case(CASE)
    secret = random.Random(1)
    stable = CandidateLauncher(case, choose_rung(trust_workspace=False), cpu.CpuDevice(), {})
    bench = DuelFactory(case, load_contract(case.contract_file), stable, cpu.CpuDevice(), secret)
    for precedence, load, threads in product((False, True), options.loads, (1, 2)):
        setting = {"precedence": precedence, "busy_loops": load, "threads": threads}
        if any(setting.items() <= row.items() for row in rows):
            continue
        if precedence:
            cpu.raise_priority()
        with busy_loops(load):
            pairs = [take_pair(bench, str(threads)) for _ in range(options.pairs)]
        rows.append(setting | spread(pairs))
        output.save()
        print(rows[-1], flush=True)


def take_pair(bench: DuelFactory, threads: str) -> Pair:
    """One fresh pair of identical sides."""
    side = Side(tree=str(CASE / "workspace"), knobs=TUNED | {"MM_THREADS": threads})
    settings = bench.case.settings
    with closing(bench.prepared_pairs(side, side, 1, lambda progress: None)) as pairs:
        sides = next(pairs)
        return bench.measure_pair(sides, "noise", settings.objective.suite, settings.duel.pair_blocks)


def spread(pairs: list[Pair]) -> dict[str, Any]:
    """Standard deviations in percent, and how many blocks were measured again."""
    ratios = [[log_ratio(block) for block in pair.blocks] for pair in pairs]
    return {
        "pairs": len(pairs),
        "sd_of_means_percent": round(100 * statistics.stdev(statistics.fmean(r) for r in ratios), 2),
        "sd_of_medians_percent": round(100 * statistics.stdev(statistics.median(r) for r in ratios), 2),
        "sd_of_blocks_percent": round(100 * statistics.stdev(r for pair in ratios for r in pair), 2),
        "dropped": sum(pair.dropped for pair in pairs),
    }


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Processes of ordinary priority that never rest."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _parse() -> argparse.Namespace:
    parser = frame.make_parser(__doc__, default=frame.EVIDENCE / "cpu_noise.json")
    parser.add_argument("--pairs", type=int, default=12, help="fresh pairs in each setting")
    parser.add_argument(
        "--loads", type=int, nargs="+", default=[0, 1], help="busy loops competing for the CPUs"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
