#!/usr/bin/env python3
"""How many candidates an hour, against whom, and what does the GPU wait for?  On cases/demo/triton_softmax.

    scripts/experiments/gpu_throughput.py --minutes 2 --output docs/evidence/gpu_throughput.json

Parts, in this order:
  knobs     a climb by the sweep: gated and duelled candidates an hour, the share of the time that the GPU is measuring,
            overhead an evaluation
  sources   the same with edits of the source: comments and a constant, by turns
  two       the same list of candidates, edits and some knobs, on one GPU alone, then on two of this host at once

--dry tries every part on the CPU that can be tried there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(ROOT)]

import frame  # noqa: E402
import overhead  # noqa: E402
import stopwatch  # noqa: E402

PARTS = ("knobs", "sources", "two")
GOALS = {
    "knobs_per_hour": 1000,
    "sources_per_hour": 400,
    "measuring_share": 0.6,
    "overhead_ms": 60,
    "two_gpus": 1.9,
}
MEASURING = ("gate", "timing")
"""Phases of the judge in which the GPU works on a verdict; drawing inputs is a part of them."""

KNOB_EVERY = 4
"""Of the list that two GPUs go through."""

TRIAL_SECONDS = 120.0
"""Of a plain trial, after which it counts as failed."""


def main() -> None:
    options = _parse()
    if options.child:
        print(json.dumps(_climb_here(json.loads(options.child))))
        return
    names = ("minutes", "gpus", "candidates", "seed", "dry")
    output = frame.Output(options.output, {name: getattr(options, name) for name in names})
    output.found |= {"goals": GOALS, "dry": options.dry}
    for part in options.parts:
        if part in output.found:
            continue
        output.save(**{part: _done(PART[part], options)})
        print(part, json.dumps(_short(output.found[part])), flush=True)


def _done(
    part: Callable[[argparse.Namespace], dict[str, Any]], options: argparse.Namespace
) -> dict[str, Any]:
    started = time.perf_counter()
    found = part(options)
    return {**found, "part_seconds": round(time.perf_counter() - started, 1)}


def _short(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if not isinstance(value, list | dict)}


# --- climbs ---------------------------------------------------------------------------------------------------------


def knobs(options: argparse.Namespace) -> dict[str, Any]:
    return summarise(_climb_apart(options, proposer="sweep", seconds=60 * options.minutes))


def sources(options: argparse.Namespace) -> dict[str, Any]:
    return summarise(_climb_apart(options, proposer="edits", seconds=60 * options.minutes))


def two(options: argparse.Namespace) -> dict[str, Any]:
    """Candidates an hour of two climbs at once over those of one, of the candidates that all three came to."""
    gpus = options.gpus
    if len(gpus) < 2:
        return {"skipped": "give two GPUs with --gpus 0 1"}
    seconds = 60 * options.minutes
    (alone,) = _together(options, gpus[:1], seconds)
    climbs = [alone, *_together(options, gpus[:2], seconds)]
    return side_by_side(climbs)


def side_by_side(climbs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first one's rate against the sum of the others', each over the candidates that all of them came to."""
    common = min(len(climb["laps"]) for climb in climbs)
    alone, *both = (_rate(climb["laps"][:common]) for climb in climbs)
    return {
        "candidates": [len(climb["laps"]) for climb in climbs],
        "alone_per_hour": alone,
        "both_per_hour": both,
        "factor": round(sum(both) / alone, 3) if alone else None,
        "devices": [climb["device"] for climb in climbs],
        "overhead_ms": [stopwatch.overhead(climb["laps"])["overhead"] for climb in climbs],
        "verdicts": compare_verdicts([climb["verdicts"] for climb in climbs]),
        "milliseconds": [[_phases(lap) for lap in climb["laps"]] for climb in climbs],
    }


def _phases(lap: dict[str, Any]) -> dict[str, int]:
    """Of one candidate: all of it, and what its work took by phase."""
    work = {name: lap["judge"].get(name, 0.0) for name in stopwatch.WORK}
    return {name: round(1e3 * seconds) for name, seconds in {"wall": lap["wall"], **work}.items() if seconds}


