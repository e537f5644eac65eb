"""A contract whose operator is somebody's own code: it draws with it, and computes with it in float64.

Inputs of the kernel are the tensors among the operator's arguments, then its weights. Whatever else it is called or
made with is an attribute. A case's contract.py sets the attributes below, and may override any method.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar
from unittest import mock

import torch
from torch.utils import _pytree as pytree
from torch.utils.flop_counter import FlopCounterMode

from hillclimb.harness.case.contract import Contract, Problem, Spec, Tensors, Work
from hillclimb.harness.channel.layout import Attribute
from hillclimb.harness.sources.draws import Draw, draw_seed
from hillclimb.harness.sources.modes import exactly, placed, seeded
from hillclimb.harness.sources.operators import Operator
from hillclimb.harness.sources.skeleton import (
    Drawn,
    Skeleton,
    TensorPlace,
    attribute,
    skeleton_of,
    tensors_of,
)
from hillclimb.harness.sources.source_file import load_source

FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2)
Found = TypeVar("Found")
_TO = torch.nn.Module.to


def _signed(tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(tensor == 0, tensor, 4 * tensor - 2)


def _offset(tensor: torch.Tensor) -> torch.Tensor:
    return torch.where(tensor == 0, tensor, tensor + 4)


SPREADS: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "source": lambda tensor: tensor,
    "scaled": lambda tensor: tensor * 8,
    "signed": _signed,
    "offset": _offset,
    "weights": lambda tensor: tensor,
}
"""Distributions: what becomes of each float argument of the source's own. Zeros stay, and equal elements stay equal.
Under `weights`, weights whose elements are all the same get values of their own instead."""


class SourcedContract(Contract):
    """What right means where an operator's code says it."""

    operator: Operator
    draw: Draw
    input_names: tuple[str, ...]
    """Of all tensors among the arguments and weights, in order."""
    output_names: tuple[str, ...]
    unread: tuple[str, ...] = ()
    """Those of `input_names` that the operator does not read; the kernel is not given them."""
    attribute_names: tuple[str, ...] = ()
    """Of what is no tensor, in order: the module's sizes, then the others."""
    constant_weights: tuple[str, ...] = ()
    """Those of `input_names` whose elements are all the same as the source draws them."""
    output_dtypes: Mapping[str, torch.dtype] = MappingProxyType({})
    """Where they are others than the operator gives."""
    rule: tuple[Path, str] | None = None
    """The source's function that says whether outputs are right, called with the arguments and them."""
    is_in_place: bool = False
    """Whether the operator writes to its arguments."""
    neighbours: Mapping[str, Sequence[Problem]] = MappingProxyType({})
    """Problems that no list shows, by the listed one that they are like."""
    distributions: tuple[str, ...] = ("source",)
    call_seed = 0
    """Of what the operator itself draws while it computes: nothing, if it is to be right for certain."""

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        place = str(generator.device)
        with seeded(draw_seed(generator), place), placed(place):
            tensors = tensors_of(self._draw(problem))
            named = zip(self.input_names, tensors, strict=True)
            return {
                name: self._spread(name, tensor, distribution)
                for name, tensor in named
                if name not in self.unread
            }

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return dict(self._remembered("measure", problem, self._measure)[0])

    def attributes(self, problem: Problem) -> dict[str, Attribute]:
        scalars = self.skeleton(problem).scalars()
        return {name: attribute(value) for name, value in zip(self.attribute_names, scalars, strict=True)}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return next((self.neighbours.get(name, ()) for name, p in self.problems.items() if p == problem), ())

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        wide = {name: _widened(tensor) for name, tensor in inputs.items()}
        found = self.computed(problem, wide, is_exact=True)
        return {
            name: tensor.double() if tensor.is_floating_point() else tensor.to(torch.int64)
            for name, tensor in found.items()
        }

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        specs = self.outputs(problem)
        found = self.computed(problem, inputs, is_exact=False)
        return {name: tensor.to(specs[name].dtype) for name, tensor in found.items()}

    def errors(self, problem: Problem, inputs: Tensors, outputs: Tensors) -> Tensors | None:
        if self.rule is None:
            return None
        place = str(next(iter(outputs.values())).device)
        arguments = self._filled(problem, {n: t.clone() for n, t in inputs.items()}, place, False).arguments
        given = tuple(outputs.values()) if len(outputs) > 1 else next(iter(outputs.values()))
        with seeded(0, place), placed(place):
            found = load_source(self.rule[0])[self.rule[1]](arguments, given)
        share = 0.0 if is_accepted(found) else float("inf")
        return {name: torch.tensor(share, dtype=torch.float64, device=place) for name in outputs}

    def work(self, problem: Problem) -> Work:
        """The products that torch counts, at least an operation an element, and every tensor once."""
        specs, flops = self._remembered("measure", problem, self._measure)
        read = [
            torch.empty(p.shape, dtype=p.dtype, device="meta") for p in self._read_places(problem).values()
        ]
        written = [torch.empty(spec.shape, dtype=spec.dtype, device="meta") for spec in specs.values()]
        return Work(
            flops=max(flops, sum(tensor.numel() for tensor in written)),
            bytes=sum(tensor.nbytes for tensor in (*read, *written)),
        )

    def computed(self, problem: Problem, inputs: Tensors, *, is_exact: bool) -> Tensors:
        """The operator's results by name."""
        return dict(zip(self.output_names, self.results(problem, inputs, is_exact=is_exact), strict=True))

    def results(self, problem: Problem, inputs: Tensors, *, is_exact: bool) -> list[torch.Tensor]:
        """All tensors that the operator gives, contiguous and of at least one dimension."""
        found = self.answer(problem, inputs, is_exact=is_exact)
        leaves = [leaf for leaf in pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor)]
        return [leaf.detach().reshape(leaf.shape or (1,)).contiguous() for leaf in leaves]

    def answer(self, problem: Problem, inputs: Tensors, *, is_exact: bool) -> Any:
        """What the operator gives, as it is."""
        place = str(next(iter(inputs.values())).device) if inputs else "cpu"
        drawn = self._filled(problem, inputs, place, is_exact)
        with ExitStack() as stack:
            stack.enter_context(seeded(self.call_seed, place))
            stack.enter_context(placed(place))
            stack.enter_context(exactly() if is_exact else nullcontext())
            return self.operator(problem, drawn.arguments, drawn.weights, is_exact=is_exact)

    def skeleton(self, problem: Problem) -> Skeleton:
        return self._remembered("skeleton", problem, self._find_skeleton)

    def forget(self) -> None:
        """What was found out under other names."""
        self.__dict__.pop("_known", None)

    def _draw(self, problem: Problem) -> Drawn:
        return Drawn(self.draw(problem), self.operator.weights(problem), self.operator.sizes(problem))

    def _spread(self, name: str, tensor: torch.Tensor, distribution: str) -> torch.Tensor:
        tensor = tensor.detach().reshape(tensor.shape or (1,))
        is_weight = self.input_names.index(name) >= len(self.input_names) - self._weight_count()
        if distribution == "weights" and name in self.constant_weights and tensor.is_floating_point():
            tensor = tensor + torch.rand_like(tensor) * 0.5
        elif not is_weight and tensor.dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
            tensor = SPREADS[distribution](tensor)
        return tensor.clone(memory_format=torch.contiguous_format)

    def _weight_count(self) -> int:
        first = next(iter(self.problems.values()))
        return sum(place.path.startswith("[1]") for place in self.skeleton(first).places)

    def _filled(self, problem: Problem, inputs: Tensors, place: str, is_exact: bool) -> Drawn:
        """The operator's arguments again; what it does not read has any contents."""
        tensors = []
        skeleton = self.skeleton(problem)
        for name, leaf in zip(self.input_names, skeleton.places, strict=True):
            given = inputs.get(name)
            if given is None:
                dtype = torch.float64 if is_exact and leaf.dtype.is_floating_point else leaf.dtype
                given = torch.zeros(leaf.shape, dtype=dtype, device=place)
            elif self.is_in_place:
                given = given.clone()
            tensors.append(given.reshape(leaf.shape))
        return skeleton.fill(tensors)

    def _find_skeleton(self, problem: Problem) -> Skeleton:
        def draw() -> Skeleton:
            with placed("cpu"):
                return skeleton_of(self._draw(problem))

        return self._without_contents(draw)

    def _measure(self, problem: Problem) -> tuple[dict[str, Spec], int]:
        """Specs of the outputs, and the products that torch counts in one call."""
        counter = FlopCounterMode(display=False)

        def call(inputs: Tensors) -> dict[str, Spec]:
            with counter:
                found = self.computed(problem, inputs, is_exact=False)
            return {
                name: Spec(tuple(tensor.shape), self.output_dtypes.get(name, tensor.dtype))
                for name, tensor in found.items()
            }

        return self.on_inputs(problem, call), int(counter.get_total_flops())

    def on_inputs(self, problem: Problem, action: Callable[[Tensors], Found]) -> Found:
        """What an action does with inputs of this problem that have no contents, or with real ones where it must."""
        return self._without_contents(lambda: action(self._empty_inputs(problem)))

    def _empty_inputs(self, problem: Problem) -> Tensors:
        return {
            name: torch.zeros(place.shape or (1,), dtype=place.dtype)
            for name, place in self._read_places(problem).items()
        }

    def _read_places(self, problem: Problem) -> dict[str, TensorPlace]:
        """Of the inputs that a kernel is given."""
        named = zip(self.input_names, self.skeleton(problem).places, strict=True)
        return {name: place for name, place in named if name not in self.unread}

    def _without_contents(self, action: Callable[[], Found]) -> Found:
        """An action on tensors without contents; in earnest where it depends on what tensors hold."""
        try:
            return on_shapes_alone(action)
        except Exception:  # noqa: BLE001 - somebody's code, run as nobody wrote it for; in earnest it says what is wrong
            with seeded(0, "cpu"), torch.no_grad():
                return action()

    def _remembered(self, what: str, problem: Problem, find: Callable[[Problem], Found]) -> Found:
        known: dict[tuple[str, str], Any] = self.__dict__.setdefault("_known", {})
        key = (what, repr(sorted(problem.items(), key=repr)))
        if key not in known:
            known[key] = find(problem)
        found: Found = known[key]
        return found


