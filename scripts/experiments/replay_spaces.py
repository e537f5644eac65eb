#!/usr/bin/env python3
"""How soon does a search come within 2 % of the best?  On exhaustively recorded tuning spaces; no GPU needed.

    python -m scripts.experiments.replay_spaces DIR --kernel-tuner /tmp/kt/bin/python

DIR holds spaces as kernel_tuner caches them, `*.json` or `*.json.gz` (those of its benchmark hub, say); they stay
outside the repository. kernel_tuner lives in an environment of its own, since its pins are not ours:

    python3 -m venv /tmp/kt && /tmp/kt/bin/pip install kernel_tuner==1.5.0

Every strategy gets the same budget of unique configurations of the valid list (what the cache holds), and those that
fail count. It starts from nothing: no default, no earlier run. What a sampler of Optuna's asks for outside the valid
list is told to be as bad as a failure and does not count; after 10 such, or repetitions, a random one is its next.
`sweep` is agent.sweep.sampler.ListSampler through `study.ask` and `study.tell`, in batches as the sweep makes them
on a CPU; `sweep ahead 3` as on a GPU, where the three verdicts before a batch are not known to it either.

Reported of each space: the share of seeds within 2 % of the best after 100 and 200 evaluations, and the median of
evaluations until then (null where fewer than half came there); over all spaces the means of the shares, each space
weighing alike. `--noise 0.005` multiplies what strategies (not the count) see by lognormal noise. Every strategy on
a space is a part.
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
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import optuna

from hillclimb.agent.sweep.ranking import ListRanker
from hillclimb.agent.sweep.sampler import BATCH_SIZE, ListSampler, SpaceExhausted
from hillclimb.agent.sweep.valid_configs import ValidConfigs
from scripts.experiments import frame

NEAR = 1.02
CHECKPOINTS = (100, 200)
SEEDS = 20
HUGE = 1e10
"""Milliseconds from which on a time means a failure, by kernel_tuner's older caches."""
KERNEL_TUNER = (
    "adaptive_tabu_greywolf",
    "genetic_algorithm",
    "simulated_annealing",
    "greedy_ils",
    "diff_evo",
    "random_sample",
)
INSTALL = "python3 -m venv /tmp/kt; /tmp/kt/bin/pip install kernel_tuner==1.5.0, then --kernel-tuner /tmp/kt/bin/python"


@dataclass(frozen=True, eq=False)
class Recorded:
    """One space and what every configuration of its valid list took."""

    name: str
    path: Path
    listing: ValidConfigs
    """Knobs with one value only are left out."""
    times: np.ndarray = field(repr=False)
    """(configurations,) of float64, in milliseconds; nan where it failed."""
    keys: Mapping[str, int] = field(repr=False)
    """kernel_tuner's name of a configuration -> its row."""

    @property
    def goal(self) -> float:
        return float(np.nanmin(self.times)) * NEAR


def load(path: Path) -> Recorded:
    """A cache of kernel_tuner's. Raises SystemExit where the file is none."""
    with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
        document = json.load(file)
    try:
        cache: dict[str, dict[str, Any]] = document["cache"]
        names: list[str] = document["tune_params_keys"]
        used = {name: {json.dumps(row[name]): row[name] for row in cache.values()} for name in names}
        times = np.array([_time(row["time"]) for row in cache.values()])
    except (KeyError, TypeError) as error:
        raise SystemExit(
            f"{path}: is no cache of kernel_tuner ({error!r}); leave it out of the folder"
        ) from None
    domains = {name: _in_order(list(values.values())) for name, values in used.items() if len(values) > 1}
    places = [{json.dumps(value): at for at, value in enumerate(domain)} for domain in domains.values()]
    rows = [
        [place[json.dumps(row[name])] for name, place in zip(domains, places, strict=True)]
        for row in cache.values()
    ]
    listing = ValidConfigs(
        tuple(domains), tuple(map(tuple, domains.values())), np.array(rows, dtype=np.int16)
    )
    return Recorded(
        path.name.split(".")[0], path, listing, times, {key: row for row, key in enumerate(cache)}
    )


def _time(value: object) -> float:
    """What the cache says; nan where it says that nothing could be timed."""
    is_timed = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < HUGE
    return float(value) if is_timed and isinstance(value, int | float) else math.nan


def _in_order(values: list[Any]) -> list[Any]:
    return sorted(values) if all(isinstance(value, int | float) for value in values) else values


