"""A contract of a plan, before its names are known: what the explorations run."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from hillclimb.agent.importers.formats.imported import DrawPlan, Plan, Sizes

if TYPE_CHECKING:
    from hillclimb.harness.sources.draws import Draw
    from hillclimb.harness.sources.skeleton import Skeleton
    from hillclimb.harness.sources.sourced_contract import SourcedContract

Found = TypeVar("Found")

MAX_TRIED_BYTES = 4 << 20
"""Most that a problem may read to be tried with contents."""

TAKEN = {"torch", "np", "run", "cast", "operator", "prepared", "module"}
"""Names that a baseline uses itself."""


@dataclass(frozen=True)
class Trial:
    """A contract, what it says of the first problem, and the plan it is of."""

    plan: Plan
    contract: SourcedContract
    skeleton: Skeleton
    result_paths: tuple[str, ...]

    def is_valid(self, problem: Sizes) -> bool:
        """Whether the operator can be computed for these sizes, by shapes alone."""
        return self.bytes_of(problem) is not None

    def bytes_of(self, problem: Sizes) -> int | None:
        """Bytes that a call moves; None where the operator has no such problem."""
        from hillclimb.harness.sources.sourced_contract import on_shapes_alone

        if self.plan.operator.kind == "NumpyFunction":  # NumPy has no arrays without contents
            return attempt(lambda: _same_kind(self, problem))
        return attempt(lambda: on_shapes_alone(lambda: _same_kind(self, problem)))


def attempt(action: Callable[[], Found]) -> Found | None:
    """What somebody's code gives where nobody wrote it for; None where it raises."""
    try:
        return action()
    except Exception:  # noqa: BLE001 - it may raise anything, and that it does is the answer
        return None


def _same_kind(trial: Trial, problem: Sizes) -> int:
    """Bytes of a problem whose arguments have as many tensors, of as many dimensions."""
    skeleton = trial.contract.skeleton(problem)
    if [len(p.shape) for p in skeleton.places] != [len(p.shape) for p in trial.skeleton.places]:
        raise ValueError("it has other arguments")
    if any(0 in place.shape for place in skeleton.places):
        raise ValueError("an argument is empty")
    read = sum(math.prod(place.shape) * place.dtype.itemsize for place in skeleton.places)
    if trial.plan.operator.kind == "NumpyFunction" and read > MAX_TRIED_BYTES:
        return read
    specs = trial.contract.outputs(problem)
    if any(0 in spec.shape for spec in specs.values()):
        raise ValueError("an output is empty")
    return trial.contract.work(problem).bytes


def contract_of(plan: Plan, source: Path, mode: str) -> SourcedContract:
    """The plan's contract; names of inputs and outputs are to be set."""
    from hillclimb.harness.sources import operators
    from hillclimb.harness.sources.sourced_contract import SourcedContract

    constants = {name: name for name in plan.constants}
    told = plan.operator
    made: dict[str, Any] = {
        "Module": lambda: operators.Module(source, told.name, told.sizes_from, mode, constants),  # type: ignore[arg-type]
        "Function": lambda: operators.Function(source, told.name, told.is_unpacked, constants),
        "NumpyFunction": lambda: operators.NumpyFunction(source, told.name, told.is_unpacked, constants),
    }
    contract = SourcedContract()
    contract.operator = made[told.kind]()
    contract.draw = _draw_of(plan.draw, source, constants)
    contract.problems = plan.problems
    return contract


def _draw_of(plan: DrawPlan, source: Path, constants: Mapping[str, str]) -> Draw:
    from hillclimb.harness.sources.draws import DrawnArray, FromFunction, FromShapes

    if plan.function:
        return FromFunction(source, plan.function, constants)
    arrays = {name: DrawnArray(a.shape, a.dtype, a.fill, a.low, a.high) for name, a in plan.arrays.items()}
    return FromShapes(arrays, tuple(plan.scalars), tuple(plan.order))


