"""Sweep alone, edits alone and the rhythm on simulated landscapes: `python -m scripts.experiments.rhythm_landscapes`.

The controller, git, ledger, sweep, re-ablation and rhythm are the real ones. Judge and model are simulated:
tests/fakes/ridge.py says what is assumed of the landscapes, of the noise and of the model. Seed s climbs a landscape of
the kind s modulo 3: knobs dominate, edits dominate, balanced. The rules were chosen on seeds from 100 on.

Reported for each seed: after how many candidates each way of climbing was within 1 % (the minimum effect) of the best
that sweep alone, and that edits alone, had at the end; and the best at the end. Speeds are the true ones of the
incumbents. Who did not get there counts as one candidate more than the budget. A run whose proposer has nothing left
stays where it is. Until all have ended, the output holds the finished climbs.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.climb.climb import climb
from hillclimb.agent.climb.request import ClimbRequest, Tools
from hillclimb.agent.git.repository import Repository
from hillclimb.agent.proposer import Proposer, ProposerContext
from hillclimb.agent.proposers.ablation import AblationProposer
from hillclimb.agent.proposers.mixed import MixedProposer
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.sweep.sweep import SweepProposer
from hillclimb.harness.knobs.knobs import parse_knobs
from scripts.experiments import frame
from tests.fakes.ridge import KINDS, MINIMUM_EFFECT, Ridge, traits_of, true_log_speed, write_ridge
from tests.fakes.ridge_judge import RidgeJudge
from tests.fakes.ridge_model import RidgeModel

Arm = Literal["sweep", "edit", "rhythm"]
ARMS: tuple[Arm, ...] = ("sweep", "edit", "rhythm")
CANDIDATES, SEEDS, PROCESSES = 200, 24, 2
WORKSPACE = "cases/demo/ridge/workspace"


@dataclass(frozen=True)
class Climbed:
    """One run: true log speed over the baseline after each candidate, the baseline first."""

    curve: tuple[float, ...]
    turns: int

    def reaches(self, goal: float, candidates: int) -> int:
        """Candidates until within the minimum effect of `goal`; one more than the budget where it never is."""
        near = goal - math.log1p(MINIMUM_EFFECT)
        return next((n for n, value in enumerate(self.curve) if value >= near), candidates + 1)


class StepClock:
    """A second goes by whenever somebody looks."""

    def __init__(self) -> None:
        self._now = 1_763_700_000.0

    def now(self) -> float:
        self._now += 1.0
        return self._now

    def sleep(self, seconds: float) -> None:
        self._now += seconds


def main() -> int:
    arguments = _arguments()
    wanted = {"seeds": arguments.seeds, "candidates": arguments.candidates}
    output = frame.Output(arguments.output, wanted)
    if "groups" not in output.found:
        runs = climb_all(output, arguments.seeds, arguments.candidates)
        del output.found["climbs"]
        output.save(**summarise(runs, arguments.seeds, arguments.candidates))
    print(show(output.found))
    return 0


def climb_all(output: frame.Output, seeds: int, candidates: int) -> dict[tuple[int, Arm], Climbed]:
    """Every climb, those that the output holds from there."""
    held = output.found.setdefault("climbs", {})
    places = [(seed, arm) for seed in range(seeds) for arm in ARMS]
    jobs = [(seed, arm, candidates) for seed, arm in places if f"{seed} {arm}" not in held]
    began = time.monotonic()
    with ProcessPoolExecutor(PROCESSES) as pool:
        for (seed, arm, _), climbed in zip(jobs, pool.map(_run, jobs), strict=True):
            held[f"{seed} {arm}"] = asdict(climbed)
            output.save()
            print(f"{seed} {arm}: {math.exp(climbed.curve[-1]):.2f}x", file=sys.stderr, flush=True)
    print(f"{len(jobs)} climbs in {time.monotonic() - began:.0f} s")
    found = {(seed, arm): held[f"{seed} {arm}"] for seed, arm in places}
    return {place: Climbed(tuple(climbed["curve"]), climbed["turns"]) for place, climbed in found.items()}


def _arguments() -> argparse.Namespace:
    parser = frame.make_parser(__doc__, default=frame.EVIDENCE / "rhythm_landscapes.json")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="climb seeds 0 up to this one")
    parser.add_argument("--candidates", type=int, default=CANDIDATES)
    return parser.parse_args()


def _run(job: tuple[int, Arm, int]) -> Climbed:
    seed, arm, candidates = job
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        return climb_ridge(Path(folder), Ridge(KINDS[seed % 3], seed), arm, candidates)


def climb_ridge(root: Path, ridge: Ridge, arm: Arm, candidates: int) -> Climbed:
    """One climb through the real controller in a repository made below `root`."""
    case = write_ridge(root)
    (root / ".gitignore").write_text("/runs/\n")
    for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "start"]):
        who = ["-c", "user.name=user", "-c", "user.email=user@example.org"]
        subprocess.run(["git", "-C", str(root), *who, *command], check=True)
    run = root / "runs/demo/ridge" / arm
    climb(
        ClimbRequest(
            case, arm, ridge.seed, None, BudgetOverrides(candidates=candidates, patience=candidates)
        ),
        lambda folder, log: RidgeJudge(ridge),
        lambda background: make_proposer(background, ridge, arm),
        Tools(
            emit=lambda event: None,
            clock=StepClock(),
            draw=lambda folder: "",
        ),
    )
    ledger = Ledger.read(run / "ledger.jsonl")
    return Climbed(_curve(Repository.open(root), ledger, ridge), len(ledger.turns))


def make_proposer(background: ProposerContext, ridge: Ridge, arm: Arm) -> Proposer:
    """Sweep alone and the model alone are what the mixed proposer is made of, too."""
    sweep, model = SweepProposer(background.case.knobs, background.seed), RidgeModel(background, ridge)
    if arm == "sweep":
        return sweep
    return model if arm == "edit" else MixedProposer(background, sweep, model, AblationProposer(background))


def _curve(repository: Repository, ledger: Ledger, ridge: Ridge) -> tuple[float, ...]:
    """The incumbent's true log speed over the baseline, from the commits."""
    assert ledger.opened is not None
    base = _true(repository, ledger.opened.base, ridge)
    values = [0.0]
    for candidate in ledger.candidates:
        judged = candidate.judged
        kept = judged.commit if judged and judged.kept else None
        values.append(_true(repository, kept, ridge) - base if kept else values[-1])
    return tuple(values)


