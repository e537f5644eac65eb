"""The sampler: an Optuna `BaseSampler` for knob spaces that can be listed.

It takes configurations from the valid list, constraints included, as `agent.sweep.ranking` ranks them, in batches:
within one, what was told since does not matter, so all of it can be prepared at once. A study that was killed goes on
as if nothing had happened, since what is asked follows from the seed and the study's trials alone.

    study = optuna.create_study(direction="maximize", sampler=ListSampler(space, ["A * B <= 4096"], seed=0))
    trial = study.ask(space)

Failed and pruned trials count as bad; running ones are not asked for again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler, TPESampler
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from hillclimb.agent.sweep.ranking import EvaluatedRows, ListRanker
from hillclimb.agent.sweep.valid_configs import ValidConfigs, enumerate_valid
from hillclimb.harness.errors import UsageError
from hillclimb.harness.knobs.knobs import KnobValue

if TYPE_CHECKING:
    import numpy as np
    from optuna import Study

BATCH_SIZE = 5
"""Configurations that are ranked at once."""

SearchSpace = Mapping[str, BaseDistribution]
PastEvaluation = tuple[Mapping[str, KnobValue], float | None]
"""A configuration and its value, larger is better; None where it failed."""


class SpaceExhausted(UsageError):
    """Every configuration of the valid list was tried, or is being tried."""


class ListSampler(BaseSampler):
    """Ranks the valid list of a finite space; a space that cannot be listed is left to Optuna's TPE."""

    def __init__(
        self,
        space: SearchSpace,
        constraints: Sequence[str] = (),
        *,
        seed: int = 0,
        batch: int = BATCH_SIZE,
        since: int = 0,
        ranking: ListRanker | None = None,
        taken: Sequence[Mapping[str, KnobValue]] = (),
        earlier: Sequence[PastEvaluation] = (),
    ) -> None:
        """`constraints`: expressions over the names of the space, see hillclimb.harness.knobs.constraints.

        `batch`: so many trials must have finished before what was told meanwhile counts; `since`: the number of
        finished trials that the first batch begins at.
        `ranking`: of the valid list, where it is known; names and domains are those of the space.
        `taken`: configurations that are not to be asked for, besides those of the study's trials.
        `earlier`: what other studies of the same space saw.
        Raises InvalidConstraint for an expression that is none.
        """
        self._space, self._seed, self._batch, self._since = dict(space), seed, batch, since
        listing = None if ranking else list_space(space, constraints)
        self._ranking = ranking or (ListRanker(listing) if listing else None)
        self._tpe = TPESampler(seed=seed)
        self._taken, self._earlier = taken, earlier
        self._plan: tuple[int, list[int]] = (-1, [])
        """Trials that were known when the batch was ranked, and its rows."""

    def infer_relative_search_space(self, study: Study, trial: FrozenTrial) -> dict[str, BaseDistribution]:
        """The whole space; what TPE makes of the study where it cannot be listed."""
        if self._ranking:
            return self._space
        return self._tpe.infer_relative_search_space(study, trial)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        """The next configuration. Raises SpaceExhausted where every valid one was asked for."""
        if self._ranking is None:
            return self._tpe.sample_relative(study, trial, search_space)
        others = [past for past in study.get_trials(deepcopy=False) if past.number != trial.number]
        finished = [past for past in others if past.state.is_finished()]
        known = len(finished) - (len(finished) - self._since) % self._batch
        rest = [*finished[known:], *(past for past in others if not past.state.is_finished())]
        row = self._next_row(self._ranking, self._evaluated_rows(finished[:known], study), rest)
        return dict(self._ranking.valid_configs.configuration(row))

    def sample_independent(
        self, study: Study, trial: FrozenTrial, param_name: str, param_distribution: BaseDistribution
    ) -> Any:
        """What is no part of the list, as Optuna's TPE suggests it."""
        return self._tpe.sample_independent(study, trial, param_name, param_distribution)

    def reseed_rng(self) -> None:
        """Nothing to do: all chance comes from the seed and the number of finished trials."""

    def _next_row(self, ranking: ListRanker, seen: EvaluatedRows, rest: Sequence[FrozenTrial]) -> int:
        """The first row of the batch that no trial has."""
        import numpy as np

        known, pending = len(seen.rows), self._rows([past.params for past in rest])
        if self._plan[0] != known:
            rng = np.random.default_rng([self._seed, known])
            self._plan = known, ranking.next_rows(seen, self._excluded, self._batch, rng, self._past_rows)
        for row in self._plan[1]:
            if row not in pending:
                return row
        rng = np.random.default_rng([self._seed, known, len(pending)])
        taken = np.concatenate([self._excluded, pending])
        more = ranking.next_rows(seen, taken, self._batch, rng, self._past_rows)
        if not more:
            raise SpaceExhausted("every valid configuration was asked for; stop asking")
        self._plan = known, [*self._plan[1], *more]
        return more[0]

    def _evaluated_rows(self, trials: Sequence[FrozenTrial], study: Study) -> EvaluatedRows:
        """The trials as rows and values, the larger the better; those elsewhere are left out."""
        import numpy as np

        sign = 1.0 if study.direction == StudyDirection.MAXIMIZE else -1.0
        rows = self._rows([past.params for past in trials], all_of_them=True)
        values = np.array([_worth(past) for past in trials], dtype=float) * sign
        return EvaluatedRows(rows[rows >= 0], values[rows >= 0])

    @cached_property
    def _excluded(self) -> np.ndarray:
        return self._rows(self._taken)

    @cached_property
    def _past_rows(self) -> EvaluatedRows | None:
        import numpy as np

        rows = self._rows([configuration for configuration, _ in self._earlier], all_of_them=True)
        values = np.array([np.nan if value is None else value for _, value in self._earlier], dtype=float)
        return EvaluatedRows(rows[rows >= 0], values[rows >= 0]) if (rows >= 0).any() else None

    def _rows(
        self, configurations: Sequence[Mapping[str, KnobValue]], all_of_them: bool = False
    ) -> np.ndarray:
        assert self._ranking is not None
        rows = self._ranking.valid_configs.find_rows(configurations)
        return rows if all_of_them else rows[rows >= 0]


def list_space(space: SearchSpace, constraints: Sequence[str] = ()) -> ValidConfigs | None:
    """The valid list of a space; None where it is continuous or too long."""
    domains = {name: _values(distribution) for name, distribution in space.items()}
    finite = {name: values for name, values in domains.items() if values is not None}
    return enumerate_valid(finite, constraints) if len(finite) == len(domains) else None


def _values(distribution: BaseDistribution) -> Sequence[KnobValue] | None:
    """The values of a finite distribution; None for a continuous one."""
    if isinstance(distribution, CategoricalDistribution):
        return cast(Sequence[KnobValue], distribution.choices)
    if isinstance(distribution, IntDistribution) and not distribution.log:
        return range(distribution.low, distribution.high + 1, distribution.step)
    return None


def _worth(trial: FrozenTrial) -> float:
    """A trial's value; nan where it failed, was pruned, or has none."""
    return math.nan if trial.state != TrialState.COMPLETE or trial.value is None else trial.value
