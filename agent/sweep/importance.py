"""Each knob's share in what makes configurations fast, told only where it means something."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hillclimb.agent.sweep.optuna_study import build_study

if TYPE_CHECKING:
    from optuna import Study

    from hillclimb.agent.sweep.landscape import Landscape

MIN_OBSERVATIONS = 30
"""Configurations judged below which no share is told. Simulated with four knobs of 6, 3, 2 and 5 values of which one
moves the speed by 2.5 times the noise: of those told, the first named was right in 5 of 7 at 20 configurations, in 8 of
9 at 30, in 18 of 19 at 50, in 38 of 41 at 100 (60 landscapes each)."""

SHUFFLES = 19
"""Shuffles of the speeds that the largest share must exceed all of. Shares add up to one whatever was measured: of pure
noise the first of four knobs was given 48 % at 10 configurations as at 300. With the shuffles 3 to 8 % of pure noise
was told of at any number of configurations; 1 in 20 is to be expected."""


@dataclass(frozen=True)
class KnobImportances:
    """The shares, or why there are none."""

    shares: dict[str, float] = field(default_factory=dict)
    """Largest first; they add up to one."""
    missing: str = ""
    """Why none are told, in words; empty where they are, and where there are no knobs."""


def compute_importances(landscape: Landscape) -> KnobImportances:
    """Shares by PED-ANOVA (arXiv:2304.10255), where there are enough observations and they stand out from noise."""
    count = len(landscape.observations)
    if not landscape.knobs:
        return KnobImportances()
    if count < MIN_OBSERVATIONS:
        return KnobImportances(missing=f"too few observations ({count} of {MIN_OBSERVATIONS})")
    import optuna

    study = build_study(landscape, optuna.samplers.RandomSampler(seed=0))
    speeds = [trial.value or 0.0 for trial in study.trials]
    found = _weigh(study, speeds)
    if not _stands_out(study, speeds, max(found.values(), default=0.0)):
        return KnobImportances(missing=f"no knob stands out from the noise of {count} observations")
    total = sum(found.values())
    return KnobImportances({name: share / total for name, share in found.items()})


def importances(landscape: Landscape) -> dict[str, float]:
    """The shares alone; empty where none are told."""
    return compute_importances(landscape).shares


def _stands_out(study: Study, speeds: Sequence[float], largest: float) -> bool:
    """Whether no shuffle of the speeds gives any knob as much."""
    rng = random.Random(0)
    shuffled = (rng.sample(speeds, len(speeds)) for _ in range(SHUFFLES))
    return largest > 0 and all(max(_weigh(study, other).values()) < largest for other in shuffled)


def _weigh(study: Study, speeds: Sequence[float]) -> dict[str, float]:
    """Each knob's weight, not normalised, largest first; `speeds` stand for the trials' values."""
    import optuna

    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says that lower targets count as better: hence the minus
        return dict(evaluator.evaluate(study, target=lambda trial: -speeds[trial.number]))