def trial_of(plan: Plan, source: Path, mode: str = "train") -> Trial:
    """Raises whatever the source raises."""
    from torch.utils import _pytree as pytree

    contract = contract_of(plan, source, mode)
    first = next(iter(plan.problems.values()))
    skeleton = contract.skeleton(first)
    hints = [*_path_names(plan, skeleton)]
    contract.input_names = tuple(_unique(hints, TAKEN))
    scalars = _scalar_names(plan, skeleton, pytree.keystr)
    contract.attribute_names = tuple(_unique(scalars, {*TAKEN, *contract.input_names}))
    paths = contract.on_inputs(first, lambda inputs: _paths(contract.answer(first, inputs, is_exact=False)))
    if not paths:
        raise ValueError(
            "the operator gives no tensor back; one that only changes its arguments is not imported"
        )
    taken = [*contract.input_names, *contract.attribute_names]
    contract.output_names = tuple(named_outputs(plan, paths, taken))
    return Trial(plan, contract, skeleton, tuple(paths))


def _paths(answer: Any) -> list[str]:
    """Where its tensors are, as Python writes it."""
    import torch
    from torch.utils import _pytree as pytree

    leaves = pytree.tree_flatten_with_path(answer)[0]
    return [pytree.keystr(path) for path, leaf in leaves if isinstance(leaf, torch.Tensor)]


def _path_names(plan: Plan, skeleton: Skeleton) -> list[str]:
    return [
        _name_of(place.path, plan.argument_names, place.path.startswith("[1]")) for place in skeleton.places
    ]


def _name_of(path: str, hints: Sequence[str], is_weight: bool) -> str:
    """`[0][2]` is the third argument, `[0]['w.x']` the one of that key, `[1]['conv.weight']` a weight."""
    keys = re.findall(r"\['([^']*)'\]|\[(\d+)\]|\.(\w+)", path)[1:]
    words = [word or attribute for word, _, attribute in keys]
    if words and words[-1]:
        return str(words[-1])
    numbers = [int(number) for word, number, _ in keys if number and not word]
    if is_weight:
        return "weight"
    if not numbers:
        return hints[0] if hints else "x"
    name = hints[numbers[0]] if numbers[0] < len(hints) else f"x{numbers[0]}"
    return "_".join([name, *map(str, numbers[1:])])


def _scalar_names(plan: Plan, skeleton: Skeleton, spell: Callable[[Any], str]) -> list[str]:
    from torch.utils import _pytree as pytree

    from hillclimb.harness.sources.skeleton import TensorPlace

    hints = plan.attribute_names
    made = [hints[n] if n < len(hints) else f"size{n}" for n in range(len(skeleton.sizes))]
    numbered = pytree.tree_unflatten(list(skeleton.leaves), skeleton.structure)
    paths = [
        spell(path)
        for path, leaf in pytree.tree_flatten_with_path(
            numbered, is_leaf=lambda v: isinstance(v, TensorPlace)
        )[0]
        if not isinstance(leaf, TensorPlace)
    ]
    return [*made, *(_name_of(path, plan.argument_names, is_weight=False) for path in paths)]


def _unique(names: Iterable[str], taken: set[str]) -> list[str]:
    """As parameters of one function can be named."""
    found: list[str] = []
    for name in names:
        plain = re.sub(r"\W", "_", name, flags=re.ASCII).lstrip("_") or "x"
        plain = f"x{plain}" if plain[0].isdigit() else plain
        plain = f"{plain}_" if keyword.iskeyword(plain) or plain in taken else plain
        number = 2
        while plain in found or plain in taken:
            plain, number = f"{re.sub(r'_?[0-9]*$', '', plain)}_{number}", number + 1
        found.append(plain)
    return found


def named_outputs(plan: Plan, paths: Sequence[str], taken: Sequence[str]) -> list[str]:
    """As the plan hints or the answer's own keys, else y, or y0, y1, ..."""
    keys = [key[-1] for path in paths if (key := re.findall(r"\['([^']*)'\]$", path))]
    plain = "y" if "y" not in taken else "out"
    numbered = [plain] if len(paths) == 1 else [f"{plain}{number}" for number in range(len(paths))]
    hints = next((found for found in (plan.output_names, keys) if len(found) == len(paths)), numbered)
    return _unique(hints, {*TAKEN, *taken})