def _true(repository: Repository, commit: str, ridge: Ridge) -> float:
    blobs = repository.list_files(f"{commit}:{WORKSPACE}")
    contents = repository.read([blob.sha for blob in blobs.values()])
    files = {path: content.decode() for path, content in zip(blobs, contents, strict=True)}
    value = true_log_speed(ridge, traits_of(files), parse_knobs(files["knobs.yaml"], Path("knobs.yaml")), {})
    assert value is not None, "what was kept has passed the gate"
    return value


def summarise(runs: dict[tuple[int, Arm], Climbed], seeds: int, candidates: int) -> dict[str, object]:
    """Every seed, and the medians and paired win shares over all of them and over each kind."""
    rows = [_row(seed, {arm: runs[seed, arm] for arm in ARMS}, candidates) for seed in range(seeds)]
    groups = {"all": rows} | {kind: [row for row in rows if row["kind"] == kind] for kind in KINDS}
    return {
        "candidates": candidates,
        "seeds": rows,
        "groups": {name: _group(group) for name, group in groups.items() if group},
    }


def _row(seed: int, climbed: dict[Arm, Climbed], candidates: int) -> dict[str, object]:
    goals = {arm: climbed[arm].curve[-1] for arm in ("sweep", "edit")}
    reached = {
        f"{arm} to best of {goal}": climbed[arm].reaches(value, candidates)
        for goal, value in goals.items()
        for arm in (goal, "rhythm")
    }
    finals = {f"final {arm}": round(math.exp(climbed[arm].curve[-1]), 3) for arm in ARMS}
    return {"seed": seed, "kind": KINDS[seed % 3], **reached, **finals, "turns": climbed["rhythm"].turns}


def _group(rows: list[dict[str, object]]) -> dict[str, float]:
    names = [name for name in rows[0] if name not in ("seed", "kind")]
    found = {f"median {name}": statistics.median(float(str(row[name])) for row in rows) for name in names}
    for goal in ("sweep", "edit"):
        mine, theirs = f"rhythm to best of {goal}", f"{goal} to best of {goal}"
        differences = [float(str(row[mine])) - float(str(row[theirs])) for row in rows]
        found[f"share of seeds in which the rhythm reached the best of {goal} first"] = _share(differences)
        ends = [float(str(row[f"final {goal}"])) - float(str(row["final rhythm"])) for row in rows]
        found[f"share of seeds in which the rhythm ended faster than {goal}"] = _share(ends)
    return found


def _share(differences: list[float]) -> float:
    """Of those below zero; a tie counts half."""
    return round(sum(1.0 if d < 0 else 0.5 if d == 0 else 0.0 for d in differences) / len(differences), 3)


COLUMNS = {
    "sweep there": "median sweep to best of sweep",
    "rhythm there": "median rhythm to best of sweep",
    "first": "share of seeds in which the rhythm reached the best of sweep first",
    "edits there": "median edit to best of edit",
    "rhythm there ": "median rhythm to best of edit",
    "first ": "share of seeds in which the rhythm reached the best of edit first",
    "sweep ends": "median final sweep",
    "edits end": "median final edit",
    "rhythm ends": "median final rhythm",
}
"""Heading -> figure. The first three are about the best of sweep alone, the next three about that of edits alone."""


def show(figures: dict[str, object]) -> str:
    """The groups as a table."""
    groups = figures["groups"]
    assert isinstance(groups, dict)
    lines = [f"{'':10}" + "".join(f"{heading.strip():>14}" for heading in COLUMNS)]
    for name, found in groups.items():
        lines.append(f"{name:10}" + "".join(f"{found[figure]:>14.4g}" for figure in COLUMNS.values()))
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
