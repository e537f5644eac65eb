"""Whether a model's logits are those of its weights, or of weights of which some are a little larger or smaller.

One matrix of a layer times 0.98 changes logits less than rounding to bfloat16 does. But it changes them in the same
direction everywhere, and rounding does not. So the errors are projected on what a change of each matrix's scale does to
the logits, by least squares with weights: positions where a right computation errs more count less. Errors of one
position belong together, which the standard error of each estimate allows for: it is the sandwich estimator over
clusters of Liang and Zeger, Biometrika 73 (1986).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch

STEP = 0.01
"""Relative change of a scale by which its direction is found."""

STANDARD_ERRORS = 8.0
"""By how many an estimate on rounding alone may be off: it has a small bias, and what is rounded at one position is
read at the next ones."""

EXPECTED_LARGEST = 2.5
"""Standard errors that the largest estimate on rounding alone is about. Where it is more, positions have errors in
common that they do not show, as of a prompt that they all read, and every standard error is larger by as much."""

HONEST_CHANGE = 0.005
"""Relative change of a scale that is never held against a kernel: a weight folded in bfloat16 rounds by up to 0.004."""

SCALES = ("q", "o", "gate", "up")
"""Of each layer, matrices whose scale is no other's: doubling k is doubling q, v is o, and down is up. The embedding's
is told by all layers: to double it is to halve whatever they add to it."""

SCALES_IN_CONTEXT = ("k", "v")
"""Those that are others' no longer where some keys and values are given."""

Scale = tuple[str, int]


@dataclass(frozen=True)
class ScaleAudit:
    """What a change of each scale does to some logits, and how well a change can be told from rounding."""

    scales: tuple[Scale, ...]
    limits: torch.Tensor
    """Largest estimate of each that is not held against a kernel, float64 [scales]."""
    _directions: torch.Tensor
    """[scales, positions, vocabulary], weighted."""
    _weights: torch.Tensor
    """[positions, 1]."""

    @classmethod
    def of(
        cls, scales: tuple[Scale, ...], exact: torch.Tensor, changed: torch.Tensor, rounding: torch.Tensor
    ) -> ScaleAudit:
        """Logits of [positions, vocabulary]: right ones, and errors of a right computation of them by rounding.

        `changed` are [scales, positions, vocabulary], each with its scale larger by STEP.
        """
        weights = 1 / centred(rounding).square().mean(1, keepdim=True).sqrt().clamp_min(1e-300)
        audit = cls(scales, torch.empty(0), weights * centred((changed - exact) / STEP), weights)
        parts = audit._parts(rounding)
        errors = (parts - parts.mean(1, keepdim=True)).square().sum(1).sqrt()
        errors = errors.clamp_min(HONEST_CHANGE / STANDARD_ERRORS)
        largest = float((parts.sum(1).abs() / errors).max())
        return replace(audit, limits=STANDARD_ERRORS * max(1.0, largest / EXPECTED_LARGEST) * errors)

    def estimates(self, errors: torch.Tensor) -> torch.Tensor:
        """By how much each scale is changed if no other is, relative, as errors of [positions, vocabulary] tell."""
        return self._parts(errors).sum(1)

    def share(self, errors: torch.Tensor) -> float:
        """The largest estimate as a share of its limit."""
        return float((self.estimates(errors).abs() / self.limits).max())

    def _parts(self, errors: torch.Tensor) -> torch.Tensor:
        """What each position adds to the estimates, [scales, positions]."""
        products = (self._directions * (self._weights * centred(errors))).sum(2)
        return products / self._directions.square().sum((1, 2)).clamp_min(1e-300)[:, None]


def scales_of(layers: int, *, has_context: bool) -> tuple[Scale, ...]:
    """Every one that can be told from the others."""
    names = SCALES + (SCALES_IN_CONTEXT if has_context else ())
    return (*((name, layer) for layer in range(layers) for name in names), ("lm_head", 0))


def larger(scales: Sequence[Scale], batch: int, place: torch.device) -> dict[Scale, torch.Tensor]:
    """For as many models as there are scales, one after another in one batch: each with its own scale changed."""
    of_each = 1 + STEP * torch.eye(len(scales), device=place)
    return {scale: of_each[i].repeat_interleave(batch)[:, None, None] for i, scale in enumerate(scales)}


def centred(logits: torch.Tensor) -> torch.Tensor:
    """Without what all logits of a position have in common."""
    return logits - logits.mean(-1, keepdim=True)
