"""Holds a contract to its promises: a slip in contract.py is told as one, and blamed on no machine or candidate."""

from __future__ import annotations

import copy
import importlib.util
import random
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from hillclimb.harness.case import declarations
from hillclimb.harness.case.contract import Contract, Problem, Spec, Tensors, Work, select
from hillclimb.harness.case.contract_call import (
    ContractCall,
    expect_identifier,
    expect_mapping,
    expect_other_names,
)
from hillclimb.harness.case.contract_limits import CALL_SECONDS, deadline, limit_calls, require_known_hooks
from hillclimb.harness.case.operands import (
    are_equal,
    expect_apart,
    expect_dense,
    expect_strides,
    have_same_infinities,
    infinite_elsewhere,
    specs_of,
)
from hillclimb.harness.channel.dtypes import NUMPY_DTYPES
from hillclimb.harness.channel.layout import Attributes
from hillclimb.harness.channel.source_loader import SourceLoader
from hillclimb.harness.errors import CaseError

Answer = TypeVar("Answer")
TensorSpecs = dict[str, Spec]


class CheckedContract(Contract):
    """A case's contract whose every answer is checked. Each method raises CaseError naming file and call."""

    def __init__(self, inner: Contract, file: Path, place: str, dtypes: Container[str]) -> None:
        """Tensors must be on torch's device `place`, and of `dtypes`."""
        self._inner, self._file = inner, file
        self._place, self._dtypes = torch.device(place).type, dtypes
        self._seen: dict[str, TensorSpecs] = {}
        self._partial: dict[str, frozenset[str]] = {}
        self.problems = declarations.declared_problems(inner, file)
        self.distributions = declarations.declared_distributions(inner, file)
        self.domains = declarations.declared_domains(inner, file)
        self.needs_reference, self.is_session = inner.needs_reference, inner.is_session
        self.unmixed = declarations.declared_reason(inner, file)
        self.excused = declarations.declared_excuses(inner, file)
        self._parameters: Tensors = {}
        self._parameter_specs: list[TensorSpecs] = []

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        name = self._name(problem)
        call = ContractCall(self._file, f"Contract.inputs({name}, {distribution})")
        given = _ask(call, lambda: self._inner.inputs(problem, distribution, generator))
        tensors = expect_mapping(call, given, torch.Tensor)
        for key, tensor in tensors.items():
            self._expect_usable(call, key, tensor)
        expect_other_names(call, tensors, self._parameters, "parameters")
        is_first = name not in self._seen
        shapes = specs_of(tensors)
        _expect_shapes(call, shapes, self._seen.setdefault(name, shapes), "an earlier call for this problem")
        if is_first:  # an output may be one of them
            self.outputs(problem)
        return tensors

    def more_inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """As `inputs`, of which the last was checked just now: this one is not, since thousands are drawn."""
        with torch.no_grad():
            return self._inner.inputs(problem, distribution, generator)

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        call = ContractCall(self._file, f"Contract.outputs({self._name(problem)})")
        specs = expect_mapping(call, _ask(call, lambda: self._inner.outputs(problem)), Spec)
        expect_other_names(call, specs, self._parameters, "parameters")
        for key, spec in specs.items():
            if not isinstance(spec.dtype, torch.dtype):
                call.refuse(f"gives {key!r} the dtype {spec.dtype!r}", "give a torch dtype, as torch.float32")
            self._expect_dtype(call, key, spec.dtype)
            if spec.dtype.is_complex:
                call.refuse(
                    f"gives {key!r} the dtype {spec.dtype}", "give real and imaginary parts as two outputs"
                )
            _expect_sizes(call, key, spec.shape)
            expect_strides(call, key, spec)
        inputs = self._seen.get(self._name(problem))
        if inputs is not None:
            expect_dense(call, specs, inputs)
        return specs

    def parameters(self, generator: torch.Generator) -> Tensors:
        call = ContractCall(self._file, "Contract.parameters")
        given = _ask(call, lambda: self._inner.parameters(generator))
        tensors = expect_mapping(call, given, torch.Tensor) if given != {} else {}
        for key, tensor in tensors.items():
            expect_identifier(call, key)
            self._expect_usable(call, key, tensor)
        shapes = specs_of(tensors)
        self._parameter_specs = self._parameter_specs or [shapes]
        _expect_shapes(call, shapes, self._parameter_specs[0], "an earlier call")
        return tensors

    def bound(self, parameters: Tensors) -> CheckedContract:
        other = copy.copy(self)
        other._parameters = dict(parameters)
        return other

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        call = ContractCall(self._file, f"Contract.vary({self._name(problem)})")
        given: Any = _ask(call, lambda: self._inner.vary(problem, secret))
        if not isinstance(given, Sequence) or not all(isinstance(found, Mapping) for found in given):
            call.refuse(f"gives {given!r}", "give a list of problems, as [{'n': 257}]")
        return tuple(given)

    def counted(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors | None:
        call = ContractCall(self._file, f"Contract.counted({self._name(problem)})")
        given = _ask(call, lambda: self._inner.counted(problem, self._all(inputs), reference))
        masks = {} if given is None else expect_mapping(call, given, torch.Tensor)
        for key, mask in masks.items():
            if key not in reference or mask.dtype != torch.bool or mask.shape != reference[key].shape:
                call.refuse(
                    f"gives {key!r} a mask {mask.dtype} {list(mask.shape)}",
                    "give booleans of an output's shape",
                )
        names = frozenset(masks)
        if names != (known := self._partial.setdefault(self._name(problem), names)):
            call.refuse(
                f"gives masks of {_list(names)}, where an earlier call for this problem gave those of {_list(known)}",
                "give masks of the same outputs in every call, all True where everything counts",
            )
        if self.has_masks:
            _expect_numbers(call, {key: select(value, masks.get(key)) for key, value in reference.items()})
        return masks or None

    @property
    def has_masks(self) -> bool:
        return self._inner.has_masks

    def partial(self, problem: Problem, generator: torch.Generator) -> frozenset[str]:
        name = self._name(problem)
        if name not in self._partial:
            self._partial[name] = super().partial(problem, generator)
        return self._partial[name]

    def attributes(self, problem: Problem) -> Attributes:
        call = ContractCall(self._file, f"Contract.attributes({self._name(problem)})")
        given: Any = _ask(call, lambda: self._inner.attributes(problem))
        if not isinstance(given, Mapping):
            call.refuse(
                f"gives {type(given).__name__}", "give a dict of names to numbers, booleans and words"
            )
        for key, value in given.items():
            expect_identifier(call, key)
            if not _is_attribute(value):
                call.refuse(
                    f"gives {key!r} the value {value!r}",
                    "give a number that is not NaN, a boolean, a word, None, or a tuple of these",
                )
        return dict(given)

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        call = ContractCall(self._file, f"Contract.reference({self._name(problem)})")
        tensors = self._like_outputs(
            call, problem, lambda: self._inner.reference(problem, self._all(inputs)), torch.float64
        )
        if not self.has_masks:  # else what does not count may be NaN
            _expect_numbers(call, tensors)
        return tensors

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        call = ContractCall(self._file, f"Contract.attainable({self._name(problem)})")
        tensors = self._like_outputs(
            call, problem, lambda: self._inner.attainable(problem, self._all(inputs)), None
        )
        for key, tensor in tensors.items():
            if self.has_masks:  # as above
                break
            if tensor.is_floating_point() and bool(torch.isnan(tensor.double()).any()):
                call.refuse(f"{key!r} holds NaN", "choose distributions whose result the dtype holds")
        return tensors

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        call = ContractCall(self._file, f"Contract.scale({self._name(problem)})")
        scales = self._like_outputs(
            call, problem, lambda: self._inner.scale(problem, self._all(inputs), reference), torch.float64
        )
        for key, scale in scales.items():
            if not bool((torch.isfinite(scale) & (scale >= 0)).all()):
                call.refuse(f"{key!r} has elements that are negative, infinite or NaN", "give magnitudes")
        return scales

    def errors(self, problem: Problem, inputs: Tensors, outputs: Tensors) -> Tensors | None:
        call = ContractCall(self._file, f"Contract.errors({self._name(problem)})")
        given = _ask(call, lambda: self._inner.errors(problem, self._all(inputs), outputs))
        if given is None:
            return None
        errors = expect_mapping(call, given, torch.Tensor)
        if list(errors) != list(outputs):
            call.refuse(f"gives errors of {', '.join(errors)}", f"give those of {', '.join(outputs)}")
        try:
            return {key: error.expand(outputs[key].shape) for key, error in errors.items()}
        except RuntimeError:
            call.refuse("gives errors that do not have the outputs' shapes", "give one for every element")

    def work(self, problem: Problem) -> Work:
        call = ContractCall(self._file, f"Contract.work({self._name(problem)})")
        work = _ask(call, lambda: self._inner.work(problem))
        if not isinstance(work, Work):
            call.refuse(f"gives {type(work).__name__}", "give a hillclimb.harness.case.contract.Work")
        if not _counts(work.flops) or not _counts(work.bytes) or not (work.bytes or self.is_empty(problem)):
            call.refuse(
                f"gives {work}", "count whole numbers of operations and bytes; a call moves some bytes"
            )
        return work

    def _all(self, inputs: Tensors) -> Tensors:
        """The inputs of a call, and the parameters."""
        return {**inputs, **self._parameters}

    def _expect_usable(self, call: ContractCall, key: str, tensor: torch.Tensor) -> None:
        """What can be copied into shared memory and be handed to a kernel."""
        self._expect_dtype(call, key, tensor.dtype)
        is_plain = tensor.layout == torch.strided and not (tensor.requires_grad or tensor.is_conj())
        if tensor.device.type != self._place or not is_plain:
            where = "CPU" if self._place == "cpu" else "generator's device"
            call.refuse(
                f"gives {key!r} as something else than a plain tensor on the {where}",
                "give a strided one there",
            )
        expect_apart(call, key, tensor)

    def _expect_dtype(self, call: ContractCall, key: str, dtype: torch.dtype) -> None:
        if str(dtype).removeprefix("torch.") not in self._dtypes:
            remedy = "use another, as torch.float32 or torch.float16"
            call.refuse(f"gives {key!r} the dtype {dtype}, which a kernel cannot be handed here", remedy)

    def _name(self, problem: Problem) -> str:
        return next((n for n, p in self.problems.items() if p == problem), str(dict(problem)))

    def _like_outputs(
        self, call: ContractCall, problem: Problem, action: Callable[[], Tensors], dtype: torch.dtype | None
    ) -> Tensors:
        """Tensors of the outputs' names and shapes; of their dtypes too, or all of `dtype`."""
        tensors = expect_mapping(call, _ask(call, action), torch.Tensor)
        specs = self.outputs(problem)
        wanted = {key: Spec(spec.shape, dtype or spec.dtype) for key, spec in specs.items()}
        for key, spec in specs.items():
            if (
                dtype
                and key in tensors
                and tensors[key].dtype == torch.int64
                and not spec.dtype.is_floating_point
            ):
                wanted[key] = Spec(spec.shape, torch.int64)
        found = {key: Spec(tuple(t.shape), t.dtype) for key, t in tensors.items()}
        _expect_shapes(call, found, wanted, "Contract.outputs" + (f", as {dtype}," if dtype else ""))
        return tensors


def check_contract(
    contract: Contract, file: Path, names: Iterable[str] | None = None, place: str = "cpu"
) -> None:
    """Ask every method once for these problems (all) and every distribution, on torch's device `place`.

    Raises CaseError for the first that is wrong.
    """
    for problem in contract.problems.values():
        contract.work(problem)
        contract.attributes(problem)
    _check_parameters(contract, file, place)
    counts: dict[str, bool] = {}
    for name in contract.problems if names is None else names:
        problem = contract.problems[name]
        for distribution in contract.distributions:
            inputs, again = (
                contract.inputs(problem, distribution, torch.Generator(place).manual_seed(1))
                for _ in range(2)
            )
            if any(not are_equal(inputs[key], again[key]) for key in inputs):
                call = ContractCall(file, f"Contract.inputs({name}, {distribution})")
                call.refuse("gives other inputs for the same seed", "draw from `generator` alone")
            reference = contract.reference(problem, inputs)
            attainable = contract.attainable(problem, inputs)
            masks = contract.counted(problem, inputs, reference) or {}
            for key, value in reference.items():
                given, exact = (select(t, masks.get(key)) for t in (attainable[key], value))
                if value.is_floating_point() and not have_same_infinities(given, exact):
                    ContractCall(file, f"Contract.attainable({name})").refuse(*infinite_elsewhere(key))
            for key, mask in masks.items():
                counts[key] = counts.get(key, False) or not mask.numel() or bool(mask.any())
            contract.scale(problem, inputs, reference)
            contract.errors(problem, inputs, attainable)
            if any(not are_equal(inputs[key], again[key]) for key in inputs):
                call = ContractCall(file, f"Contract.reference, attainable or scale({name})")
                call.refuse("writes to the inputs it is handed", "work on copies")
    if idle := [key for key, does_count in counts.items() if not does_count]:
        call = ContractCall(file, "Contract.counted")
        call.refuse(f"counts no element of {_list(idle)} in any problem", "say which elements are compared")


def _check_parameters(contract: Contract, file: Path, place: str) -> None:
    first, again = (contract.parameters(torch.Generator(place).manual_seed(1)) for _ in range(2))
    if list(first) != list(again) or any(not are_equal(first[key], again[key]) for key in first):
        call = ContractCall(file, "Contract.parameters")
        call.refuse("gives others for the same seed", "draw from `generator` alone")


def _is_attribute(value: object) -> bool:
    if isinstance(value, tuple):
        return all(_is_attribute(part) for part in value)
    return value is None or (isinstance(value, bool | int | float | str) and value == value)


def _ask(call: ContractCall, action: Callable[[], Answer]) -> Answer:
    with call.errors_reported(), torch.no_grad():
        return action()


def _expect_shapes(call: ContractCall, found: TensorSpecs, wanted: TensorSpecs, source: str) -> None:
    if found != wanted or list(found) != list(wanted):
        call.refuse(f"gives {_spell(found)}, where {source} says {_spell(wanted)}")


def _spell(shapes: TensorSpecs) -> str:
    return ", ".join(
        f"{key}: {str(spec.dtype).removeprefix('torch.')}{list(spec.shape)}"
        + ("" if spec.strides is None else f" of strides {list(spec.strides)}")
        for key, spec in shapes.items()
    )


def _list(names: Iterable[str]) -> str:
    return ", ".join(sorted(names)) or "none"


def _expect_numbers(call: ContractCall, references: Tensors) -> None:
    for key, values in references.items():
        if bool(torch.isnan(values).any()):
            call.refuse(f"{key!r} holds NaN", "choose distributions whose exact result is a number")


def _expect_sizes(call: ContractCall, key: str, shape: Any) -> None:
    if not isinstance(shape, tuple) or not all(_counts(size) for size in shape):
        call.refuse(f"gives {key!r} the shape {shape!r}", "give a tuple of sizes; of one number, ()")


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def load_contract(
    path: Path,
    place: str = "cpu",
    dtypes: Container[str] = NUMPY_DTYPES,
    call_seconds: float = CALL_SECONDS,
    model_path: Path | None = None,
) -> Contract:
    """The case's contract, held to its promises (hillclimb.harness.case.checked), tensors on torch's device `place`.

    Raises CaseError where contract.py does not define a complete one.
    """
    contract = _load(path, call_seconds)
    contract.model_path = model_path
    return CheckedContract(contract, path, place, dtypes)


def _load(path: Path, call_seconds: float) -> Contract:
    loader = SourceLoader("hillclimb_contract", str(path))
    spec = importlib.util.spec_from_file_location("hillclimb_contract", path, loader=loader)
    if spec is None or spec.loader is None or not path.is_file():
        raise CaseError(path, "", "does not exist", "write it; cases/_template/contract.py shows how")
    module = importlib.util.module_from_spec(spec)
    try:
        with deadline(path, "Contract", call_seconds):
            spec.loader.exec_module(module)
            require_known_hooks(getattr(module, "Contract", None), path)
            contract = module.Contract()
    except CaseError:
        raise
    except (Exception, SystemExit) as error:
        raise CaseError(
            path,
            "Contract",
            f"cannot be loaded ({type(error).__name__}: {error})",
            "define a class Contract(hillclimb.harness.case.contract.Contract) with every method",
        ) from error
    if not isinstance(contract, Contract):
        problem = "is not a hillclimb.harness.case.contract.Contract"
        raise CaseError(path, "Contract", problem, "make it a subclass")
    return limit_calls(contract, path, call_seconds)
