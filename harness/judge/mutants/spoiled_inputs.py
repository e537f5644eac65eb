"""What the contract's own plain computation makes of inputs that were spoiled on purpose."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import torch

from hillclimb.harness.case.contract import Tensors
from hillclimb.harness.errors import CaseError
from hillclimb.harness.judge.mutants.drawn import DrawnCall, Mutant, differ
from hillclimb.harness.judge.mutants.wrong_outputs import Spoil

NARROW_BITS = {torch.float64: 24, torch.float32: 11, torch.float16: 4, torch.bfloat16: 4}
"""Of a number's significand, what the next narrower arithmetic keeps: float32, TF32 and float16, float8 (e4m3)."""

FLOAT_BITS = (24, 53)
"""Of whole numbers, what float32 and float64 hold."""

SAMPLED_ELEMENTS = 16
"""Elements that a kernel looks at which takes them for all."""

RARE_SHARE = 0.0005
"""Share of the elements at each end that are rare values; at least the one that lies farthest from the median."""

MAX_BYTES_ON_CPU = 16 << 20
"""Of inputs that lie on a GPU, what is computed with on the CPU."""

SEED = 1

OTHERS = "the outputs of other inputs"


def spoiled_inputs(call: DrawnCall) -> Iterator[Mutant]:
    """Of each input and dimension, what is left out; of each input, rare values cut off, or an index off by one."""
    yield Mutant(OTHERS, lambda: call.attain(call.draw_others()), shows_dependence=True)
    for key, tensor in call.inputs.items():
        if not tensor.numel():
            continue
        if tensor.is_floating_point():
            for name, spoil in _spoils(key, tensor):
                yield Mutant(name, partial(_attained, call, key, spoil), shows_dependence=True)
        elif tensor.dtype is not torch.bool and not tensor.is_complex():
            name = f"{key} off by one, as an index"
            yield Mutant(name, partial(_attained_off_by_one, call, key), shows_dependence=True)
            for bits in FLOAT_BITS:
                spoiled = partial(_attained, call, key, _in_fewer_bits(bits))
                yield Mutant(f"{key} in {bits} bits", spoiled, should_differ=True)


def narrowed_inputs(call: DrawnCall, name: str) -> Mutant:
    """All inputs with the bits of narrower arithmetic."""
    return Mutant(name, lambda: call.attain({key: narrow(tensor) for key, tensor in call.inputs.items()}))


def narrow(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with so many bits of significand as NARROW_BITS says of its dtype; others as they are."""
    bits = NARROW_BITS.get(tensor.dtype)
    if bits is None:
        return tensor
    significand, exponent = torch.frexp(tensor.double())
    return torch.ldexp((significand * 2**bits).round_(), exponent - bits).to(tensor.dtype)


def without_rare_values(tensor: torch.Tensor) -> torch.Tensor:
    """Cut off to the range of its central 99.9 %; of a small tensor, to that of all but its most extreme element."""
    ordered = _finite(tensor).sort().values
    count, cut = len(ordered), int(len(ordered) * RARE_SHARE)
    if count < 2:
        return tensor
    if cut:
        return _cut_off(tensor, ordered[cut], ordered[count - 1 - cut])
    median = ordered[count // 2]
    if ordered[-1] - median >= median - ordered[0]:
        return _cut_off(tensor, ordered[0], ordered[-2])
    return _cut_off(tensor, ordered[1], ordered[-1])


def within_sample(tensor: torch.Tensor) -> torch.Tensor:
    """Cut off to the range of a few of its elements; one that has no more than these stays as it is."""
    count = tensor.numel()
    if count <= SAMPLED_ELEMENTS:
        return tensor
    places = torch.randint(count, (SAMPLED_ELEMENTS,), generator=torch.Generator().manual_seed(SEED))
    seen = _finite(tensor.flatten()[places.to(tensor.device)])
    return _cut_off(tensor, seen.min(), seen.max()) if len(seen) else tensor


def off_by_one(tensor: torch.Tensor) -> torch.Tensor:
    """Each whole number one higher, the highest of them the lowest."""
    wide = tensor.long()
    return torch.where(wide == wide.max(), wide.min(), wide + 1).to(tensor.dtype)


def _spoils(key: str, tensor: torch.Tensor) -> Iterator[tuple[str, Spoil]]:
    """Of an input of numbers that are computed with."""
    for dim, size in enumerate(tensor.shape):
        if size > 1:
            yield f"the end of {key} left out along dimension {dim}", _left_out(dim, size - 1)
        if size > 2:  # of two, the second half is the end
            yield f"the second half of {key} left out along dimension {dim}", _left_out(dim, size // 2)
    yield f"{key} cut off to the range of {SAMPLED_ELEMENTS} of its elements", within_sample
    yield f"{key} cut off to the range of its central 99.9 %", without_rare_values


def _in_fewer_bits(bits: int) -> Spoil:
    """The highest so many of each whole number; the others 0."""

    def spoil(tensor: torch.Tensor) -> torch.Tensor:
        wide = tensor.long()
        excess = (torch.frexp(wide.double()).exponent - bits).clamp_min(0)
        return ((wide >> excess) << excess).to(tensor.dtype)

    return spoil


def _left_out(dim: int, start: int) -> Spoil:
    def spoil(tensor: torch.Tensor) -> torch.Tensor:
        cut = tensor.clone()
        cut.narrow(dim, start, tensor.shape[dim] - start).zero_()
        return cut

    return spoil


def _attained(call: DrawnCall, key: str, spoil: Spoil) -> Tensors | None:
    spoiled = spoil(call.inputs[key])
    if not differ({key: spoiled}, call.inputs, {}):
        return None
    return call.attain({**call.inputs, key: spoiled})


def _attained_off_by_one(call: DrawnCall, key: str) -> Tensors | None:
    """On the CPU, where a place outside a tensor is refused and harms nothing; None where it is."""
    place = call.inputs[key].device
    if place.type != "cpu" and sum(t.nbytes for t in call.inputs.values()) > MAX_BYTES_ON_CPU:
        return None
    inputs = {name: tensor.cpu() for name, tensor in call.inputs.items()}
    spoiled = {**inputs, key: off_by_one(inputs[key])}
    if not differ(spoiled, inputs, {}):
        return None
    try:
        outputs = call.attain(spoiled)
        if place.type != "cpu" and not differ(outputs, call.attain(inputs), {}):
            return None
    except CaseError:
        return None
    return {name: tensor.to(place) for name, tensor in outputs.items()}


def _finite(tensor: torch.Tensor) -> torch.Tensor:
    """All finite elements in one row, in a dtype that holds them and can be sorted."""
    wide = (tensor if tensor.itemsize > 2 else tensor.float()).flatten()
    return wide[torch.isfinite(wide)]


def _cut_off(tensor: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    return tensor.to(low.dtype).clamp(low, high).to(tensor.dtype)