@dataclass(frozen=True)
class Told:
    """What a strategy sees of a space: log speeds, noisy if wished, the same whenever it looks."""

    space: Recorded
    seed: int
    noise: float

    def value(self, row: int) -> float | None:
        """Log of one over milliseconds; None where it fails."""
        if not math.isfinite(self.space.times[row]):
            return None
        rng = np.random.default_rng([self.seed, row])
        return -math.log(self.space.times[row]) + self.noise * float(rng.standard_normal())


Strategy = Callable[[Told, int], Iterator[int]]
"""(what it sees, budget) -> rows in the order in which it tries them, repetitions included."""


def sweep(told: Told, budget: int, ahead: int = 0) -> Iterator[int]:
    """Our sampler, `ahead` configurations asked for before the first of them is told."""
    listing = told.space.listing
    sampler = ListSampler(_space(listing), seed=told.seed, batch=BATCH_SIZE, ranking=ListRanker(listing))
    study = optuna.create_study(direction="maximize", sampler=sampler)
    asked: list[tuple[optuna.Trial, int]] = []
    for _ in range(budget):
        try:
            trial = study.ask(_space(listing))
        except SpaceExhausted:
            return
        row = int(listing.find_rows([trial.params])[0])
        asked.append((trial, row))
        yield row
        if len(asked) > ahead:
            _tell(study, *asked.pop(0), told)


def optuna_sampler(
    told: Told, budget: int, make: Callable[[int], optuna.samplers.BaseSampler]
) -> Iterator[int]:
    """A sampler of Optuna's over categories; where it repeats itself too often, a random configuration is its next."""
    listing, rng, tried = told.space.listing, np.random.default_rng(told.seed), set[int]()
    study = optuna.create_study(direction="maximize", sampler=make(told.seed))
    while len(tried) < min(budget, len(listing)):
        for _ in range(PATIENCE):
            trial = study.ask(_space(listing))
            row = int(listing.find_rows([trial.params])[0])
            if row not in tried and row >= 0:
                break
            _tell(study, trial, row, told)
        else:
            row = int(rng.choice(np.setdiff1d(np.arange(len(listing)), list(tried))))
            study.enqueue_trial(listing.configuration(row))
            trial = study.ask(_space(listing))
        tried.add(row)
        yield row
        _tell(study, trial, row, told)


def _space(listing: ValidConfigs) -> dict[str, optuna.distributions.BaseDistribution]:
    return {
        name: optuna.distributions.CategoricalDistribution(domain)
        for name, domain in zip(listing.names, listing.domains, strict=True)
    }


def _tell(study: optuna.Study, trial: optuna.Trial, row: int, told: Told) -> None:
    value = told.value(row) if row >= 0 else None
    is_ours = isinstance(study.sampler, ListSampler)
    if value is None and is_ours:
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
    else:
        study.tell(trial, _as_bad_as_a_failure(told) if value is None else value)


def _as_bad_as_a_failure(told: Told) -> float:
    """Half as fast as the slowest there is; what TPE is told, which leaves failed trials aside."""
    return -math.log(2 * float(np.nanmax(told.space.times)))


PATIENCE = 10
"""Asks in a row that lead to nothing new."""

STRATEGIES: dict[str, Strategy] = {
    "sweep": sweep,
    "sweep ahead 3": partial(sweep, ahead=3),
    "optuna random": partial(optuna_sampler, make=lambda seed: optuna.samplers.RandomSampler(seed=seed)),
    "optuna tpe": partial(optuna_sampler, make=lambda seed: optuna.samplers.TPESampler(seed=seed)),
    "optuna tpe multivariate": partial(
        optuna_sampler,
        make=lambda seed: optuna.samplers.TPESampler(seed=seed, multivariate=True),
    ),
}


def evaluations(space: Recorded, rows: Iterator[int], budget: int) -> int | None:
    """Unique configurations tried when the first one within 2 % of the best was; None where none was."""
    tried: set[int] = set()
    for row in rows:
        tried.add(row)
        if len(tried) > budget:
            return None
        if space.times[row] <= space.goal:
            return len(tried)
    return None


