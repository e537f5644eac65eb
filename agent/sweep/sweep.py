"""The sweep: tries knob values until the space is exhausted, as our sampler ranks the list of valid configurations.

Those that the case's author wants first come first. Spaces that cannot be listed are left to Optuna's TPE, with a
polish. Every proposal is a function of the seed and the ledger alone: the study is rebuilt and the sampler seeded anew
for each batch, so a run that was killed goes on as if nothing had happened. Within a batch verdicts that are no win do
not matter; where the climb looks ahead, a batch is made without the verdicts of the few before it too, and so is known
before they are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from hillclimb.agent.proposal import Proposal
from hillclimb.agent.sweep.importance import compute_importances, importances
from hillclimb.agent.sweep.landscape import Configuration, Landscape, build_landscape
from hillclimb.agent.sweep.optuna_study import (
    ask_configuration,
    best_and_latest,
    build_study,
    distributions,
)
from hillclimb.agent.sweep.ranking import ListRanker
from hillclimb.agent.sweep.unlisted import drawn, near
from hillclimb.harness.errors import Plateau
from hillclimb.harness.knobs.knobs import Knobs, contains, defaults, to_environment

if TYPE_CHECKING:
    from optuna.samplers import BaseSampler

    from hillclimb.agent.record.ledger import Candidate, Ledger
    from hillclimb.agent.sweep.warm_start import EarlierResult

BATCH_SIZE = 5
"""Verdicts after which the list is ranked anew; a win is taken into account at once."""

ConfigurationSource = Callable[[Landscape, random.Random], Iterator[Configuration]]

STARTUP_CONFIGURATIONS = 10
"""Random configurations before TPE has an opinion."""
POLISH_PERIOD = 3
"""After that, every third proposal of TPE is the incumbent with one knob turned. On the hardest of five recorded kernel
spaces 2 of 12 runs of TPE alone came within 2 % of the best in 100 evaluations, with the polish 5 of 10."""
MAX_REPEATS = 8
"""How often a sampler may repeat what was proposed before the neighbours of the incumbent are tried instead."""
NOT_LISTED = (
    "no more valid knob values were found, and there may be some: they are too many to list, "
    "or too rare to be found by chance"
)


PendingConfigurations = tuple[Configuration, ...]
"""Knob values that were proposed, and whose verdicts are left aside."""


@dataclass(frozen=True)
class _PlannedProposal:
    """A proposal with all that it was made from besides the verdicts up to `known`."""

    at: int
    judged_count: int
    pending: PendingConfigurations
    proposal: Proposal | None
    is_listed: bool = True
    """Whether all configurations that are valid are known."""


@dataclass(frozen=True)
class _Batch:
    """What was asked for with the verdicts up to `known`, in order; more is asked for as it is needed."""

    judged_count: int
    landscape: Landscape
    configurations: list[Configuration]
    more: Iterator[Configuration]

    def __iter__(self) -> Iterator[Configuration]:
        yield from self.configurations
        for configuration in self.more:
            self.configurations.append(configuration)
            yield configuration


class SweepProposer:
    """Proposes knob values that were not tried on the incumbent's source."""

    def __init__(
        self,
        knobs: Knobs,
        seed: int,
        lookahead: int = 0,
        earlier: Sequence[EarlierResult] = (),
        first: Sequence[Configuration] = (),
    ) -> None:
        """`knobs` are those of the run's baseline; what later wins made of them is in the ledger.

        `lookahead`: so many proposals are foreseen; each leaves aside as many of the latest verdicts that were no
        win.
        `earlier`: what earlier runs saw of these knobs; it has to be the same whenever the run is taken up.
        `first`: values to try before any search, in this order; of an incumbent without such knobs they are left out.
        """
        self._knobs, self._seed, self._lookahead = knobs, seed, lookahead
        self._first = first
        self._earlier = [(seen.configuration, seen.value) for seen in earlier]
        self._current_batch: _Batch | None = None
        self._ranking: ListRanker | None = None
        self._planned: list[_PlannedProposal] = []
        """These three save time; what is proposed does not depend on them."""

    def propose(self, ledger: Ledger) -> Proposal | None:
        """The next configuration to try, or None when every one was.

        Raises Plateau where none is found in a space that cannot be listed.
        """
        following = self._next(ledger, ())
        if following.proposal is None and not following.is_listed:
            raise Plateau(NOT_LISTED)
        return following.proposal

    def peek(self, ledger: Ledger, count: int) -> Sequence[Proposal]:
        """See hillclimb.agent.proposer.CanPeek; none on a device where nothing is foreseen."""
        found: list[_PlannedProposal] = []
        coming: list[Configuration] = []
        for _ in range(min(count, self._lookahead)):
            following = self._next(ledger, tuple(coming))
            if following.proposal is None:
                break
            found.append(following)
            coming.append(following.proposal.knobs)
        self._planned = found
        return [following.proposal for following in found if following.proposal]

    def reads_profile(self, ledger: Ledger) -> bool:
        """See hillclimb.agent.proposer.UsesProfile."""
        return False

    def finish(self, ledger: Ledger) -> None:
        """Nothing is ever under way."""

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """By PED-ANOVA over every configuration judged on the current source."""
        return importances(build_landscape(self._knobs, ledger))

    def why_no_importances(self, ledger: Ledger) -> str:
        """See hillclimb.agent.proposer.ExplainsImportances."""
        return compute_importances(build_landscape(self._knobs, ledger)).missing

    def _next(self, ledger: Ledger, coming: PendingConfigurations) -> _PlannedProposal:
        """What is proposed once the configurations in `coming` have been."""
        at = len(ledger.candidates) + len(coming)
        win = ledger.wins[-1].n if ledger.wins else 0
        known = win + max(at - self._lookahead - win, 0) // BATCH_SIZE * BATCH_SIZE
        pending = (*_without_edits(ledger.candidates[known:]), *coming)
        for found in self._planned:
            if (found.at, found.judged_count, found.pending) == (at, known, pending):
                return found
        batch = self._batch(ledger, known)
        rng = random.Random(f"{self._seed}/{at}")
        chosen = next(_untried(batch, pending, rng, self._first), None)
        if chosen is None:
            is_listed = not batch.landscape.knobs or batch.landscape.valid_configs is not None
            return _PlannedProposal(at, known, pending, None, is_listed)
        changes = batch.landscape.changes(chosen)
        proposal = Proposal(author="sweep", idea=describe(changes), knobs=changes)
        return _PlannedProposal(at, known, pending, proposal)

    def _batch(self, ledger: Ledger, known: int) -> _Batch:
        if self._current_batch is None or self._current_batch.judged_count != known:
            landscape = build_landscape(self._knobs, ledger, known)
            rng = random.Random(f"{self._seed}/{known}")
            self._current_batch = _Batch(known, landscape, [], self._sample(landscape, rng))
        return self._current_batch

    def _sample(self, landscape: Landscape, rng: random.Random) -> Iterator[Configuration]:
        """What a sampler would try, one after another, until it has nothing more."""
        from hillclimb.agent.sweep.sampler import SpaceExhausted

        study = build_study(landscape, self._sampler(landscape, rng))
        with suppress(SpaceExhausted):
            while True:
                yield ask_configuration(study, landscape)

    def _sampler(self, landscape: Landscape, rng: random.Random) -> BaseSampler:
        from optuna.samplers import TPESampler

        from hillclimb.agent.sweep.sampler import ListSampler

        seed, listing = rng.getrandbits(32), landscape.valid_configs
        if listing is None:
            return TPESampler(n_startup_trials=STARTUP_CONFIGURATIONS, seed=seed)
        if self._ranking is None or self._ranking.valid_configs is not listing:
            self._ranking = ListRanker(listing)
        return ListSampler(
            distributions(landscape.knobs),
            seed=seed,
            batch=BATCH_SIZE + self._lookahead,
            since=len(best_and_latest(landscape.observations)),
            ranking=self._ranking,
            taken=[seen.configuration for seen in landscape.observations],
            earlier=self._earlier,
        )


