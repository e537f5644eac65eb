#!/usr/bin/env python3
"""What does an evaluation cost besides importing, compiling, checking and timing the candidate?  On a CPU.

Climbs a small stamped case with many knob values: the real controller, sweep, git and judge, in a repository of its
own. Rejections and wins are told apart, since a win is confirmed over many processes.

    scripts/experiments/overhead.py --candidates 60

Two checkouts are compared in one run by taking turns: --against FOLDER names the other one. Every climb is a part;
until all have ended, the output holds their laps.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(Path(__file__).resolve().parent))

import frame  # noqa: E402
import stopwatch  # noqa: E402

KERNEL = '''\
"""Row sums by NumPy, so many rows at a time; nothing to compile. RS_PAD changes nothing."""

from __future__ import annotations

import numpy as np
from knobs import knob

ROWS, PASSES, PAD = knob("RS_ROWS"), knob("RS_PASSES"), knob("RS_PAD")


def run(x: np.ndarray, s: np.ndarray) -> None:
    for _ in range(PASSES):
        for i in range(0, x.shape[0], ROWS):
            np.sum(x[i : i + ROWS], axis=1, out=s[i : i + ROWS])
'''

KNOBS = """\
RS_ROWS: {type: choice, choices: [1, 2, 4, 8, 32, 256], default: 256}
RS_PASSES: {type: int, low: 1, high: 4, default: 1}
RS_PAD: {type: int, low: 0, high: 999, default: 0}
"""


def main() -> None:
    options = _parse()
    if options.climb:
        print(json.dumps(_climb(options.climb, options.candidates)))
        return
    places = {"this": ROOT} | ({"against": options.against.resolve()} if options.against else {})
    wanted = {"candidates": options.candidates, "rounds": options.rounds, "against": places.get("against")}
    output = frame.Output(options.output, wanted)
    if "rejected" not in output.found:
        _climb_all(output, places, options.candidates, options.rounds)
        output.save(**_figures(output.found.pop("laps")))
    print(json.dumps(output.found, indent=1))


def _climb_all(output: frame.Output, places: dict[str, Path], candidates: int, rounds: int) -> None:
    """Climbs of every checkout, by turns; the output's laps are by checkout and climb."""
    laps: dict[str, list[Any]] = output.found.setdefault("laps", {name: [] for name in places})
    for done in range(rounds):
        for name, root in places.items():
            if len(laps[name]) == done:
                laps[name].append(_climb_apart(root, candidates))
                output.save()


def _figures(climbs: dict[str, list[list[dict[str, Any]]]]) -> dict[str, Any]:
    """From the laps of every checkout's climbs."""
    laps = {name: [lap for climb in found for lap in climb] for name, found in climbs.items()}
    rejected = {
        name: stopwatch.overhead([lap for lap in found if not lap["kept"]]) for name, found in laps.items()
    }
    kept = {name: stopwatch.overhead([lap for lap in found if lap["kept"]]) for name, found in laps.items()}
    return {
        "units": "milliseconds an evaluation; goal: 60",
        "fsync_ms": _fsync_ms(),
        "git_start_ms": _git_start_ms(),
        **({"ratio": _ratios(rejected)} if len(climbs) > 1 else {}),
        "rejected": rejected,
        "kept": {name: found for name, found in kept.items() if found["evaluations"]},
    }


def _ratios(found: dict[str, dict[str, Any]]) -> dict[str, float]:
    """The other checkout's means over this one's."""
    this, other = found["this"], found["against"]
    measures = ("overhead", "cpu", "controller_cpu", "git_cpu")
    ratios = {name: other[name]["mean"] / this[name]["mean"] for name in measures}
    own = {
        name: sum(v["mean"] for part, v in f["parts"].items() if part.startswith("controller"))
        for name, f in found.items()
    }
    return {
        name: round(value, 2)
        for name, value in {**ratios, "controller": own["against"] / own["this"]}.items()
    }


