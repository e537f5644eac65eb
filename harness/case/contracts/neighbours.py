"""Problems near a listed one, which are what a contract's `vary` gives."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from hillclimb.harness.case.sizes import TILES

REMAINDERS = (
    (-1, -1, -1, -1),
    (-1, 0, 0, 0),
    (-1, 1, 1, 1),
    (0, -1, 0, 1),
    (0, 0, 1, -1),
    (0, 1, -1, 0),
    (1, -1, 1, 0),
    (1, 0, -1, 1),
    (1, 1, 0, -1),
)
"""What nine problems leave of a tile in up to four sizes: every two sizes leave every two of -1, 0 and 1 once. It is
Taguchi's orthogonal array L9."""

NamedSizes = Mapping[str, Any]
"""The named sizes of one problem."""

PRIMES = 2
"""Below a size and above it, how many primes are near."""

SCATTER = 0.2
"""Of sizes between two problems', by how much each may be nearer to one of them than the others are."""

MAX_GROWTH = 2
"""Times a size, or all of a problem's multiplied, what lies between is at most."""

MAX_ROUND_BITS = 7
"""Of sizes that are round: multiples of up to this power of two, 128."""

MAX_UNLIKE = 64
"""Times one size, the other is at most where they are swapped. Many short rows are unlike few long ones: what needs a
program for each would take minutes where kernels are interpreted."""


def neighbours(
    problem: NamedSizes,
    secret: random.Random,
    listed: Mapping[str, NamedSizes],
    *groups: tuple[str, ...],
    least: int = 1,
) -> list[dict[str, Any]]:
    """As `changed`, without the problems that are listed, and with one size about twice as large or all named sizes
    between those of this problem and of another one.

    No size becomes larger so than it is in any listed problem: what is beyond them all may be beyond the operator.
    """
    found = changed(problem, secret, *groups, least=least)
    names = [name for group in groups for name in group]
    for other in (
        *_enlarged(problem, secret, names, listed),
        *_between(problem, secret, names, listed, least),
    ):
        if other not in found:
            found.append(other)
    return unlisted(found, listed)


def changed(
    problem: NamedSizes, secret: random.Random, *groups: tuple[str, ...], least: int = 1
) -> list[dict[str, Any]]:
    """Problems with one named size one more, one less or a prime near it, with two sizes of a group swapped, with two
    named sizes changed at once, or with all of them at the edge of a tile, where two tails meet.

    Which prime and which change is secret. No size becomes less than `least`, no two problems are the same, and none
    is the given one.
    """
    found: list[dict[str, Any]] = []
    for other in _all_changed(dict(problem), secret, groups, least):
        if other != problem and other not in found:
            found.append(other)
    return found


def unlisted(problems: Iterable[dict[str, Any]], listed: Mapping[str, NamedSizes]) -> list[dict[str, Any]]:
    """Those that are not among the listed ones."""
    known = list(listed.values())
    return [problem for problem in problems if problem not in known]


def _all_changed(
    problem: dict[str, Any], secret: random.Random, groups: Iterable[tuple[str, ...]], least: int
) -> Iterator[dict[str, Any]]:
    near = {name: _near(problem[name], secret, least) for names in groups for name in names}
    for names in groups:
        for name in names:
            for other in near[name]:
                yield {**problem, name: other}
        for one, two in combinations(names, 2):
            if max(problem[one], problem[two]) <= MAX_UNLIKE * min(problem[one], problem[two]):
                yield {**problem, one: problem[two], two: problem[one]}
    for one, two in combinations([name for name, sizes in near.items() if sizes], 2):
        yield {**problem, one: secret.choice(near[one]), two: secret.choice(near[two])}
    yield from _at_tiles(problem, secret, list(near), least)


def _near(size: int, secret: random.Random, least: int) -> list[int]:
    """One more, one less and a prime."""
    beside = (size + 1, size - 1)
    primes = [prime for prime in _primes_near(size) if prime >= least and prime not in beside]
    return [other for other in (*beside, *([secret.choice(primes)] if primes else ())) if other >= least]


def _enlarged(
    problem: NamedSizes, secret: random.Random, names: Iterable[str], listed: Mapping[str, NamedSizes]
) -> Iterator[dict[str, Any]]:
    """One named size anywhere between one and a half times and two and a half times as large."""
    for name in names:
        size = problem[name]
        most = min(5 * size // 2, max((other[name] for other in listed.values()), default=size))
        if 3 * size // 2 < most:
            yield {**problem, name: secret.randint(3 * size // 2 + 1, most)}


def _between(
    problem: NamedSizes,
    secret: random.Random,
    names: Sequence[str],
    listed: Mapping[str, NamedSizes],
    least: int,
) -> Iterator[dict[str, Any]]:
    """All named sizes about as far from this problem's to a smaller one's, by logarithm; every other time round."""
    extent = math.prod(problem[name] for name in names)
    smaller = [
        other
        for other in listed.values()
        if 0 < math.prod(other[name] for name in names) <= extent and dict(other) != dict(problem)
    ]
    for is_round in (False, True) if smaller else ():
        other, share = secret.choice(smaller), secret.random()
        step = 1 << secret.randint(1, MAX_ROUND_BITS) if is_round else 1
        ends = {name: min(other[name], MAX_GROWTH * problem[name]) for name in names}
        found = {name: _size_between(problem[name], ends[name], share, step, secret) for name in names}
        if math.prod(found.values()) <= MAX_GROWTH * extent and min(found.values()) >= least:
            yield {**problem, **found}


def _at_tiles(
    problem: dict[str, Any], secret: random.Random, names: Sequence[str], least: int
) -> Iterator[dict[str, Any]]:
    """Every named size a whole number of tiles, one more or one less, with every two of these in two sizes."""
    columns = {name: secret.randrange(len(REMAINDERS[0])) for name in names}
    columns.update(zip(secret.sample(names, len(names)), range(len(REMAINDERS[0])), strict=False))
    for remainders in REMAINDERS:
        found = {name: _at_tile(problem[name], remainders[columns[name]]) for name in names}
        if min(found.values(), default=least) >= least:
            yield {**problem, **found}


def _at_tile(size: int, remainder: int) -> int:
    """The largest such size that is not above this one, or the smallest there is; one below all tiles is left."""
    tile = next((tile for tile in TILES if size >= tile), 0)
    return max(1, (size - remainder) // tile) * tile + remainder if tile else size


def _size_between(one: int, other: int, share: float, step: int, secret: random.Random) -> int:
    """A multiple of the step as far as there is one between the two."""
    share = min(1.0, max(0.0, share + secret.uniform(-SCATTER, SCATTER)))
    size = round(math.exp((1 - share) * math.log(one) + share * math.log(other)))
    rounded = round(size / step) * step
    return rounded if min(one, other) <= rounded <= max(one, other) else size


def _primes_near(size: int) -> list[int]:
    return [*_first_primes(range(size - 1, 1, -1)), *_first_primes(range(size + 1, 2 * size + 8))]


def _first_primes(numbers: Iterable[int]) -> list[int]:
    found: list[int] = []
    for number in numbers:
        if len(found) == PRIMES:
            break
        if _is_prime(number):
            found.append(number)
    return found


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, math.isqrt(number) + 1))
