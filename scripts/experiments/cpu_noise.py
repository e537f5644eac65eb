#!/usr/bin/env python3
"""How much do two processes running identical code differ, and what makes them differ less?  On cases/demo/cpu_matmul.

A/A pairs on one and two threads, with and without precedence over other processes, with and without busy loops that
compete for the CPUs. Reports the standard deviation of a pair's value when that is the mean, and when it is the median,
of its blocks.

    scripts/experiments/cpu_noise.py --pairs 12 --loads 0 1 --output docs/evidence/cpu_noise.json
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import torch

from harness.case.case import Case
from harness.case.contract import load_contract
from harness.device import cpu
from harness.judge.bench import Bench
from harness.judge.stable import Stable
from harness.readings import log_ratio
from harness.records import Pair, Side
from harness.sandbox.rungs import choose_rung

CASE = Path(__file__).resolve().parents[2] / "cases/demo/cpu_matmul"
TUNED = {"MM_ORDER": "ikj", "MM_UNROLL": "8", "MM_ROWS": "2", "MM_FASTMATH": "1", "MM_TILE_N": "256"}


def main() -> None:
    options = _parse()
    torch.set_num_threads(1)
    case = Case(CASE)
    secret = random.Random(1)
    stable = Stable(case, choose_rung(trust_workspace=False), cpu.Cpu(), {})
    bench = Bench(case, load_contract(case.contract_file), stable, cpu.Cpu(), secret)
    rows = []
    for precedence in (False, True):
        if precedence:
            cpu.take_precedence()
        for load in options.loads:
            with busy_loops(load):
                for threads in ("1", "2"):
                    pairs = [take_pair(bench, threads) for _ in range(options.pairs)]
                    setting = {"precedence": precedence, "busy_loops": load, "threads": int(threads)}
                    rows.append(setting | spread(pairs))
                    print(rows[-1], flush=True)
    found = {"machine": cpu.name(), "software": cpu.software(), "rows": rows}
    options.output.write_text(json.dumps(found, indent=1) + "\n")


def take_pair(bench: Bench, threads: str) -> Pair:
    """One fresh pair of identical sides."""
    side = Side(tree=str(CASE / "workspace"), knobs=TUNED | {"MM_THREADS": threads})
    settings = bench.case.settings
    with closing(bench.each_pair(side, side, 1, lambda progress: None)) as pairs:
        sides = next(pairs)
        return bench.measure(sides, "noise", settings.objective.suite, settings.duel.pair_blocks)


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
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--pairs", type=int, default=12, help="fresh pairs in each setting")
    parser.add_argument(
        "--loads", type=int, nargs="+", default=[0, 1], help="busy loops competing for the CPUs"
    )
    parser.add_argument("--output", type=Path, default=CASE.parents[2] / "docs/evidence/cpu_noise.json")
    return parser.parse_args()


if __name__ == "__main__":
    main()
