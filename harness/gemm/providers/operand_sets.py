"""What the kernels of one shape multiply: random operands, in as many sets as are asked for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import torch

from hillclimb.harness.gemm.providers.provider import Operands
from hillclimb.harness.gemm.shape import UNSCALED, Dtype, GemmShape, stored

INPUT: dict[Dtype, torch.dtype] = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "fp8": torch.float8_e4m3fn,
    "int8": torch.int8,
}
OUTPUT: dict[Dtype, torch.dtype] = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "fp8": torch.bfloat16,
    "int8": torch.int32,
    "scaled_fp8": torch.bfloat16,
    "scaled_int8": torch.bfloat16,
}


def operand_sets(shape: GemmShape, count: int, generator: torch.Generator) -> Iterator[Operands]:
    """So many, on the generator's device.

    Tokens are spread over groups evenly, and those that are left by lot. Where there are fewer tokens than groups, sets
    share their weights, and each meets other ones.
    """
    sharing = shape.groups // shape.used_groups
    for at in range(count):
        if at % sharing == 0:
            w, w_scales = _weights(shape, generator)
            order = torch.randperm(shape.groups, generator=generator, device=generator.device)
        x = _random((shape.m, shape.k), shape.dtype, generator)
        out = x.new_empty((shape.m, shape.n), dtype=OUTPUT[shape.dtype])
        x_scales = _scales((shape.m,), generator) if shape.dtype in UNSCALED else None
        one = Operands(x, w, out, x_scales, w_scales)
        if shape.groups > 1:
            one = _spread(one, _even_rows(shape, order.roll(-(at % sharing) * shape.used_groups)))
        yield one


def unevenly_spread(one: Operands, generator: torch.Generator) -> Operands:
    """A set of groups again, with a result of its own: half of them have no tokens, and a few have most."""
    groups = len(one.group_rows)
    shares = 1 / torch.arange(1, (groups + 1) // 2 + 1, device=generator.device)
    drawn = torch.multinomial(shares, one.x.shape[0], replacement=True, generator=generator)
    order = torch.randperm(groups, generator=generator, device=generator.device)
    rows = torch.bincount(order[drawn], minlength=groups)
    return _spread(replace(one, out=torch.empty_like(one.out)), rows)


def _spread(one: Operands, rows: torch.Tensor) -> Operands:
    return replace(one, group_rows=tuple(rows.tolist()), group_ends=rows.cumsum(0, dtype=torch.int32))


def _even_rows(shape: GemmShape, order: torch.Tensor) -> torch.Tensor:
    """As many for each group as for another; those that are left go to the first of this order."""
    each, left = divmod(shape.m, shape.groups)
    rows = torch.full_like(order, each)
    rows[order[:left]] += 1
    return rows


def _weights(shape: GemmShape, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor | None]:
    groups = (shape.groups,) if shape.groups > 1 else ()
    w = _random((*groups, shape.n, shape.k), shape.dtype, generator)
    return w, _scales((*groups, shape.n), generator) if shape.dtype in UNSCALED else None


def _random(size: tuple[int, ...], dtype: Dtype, generator: torch.Generator) -> torch.Tensor:
    """Of a normal distribution, as are activations and weights; whole numbers of a standard deviation of 30."""
    made = torch.empty(size, dtype=INPUT[stored(dtype)], device=generator.device)
    for part in made.view(-1, *size[-2:]):
        values = torch.randn(size[-2:], generator=generator, device=generator.device, dtype=torch.float32)
        part.copy_((values * 30).round().clamp(-127, 127) if stored(dtype) == "int8" else values)
    return made


def _scales(size: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """From a half to one and a half, so that one of another row is wrong."""
    return torch.rand(size, generator=generator, device=generator.device, dtype=torch.float32) + 0.5