def is_accepted(found: Any) -> bool:
    """What a check says: True, (True, words), or no words of complaint."""
    first = found[0] if isinstance(found, tuple) and found else found
    return not first if isinstance(first, str) else bool(first)


def on_shapes_alone(action: Callable[[], Found]) -> Found:
    """An action on tensors without contents. Raises whatever comes of it where contents are wanted."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with ExitStack() as stack:
        stack.enter_context(seeded(0, "cpu"))
        stack.enter_context(torch.no_grad())
        stack.enter_context(FakeTensorMode(allow_non_fake_inputs=True))
        stack.enter_context(mock.patch.object(torch.distributions.Distribution, "_validate_args", False))
        stack.enter_context(mock.patch.object(torch.nn.Module, "to", _unmoved))
        return action()


def _unmoved(module: torch.nn.Module, *args: Any, **kwargs: Any) -> torch.nn.Module:
    """Without contents there is no other place, and torch cannot move what has none."""
    dtype = torch._C._nn._parse_to(*args, **kwargs)[1]
    return module if dtype is None else _TO(module, *args, **kwargs)


def _widened(tensor: torch.Tensor) -> torch.Tensor:
    """In float64, but for whole numbers and for float8."""
    if tensor.is_complex():
        return tensor.to(torch.complex128)
    return tensor.double() if tensor.is_floating_point() and tensor.dtype not in FLOAT8 else tensor
