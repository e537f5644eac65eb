"""What a kernel may be handed: strides of inputs and outputs, inputs that are outputs, and how bytes are compared."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from hillclimb.harness.case.contract import Spec, Tensors
from hillclimb.harness.case.contract_call import ContractCall
from hillclimb.harness.channel.strides import (
    Shape,
    are_contiguous,
    are_dense,
    contiguous_strides,
    do_overlap,
    same_strides,
)


def strides_of(one: torch.Tensor | Spec) -> Shape | None:
    """In elements; None where it is C-contiguous."""
    shape = tuple(one.shape)
    strides = one.strides if isinstance(one, Spec) else tuple(one.stride())
    return None if strides is None or are_contiguous(shape, strides) else strides


def empty_like(spec: Spec, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(spec.shape, _all_strides(spec), dtype=spec.dtype, device=device)


def specs_of(tensors: Tensors) -> dict[str, Spec]:
    """Shape, dtype and strides of each."""
    return {name: Spec(tuple(t.shape), t.dtype, strides=strides_of(t)) for name, t in tensors.items()}


def bytes_of(tensor: torch.Tensor) -> torch.Tensor:
    """All elements in C order as one row of bytes, by which NaN equals itself."""
    return tensor.contiguous().as_strided((tensor.numel(),), (1,)).view(torch.uint8)


def are_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Bit for bit; the strides may differ."""
    same_kind = one.shape == other.shape and one.dtype == other.dtype
    return same_kind and torch.equal(bytes_of(one), bytes_of(other))


def expect_apart(call: ContractCall, key: str, tensor: torch.Tensor) -> None:
    """Raises CaseError where two elements of an input lie at one place."""
    if do_overlap(tuple(tensor.shape), tuple(tensor.stride())):
        call.refuse(
            f"gives {key!r} of shape {list(tensor.shape)} the strides {list(tensor.stride())}, by which elements share "
            "memory",
            "call .contiguous() on it, or give it before it is expanded",
        )


def expect_strides(call: ContractCall, key: str, spec: Spec) -> None:
    """Raises CaseError where an output's strides are no whole numbers, one for each dimension."""
    given: object = spec.strides
    if given is None:
        return
    if not isinstance(given, tuple) or not all(isinstance(s, int) and s >= 0 for s in given):
        call.refuse(f"gives {key!r} the strides {given!r}", "give a tuple of whole numbers, as (1, 64)")
    if len(given) != len(spec.shape):
        call.refuse(
            f"gives {key!r} of shape {spec.shape} the strides {given}", "give one stride for each dimension"
        )


def expect_dense(call: ContractCall, specs: Mapping[str, Spec], inputs: Mapping[str, Spec]) -> None:
    """Raises CaseError where an output has gaps, or is not as the input that has its name."""
    for key, spec in specs.items():
        if key in inputs:
            _expect_alike(call, key, spec, inputs[key])
        elif spec.strides is not None and not are_dense(spec.shape, spec.strides):
            call.refuse(
                f"gives {key!r} of shape {spec.shape} the strides {spec.strides}, which leave gaps or overlap",
                "give strides that are dense in some order of the dimensions, or none",
            )


def _expect_alike(call: ContractCall, key: str, output: Spec, changed: Spec) -> None:
    same_kind = (output.shape, output.dtype) == (changed.shape, changed.dtype)
    if same_kind and same_strides(output.shape, _all_strides(output), _all_strides(changed)):
        return
    call.refuse(
        f"gives {key!r} as {_spell(output)}, where the input of that name, which it is, is {_spell(changed)}",
        f"give it the input's: {_spell(changed)}; or another name, if it is no input changed in place",
    )


def _all_strides(spec: Spec) -> Shape:
    strides = strides_of(spec)
    return contiguous_strides(spec.shape) if strides is None else strides


def _spell(spec: Spec) -> str:
    strides = "" if spec.strides is None else f", strides={spec.strides}"
    return f"Spec({spec.shape}, {spec.dtype}{strides})"


def have_same_infinities(tensor: torch.Tensor, reference: torch.Tensor) -> bool:
    """Whether both hold the same infinities at the same places, and neither NaN."""
    return (_is_finite(tensor) and _is_finite(reference)) or torch.equal(
        infinities(tensor), infinities(reference)
    )


def _is_finite(tensor: torch.Tensor) -> bool:
    """Of float8 torch cannot tell that itself."""
    return bool(torch.isfinite(tensor.double() if tensor.itemsize == 1 else tensor).all())


def infinities(tensor: torch.Tensor) -> torch.Tensor:
    """What is infinite or NaN as it is, 0 for all others; float64."""
    wide = tensor.double()
    return torch.where(torch.isfinite(wide), 0.0, wide)


def infinite_elsewhere(name: str) -> tuple[str, str]:
    """What is wrong with such an output, and what to do."""
    return (
        f"gives {name!r} infinite elsewhere than the reference",
        "choose distributions whose result the dtype holds",
    )