def _without_edits(candidates: Sequence[Candidate]) -> Iterator[Configuration]:
    """The knob values of those that try nothing else."""
    return (candidate.proposal.knobs for candidate in candidates if not candidate.proposal.edits)


def describe(changes: Configuration) -> str:
    """`TILE=64, ORDER=ikj`."""
    return ", ".join(f"{name}={text}" for name, text in to_environment(changes).items())


def _untried(
    batch: _Batch, pending: PendingConfigurations, rng: random.Random, first: Sequence[Configuration]
) -> Iterator[Configuration]:
    landscape = batch.landscape
    if not landscape.knobs:
        return
    known = landscape.judged_keys | {
        landscape.key({**defaults(landscape.knobs), **knobs}) for knobs in pending
    }
    for source in (_from_author(first), *_sources(batch, len(pending))):
        for configuration in source(landscape, rng):
            if landscape.key(configuration) not in known and landscape.allows(configuration):
                yield configuration


def _from_author(first: Sequence[Configuration]) -> ConfigurationSource:
    def given(landscape: Landscape, rng: random.Random) -> Iterator[Configuration]:
        knobs, incumbent = landscape.knobs, defaults(landscape.knobs)
        for values in first:
            if all(name in knobs and contains(knobs[name], value) for name, value in values.items()):
                yield {**incumbent, **values}

    return given


def _sources(batch: _Batch, pending: int) -> tuple[ConfigurationSource, ...]:
    """Where the next configuration may come from, the first that has one not tried yet."""

    def sampled(landscape: Landscape, rng: random.Random) -> Iterator[Configuration]:
        return iter(batch) if landscape.valid_configs is not None else islice(batch, MAX_REPEATS + pending)

    if batch.landscape.valid_configs is not None:
        return (sampled,)
    observed = len(batch.landscape.observations) + pending
    if observed > STARTUP_CONFIGURATIONS and observed % POLISH_PERIOD == 0:
        return near, sampled, drawn
    return sampled, near, drawn
