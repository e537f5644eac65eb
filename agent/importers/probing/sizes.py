"""Small problems of an operator: sizes that its code can be run with, found by trying shapes alone."""

from __future__ import annotations

import time

from hillclimb.agent.importers.formats.imported import Sizes
from hillclimb.agent.importers.probing.trial_contract import Trial

TINY_BYTES, ODD_BYTES = 64 << 10, 768 << 10
"""Most that such a problem moves; where there is no GPU, what moves over 1 MiB is not run."""

TINY_SIZE = 4
"""Sizes are not made smaller than this while others can be."""

NORMED_SIZE = 16
"""As TINY_SIZE, and for good, where a norm over the batch divides by the deviation of so many values."""

MAX_NEIGHBOURS = 8
MAX_SEARCH_SECONDS = 60.0
"""Longest that small problems are looked for."""


def small_problems(trial: Trial, public: Sizes) -> tuple[dict[str, Sizes], dict[str, list[Sizes]]]:
    """`tiny` and `odd` as far as there are any, and neighbours of them that no list shows."""
    deadline = time.monotonic() + MAX_SEARCH_SECONDS
    found = {}
    if tiny := _shrink(trial, public, TINY_BYTES, deadline):
        found["tiny"] = tiny
    start = _shrink(trial, public, ODD_BYTES // 2, deadline) or tiny or public
    if not _is_small(trial, start):
        return {}, {}
    odd = _made_odd(trial, start, deadline)
    if odd is not None and odd not in (tiny, public):
        found["odd"] = odd
    if not found:
        return {}, {}
    last = found[list(found)[-1]]
    neighbours = neighbours_of(trial, last, [public, *found.values()])
    return found, ({list(found)[-1]: neighbours} if neighbours else {})


def _shrink(trial: Trial, public: Sizes, most: int, deadline: float) -> Sizes | None:
    """The public sizes made smaller, the largest first, until a call moves little; None where it cannot be."""
    sizes, is_normed = dict(public), "BatchNorm" in trial.plan.source
    for names in _stages(trial):
        frozen: set[str] = set()
        while (moved := trial.bytes_of(sizes)) is not None and moved > most and time.monotonic() < deadline:
            least = NORMED_SIZE if is_normed else TINY_SIZE
            free = [n for n in names if n not in frozen and sizes[n] > least]
            free = free or [n for n in names if n not in frozen and sizes[n] > 1 and not is_normed]
            if not free:
                break
            name = max(free, key=lambda n: sizes[n])
            smaller = _lowered(trial, sizes, name, 4) or _lowered(trial, sizes, name, 2)
            if smaller is None:
                frozen.add(name)
            else:
                sizes = smaller
    moved = trial.bytes_of(sizes)
    return sizes if moved is not None and moved <= max(most, ODD_BYTES) and sizes != public else None


def _stages(trial: Trial) -> list[list[str]]:
    """Sizes of the arguments alone, then those that the module is made with too."""
    free = [n for n in trial.plan.changeable if n not in trial.plan.fixed]
    return [free, trial.plan.changeable]


def _lowered(trial: Trial, sizes: Sizes, name: str, divisor: int) -> Sizes | None:
    value, is_normed = sizes[name] // divisor, "BatchNorm" in trial.plan.source
    if value < 1 or (divisor > 2 and value < TINY_SIZE) or (is_normed and value < NORMED_SIZE):
        return None
    return next((found for found in _changed(trial, sizes, name, value) if trial.is_valid(found)), None)


def _changed(trial: Trial, sizes: Sizes, name: str, value: int) -> list[Sizes]:
    """One size changed, or all that are equal to it together."""
    equal = {n: value for n in trial.plan.changeable if sizes[n] == sizes[name]}
    return [{**sizes, name: value}, *([{**sizes, **equal}] if len(equal) > 1 else [])]


def _made_odd(trial: Trial, sizes: Sizes, deadline: float) -> Sizes | None:
    """With as many sizes as possible odd."""
    odd = dict(sizes)
    for name in trial.plan.changeable:
        if odd[name] % 2 == 0 and time.monotonic() < deadline:
            values = [value for value in (odd[name] + 1, odd[name] - 1) if value > 0]
            tried = [found for value in values for found in _changed(trial, odd, name, value)]
            odd = next((found for found in tried if _is_small(trial, found)), odd)
    return odd if odd != sizes or _is_small(trial, odd) else None


def neighbours_of(trial: Trial, sizes: Sizes, listed: list[Sizes]) -> list[Sizes]:
    """Problems that are not listed: one size changed by a little, of those that make no other operator if any is."""
    deadline, found = time.monotonic() + MAX_SEARCH_SECONDS, list[Sizes]()
    names = [n for n in trial.plan.changeable if n not in trial.plan.fixed] or trial.plan.changeable
    for step in (1, -1, 2):
        for name in names:
            if sizes[name] + step < 1 or len(found) >= MAX_NEIGHBOURS or time.monotonic() > deadline:
                continue
            tried = _changed(trial, sizes, name, sizes[name] + step)
            near = next((one for one in tried if _is_small(trial, one)), None)
            if near is not None and near not in (*listed, *found):
                found.append(near)
    return found


def _is_small(trial: Trial, sizes: Sizes) -> bool:
    moved = trial.bytes_of(sizes)
    return moved is not None and moved <= ODD_BYTES
