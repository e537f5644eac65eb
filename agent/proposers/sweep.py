"""The sweep: tries knob values, by Optuna's TPE over the domains, until the space is exhausted.

Every proposal is a function of the seed and the ledger alone: the study is rebuilt and the sampler seeded
anew each time, so a run that was killed goes on as if nothing had happened.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING

from agent.proposal import Proposal
from agent.proposers.landscape import Configuration, Landscape, survey
from agent.proposers.study import ask, build_study, importances
from harness.case.knobs import Knobs, defaults, draw, to_environment

if TYPE_CHECKING:
    from agent.ledger import Ledger

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


class Sweep:
    """Proposes knob values that were not tried on the incumbent's source."""

    def __init__(self, knobs: Knobs, seed: int) -> None:
        """`knobs` are those of the run's baseline; what later wins made of them is in the ledger."""
        self._knobs = knobs
        self._seed = seed

    def propose(self, ledger: Ledger) -> Proposal | None:
        """The next configuration to try, or None when every one was."""
        landscape = survey(self._knobs, ledger)
        rng = random.Random(f"{self._seed}/{len(ledger.candidates)}")
        chosen = next(_untried(landscape, rng), None)
        if chosen is None:
            return None
        changes = landscape.changes(chosen)
        return Proposal(author="sweep", idea=describe(changes), knobs=changes)

    def finish(self, ledger: Ledger) -> None:
        """Nothing is ever under way."""

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """By PED-ANOVA over every configuration judged on the current source."""
        return importances(survey(self._knobs, ledger))


def describe(changes: Configuration) -> str:
    """`TILE=64, ORDER=ikj`."""
    return ", ".join(f"{name}={text}" for name, text in to_environment(changes).items())


def _untried(landscape: Landscape, rng: random.Random) -> Iterator[Configuration]:
    if not landscape.knobs or landscape.size == len(landscape.judged):
        return
    for source in _sources(len(landscape.observations)):
        for configuration in source(landscape, rng):
            if landscape.key(configuration) not in landscape.judged:
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
