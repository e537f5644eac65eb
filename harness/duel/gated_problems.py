"""What one gate asks of a candidate: the listed problems, and some like them that no list shows."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, zip_longest
from typing import Any, NamedTuple

from hillclimb.harness.case.contract import Contract, Problem
from hillclimb.harness.case.sizes import Place, parts_of, remainder_of, sizes_of
from hillclimb.harness.duel.mixing import can_mix

NEIGHBOURS = 2
"""Problems that no list shows, in a gate by itself."""

SCREENED_NEIGHBOURS, SCREENED_SEEDS = 1, 1
"""In the gate of a screening, and the seeds there: a neighbour may have to be compiled, and every call takes time."""

CONFIRMED_NEIGHBOURS, CONFIRMED_MIXED_CALLS, CONFIRMED_CHAINS = 24, 1500, 20
"""In the gate of a confirmation, which few candidates reach and every win has passed: such problems, calls on mixed
inputs beside those that every gate has, and chains of calls on two problems that differ in one size."""

MAX_NEIGHBOUR_BYTES, MAX_NEIGHBOUR_GROWTH = 64 << 20, 8
"""Most that such a problem may move, for its reference is computed for it alone; where every listed one moves more, as
a model's do, so many times what the smallest does."""

MAX_OFTEN_BYTES = 4 << 20
"""Most that a problem may move which is called on mixed inputs that often."""

TRIED = 64
"""Neighbours of which the one that shows most is taken."""

Chain = tuple[str, str]
"""Two problems, by name, the larger one first."""


class MoreOrLess(NamedTuple):
    """Of one size, than in a listed problem that has the same others."""

    place: Place
    is_more: bool


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
    chains: int = 0
    """So many times, calls on two problems that differ in one size, by turns."""

    def called_often(self) -> tuple[str, ...]:
        """The listed problems that these calls are of, if there are any: the small ones, or the smallest."""
        if not self.mixed_calls or not can_mix(self.contract):
            return ()
        return self._small(self.listed)

    def drawn_chains(self, secret: random.Random) -> list[Chain]:
        """Two problems each that differ in one size, the larger one first. Every size in turn, if there are enough, and
        of each by turns the nearest two that are left and any two."""
        by_size: dict[Place, dict[Chain, int]] = {}
        for one, other in combinations(self._small((*self.listed, *self.neighbours)), 2):
            apart = _one_apart(self.contract.problems[one], self.contract.problems[other])
            if apart:
                place, more = apart
                by_size.setdefault(place, {})[(one, other) if more > 0 else (other, one)] = abs(more)
        kinds = [_near_and_far(secret.sample(list(found), len(found)), found) for found in by_size.values()]
        in_turn = [pair for rank in zip_longest(*kinds) for pair in rank if pair]
        return secret.sample(in_turn[: self.chains], min(self.chains, len(in_turn)))

    def _small(self, names: Sequence[str]) -> tuple[str, ...]:
        """Those of these that are small, or as small as the smallest listed one."""
        sizes = {
            name: self.contract.work(self.contract.problems[name]).bytes for name in (*self.listed, *names)
        }
        most = max(MAX_OFTEN_BYTES, min(sizes[name] for name in self.listed))
        return tuple(name for name in names if sizes[name] <= most)


def draw_gated_problems(
    contract: Contract,
    listed: Sequence[str],
    secret: random.Random,
    most_bytes: float,
    count: int = NEIGHBOURS,
) -> GatedProblems:
    """The listed problems, with up to `count` neighbours of theirs that move at most so many bytes each.

    Of many, two thirds at the most are those that show most, together, of what the others leave open. Chance draws the
    rest.
    """
    found = neighbours_of(contract, listed, secret)
    least = min(contract.work(contract.problems[name]).bytes for name in listed)
    most = min(most_bytes, max(MAX_NEIGHBOUR_BYTES, MAX_NEIGHBOUR_GROWTH * least))
    small = {name: problem for name, problem in found.items() if contract.work(problem).bytes <= most}
    order = secret.sample(sorted(small), len(small))
    known = [contract.problems[name] for name in listed]
    shown = {name: _shown_by(small[name], known) for name in order} if count > NEIGHBOURS else {}
    telling = _telling(shown, 2 * count // 3, secret)
    drawn = [*telling, *(name for name in order if name not in telling)][:count]
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


def _near_and_far(pairs: list[Chain], apart: Mapping[Chain, int]) -> list[Chain]:
    """By turns the nearest that is left and the first that is."""
    near, found = sorted(pairs, key=apart.__getitem__), dict[Chain, None]()
    for one, other in zip(near, pairs, strict=True):
        found |= {one: None, other: None}
    return list(found)


def _telling(shown: Mapping[str, set[Any]], count: int, secret: random.Random) -> list[str]:
    """Up to `count` names, of which each in turn adds the most to what was shown before, of some that are drawn."""
    chosen: list[str] = []
    seen: set[Any] = set()
    while len(chosen) < count and shown:
        some = secret.sample(list(shown), min(TRIED, len(shown)))
        best = max(some, key=lambda name: _rank(shown[name] - seen))
        if not shown[best] - seen:
            break
        chosen.append(best)
        seen |= shown[best]
    return chosen


def _rank(new: set[Any]) -> tuple[int, int]:
    """Chains need problems that differ in one size: these come first."""
    return sum(isinstance(shown, MoreOrLess) for shown in new), len(new)


def _shown_by(problem: Problem, listed: Sequence[Problem]) -> set[Any]:
    """What a problem asks: what two of its sizes leave of a tile, and which one is more or less than in a listed
    problem that has the same others."""
    left = {place: remainder_of(size) for place, size in sizes_of(problem).items()}
    tails = [(place, rest) for place, rest in left.items() if rest is not None]
    shown: set[Any] = {pair for pair in combinations(tails, 2) if any(rest for _, rest in pair)}
    for other in listed:
        if apart := _one_apart(problem, other):
            shown.add(MoreOrLess(apart[0], apart[1] > 0))
    return shown


def _one_apart(one: Problem, other: Problem) -> tuple[Place, int] | None:
    """The size in which two problems differ, and by how much; None where they differ in more, or in something else."""
    sizes, others = sizes_of(one), sizes_of(other)
    apart = [
        (place, size - others[place]) for place, size in sizes.items() if others.get(place, size) != size
    ]
    is_like = sizes.keys() == others.keys() and _without_sizes(one) == _without_sizes(other)
    return apart[0] if is_like and len(apart) == 1 else None


def _without_sizes(problem: Problem) -> dict[str, Any]:
    """All else: names, flags and fractions."""
    return {
        key: [part for part in parts_of(value) if type(part) is not int] for key, value in problem.items()
    }
