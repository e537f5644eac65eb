"""Results that no computation gives: a right one moved, cut off or not written, a constant, a copy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import torch

from hillclimb.harness.case.contract import Spec, Tensors
from hillclimb.harness.duel.parity import QUANTISED
from hillclimb.harness.duel.process.arena import WORDS
from hillclimb.harness.judge.mutants.drawn import DrawnCall, Mutant

Spoil = Callable[[torch.Tensor], torch.Tensor]
Wrong = tuple[str, Spoil]
"""A mistake, and what it makes of one output."""


def wrong_outputs(call: DrawnCall) -> Iterator[Mutant]:
    """Of each output, one mistake after another; the others are right."""
    for key, spec in call.specs.items():
        for dim, size in enumerate(spec.shape):
            if size > 1:
                moved = partial(_replaced, call, key, partial(rolled, dim=dim))
                yield Mutant(f"{key} rolled by one along dimension {dim}", moved, shows_dependence=True)
        for name, spoil in _spoils(key, spec, call.inputs):
            yield Mutant(name, partial(_replaced, call, key, spoil))


def rolled(value: torch.Tensor, dim: int) -> torch.Tensor:
    """Each element one place further on, the last the first: as words, since torch moves not every dtype."""
    return value.contiguous().view(WORDS[value.itemsize]).roll(1, dim).view(value.dtype)


def half_one_lower(value: torch.Tensor) -> torch.Tensor:
    """Every other whole number one lower, where its dtype has one: half of them and never more."""
    wide = value.flatten().long()
    lower = wide[len(wide) % 2 :: 2]
    lower.sub_(1).clamp_min_(torch.iinfo(value.dtype).min)
    return wide.to(value.dtype).view(value.shape)


def mean_everywhere(value: torch.Tensor) -> torch.Tensor:
    """The mean of the finite elements for every element, rounded where the dtype is of whole numbers."""
    wide = value.double()
    mean = wide[torch.isfinite(wide)].mean().nan_to_num()
    return (mean if value.is_floating_point() else mean.round()).to(value.dtype).expand(value.shape)


def stale_end(value: torch.Tensor, before: torch.Tensor) -> torch.Tensor:
    """The last slice along the first dimension as it was before."""
    kept = value.clone()
    kept[-1] = before[-1]
    return kept


def copied(value: torch.Tensor, given: torch.Tensor) -> torch.Tensor:
    """An input in the place of the output."""
    return given.to(value.dtype)


def _spoils(key: str, spec: Spec, inputs: Tensors) -> Iterator[Wrong]:
    if _is_rounded(spec):
        yield f"half of {key} one lower", half_one_lower
    before = inputs.get(key)
    if before is not None:
        yield f"{key} left as it was", partial(copied, given=before)
        if len(before) > 1:
            yield f"the last slice of {key} left as it was", partial(stale_end, before=before)
    yield f"{key} all zeros", torch.zeros_like
    yield f"{key} its mean everywhere", mean_everywhere
    for name, given in inputs.items():
        if name != key and _fits(given, spec):
            yield f"{key} a copy of {name}", partial(copied, given=given)


def _replaced(call: DrawnCall, key: str, spoil: Spoil) -> Tensors:
    return {**call.plain, key: spoil(call.plain[key])}


def _is_rounded(spec: Spec) -> bool:
    """Whether an output is of whole numbers some of which may differ, because they are rounded values."""
    if spec.dtype.is_floating_point or spec.dtype is torch.bool:
        return False
    return spec.dtype in QUANTISED if spec.may_differ is None else spec.may_differ > 0


def _fits(given: torch.Tensor, spec: Spec) -> bool:
    same_kind = given.is_floating_point() == spec.dtype.is_floating_point and not given.is_complex()
    return tuple(given.shape) == spec.shape and same_kind