def compare_verdicts(runs: Sequence[Sequence[str]]) -> dict[str, Any]:
    """How many candidates that all runs came to were kept by all or by none; and those that were not."""
    rows = list(zip(*runs, strict=False))
    odd = [
        {"n": n, "verdicts": list(row)}
        for n, row in enumerate(rows, 1)
        if len({verdict == "kept" for verdict in row}) > 1
    ]
    return {"compared": len(rows), "kept_by_some_only": odd}


def summarise(climb: dict[str, Any]) -> dict[str, Any]:
    """Rates and shares of one climb's evaluations."""
    laps = climb["laps"]
    wall = sum(lap["wall"] for lap in laps)
    measuring = sum(lap["judge"].get(name, 0.0) for lap in laps for name in MEASURING)
    timing = sum(lap["judge"].get("timing", 0.0) for lap in laps)
    return {
        "candidates": len(laps),
        "kept": sum(lap["kept"] for lap in laps),
        "seconds": round(wall, 1),
        "per_hour": round(3600 * len(laps) / wall, 1) if wall else 0.0,
        "rejected_per_hour": _rate([lap for lap in laps if not lap["kept"]]),
        "measuring_share": round(measuring / wall, 3) if wall else 0.0,
        "timing_share": round(timing / wall, 3) if wall else 0.0,
        "device": climb["device"],
        "speedup": climb["speedup"],
        "verdicts": {verdict: climb["verdicts"].count(verdict) for verdict in sorted(set(climb["verdicts"]))},
        "evaluations": stopwatch.overhead(laps),
        "rejected": stopwatch.overhead([lap for lap in laps if not lap["kept"]]),
    }


def _rate(laps: list[dict[str, Any]]) -> float:
    """Candidates an hour, had there been no others."""
    wall = sum(lap["wall"] for lap in laps)
    return round(3600 * len(laps) / wall, 1) if wall else 0.0


def _climb_apart(options: argparse.Namespace, **order: Any) -> dict[str, Any]:
    """One climb in a process of its own."""
    gpu = options.gpus[0] if options.gpus else None
    with _started(_order(options, **order), gpu) as process:
        return _result(process)


