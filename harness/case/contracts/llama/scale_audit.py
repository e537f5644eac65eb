"""Whether a model's logits are those of its weights, or of weights of which some are a little larger or smaller.

One matrix of a layer times 0.98 changes logits less than rounding to bfloat16 does. But it changes them in the same
direction everywhere, and rounding does not. So the errors are projected on what a change of each matrix's scale does to
the logits, by least squares with weights: positions where a right computation errs more count less. Errors of one
position belong together, which the standard error of each estimate allows for: it is the sandwich estimator over
clusters of Liang and Zeger, Biometrika 73 (1986).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import MappingProxyType

import torch

from hillclimb.harness.case.contracts.llama.model import Llama

STEP = 0.01
"""Relative change of a scale by which its direction is found."""

STANDARD_ERRORS = 8.0
"""By how many an estimate on rounding alone may be off: it has a small bias, and what is rounded at one position is
read at the next ones."""

HONEST_CHANGE = 0.005
"""Relative change of a scale that is never held against a kernel: a weight folded in bfloat16 rounds by up to 0.004."""

SCALES = ("q", "o", "gate", "up")
"""Of each layer, matrices whose scale is no other's: doubling k is doubling q, v is o, and down is up. The embedding's
is told by all layers: to double it is to halve whatever they add to it."""

SCALES_IN_CONTEXT = ("k", "v")
"""Those that are others' no longer where some keys and values are given."""

MAX_VOCAB = 4096
"""Tokens of the vocabulary, at equal distances, whose logits are looked at: all would take gigabytes."""

Scale = tuple[str, int]


@dataclass(frozen=True)
class ScaleAudit:
    """What a change of each scale does to some logits, and how well a change can be told from rounding."""

    scales: tuple[Scale, ...]
    limits: torch.Tensor
    """Largest estimate of each that is not held against a kernel, float64 [scales]."""
    _directions: torch.Tensor
    """[positions, vocabulary, scales], weighted."""
    _weights: torch.Tensor
    """[positions, 1]."""

    @classmethod
    def of(
        cls,
        model: Llama,
        logits: Callable[[Llama], torch.Tensor],
        rounding: torch.Tensor,
        *,
        has_context: bool,
    ) -> ScaleAudit:
        """`logits` gives a model's, [positions, vocab]; `rounding` are the errors of a right computation of them."""
        exact, scales = logits(model), scales_of(model.shape.layers, has_context=has_context)
        weights = 1 / looked_at(rounding).square().mean(1, keepdim=True).sqrt().clamp_min(1e-300)
        found = []
        for scale in scales:
            changed = logits(replace(model, scales=MappingProxyType({scale: 1 + STEP})))
            found.append(weights * looked_at((changed - exact) / STEP))
        audit = cls(scales, torch.empty(0), torch.stack(found, -1), weights)
        parts = audit._parts(rounding)
        errors = (parts - parts.mean(0)).square().sum(0).sqrt()
        return replace(audit, limits=(STANDARD_ERRORS * errors).clamp_min(HONEST_CHANGE))

    def estimates(self, errors: torch.Tensor) -> torch.Tensor:
        """By how much each scale is changed if no other is, relative, as errors of [positions, vocab] tell."""
        return self._parts(errors).sum(0)

    def share(self, errors: torch.Tensor) -> float:
        """The largest estimate as a share of its limit."""
        return float((self.estimates(errors).abs() / self.limits).max())

    def _parts(self, errors: torch.Tensor) -> torch.Tensor:
        """What each position adds to the estimates, [positions, scales]."""
        products = torch.einsum("pvk,pv->pk", self._directions, self._weights * looked_at(errors))
        return products / self._directions.square().sum((0, 1)).clamp_min(1e-300)


def scales_of(layers: int, *, has_context: bool) -> tuple[Scale, ...]:
    """Every one that can be told from the others."""
    names = SCALES + (SCALES_IN_CONTEXT if has_context else ())
    return (*((name, layer) for layer in range(layers) for name in names), ("lm_head", 0))


def looked_at(logits: torch.Tensor) -> torch.Tensor:
    """Of MAX_VOCAB tokens or a few more, at equal distances, without what all logits of a position have in common."""
    few = logits[:, :: max(1, logits.shape[1] // MAX_VOCAB)]
    return few - few.mean(1, keepdim=True)
