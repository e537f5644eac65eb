"""Retuning: the first sweep candidates on a source that an edit made are the incumbent with one knob turned one step.

The knobs were tuned for the source before, so the best values are near, and knobs that the edit brought were never
turned at all; those come first. The sweep proper begins with random configurations, which a tuned incumbent beats.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from hillclimb.agent.proposal import Proposal
from hillclimb.agent.proposer import Proposer, peek, why_no_importances
from hillclimb.agent.sweep.landscape import Configuration, Landscape, build_landscape
from hillclimb.agent.sweep.sweep import describe
from hillclimb.harness.knobs.knobs import ChoiceKnob, FloatKnob, Knob, Knobs, KnobValue, contains, defaults

if TYPE_CHECKING:
    from hillclimb.agent.record.ledger import Ledger

FLOAT_STEP_SHARE = 0.1
"""One step of a continuous knob, as a share of its domain."""


class RetuneFirst:
    """A sweep that retunes first; on the source the run began with it is the sweep alone."""

    def __init__(self, knobs: Knobs, seed: int, sweep: Proposer) -> None:
        """`knobs` are those of the run's baseline."""
        self._knobs, self._seed, self._sweep = knobs, seed, sweep

    def propose(self, ledger: Ledger) -> Proposal | None:
        """The next step that was not tried on this source, then whatever the sweep proposes."""
        step = next(self._untried_steps(ledger), None)
        if step:
            return step
        found = self._sweep.propose(ledger)
        return found if isinstance(found, Proposal) else None

    def peek(self, ledger: Ledger, count: int) -> Sequence[Proposal]:
        """See hillclimb.agent.proposer.CanPeek."""
        present = ledger.pending.proposal.knobs if ledger.pending else None
        steps = [step for step in self._untried_steps(ledger) if step.knobs != present][:count]
        stepped = [step.knobs for step in steps]
        others = [coming for coming in peek(self._sweep, ledger, count) if coming.knobs not in stepped]
        return (*steps, *others)[:count]

    def _untried_steps(self, ledger: Ledger) -> Iterator[Proposal]:
        landscape = build_landscape(self._knobs, ledger)
        if not landscape.observations or not landscape.observations[0].n:
            return
        rng = random.Random(f"{self._seed}/{landscape.observations[0].n}")
        for changes in _steps(landscape, self._knobs, rng):
            turned = {**defaults(landscape.knobs), **changes}
            if landscape.key(turned) not in landscape.judged_keys and landscape.allows(turned):
                yield Proposal(author="sweep", idea=describe(changes), knobs=changes)

    def importances(self, ledger: Ledger) -> dict[str, float]:
        """The sweep's."""
        return self._sweep.importances(ledger)

    def why_no_importances(self, ledger: Ledger) -> str:
        """See hillclimb.agent.proposer.ExplainsImportances."""
        return why_no_importances(self._sweep, ledger)

    def finish(self, ledger: Ledger) -> None:
        """Nothing is ever under way."""


def _steps(landscape: Landscape, known: Knobs, rng: random.Random) -> Iterator[Configuration]:
    """One knob turned by one step, new knobs first and otherwise in an order of the source's own."""
    names = sorted(landscape.knobs)
    rng.shuffle(names)
    for name in sorted(names, key=lambda name: name in known):
        yield from ({name: value} for value in _beside(landscape.knobs[name]))


def _beside(knob: Knob) -> list[KnobValue]:
    """The values next to the default; all others where the values have no order."""
    if isinstance(knob, FloatKnob):
        step = FLOAT_STEP_SHARE * (knob.high - knob.low)
        return [value for value in (knob.default + step, knob.default - step) if contains(knob, value)]
    values = knob.values()
    if isinstance(knob, ChoiceKnob) and not _are_ordered(knob.choices):
        return [value for value in values if value != knob.default]
    at = values.index(knob.default)
    return [*values[at + 1 : at + 2], *values[max(at - 1, 0) : at]]


def _are_ordered(values: list[KnobValue]) -> bool:
    numbers = [value for value in values if isinstance(value, int | float) and not isinstance(value, bool)]
    return len(numbers) == len(values) and numbers == sorted(numbers)