def replay_kernel_tuner(
    python: str, space: Recorded, strategy: str, seeds: int, budget: int
) -> list[int | None]:
    """kernel_tuner's own strategies, simulated by itself in its own environment. Raises SystemExit where that fails."""
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / "space.json"
        text = (
            gzip.decompress(space.path.read_bytes())
            if space.path.suffix == ".gz"
            else space.path.read_bytes()
        )
        unpacked.write_bytes(text)
        worker = Path(__file__).with_name("replay_kernel_tuner.py")
        command = [python, str(worker), str(unpacked), strategy, str(seeds), str(budget)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode:
        raise SystemExit(f"kernel_tuner's {strategy} on {space.name} failed:\n{done.stderr[-2000:]}")
    orders: list[list[str]] = json.loads(done.stdout.splitlines()[-1])
    return [evaluations(space, iter([space.keys[key] for key in order]), budget) for order in orders]


def summarize(found: Sequence[int | None]) -> dict[str, Any]:
    """The shares within 2 % at each checkpoint, and the median of evaluations until then."""
    reached = sorted(math.inf if one is None else one for one in found)
    middle = statistics.median_high(reached)
    shares = {
        f"within_2%_after_{n}": round(sum(one <= n for one in reached) / len(reached), 4) for n in CHECKPOINTS
    }
    return {**shares, "median_evaluations": None if math.isinf(middle) else middle}


def overall(spaces: Mapping[str, Mapping[str, dict[str, Any]]]) -> dict[str, dict[str, float]]:
    """Means over spaces, by strategy."""
    keys = [f"within_2%_after_{n}" for n in CHECKPOINTS]
    strategies = list(dict.fromkeys(name for figures in spaces.values() for name in figures))
    return {
        name: {
            key: round(statistics.fmean(f[name][key] for f in spaces.values() if name in f), 4)
            for key in keys
        }
        for name in strategies
    }


def _find_kernel_tuner(given: str | None) -> str | None:
    if given is None:
        return sys.executable if find_spec("kernel_tuner") else None
    done = subprocess.run([given, "-c", "import kernel_tuner"], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{given} has no kernel_tuner; install it: {INSTALL}")
    return given


def _line(name: str, figures: Mapping[str, Any]) -> str:
    shares = "  ".join(f"{figures[f'within_2%_after_{n}']:6.1%}" for n in CHECKPOINTS)
    return f"  {name:32}{shares}  {figures.get('median_evaluations') or '':>5}"


def main() -> None:
    arguments = _parse()
    settings = {name: getattr(arguments, name) for name in ("seeds", "budget", "noise")}
    output = frame.Output(arguments.output, {"folder": arguments.folder.resolve(), **settings})
    output.found |= settings
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    paths = sorted(
        path for path in arguments.folder.glob("*.json*") if path.name.endswith((".json", ".json.gz"))
    )
    if not paths:
        raise SystemExit(
            f"{arguments.folder}: holds no *.json or *.json.gz; name the folder of recorded spaces"
        )
    python = _find_kernel_tuner(arguments.kernel_tuner)
    if python is None:
        print(
            f"kernel_tuner is missing, so its strategies are left out; install it: {INSTALL}", file=sys.stderr
        )
    theirs = [name for name in KERNEL_TUNER if python] if not arguments.noise else []
    wanted = [name for name in [*STRATEGIES, *theirs] if not arguments.only or name in arguments.only]
    spaces: dict[str, dict[str, dict[str, Any]]] = output.found.setdefault("spaces", {})
    for path in paths:
        space = load(path)
        print(
            f"{space.name}: {len(space.listing)} valid, {int(np.isnan(space.times).sum())} of them fail",
            flush=True,
        )
        figures = spaces.setdefault(space.name, {})
        for name in wanted:
            began = time.monotonic()
            if name not in figures:
                figures[name] = summarize(replay(space, name, python, arguments))
                output.save(mean=overall(spaces))
            print(f"{_line(name, figures[name])}  {time.monotonic() - began:6.1f} s", flush=True)
    print(f"mean of {len(spaces)} spaces, {arguments.seeds} seeds")
    for name, means in overall(spaces).items():
        print(_line(name, means))


def replay(space: Recorded, name: str, python: str | None, arguments: argparse.Namespace) -> list[int | None]:
    """One strategy on one space, by every seed."""
    if name not in STRATEGIES:
        return replay_kernel_tuner(str(python), space, name, arguments.seeds, arguments.budget)
    views = [Told(space, seed, arguments.noise) for seed in range(arguments.seeds)]
    budget = arguments.budget
    return [evaluations(space, STRATEGIES[name](told, budget), budget) for told in views]


def _parse() -> argparse.Namespace:
    parser = frame.make_parser(__doc__)
    parser.add_argument("folder", type=Path, metavar="DIR", help="recorded spaces, *.json or *.json.gz")
    parser.add_argument(
        "--kernel-tuner", metavar="PYTHON", help="a Python that has kernel_tuner; else this one"
    )
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--budget", type=int, default=max(CHECKPOINTS), help="unique configurations a run")
    parser.add_argument(
        "--noise", type=float, default=0.0, help="standard deviation of the log of what is seen"
    )
    parser.add_argument(
        "--only", action="append", default=[], metavar="STRATEGY", help="may be given several times"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
