"""Problems near a listed one, which are what a contract's `vary` gives."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import combinations
from math import isqrt
from typing import Any

NamedSizes = Mapping[str, Any]
"""The named sizes of one problem."""

PRIMES = 2
"""Below a size and above it, how many primes are near."""

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
    """As `changed`, without the problems that are listed, and with one size about twice as large.

    No size becomes larger so than it is in any listed problem: what is beyond them all may be beyond the operator.
    """
    near = changed(problem, secret, *groups, least=least)
    larger = [other for other in _enlarged(problem, secret, groups, listed) if other not in near]
    return unlisted([*near, *larger], listed)


def changed(
    problem: NamedSizes, secret: random.Random, *groups: tuple[str, ...], least: int = 1
) -> list[dict[str, Any]]:
    """Problems with one named size one more, one less or a prime near it, with two sizes of a group swapped, or with
    two named sizes changed at once.

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
    for one, two in combinations(near, 2):
        yield {**problem, one: secret.choice(near[one]), two: secret.choice(near[two])}


def _near(size: int, secret: random.Random, least: int) -> list[int]:
    """One more, one less and a prime."""
    beside = (size + 1, size - 1)
    primes = [prime for prime in _primes_near(size) if prime >= least and prime not in beside]
    return [other for other in (*beside, *([secret.choice(primes)] if primes else ())) if other >= least]


def _enlarged(
    problem: NamedSizes,
    secret: random.Random,
    groups: Iterable[tuple[str, ...]],
    listed: Mapping[str, NamedSizes],
) -> Iterator[dict[str, Any]]:
    """One named size anywhere between one and a half times and two and a half times as large."""
    for name in (name for names in groups for name in names):
        size = problem[name]
        most = min(5 * size // 2, max((other[name] for other in listed.values()), default=size))
        if 3 * size // 2 < most:
            yield {**problem, name: secret.randint(3 * size // 2 + 1, most)}


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
    return number > 1 and all(number % divisor for divisor in range(2, isqrt(number) + 1))