def _climb_apart(root: Path, candidates: int) -> list[dict[str, Any]]:
    """One climb in a process of its own, by the code of the checkout at `root`."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-overhead-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        done = subprocess.run(
            [sys.executable, "-P", __file__, "--climb", name, "--candidates", str(candidates)],
            env={**os.environ, "PYTHONPATH": str(root), "PYTHONDONTWRITEBYTECODE": "1"},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    laps: list[dict[str, Any]] = json.loads(done.stdout.splitlines()[-1])
    return laps


def _climb(folder: Path, candidates: int) -> list[dict[str, Any]]:
    """The laps of one climb."""
    watch = stopwatch.Stopwatch()
    watch.wrap(stopwatch.CONTROLLER)
    rows = folder / "rows.jsonl"
    case = write_case(folder / "repository")
    laps = Laps(watch, rows)
    with stopwatch.watched_judges(rows):
        laps.climb(case, candidates=candidates)
    return laps.taken[1:]  # everything is new to the first one


def _sweep(background: Any) -> Any:
    from hillclimb.agent.sweep.sweep import SweepProposer

    return SweepProposer(background.case.knobs, background.seed, background.lookahead_count)


class Laps:
    """The evaluations of one climb, a lap each."""

    def __init__(self, watch: stopwatch.Stopwatch, rows: Path) -> None:
        self._watch, self._rows, self._seen = watch, rows, 0
        self._git = 0.0
        self.taken: list[dict[str, Any]] = []

    def climb(
        self,
        case: Path,
        *,
        proposer: Callable[[Any], Any] = _sweep,
        candidates: int = 10**6,
        seconds: float = 1e9,
    ) -> Any:
        """Climb until so many candidates are judged or so many seconds are over; the run's ledger."""
        from hillclimb.agent.climb.budget import BudgetOverrides
        from hillclimb.agent.climb.climb import climb
        from hillclimb.agent.climb.request import ClimbRequest, Tools
        from hillclimb.agent.record.ledger import Ledger
        from hillclimb.harness.judge.pool import LocalJudge

        def make_proposer(background: Any) -> Any:
            made = proposer(background)
            made.propose = self._watch.around(made.propose, "propose")
            return made

        finished = climb(
            ClimbRequest(case, tag="measured", budgets=BudgetOverrides(seconds, candidates, patience=10**6)),
            LocalJudge,
            make_proposer,
            Tools(emit=self._watch.around(self._emit, "events"), draw=lambda run: ""),
        )
        return Ledger.read(Path(finished.folder) / "ledger.jsonl")

    def _emit(self, event: Any) -> None:
        if event.event == "proposed" and event.n == 1:
            self._restart()
        if event.event == "judged":
            self._take(event.kept)

    def _restart(self) -> None:
        self._watch.lap()
        self._seen = len(stopwatch.read_rows(self._rows))
        self._git = stopwatch.git_cpu_seconds()

    def _take(self, kept: bool) -> None:
        mine, cpu = self._watch.lap(), self._watch.cpu
        rows = stopwatch.read_rows(self._rows)[self._seen :]
        asked = [
            row for row in rows if row["op"] != "describe"
        ]  # the controller waits for that in its own phase
        lap = {"wall": sum(mine.values()), "kept": kept, "controller": mine, "controller_cpu": cpu}
        lap["judge"] = _sum([row["phases"] for row in asked])
        lap["judge_cpu"] = _sum([row["cpu"] for row in asked])
        lap["git_cpu"] = stopwatch.git_cpu_seconds() - self._git
        self.taken.append(lap)
        self._restart()


def _sum(tables: list[dict[str, float]]) -> dict[str, float]:
    """By name."""
    names = {name for found in tables for name in found}
    return {name: sum(found.get(name, 0.0) for found in tables) for name in names}


def write_case(root: Path) -> Path:
    """A repository with one case, stamped from this checkout's template, its kernel and knobs exchanged."""
    import shutil

    from hillclimb.agent.stamp import create_case

    shutil.copytree(ROOT / "cases" / "_template", root / "cases" / "_template")
    case = create_case(root, "experiments", "overhead", "row sums", "", "any CPU")
    (case / "workspace" / "kernel.py").write_text(KERNEL)
    (case / "workspace" / "knobs.yaml").write_text(KNOBS)
    settings = (case / "case.yaml").read_text().replace("screen_blocks: 12", "screen_blocks: 4")
    (case / "case.yaml").write_text(settings.replace("seeds: 2", "seeds: 1"))
    commit(root)
    return case


def commit(root: Path) -> None:
    """Make the folder a repository with all of it committed."""
    (root / ".gitignore").write_text("/runs/\n")
    git = ("git", "-C", str(root), "-c", "user.name=user", "-c", "user.email=user@example.org")
    for arguments in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "start")):
        subprocess.run([*git, *arguments], check=True)


def _fsync_ms() -> float:
    """Median of appending a line and flushing it, where the climbs were."""
    with tempfile.TemporaryFile(prefix="hillclimb-overhead-") as file:
        return _median_ms(lambda: (file.write(b"x" * 300), file.flush(), os.fsync(file.fileno())))


def _git_start_ms() -> float:
    return _median_ms(lambda: subprocess.run(["git", "--version"], capture_output=True))


def _median_ms(action: Any) -> float:
    seconds = []
    for _ in range(40):
        started = time.perf_counter()
        action()
        seconds.append(time.perf_counter() - started)
    return stopwatch.spread(seconds)["median"]


def _parse() -> argparse.Namespace:
    parser = frame.make_parser(__doc__, default=frame.EVIDENCE / "overhead_cpu.json")
    parser.add_argument("--candidates", type=int, default=60, help="of one climb")
    parser.add_argument("--rounds", type=int, default=1, help="climbs of each checkout")
    parser.add_argument("--against", type=Path, help="another checkout, to compare with")
    parser.add_argument("--climb", type=Path, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
