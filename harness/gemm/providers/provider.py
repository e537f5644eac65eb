"""What a provider is to its worker process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol, runtime_checkable

from hillclimb.harness.gemm.families.point import RESULT_BYTES
from hillclimb.harness.gemm.shape import ITEM_BYTES, GemmShape

HOPPER = (9, 0)
"""Compute capability of a GPU that runs code for sm_90a."""

ALIGNMENT_BYTES = 16


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
    group_rows: tuple[int, ...] = ()
    """With groups: how many tokens each has, in their order; `w` is [groups, n, k] then, and `w_scales` [groups, n]."""
    group_ends: Any = None
    """Where the tokens of each end, [groups], int32: what a kernel may know of it."""

    def each_group(self) -> Iterator[Operands]:
        """The products of the groups that have tokens, each with its part of the result."""
        ends = accumulate(self.group_rows)
        for group, (rows, end) in enumerate(zip(self.group_rows, ends, strict=True)):
            if rows:
                tokens = slice(end - rows, end)
                scales = (self.x_scales[tokens], self.w_scales[group]) if self.x_scales is not None else ()
                yield Operands(self.x[tokens], self.w[group], self.out[tokens], *scales)


Launch = Callable[[Operands], Any]
"""Begins the product on torch's current stream, and does not wait for it. What it returns has the result, where that is
not in `out`."""


class Provider(Protocol):
    """Where kernels come from. It lives in one process, for one shape after another."""

    def software(self) -> dict[str, str]:
        """Versions by name, beside those of torch and CUDA."""

    def kernels(self, shape: GemmShape, example: Operands) -> Sequence[str]:
        """Names of those that may do this shape, the likeliest first. Raises UnsupportedError where it has none."""

    def launch(self, shape: GemmShape, kernel: str) -> Launch:
        """One of them. Raises UnsupportedError."""


def is_for_tma(shape: GemmShape) -> bool:
    """Whether rows of the operands and of the result begin in steps of 16 bytes, as TMA asks for."""
    row_bytes = shape.k * ITEM_BYTES[shape.dtype], shape.n * RESULT_BYTES[shape.dtype]
    return not any(size % ALIGNMENT_BYTES for size in row_bytes)


@runtime_checkable
class RefiningProvider(Provider, Protocol):
    """One whose kernels may be run in more ways than are worth a look each."""

    def refine(self, best: Sequence[str]) -> Sequence[str]:
        """Further ones, near those that were best."""
