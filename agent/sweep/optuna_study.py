"""The landscape as an Optuna study: in memory for the sampler, in SQLite for whoever wants to look.

The ledger is the record; every study here is made from it and may be thrown away.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, cast

from hillclimb.agent.sweep.landscape import Configuration, KnobObservation, Landscape
from hillclimb.harness.errors import StorageError
from hillclimb.harness.knobs.knobs import FloatKnob, Knob, Knobs, KnobValue

if TYPE_CHECKING:
    from optuna import Study
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler
    from optuna.storages import BaseStorage
    from optuna.trial import FrozenTrial, Trial

STUDY_NAME = "hillclimb"

MAX_REMEMBERED_BEST = 100
MAX_REMEMBERED_LATEST = 400
"""A proposal is made from so many observations at the most. TPE calls at most 25 of them good, so the best
hundred hold every good one; asking stays at a few tens of milliseconds however long the run grows."""

FAILURE_LOG_PENALTY = math.log(2.0)
"""A configuration that fails counts as half as fast as the slowest one that ran."""


def best_and_latest(observations: Sequence[KnobObservation]) -> list[KnobObservation]:
    """The best and the latest of them, in the order they were made."""
    if len(observations) <= MAX_REMEMBERED_BEST + MAX_REMEMBERED_LATEST:
        return list(observations)
    earlier, latest = observations[:-MAX_REMEMBERED_LATEST], observations[-MAX_REMEMBERED_LATEST:]
    best = sorted(earlier, key=_worth)[-MAX_REMEMBERED_BEST:]
    return [*sorted(best, key=lambda seen: seen.n), *latest]


def _worth(seen: KnobObservation) -> float:
    return -math.inf if seen.value is None else seen.value


def build_study(landscape: Landscape, sampler: BaseSampler) -> Study:
    """A study in memory that remembers what a proposal is made from."""
    import optuna

    study = _create(optuna.storages.InMemoryStorage(), sampler)
    for trial in _trials(landscape, best_and_latest(landscape.observations)):
        study.add_trial(trial)
    return study


def ask_configuration(study: Study, landscape: Landscape) -> Configuration:
    """The sampler's next configuration: finite domains as categories, which TPE searches best."""
    trial = study.ask()
    return {name: _suggest(trial, name, knob) for name, knob in landscape.knobs.items()}


def write_study(landscape: Landscape, path: Path) -> None:
    """Mirror everything observed into SQLite at `path`, replacing what was there in one step.

    Open it with `optuna.load_study(study_name="hillclimb", storage="sqlite:///study.db")`.
    Raises StorageError where the disk refuses.
    """
    import optuna
    from sqlalchemy.pool import StaticPool

    # built in memory and copied whole: with a commit to the disk for each trial 10,000 take twice as long
    storage = optuna.storages.RDBStorage("sqlite://", engine_kwargs={"poolclass": StaticPool})
    try:
        study = _create(storage, optuna.samplers.RandomSampler(seed=0))
        for trial in _trials(landscape, landscape.observations):
            study.add_trial(trial)
        _copy(cast(sqlite3.Connection, storage.engine.raw_connection().driver_connection), path)
    except (OSError, sqlite3.Error) as error:
        raise StorageError(f"{path}: {error}; free that disk or make the path writable") from error
    finally:
        storage.remove_session()
        storage.engine.dispose()


def _copy(database: sqlite3.Connection, path: Path) -> None:
    """Write the database to `path`, whole or not at all."""
    fresh = path.with_name(path.name + ".new")
    fresh.unlink(missing_ok=True)
    try:
        with closing(sqlite3.connect(fresh)) as target:
            database.backup(target)
        fresh.replace(path)
    finally:
        fresh.unlink(missing_ok=True)


def _create(storage: BaseStorage, sampler: BaseSampler) -> Study:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna.create_study(storage=storage, sampler=sampler, study_name=STUDY_NAME, direction="maximize")


def _trials(landscape: Landscape, observations: Iterable[KnobObservation]) -> list[FrozenTrial]:
    from optuna.trial import create_trial

    domains = distributions(landscape.knobs)
    timed = [seen.value for seen in landscape.observations if seen.value is not None]
    floor = min(timed, default=0.0) - FAILURE_LOG_PENALTY
    return [
        create_trial(
            params=seen.configuration,
            distributions=domains,
            value=floor if seen.value is None else seen.value,
            user_attrs={
                "n": seen.n,
                "reason": seen.reason.value if seen.reason else None,
                "stage": seen.estimate.stage if seen.estimate else None,
            },
        )
        for seen in observations
    ]


def distributions(knobs: Knobs) -> dict[str, BaseDistribution]:
    """The domains as Optuna has them: finite ones as categories, which TPE searches best."""
    return {name: _distribution(knob) for name, knob in knobs.items()}


def _distribution(knob: Knob) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if isinstance(knob, FloatKnob):
        return FloatDistribution(knob.low, knob.high, log=knob.log)
    return CategoricalDistribution(knob.values())


def _suggest(trial: Trial, name: str, knob: Knob) -> KnobValue:
    if isinstance(knob, FloatKnob):
        return trial.suggest_float(name, knob.low, knob.high, log=knob.log)
    return cast(KnobValue, trial.suggest_categorical(name, knob.values()))
