#!/usr/bin/env python3
"""How often does the CPU judge keep what is no gain, and find what is one?  On cases/demo/cpu_matmul.

A/A: candidates whose source differs from the incumbent's by a comment, judged as a run would judge them
(screening, then confirmation at the run's spent alpha); none may be kept. Planted: the incumbent does a known
share of its rows twice, so the candidate is faster by exactly that much work; most should be kept.

    scripts/experiments/cpu_error_rates.py --aa 300 --planted 20 --output docs/evidence/cpu_error_rates.json

Every candidate is a part. An output can be extended with more of them.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import frame

from hillclimb.harness.case.case import Case
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Progress, Side
from hillclimb.harness.statistics.evidence import alpha_share

ROOT = frame.ROOT
ALPHA = 0.01
TUNED = {"MM_ORDER": "ikj", "MM_UNROLL": "8", "MM_ROWS": "2", "MM_FASTMATH": "1", "MM_TILE_N": "256"}
"""A good configuration: under a millisecond a call."""

THREADS = {"aa": "2", "planted": "1"}
"""Identical candidates run on two threads, where noise is at its worst; repeating rows costs an exactly known share
of the work on one thread only."""

REPEAT = """

_once = run


def run(a, b, c):
    _once(a, b, c)
    extra = round(a.shape[0] * {share})
    if extra:
        _once(a[:extra], b, c[:extra])
"""


def main() -> None:
    options = _parse()
    output = frame.Output(options.output, {"effects": options.effects})
    rows: list[dict[str, Any]] = output.found.setdefault("candidates", [])
    with tempfile.TemporaryDirectory(prefix="hillclimb-rates-") as folder:
        Path(folder).chmod(0o755)
        bench = Bench(Path(folder))
        plan = [("aa", 0.0, i) for i in range(options.aa)]
        plan += [("planted", effect, i) for effect in options.effects for i in range(options.planted)]
        have = {(row["kind"], row["effect"], row["i"]) for row in rows}
        output.provenance |= bench.judge.describe().model_dump()
        for kind, effect, i in plan:
            if (kind, effect, i) in have:
                continue
            row = bench.judge_one(kind, effect, i, _confirmations(rows, kind, effect))
            rows.append(row)
            output.save(summary=summarise(rows))
            print(
                f"{kind} {effect:.0%} {i}: {row['verdict']} {row['screened']} {row['seconds']:.1f} s",
                flush=True,
            )
        bench.judge.close()
    print(json.dumps(summarise(rows), indent=1))


class Bench:
    """The judge of the demo case, and trees to hand it."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.workspace = folder, ROOT / "cases/demo/cpu_matmul/workspace"
        self.judge = LocalJudge(ROOT / "cases/demo/cpu_matmul", folder / "judge.log")
        self.minimum = Case(ROOT / "cases/demo/cpu_matmul").settings.objective.minimum_effect

    def judge_one(self, kind: str, effect: float, i: int, confirmations: int) -> dict[str, Any]:
        """Screen and, where it is promising, confirm one candidate; everything worth keeping of it."""
        knobs = TUNED | {"MM_THREADS": THREADS[kind]}
        incumbent = self._tree("incumbent", REPEAT.format(share=effect) if kind == "planted" else "", knobs)
        candidate = self._tree("candidate", f"\n# identical candidate {i}\n", knobs)
        started = time.perf_counter()
        screening = self.judge.screen(candidate, incumbent, _ignore)
        row: dict[str, Any] = {"kind": kind, "effect": effect, "i": i, "screened": screening.speedup}
        row |= {
            "verdict": screening.reason,
            "confirmed": False,
            "blocks": sum(len(p.blocks) for p in screening.pairs),
        }
        if screening.reason is None:
            alpha = alpha_share(ALPHA, confirmations + 1)
            found = self.judge.confirm(candidate, incumbent, incumbent, alpha, _ignore)
            row |= {
                "verdict": found.reason or "kept",
                "confirmed": True,
                "alpha": alpha,
                "e_value": found.e_value,
            }
            row |= {"pairs": sum(p.stage == "decide" for p in found.pairs)}
            row |= {"speedup": found.speedup.model_dump() if found.speedup else None}
        return row | {"load": os.getloadavg()[0], "seconds": time.perf_counter() - started}

    def _tree(self, name: str, appended: str, knobs: dict[str, str]) -> Side:
        tree = self.folder / name
        shutil.rmtree(tree, ignore_errors=True)
        shutil.copytree(self.workspace, tree)
        with (tree / "kernel.py").open("a") as kernel:
            kernel.write(appended)
        return Side(tree=str(tree), knobs=knobs)


def summarise(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One line for each kind and effect: how many were kept, with the exact 95 % limits that are of use."""
    groups: dict[tuple[str, float], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["kind"], row["effect"]), []).append(row)
    return [_line(kind, effect, group) for (kind, effect), group in groups.items()]


def _line(kind: str, effect: float, rows: list[dict[str, Any]]) -> dict[str, Any]:
    kept = [row for row in rows if row["verdict"] == "kept"]
    line: dict[str, Any] = {"kind": kind, "effect": effect, "candidates": len(rows), "kept": len(kept)}
    line |= {"confirmed": sum(row["confirmed"] for row in rows)}
    line |= {"median_seconds": round(statistics.median(row["seconds"] for row in rows), 2)}
    line |= {"median_load": round(statistics.median(row["load"] for row in rows), 2)}
    if not kept:
        line["upper_limit_95"] = round(1 - 0.05 ** (1 / len(rows)), 4)
    reported = [row["speedup"] for row in kept]
    if reported:
        true = 1 + round(256 * effect) / 256
        line["true_speedup"] = round(true, 4)
        line["median_speedup"] = round(statistics.median(s["estimate"] for s in reported), 4)
        line["intervals_holding_the_truth"] = sum(s["low"] <= true <= s["high"] for s in reported)
    return line


def _confirmations(rows: list[dict[str, Any]], kind: str, effect: float) -> int:
    """Confirmations so far in what counts as one run: the alpha of each is spent over these."""
    return sum(row["confirmed"] for row in rows if (row["kind"], row["effect"]) == (kind, effect))


def _ignore(progress: Progress) -> None:
    """Progress is for screens."""


def _parse() -> argparse.Namespace:
    parser = frame.make_parser(__doc__, default=frame.EVIDENCE / "cpu_error_rates.json")
    parser.add_argument("--aa", type=int, default=300, help="identical candidates")
    parser.add_argument("--planted", type=int, default=20, help="candidates for each planted effect")
    parser.add_argument("--effects", type=float, nargs="+", default=[0.05, 0.10], help="planted effects")
    return parser.parse_args()


if __name__ == "__main__":
    main()
