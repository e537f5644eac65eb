#!/usr/bin/env python3
"""How often does the GPU judge keep what is no gain, and find what is one?  On the kernels of gpu_cases.

A/A: candidates whose source differs from the incumbent's by a comment, judged as a run would judge them: screening,
then confirmation at the run's spent alpha. None may be kept. Planted: the incumbent walks a chain of dependent steps
after the kernel, so the candidate is faster by a share that gpu_calibration measured apart. Losers: the same, the
other way round. `--condition heat` loads the GPU with matrix products just before each candidate, `tenant` keeps
another process at work on it all the time.

    scripts/experiments/gpu_error_rates.py softmax --aa 1000 --planted 40 --output docs/evidence/gpu_softmax.json

The calibration and every candidate are parts. An output can be extended with more candidates, and under another
condition.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import frame
import gpu_cases

from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Progress, Side
from hillclimb.harness.statistics.evidence import alpha_share, upper_limit

ALPHA = 0.01
MINIMUM_EFFECT = 0.0025
DUEL = {"pair_blocks": 2, "max_pairs": 30, "report_pairs": 5}
"""As docs/decisions/0009-the-keep-rule-on-a-gpu.md recommends."""

AHEAD = 8
"""Candidates that are compiled while one is judged."""

TRIAL_STEPS = 2000
"""Steps of the chain by which the time of one is found."""

LOAD = """
import sys, time, torch
a, b = (torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda") for _ in range(2))
print("ready", flush=True)
for line in sys.stdin:
    end = time.perf_counter() + float(line)
    while time.perf_counter() < end:
        for _ in range(10):
            a @ b
        torch.cuda.synchronize()
    print("done", flush=True)
"""


def main() -> None:
    options = _parse()
    output = frame.Output(options.output, {"kind": options.kind, "effects": options.effects})
    found = output.found
    found["kind"] = options.kind
    rows: list[dict[str, Any]] = found.setdefault("rows", [])
    with tempfile.TemporaryDirectory(prefix="hillclimb-rates-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        lab = Lab(folder, options.kind, options.condition)
        if "calibration" not in found:
            output.save(calibration=lab.calibrate(options.effects))
        lab.take_steps(found["calibration"])
        with lab.open() as opened:
            output.provenance |= opened["provenance"]
            found["noise"] = opened["noise"]
            deadline = time.perf_counter() + options.seconds
            for duel in lab.ahead(_jobs(found, options)):
                if time.perf_counter() > deadline:
                    break
                row = lab.judge_one(duel, _confirmations(rows, duel.job))
                rows.append(row)
                output.save(summary=summarise(found))
                print(*row.values(), flush=True)
    print(json.dumps(found.get("summary"), indent=1))


def _jobs(found: dict[str, Any], options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """What is still to be judged: the kinds in turn, so that a run cut short has some of each."""
    wanted = {("aa", 0.0): options.aa}
    planted = options.planted * (len(options.effects) if len(options.planted) == 1 else 1)
    wanted |= {("planted", effect): n for effect, n in zip(options.effects, planted, strict=True)}
    wanted |= {("loser", effect): options.losers for effect in options.effects}
    have = dict.fromkeys(wanted, 0)
    for row in found["rows"]:
        if row["condition"] == options.condition and (row["what"], row["effect"]) in have:
            have[row["what"], row["effect"]] += 1
    while any(have[key] < wanted[key] for key in wanted):
        key = min((k for k in wanted if have[k] < wanted[k]), key=lambda k: have[k] / wanted[k])
        have[key] += 1
        yield {"what": key[0], "effect": key[1], "i": have[key], "condition": options.condition}


class Decided:
    """Notes when the last value came that a decision was made from; what follows measures how large a win is."""

    at = 0.0

    def __call__(self, progress: Progress) -> None:
        if progress.stage == "decide":
            self.at = time.perf_counter()


@dataclass(frozen=True)
class Staged:
    """A job whose sides are being compiled."""

    job: dict[str, Any]
    candidate: Side
    incumbent: Side


class Lab:
    """The judge of one case, trees to hand it, and a load beside it."""

    def __init__(self, folder: Path, kind: str, condition: str) -> None:
        self._folder, self._kind, self._condition = folder, kind, condition
        self._case = gpu_cases.write_case(folder, kind, MINIMUM_EFFECT, **DUEL)
        self._steps: dict[float, int] = {0.0: 0}
        self._incumbents: dict[int, Side] = {}
        self._made = 0

    def calibrate(self, effects: list[float]) -> list[dict[str, float]]:
        """Steps that slow the kernel down by each effect, and what they were measured to do."""
        trial = self._calibrate([TRIAL_STEPS])[0]
        per_step = trial["effect"] / TRIAL_STEPS
        rows = self._calibrate([max(1, round(effect / per_step)) for effect in effects])
        return [{"planned": effect, **row} for effect, row in zip(effects, rows, strict=True)]

    def take_steps(self, calibration: list[dict[str, float]]) -> None:
        """Plant each effect by the steps that were calibrated for it."""
        self._steps |= {row["planned"]: int(row["extra"]) for row in calibration}

    def _calibrate(self, extras: list[int]) -> list[dict[str, float]]:
        script = Path(__file__).with_name("gpu_calibration.py")
        command = [sys.executable, script, self._case / "workspace", self._kind, *map(str, extras)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"calibration failed: {done.stderr[-2000:]}")
        rows: list[dict[str, float]] = json.loads(done.stdout.splitlines()[-1])
        return rows

    @contextmanager
    def open(self) -> Iterator[dict[str, Any]]:
        """The judge, taught what honest noise is; then the load."""
        self._judge = LocalJudge(self._case, self._folder / "judge.log")
        try:
            side = self._tree(gpu_cases.NO_TAIL)
            noise = self._judge.compare(side, side, "noise", _ignore)
            self._load = self._start_load()
            yield {
                "provenance": self._judge.describe().model_dump(),
                "noise": {"pair_sd": noise.pair_sd, "seconds_per_call": noise.seconds_per_call[0]},
            }
        finally:
            print((self._folder / "judge.log").read_text()[-3000:], file=sys.stderr)
            self._judge.close()
            if self._condition != "quiet":
                self._load.kill()

    def _start_load(self) -> subprocess.Popen[str]:
        if self._condition == "quiet":
            return subprocess.Popen(["true"], text=True)
        pipe = subprocess.PIPE
        load = subprocess.Popen([sys.executable, "-c", LOAD], stdin=pipe, stdout=pipe, text=True)
        assert load.stdin is not None
        assert load.stdout is not None
        load.stdout.readline()
        if self._condition == "tenant":
            load.stdin.write("1e9\n")
            load.stdin.flush()
        return load

    def _heat(self) -> None:
        assert self._load.stdin is not None
        assert self._load.stdout is not None
        self._load.stdin.write("1.5\n")
        self._load.stdin.flush()
        self._load.stdout.readline()

    def ahead(self, jobs: Iterator[dict[str, Any]]) -> Iterator[Staged]:
        """Each job when it is due, those that come next being compiled meanwhile, as in a climb."""
        staged: deque[Staged] = deque()
        for job in jobs:
            staged.append(self._stage(job))
            if len(staged) > AHEAD:
                yield staged.popleft()
        yield from staged

    def _stage(self, job: dict[str, Any]) -> Staged:
        base = gpu_cases.NO_TAIL if job["what"] == "aa" else gpu_cases.SHORT_TAIL
        steps = base + self._steps[job["effect"]]
        opposing = steps if job["what"] == "planted" else base
        if opposing not in self._incumbents:
            self._incumbents[opposing] = self._tree(opposing)
        incumbent = self._incumbents[opposing]
        candidate = self._tree(steps if job["what"] == "loser" else base)
        for side in (incumbent, candidate):
            self._judge.prepare(side, incumbent)
        return Staged(job, candidate, incumbent)

    def judge_one(self, staged: Staged, confirmations: int) -> dict[str, Any]:
        """Screen and, where it is promising, confirm one candidate; everything worth keeping of it."""
        job, candidate, incumbent = staged.job, staged.candidate, staged.incumbent
        if self._condition == "heat":
            self._heat()
        started = time.perf_counter()
        screening = self._judge.screen(candidate, incumbent, _ignore)
        row = job | {
            "verdict": screening.reason,
            "detail": screening.detail[:300],
            "screened": screening.speedup,
            "blocks": sum(len(p.blocks) for p in screening.pairs),
            "dropped": sum(p.dropped for p in screening.pairs),
            "dropped_for": sorted({cause for p in screening.pairs for cause in p.dropped_for}),
            "screen_seconds": round(time.perf_counter() - started, 3),
        }
        if screening.reason is None:
            alpha = alpha_share(ALPHA, confirmations + 1)
            decided = Decided()
            verdict = self._judge.confirm(candidate, incumbent, incumbent, alpha, decided)
            row |= {
                "verdict": verdict.reason or "kept",
                "detail": verdict.detail[:300],
                "e_value": verdict.e_value,
                "alpha": alpha,
                "pairs": sum(p.stage == "decide" for p in verdict.pairs),
                "confirm_dropped": sum(p.dropped for p in verdict.pairs),
                "speedup": verdict.speedup.model_dump() if verdict.speedup else None,
            }
            if decided.at:
                row["decided_seconds"] = round(decided.at - started, 3)
        return row | {"confirmed": screening.reason is None, "seconds": time.perf_counter() - started}

    def _tree(self, steps: int) -> Side:
        self._made += 1
        tree = self._folder / f"tree-{self._made}"
        return Side(tree=str(gpu_cases.write_workspace(tree, self._kind, steps, f"tree {self._made}")))


def summarise(found: dict[str, Any]) -> list[dict[str, Any]]:
    """One line for each kind of candidate: how many were kept, in how long, with exact limits."""
    groups: dict[tuple[str, str, float], list[dict[str, Any]]] = {}
    for row in found["rows"]:
        groups.setdefault((row["condition"], row["what"], row["effect"]), []).append(row)
    true = {row["planned"]: row["effect"] for row in found["calibration"]}
    return [_line(key, rows, true) for key, rows in groups.items()]


def _line(
    key: tuple[str, str, float], rows: list[dict[str, Any]], true: dict[float, float]
) -> dict[str, Any]:
    kept = [row for row in rows if row["verdict"] == "kept"]
    line: dict[str, Any] = dict(zip(("condition", "what", "effect"), key, strict=True))
    line |= {"candidates": len(rows), "kept": len(kept), "confirmed": sum(r["confirmed"] for r in rows)}
    line |= {"median_seconds": round(statistics.median(r["seconds"] for r in rows), 2)}
    decided = [r["decided_seconds"] for r in kept if "decided_seconds" in r]
    if decided:
        line["median_decided_seconds"] = round(statistics.median(decided), 2)
    line |= {"dropped_blocks": sum(r["dropped"] + r.get("confirm_dropped", 0) for r in rows)}
    line["verdicts"] = {str(v): sum(r["verdict"] == v for r in rows) for v in {r["verdict"] for r in rows}}
    if key[1] != "planted":
        line["kept_upper_95"] = round(upper_limit(len(kept), len(rows)), 5)
    if key[1] == "planted" and kept and key[2] in true:
        speedup = 1 + true[key[2]]
        line["true_speedup"] = round(speedup, 5)
        line["median_speedup"] = round(statistics.median(r["speedup"]["estimate"] for r in kept), 5)
        line["intervals_holding_it"] = sum(
            r["speedup"]["low"] <= speedup <= r["speedup"]["high"] for r in kept
        )
    return line


def _confirmations(rows: list[dict[str, Any]], job: dict[str, Any]) -> int:
    """Confirmations so far in what counts as one run: the alpha of each is spent over these."""
    keys = ("what", "effect", "condition")
    return sum(row["confirmed"] for row in rows if all(row[key] == job[key] for key in keys))


def _ignore(progress: Progress) -> None:
    """Progress is for screens."""


def _parse() -> argparse.Namespace:
    parser = frame.make_parser(__doc__, required=True)
    parser.add_argument("kind", choices=gpu_cases.KINDS)
    parser.add_argument("--aa", type=int, default=1000, help="identical candidates")
    parser.add_argument(
        "--planted",
        type=int,
        nargs="+",
        default=[40],
        help="faster candidates: a number, or one for each effect",
    )
    parser.add_argument("--losers", type=int, default=10, help="slower candidates for each effect")
    parser.add_argument("--effects", type=float, nargs="+", default=[0.005, 0.01, 0.02, 0.05])
    parser.add_argument("--condition", choices=("quiet", "heat", "tenant"), default="quiet")
    parser.add_argument(
        "--seconds", type=float, default=1e9, help="begin no candidate after this time of judging"
    )
    return parser.parse_args()


if __name__ == "__main__":
    with suppress(KeyboardInterrupt):
        main()
