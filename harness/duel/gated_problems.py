"""What one gate asks of a candidate: the listed problems, and some like them that no list shows."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hillclimb.harness.case.contract import Contract, Problem
from hillclimb.harness.duel.mixing import can_mix

NEIGHBOURS = 2
"""Problems that no list shows, in a gate by itself."""

SCREENED_NEIGHBOURS, SCREENED_SEEDS = 1, 1
"""In the gate of a screening, and the seeds there: a neighbour may have to be compiled, and every call takes time."""

CONFIRMED_NEIGHBOURS, CONFIRMED_MIXED_CALLS = 12, 1000
"""In the gate of a confirmation, which few candidates reach and every win has passed: such problems, and calls on mixed
inputs beside those that every gate has."""

MAX_NEIGHBOUR_BYTES = 64 << 20
"""Most that such a problem may move: its reference is computed for it alone."""

MAX_OFTEN_BYTES = 4 << 20
"""Most that a problem may move which is called on mixed inputs that often."""


@dataclass(frozen=True)
class GatedProblems:
    """The problems of one gate."""

    contract: Contract
    """Knows the neighbours, too."""
    listed: tuple[str, ...]
    neighbours: tuple[str, ...] = ()
    seeds: int | None = None
    """Secret seeds for each listed problem and distribution; None: as many as the case says."""
    mixed_calls: int = 0
    """More calls on mixed inputs, in all."""

    def called_often(self) -> tuple[str, ...]:
        """The listed problems that these calls are of, if there are any: the small ones, or the smallest."""
        if not self.mixed_calls or not can_mix(self.contract):
            return ()
        sizes = {name: self.contract.work(self.contract.problems[name]).bytes for name in self.listed}
        most = max(MAX_OFTEN_BYTES, min(sizes.values()))
        return tuple(name for name in self.listed if sizes[name] <= most)


def draw_gated_problems(
    contract: Contract,
    listed: Sequence[str],
    secret: random.Random,
    most_bytes: float,
    count: int = NEIGHBOURS,
) -> GatedProblems:
    """The listed problems, with up to `count` neighbours of theirs that move at most so many bytes each."""
    found = neighbours_of(contract, listed, secret)
    most = min(most_bytes, MAX_NEIGHBOUR_BYTES)
    small = {name: problem for name, problem in found.items() if contract.work(problem).bytes <= most}
    drawn = secret.sample(sorted(small), min(count, len(small)))
    return GatedProblems(
        contract.extended({name: small[name] for name in drawn}), tuple(listed), tuple(drawn)
    )


def neighbours_of(contract: Contract, listed: Sequence[str], secret: random.Random) -> dict[str, Problem]:
    """By name, the problems that `Contract.vary` gives for these, but for those that the contract lists."""
    known = list(contract.problems.values())
    return {
        _neighbour_name(name, problem): problem
        for name in listed
        for problem in contract.vary(contract.problems[name], secret)
        if problem not in known
    }


def _neighbour_name(name: str, problem: Mapping[str, object]) -> str:
    """wide~rows=513,columns=7 for a neighbour of wide."""
    return f"{name}~" + ",".join(f"{key}={value}" for key, value in problem.items())
