"""Whether a model's logits are those of its weights, or of weights of which some are a little larger or smaller.

One matrix of a layer times 0.98 changes logits less than rounding to bfloat16 does. But it changes them in the same
direction everywhere, and rounding does not. So the errors are fitted, by least squares, with what a change of each
matrix's scale does to the logits. Errors of one position belong together, which the standard error of each estimate
allows for: it is the sandwich estimator over clusters of Liang and Zeger, Biometrika 73 (1986).
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
"""Of an estimate on rounding alone, which may be off by so many: honest kernels' rounding has a small bias, too."""

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
    """[positions, vocabulary, scales]."""
    _inverse: torch.Tensor

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
        exact = thinned(logits(model))
        scales = scales_of(model.shape.layers, has_context=has_context)
        found = [
            (thinned(logits(replace(model, scales=MappingProxyType({scale: 1 + STEP})))) - exact) / STEP
            for scale in scales
        ]
        directions = torch.stack(found, -1)
        flat = directions.flatten(0, 1).double()
        audit = cls(scales, torch.empty(0), directions, torch.linalg.pinv(flat.T @ flat, hermitian=True))
        return replace(
            audit, limits=(STANDARD_ERRORS * audit._standard_errors(rounding)).clamp_min(HONEST_CHANGE)
        )

    def estimates(self, errors: torch.Tensor) -> torch.Tensor:
        """By how much each scale is changed, relative, as errors of [positions, vocab] tell; float64 [scales]."""
        return self._inverse @ self._projected(thinned(errors)).sum(0)

    def share(self, errors: torch.Tensor) -> float:
        """The largest estimate as a share of its limit."""
        return float((self.estimates(errors).abs() / self.limits).max())

    def _standard_errors(self, rounding: torch.Tensor) -> torch.Tensor:
        errors = thinned(rounding)
        left = errors - self._directions @ self.estimates(rounding).to(errors.dtype)
        scores = self._projected(left)
        return (self._inverse @ (scores.T @ scores) @ self._inverse).diagonal().sqrt()

    def _projected(self, errors: torch.Tensor) -> torch.Tensor:
        """On each direction, by position: [positions, scales]."""
        return torch.einsum("pvk,pv->pk", self._directions, errors).double()


def scales_of(layers: int, *, has_context: bool) -> tuple[Scale, ...]:
    """Every one that can be told from the others."""
    names = SCALES + (SCALES_IN_CONTEXT if has_context else ())
    return (*((name, layer) for layer in range(layers) for name in names), ("lm_head", 0))


def thinned(logits: torch.Tensor) -> torch.Tensor:
    """Those of MAX_VOCAB tokens or a few more, at equal distances."""
    return logits[:, :: max(1, logits.shape[1] // MAX_VOCAB)]
