"""The sweep: tries knob values, by Optuna's TPE over the domains, until the space is exhausted.

Every proposal is a function of the seed and the ledger alone: the study is rebuilt and the sampler seeded
anew each time, so a run that was killed goes on as if nothing had happened. Where the climb looks ahead, a proposal
is made without the verdicts of the few before it, and so is known before they are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

from agent.proposal import Proposal
from agent.proposers.landscape import Configuration, Landscape, survey
from agent.proposers.study import ask, build_study, importances
from harness.case.knobs import Knobs, defaults, draw, to_environment

if TYPE_CHECKING:
    from agent.ledger import Candidate, Ledger

Source = Callable[[Landscape, random.Random], Iterator[Configuration]]

STARTUP = 10
"""Random configurations before TPE has an opinion."""
POLISH_EVERY = 3
"""After that, every third proposal is the incumbent with one knob turned. On the hardest of five recorded kernel
spaces 2 of 12 runs of TPE alone came within 2 % of the best in 100 evaluations, with the polish 5 of 10."""
ATTEMPTS = 8
"""How often TPE may repeat itself before the neighbours of the incumbent are tried instead."""
SMALL = 20_000
"""Largest space whose untried remainder is listed outright."""
DRAWS = 1000
"""Random draws from a larger space before it counts as exhausted."""


Pending = tuple[Configuration, ...]
"""Knob values that were proposed, and whose verdicts are left aside."""


@dataclass(frozen=True)
class _Foreseen:
    """A proposal with all that it was made from besides the verdicts up to `known`."""

    at: int
    known: int
    pending: Pending
    proposal: Proposal | None


class Sweep:
    """Proposes knob values that were not tried on the incumbent's source."""

    def __init__(self, knobs: Knobs, seed: int, ahead: int = 0) -> None:
        """`knobs` are those of the run's baseline; what later wins made of them is in the ledger.

        `ahead`: so many proposals are foreseen, since each leaves aside the latest `ahead` verdicts that were no win.
        """
        self._knobs, self._seed, self._ahead = knobs, seed, ahead
        self._foreseen: list[_Foreseen] = []
        """So that nothing is asked of the study twice; what is proposed does not depend on it."""

    def propose(self, ledger: Ledger) -> Proposal | None:
        """The next configuration to try, or None when every one was."""
        return self._next(ledger, ()).proposal

    def peek(self, ledger: Ledger, count: int) -> Sequence[Proposal]:
        """See agent.proposal.Farsighted; none on a device where nothing is foreseen."""
        found: list[_Foreseen] = []
        coming: list[Configuration] = []
        for _ in range(min(count, self._ahead)):
            following = self._next(ledger, tuple(coming))
            if following.proposal is None:
                break
            found.append(following)
            coming.append(following.proposal.knobs)
        self._foreseen = found
        return [following.proposal for following in found if following.proposal]

    def finish(self, ledger: Ledger) -> None:
        """Nothing is ever under way."""

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """By PED-ANOVA over every configuration judged on the current source."""
        return importances(survey(self._knobs, ledger))

    def _next(self, ledger: Ledger, coming: Pending) -> _Foreseen:
        """What is proposed once the configurations in `coming` have been."""
        at = len(ledger.candidates) + len(coming)
        known = max(at - self._ahead, ledger.wins[-1].n if ledger.wins else 0)
        pending = (*_without_edits(ledger.candidates[known:]), *coming)
        for found in self._foreseen:
            if (found.at, found.known, found.pending) == (at, known, pending):
                return found
        landscape = survey(self._knobs, ledger, known)
        rng = random.Random(f"{self._seed}/{at}")
        chosen = next(_untried(landscape, pending, rng), None)
        if chosen is None:
            return _Foreseen(at, known, pending, None)
        changes = landscape.changes(chosen)
        proposal = Proposal(author="sweep", idea=describe(changes), knobs=changes)
        return _Foreseen(at, known, pending, proposal)


def _without_edits(candidates: Sequence[Candidate]) -> Iterator[Configuration]:
    """The knob values of those that try nothing else."""
    return (candidate.proposal.knobs for candidate in candidates if not candidate.proposal.edits)


def describe(changes: Configuration) -> str:
    """`TILE=64, ORDER=ikj`."""
    return ", ".join(f"{name}={text}" for name, text in to_environment(changes).items())


def _untried(landscape: Landscape, pending: Pending, rng: random.Random) -> Iterator[Configuration]:
    if not landscape.knobs or landscape.size == len(landscape.judged):
        return
    known = landscape.judged | {landscape.key({**defaults(landscape.knobs), **knobs}) for knobs in pending}
    for source in _sources(len(landscape.observations) + len(pending)):
        for configuration in source(landscape, rng):
            if landscape.key(configuration) not in known:
                yield configuration


def _sources(observed: int) -> tuple[Source, ...]:
    """Where the next configuration may come from, the first that has one not tried yet."""
    if observed > STARTUP and observed % POLISH_EVERY == 0:
        return _neighbours, _sampled, _remaining
    return _sampled, _neighbours, _remaining


def _sampled(landscape: Landscape, rng: random.Random) -> Iterator[Configuration]:
    """What TPE would try; it may repeat itself, and is asked again a few times."""
    from optuna.samplers import TPESampler

    sampler = TPESampler(n_startup_trials=STARTUP, seed=rng.getrandbits(32))
    study = build_study(landscape, sampler)
    for _ in range(ATTEMPTS):
        yield ask(study, landscape)


def _neighbours(landscape: Landscape, rng: random.Random) -> Iterator[Configuration]:
    """The incumbent with one knob turned, in random order."""
    incumbent = defaults(landscape.knobs)
    moves = [(name, value) for name, knob in landscape.knobs.items() for value in knob.values() or ()]
    rng.shuffle(moves)
    for name, value in moves:
        yield {**incumbent, name: value}


def _remaining(landscape: Landscape, rng: random.Random) -> Iterator[Configuration]:
    """Everything, in random order, where that can be listed; else as many random draws as are worth it."""
    names = list(landscape.knobs)
    if landscape.size is not None and landscape.size <= SMALL:
        every = list(product(*(knob.values() or () for knob in landscape.knobs.values())))
        rng.shuffle(every)
        yield from (dict(zip(names, values, strict=True)) for values in every)
        return
    for _ in range(DRAWS):
        yield {name: draw(knob, rng) for name, knob in landscape.knobs.items()}
