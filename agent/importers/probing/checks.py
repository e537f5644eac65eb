"""What running an operator shows: which inputs it reads, where it is finite, whether it is the same each time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from hillclimb.agent.importers.formats.imported import Sizes
from hillclimb.agent.importers.probing.trial_contract import attempt

if TYPE_CHECKING:
    import torch

    from hillclimb.harness.case.contract import Tensors
    from hillclimb.harness.sources.sourced_contract import SourcedContract

SEEDS = (1, 2)
ZERO_SHARE = 1e-3
"""Share of exact zeros from which they are the source's intention."""

NEGLIGIBLE = 1e-10
"""Of a result's largest element, what float64 loses."""

MIN_ROUGH_ERROR = 1e-2
"""Error of the operator's own dtype, as a share of its result's root mean square, that is told."""


def draw(
    contract: SourcedContract, sizes: Sizes, distribution: str = "source", seed: int = SEEDS[0]
) -> Tensors:
    import torch

    return contract.inputs(sizes, distribution, torch.Generator().manual_seed(seed))


def are_equal(one: Any, other: Any) -> bool:
    """Whether tensors by name, or lists of them, are the same bit for bit; NaN equals NaN."""
    import torch

    pairs = (
        zip(one.values(), other.values(), strict=True)
        if isinstance(one, dict)
        else zip(one, other, strict=True)
    )
    return all(
        a.shape == b.shape and torch.equal(a.contiguous().view(torch.uint8), b.contiguous().view(torch.uint8))
        for a, b in pairs
    )


def find_in_place(contract: SourcedContract, sizes: Sizes) -> bool:
    """Whether it writes to what it is handed."""
    inputs = draw(contract, sizes)
    before = {name: tensor.clone() for name, tensor in inputs.items()}
    contract.results(sizes, inputs, is_exact=False)
    return not are_equal(before, inputs)


def is_random(contract: SourcedContract, sizes: Sizes) -> bool:
    """Whether the operator itself draws numbers."""
    found = []
    for seed in SEEDS:
        contract.call_seed = seed
        found.append(contract.results(sizes, draw(contract, sizes), is_exact=False))
    contract.call_seed = 0
    return not are_equal(*found)


def find_output_buffers(contract: SourcedContract, sizes: Sizes) -> dict[str, int]:
    """Inputs that only take results, with the number of the result: what is in them changes nothing."""
    inputs = draw(contract, sizes)
    results = contract.results(sizes, inputs, is_exact=False)
    found: dict[str, int] = {}
    for name, tensor in inputs.items():
        alike = [
            n for n, result in enumerate(results) if result.shape == tensor.shape and n not in found.values()
        ]
        if (
            alike
            and not reads(contract, sizes, inputs, name, results)
            and tensor.is_floating_point() | bool(alike)
        ):
            found[name] = alike[0]
    return found if len(found) < len(inputs) else {}


def find_ignored(contract: SourcedContract, sizes: Sizes) -> list[str]:
    """Inputs whose contents change no exact result beyond the rounding of float64."""
    import torch

    inputs = draw(contract, sizes)
    expected = contract.reference(sizes, inputs)

    def is_ignored(name: str) -> bool:
        found = attempt(
            lambda: contract.reference(sizes, {**inputs, name: _other(contract, sizes, inputs, name)})
        )
        return found is not None and all(
            bool(
                (
                    (found[key].double() - value.double()).abs() <= NEGLIGIBLE * value.double().abs().max()
                ).all()
            )
            and torch.equal(found[key].isfinite(), value.isfinite())
            for key, value in expected.items()
        )

    return [name for name in inputs if is_ignored(name)]


def _other(contract: SourcedContract, sizes: Sizes, inputs: Tensors, name: str) -> torch.Tensor:
    """Other contents of one input."""
    other = draw(contract, sizes, seed=SEEDS[1])[name]
    return other if not are_equal([other], [inputs[name]]) else _shifted(other)


def reads(
    contract: SourcedContract, sizes: Sizes, inputs: Tensors, name: str, results: Sequence[torch.Tensor]
) -> bool:
    """Whether other contents of one input give other results."""
    changed = _other(contract, sizes, inputs, name)
    spoiled = {key: tensor.clone() for key, tensor in inputs.items()} | {name: changed}
    found = attempt(lambda: contract.results(sizes, spoiled, is_exact=False))
    return found is None or not are_equal(
        results, found
    )  # where it refuses what it is handed, it looked at it


def _shifted(tensor: torch.Tensor) -> torch.Tensor:
    return ~tensor if str(tensor.dtype) == "torch.bool" else tensor + 1


def structure_of(contract: SourcedContract, sizes: Sizes) -> str:
    """Why inputs of several distributions may not stand in one another; empty where nothing speaks against it."""
    import torch

    for name, tensor in draw(contract, sizes).items():
        if not tensor.is_floating_point() or tensor.numel() < 16 or name in contract.constant_weights:
            continue
        wide = tensor.double()
        if 0 < float((wide == 0).double().mean()) < 1 and float((wide == 0).double().mean()) > ZERO_SHARE:
            return f"the source puts zeros into {name}, whose places may be part of the operator"
        if bool((wide == wide.flatten()[0]).all()):
            continue
        if wide.ndim > 1 and wide.shape[-1] == wide.shape[-2] and torch.equal(wide, wide.mT):
            return f"the source makes {name} symmetric"
        sums = wide.sum(-1)
        if wide.shape[-1] > 1 and bool((wide >= 0).all()) and bool(((sums - 1).abs() < 1e-3).all()):
            return f"the source makes the last axis of {name} sum to 1"
        steps = wide.reshape(-1, wide.shape[-1]).diff(dim=-1)
        if wide.shape[-1] > 8 and (bool((steps >= 0).all()) or bool((steps <= 0).all())):
            return f"the source sorts {name}"
    return ""


def is_usable(contract: SourcedContract, sizes: Sizes, distribution: str) -> bool:
    """Whether its exact results are numbers that its own dtype reaches, and are not all the same."""
    import torch

    inputs = draw(contract, sizes, distribution)
    reference = attempt(lambda: contract.reference(sizes, inputs))
    plain = attempt(lambda: contract.attainable(sizes, inputs))
    if reference is None or plain is None:
        return False
    return all(
        bool(torch.isfinite(value.double()).all()) and bool(torch.isfinite(plain[name].double()).all())
        for name, value in reference.items()
    )


def rough_errors(contract: SourcedContract, sizes: Sizes) -> list[str]:
    """Outputs that the operator's own dtype computes poorly, which widens what is allowed."""
    inputs = draw(contract, sizes)
    reference, plain = contract.reference(sizes, inputs), contract.attainable(sizes, inputs)
    found = []
    for name, value in reference.items():
        wide = value.double()
        size = float(wide.square().mean().sqrt()) or 1.0
        error = float((plain[name].double() - wide).abs().max()) / size
        if plain[name].dtype.itemsize >= 4 and plain[name].is_floating_point() and error > MIN_ROUGH_ERROR:
            found.append(
                f"{name}: its own dtype is off by {error:.2g} of its size; the error budget is as wide"
            )
    return found


def vacuous_outputs(contract: SourcedContract, sizes: Sizes) -> list[str]:
    """Outputs that are the same for all inputs."""
    some, others = (contract.attainable(sizes, draw(contract, sizes, seed=seed)) for seed in SEEDS)
    names = [name for name in some if are_equal([some[name]], [others[name]])]
    return [
        f"{name}: it is the same for all inputs that the source draws, so any constant is right"
        for name in names
    ]
