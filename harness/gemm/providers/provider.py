"""What a provider is to its worker process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from hillclimb.harness.gemm.shape import GemmShape


class UnsupportedError(Exception):
    """The provider cannot do this shape, or this kernel cannot; the text says why."""


@dataclass(frozen=True)
class Operands:
    """One set of them, of tensors on the GPU."""

    x: Any
    """Tokens, [m, k], row-major."""
    w: Any
    """Weights, [n, k], row-major."""
    out: Any
    """Result x w^T, [m, n], row-major: bfloat16, float16 for float16, int32 for int8."""
    x_scales: Any = None
    """Of each token, [m], float32; None where the dtype has no scales."""
    w_scales: Any = None
    """Of each row of weights, [n], likewise. A result is multiplied by both, in float32, before it is rounded."""


Launch = Callable[[Operands], None]
"""Begins the product on torch's current stream, and does not wait for it."""


class Provider(Protocol):
    """Where kernels come from. It lives in one process, for one shape after another."""

    def software(self) -> dict[str, str]:
        """Versions by name, beside those of torch and CUDA."""

    def kernels(self, shape: GemmShape, example: Operands) -> Sequence[str]:
        """Names of those that may do this shape, the likeliest first. Raises UnsupportedError where it has none."""

    def launch(self, shape: GemmShape, kernel: str) -> Launch:
        """One of them. Raises UnsupportedError."""


@runtime_checkable
class RefiningProvider(Provider, Protocol):
    """One whose kernels may be run in more ways than are worth a look each."""

    def refine(self, best: Sequence[str]) -> Sequence[str]:
        """Further ones, near those that were best."""