def _together(options: argparse.Namespace, gpus: Sequence[str], seconds: float) -> list[dict[str, Any]]:
    """The scripted climb on each of these GPUs at the same time."""
    order = _order(options, proposer="list", seconds=seconds)
    processes = [_start(order, gpu) for gpu in gpus]
    try:
        return [_result(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _order(options: argparse.Namespace, **order: Any) -> dict[str, Any]:
    most = options.candidates
    return {"case": "demo", "dry": options.dry, "seed": options.seed, "candidates": most, **order}


def _start(order: dict[str, Any], gpu: str | None) -> subprocess.Popen[str]:
    chosen = {"HILLCLIMB_GPU": gpu} if gpu else {}
    return subprocess.Popen(
        [sys.executable, __file__, "--output", os.devnull, "--child", json.dumps(order)],
        env={**os.environ, **chosen, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def _started(order: dict[str, Any], gpu: str | None) -> Iterator[subprocess.Popen[str]]:
    process = _start(order, gpu)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _result(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a climb ended with status {process.returncode}; what it said stands above")
    climb: dict[str, Any] = json.loads(output.splitlines()[-1])
    return climb


def _climb_here(order: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: a repository, a climb, its laps and verdicts."""
    watch = stopwatch.Stopwatch()
    watch.wrap(stopwatch.CONTROLLER)
    with tempfile.TemporaryDirectory(prefix="hillclimb-throughput-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        case = write_repository(folder / "repository", order)
        laps = overhead.Laps(watch, folder / "rows.jsonl")
        with stopwatch.watched_judges(folder / "rows.jsonl"):
            ledger = laps.climb(
                case,
                proposer=PROPOSERS[order["proposer"]],
                seconds=order["seconds"],
                candidates=order["candidates"],
            )
        opened = ledger.opened
        return {
            "laps": laps.taken,
            "device": f"{opened.provenance.device} {opened.provenance.device_id}" if opened else "",
            "verdicts": [verdict for c in ledger.candidates if (verdict := _verdict(c))],
            "speedup": ledger.cumulative,
            "knobs": _wins(ledger),
        }


def _verdict(candidate: Any) -> str:
    judged = candidate.judged
    return "" if judged is None else "kept" if judged.kept else str(judged.reason)


def _wins(ledger: Any) -> dict[str, Any]:
    """The knob values that the wins left as defaults."""
    values: dict[str, Any] = {}
    for win in ledger.wins:
        values |= win.proposal.knobs
    return values


def write_repository(root: Path, order: dict[str, Any]) -> Path:
    """A repository with the case that is climbed, and its folder."""
    if order["dry"]:
        return overhead.write_case(root)
    case = root / "cases" / "demo" / "triton_softmax"
    ignore = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "cases" / "demo" / "triton_softmax", case, ignore=ignore)
    overhead.commit(root)
    return case


class Edits:
    """Edits kernel.py: a comment, then a constant that is compiled in, by turns; knows what it will propose."""

    def __init__(self, background: Any) -> None:
        self._files = background.files

    def propose(self, ledger: Any) -> Any:
        return self._edit(ledger, len(ledger.candidates) + 1)

    def peek(self, ledger: Any, count: int) -> list[Any]:
        after = len(ledger.candidates) + 1
        return [self._edit(ledger, n) for n in range(after, after + count)]

    def _edit(self, ledger: Any, n: int) -> Any:
        from hillclimb.agent.proposal import Edit, Proposal

        text = self._files(ledger.incumbent)["kernel.py"].split("\n# edit ")[0]
        if n % 2 == 0:
            text = text.replace("-2e38", f"-1.{n:04d}e38")
        edit = Edit(path="kernel.py", content=f"{text}\n# edit {n}\n")
        return Proposal(author="agent", idea=f"edit {n}", edits=(edit,))

    def importances(self, ledger: Any) -> dict[str, float]:
        return {}

    def reads_profile(self, ledger: Any) -> bool:
        """Never: what comes next is known."""
        return False

    def finish(self, ledger: Any) -> None:
        """Nothing is ever under way."""


class Listed(Edits):
    """Edits, and every fourth time a knob's value, out of a list that is the same for everyone, whatever comes of it.

    Of the start's knobs every other value may win, and a win takes ten times as long as what is rejected.
    """

    def __init__(self, background: Any) -> None:
        super().__init__(background)
        self._knobs = background.case.knobs
        self._seed = background.seed

    def _edit(self, ledger: Any, n: int) -> Any:
        from hillclimb.agent.proposal import Proposal

        if n % KNOB_EVERY:
            return super()._edit(ledger, n)

        rng = random.Random(f"{self._seed}/{n}")
        name = rng.choice(sorted(self._knobs))
        knob = self._knobs[name]
        value = rng.choice([v for v in knob.values() or () if v != knob.default])
        return Proposal(author="sweep", idea=f"{n}: {name}={value}", knobs={name: value})


def _sweep(background: Any) -> Any:
    from hillclimb.agent.machine.config import Config
    from hillclimb.agent.proposers.choose import ProposerKind, ProposerOptions, choose_proposer

    wishes = ProposerOptions(ProposerKind.SWEEP, None, None, None, None, None, None)
    return choose_proposer(wishes, Config(), background.case.settings, lambda action: None)(background)


PROPOSERS: dict[str, Callable[[Any], Any]] = {"sweep": _sweep, "edits": Edits, "list": Listed}


PART = {"knobs": knobs, "sources": sources, "two": two}


def _parse() -> argparse.Namespace:
    parser = frame.make_parser(__doc__, required=True)
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=3.0, help="of each climb")
    parser.add_argument(
        "--gpus", nargs="+", default=[], help="indices or UUIDs; without: as HILLCLIMB_GPU says"
    )
    parser.add_argument("--candidates", type=int, default=10**6, help="of each climb, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry", action="store_true", help="a small case on the CPU instead")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
