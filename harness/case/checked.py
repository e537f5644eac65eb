"""Holds a contract to its promises: a slip in contract.py is told as one, and blamed on no machine or candidate."""

from __future__ import annotations

import keyword
import math
import traceback
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, TypeVar

import torch

from harness.case.contract import Attributes, Contract, Problem, Spec, Tensors, Work
from harness.errors import CaseError

Answer = TypeVar("Answer")
Shapes = dict[str, Spec]

_ENDLESS = (math.inf, -math.inf)

MEND = "mend that method; docs/case-format.md says what it gives"


@dataclass(frozen=True)
class Call:
    """One call of one method, for the message where it goes wrong."""

    file: Path
    key: str

    def refuse(self, problem: str, remedy: str = MEND) -> NoReturn:
        raise CaseError(self.file, self.key, problem, remedy)

    @contextmanager
    def told(self) -> Iterator[None]:
        """Whatever the user's code raises becomes a CaseError with its line."""
        try:
            yield
        except (Exception, SystemExit) as error:
            lines = [
                f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(self.file)
            ]
            where = f" in line {lines[-1]}" if lines else ""
            problem = f"raised {type(error).__name__}{where}: {str(error).strip() or 'no message'}"
            raise CaseError(self.file, self.key, problem, MEND) from error


class CheckedContract(Contract):
    """A case's contract whose every answer is checked. Each method raises CaseError naming file and call."""

    def __init__(self, inner: Contract, file: Path, place: str, dtypes: Container[str]) -> None:
        """Tensors must be on torch's device `place`, and of `dtypes`."""
        self._inner, self._file = inner, file
        self._place, self._dtypes = torch.device(place).type, dtypes
        self._seen: dict[str, Shapes] = {}
        self.problems = _problems(inner, Call(file, "Contract.problems"))
        self.distributions = _distributions(inner, Call(file, "Contract.distributions"))

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        name = self._name(problem)
        call = Call(self._file, f"Contract.inputs({name}, {distribution})")
        given = _ask(call, lambda: self._inner.inputs(problem, distribution, generator))
        tensors = _expect_mapping(call, given, torch.Tensor)
        for key, tensor in tensors.items():
            self._expect_usable(call, key, tensor)
        shapes = {key: Spec(tuple(t.shape), t.dtype) for key, t in tensors.items()}
        _expect_shapes(call, shapes, self._seen.setdefault(name, shapes), "an earlier call for this problem")
        return tensors

    def more_inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        """As `inputs`, of which the last was checked just now: this one is not, since thousands are drawn."""
        with torch.no_grad():
            return self._inner.inputs(problem, distribution, generator)

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        call = Call(self._file, f"Contract.outputs({self._name(problem)})")
        specs = _expect_mapping(call, _ask(call, lambda: self._inner.outputs(problem)), Spec)
        for key, spec in specs.items():
            if not isinstance(spec.dtype, torch.dtype):
                call.refuse(f"gives {key!r} the dtype {spec.dtype!r}", "give a torch dtype, as torch.float32")
            self._expect_dtype(call, key, spec.dtype)
            if spec.dtype.is_complex:
                call.refuse(
                    f"gives {key!r} the dtype {spec.dtype}", "give real and imaginary parts as two outputs"
                )
            _expect_sizes(call, key, spec.shape)
        return specs

    def attributes(self, problem: Problem) -> Attributes:
        call = Call(self._file, f"Contract.attributes({self._name(problem)})")
        given: Any = _ask(call, lambda: self._inner.attributes(problem))
        if not isinstance(given, Mapping):
            call.refuse(
                f"gives {type(given).__name__}", "give a dict of names to numbers, booleans and words"
            )
        for key, value in given.items():
            if not isinstance(key, str) or not key.isidentifier() or keyword.iskeyword(key):
                call.refuse(
                    f"names {key!r}, which no function can have as a parameter", "choose another name"
                )
            if not isinstance(value, bool | int | float | str) or value != value or value in _ENDLESS:
                call.refuse(f"gives {key!r} the value {value!r}", "give a finite number, a boolean or a word")
        return dict(given)

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        call = Call(self._file, f"Contract.reference({self._name(problem)})")
        tensors = self._like_outputs(
            call, problem, lambda: self._inner.reference(problem, inputs), torch.float64
        )
        for key, tensor in tensors.items():
            if not is_finite(tensor):
                call.refuse(f"{key!r} is not finite", "choose distributions whose exact result is finite")
        return tensors

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        call = Call(self._file, f"Contract.attainable({self._name(problem)})")
        tensors = self._like_outputs(call, problem, lambda: self._inner.attainable(problem, inputs), None)
        for key, tensor in tensors.items():
            if not is_finite(tensor):
                call.refuse(f"{key!r} is not finite", "choose distributions whose result the dtype holds")
        return tensors

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        call = Call(self._file, f"Contract.scale({self._name(problem)})")
        scales = self._like_outputs(
            call, problem, lambda: self._inner.scale(problem, inputs, reference), torch.float64
        )
        for key, scale in scales.items():
            if not bool((torch.isfinite(scale) & (scale >= 0)).all()):
                call.refuse(f"{key!r} has elements that are negative, infinite or NaN", "give magnitudes")
        return scales

    def work(self, problem: Problem) -> Work:
        call = Call(self._file, f"Contract.work({self._name(problem)})")
        work = _ask(call, lambda: self._inner.work(problem))
        if not isinstance(work, Work):
            call.refuse(f"gives {type(work).__name__}", "give a harness.case.contract.Work")
        if not _counts(work.flops) or not _counts(work.bytes) or not work.bytes:
            call.refuse(
                f"gives {work}", "count whole numbers of operations and bytes; a call moves some bytes"
            )
        return work

    def _expect_usable(self, call: Call, key: str, tensor: torch.Tensor) -> None:
        """What can be copied into shared memory and be handed to a kernel."""
        self._expect_dtype(call, key, tensor.dtype)
        if tensor.device.type != self._place or tensor.layout != torch.strided or tensor.requires_grad:
            where = "CPU" if self._place == "cpu" else "generator's device"
            call.refuse(
                f"gives {key!r} as something else than a plain tensor on the {where}",
                "give a dense one there",
            )
        if not tensor.is_contiguous():
            call.refuse(f"gives {key!r} with strides {tensor.stride()}", "call .contiguous() on it")
        _expect_sizes(call, key, tuple(tensor.shape))

    def _expect_dtype(self, call: Call, key: str, dtype: torch.dtype) -> None:
        if str(dtype).removeprefix("torch.") not in self._dtypes:
            remedy = "use another, as torch.float32 or torch.float16"
            call.refuse(f"gives {key!r} the dtype {dtype}, which a kernel cannot be handed here", remedy)

    def _name(self, problem: Problem) -> str:
        return next((n for n, p in self.problems.items() if p == problem), str(dict(problem)))

    def _like_outputs(
        self, call: Call, problem: Problem, action: Callable[[], Tensors], dtype: torch.dtype | None
    ) -> Tensors:
        """Tensors of the outputs' names and shapes; of their dtypes too, or all of `dtype`."""
        tensors = _expect_mapping(call, _ask(call, action), torch.Tensor)
        found = {key: Spec(tuple(t.shape), t.dtype) for key, t in tensors.items()}
        specs = self.outputs(problem)
        wanted = {key: Spec(spec.shape, dtype or spec.dtype) for key, spec in specs.items()}
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
    for name in contract.problems if names is None else names:
        problem = contract.problems[name]
        for distribution in contract.distributions:
            inputs, again = (
                contract.inputs(problem, distribution, torch.Generator(place).manual_seed(1))
                for _ in range(2)
            )
            if any(not torch.equal(_bits(inputs[key]), _bits(again[key])) for key in inputs):
                call = Call(file, f"Contract.inputs({name}, {distribution})")
                call.refuse("gives other inputs for the same seed", "draw from `generator` alone")
            reference = contract.reference(problem, inputs)
            contract.attainable(problem, inputs)
            contract.scale(problem, inputs, reference)
            if any(not torch.equal(_bits(inputs[key]), _bits(again[key])) for key in inputs):
                call = Call(file, f"Contract.reference, attainable or scale({name})")
                call.refuse("writes to the inputs it is handed", "work on copies")


def is_finite(tensor: torch.Tensor) -> bool:
    """Whether all elements are. Of float8 torch cannot tell that itself; whole numbers are not looked at."""
    wide = tensor.double() if tensor.itemsize == 1 else tensor
    return not tensor.is_floating_point() or bool(torch.isfinite(wide).all())


def _ask(call: Call, action: Callable[[], Answer]) -> Answer:
    with call.told(), torch.no_grad():
        return action()


def _problems(inner: Contract, call: Call) -> dict[str, Problem]:
    """A plain dict of them."""
    with call.told():
        given: Any = getattr(inner, "problems", None)
    if not isinstance(given, Mapping) or not given:
        call.refuse(
            "is missing, empty or no mapping", "name the problems as a class attribute: name -> sizes"
        )
    for name, problem in given.items():
        if not isinstance(name, str) or not isinstance(problem, Mapping):
            call.refuse(f"has {name!r}: {problem!r}", "give each name a mapping of sizes, as {'n': 256}")
    return dict(given)


def _distributions(inner: Contract, call: Call) -> tuple[str, ...]:
    with call.told():
        given: Any = getattr(inner, "distributions", None)
    if not isinstance(given, tuple | list) or not given or not all(isinstance(name, str) for name in given):
        call.refuse(f"is {given!r}", 'name the distributions as a class attribute: ("normal", "offset")')
    return tuple(given)


def _expect_mapping(call: Call, given: Any, kind: type[Answer]) -> dict[str, Answer]:
    if not isinstance(given, Mapping) or not given:
        call.refuse(
            f"gives {type(given).__name__}{'' if given else ', empty'}", f"give a dict of {kind.__name__}s"
        )
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, kind):
            call.refuse(
                f"gives {key!r} a {type(value).__name__}", f"give a dict of names to {kind.__name__}s"
            )
    return dict(given)


def _expect_shapes(call: Call, found: Shapes, wanted: Shapes, source: str) -> None:
    if found != wanted or list(found) != list(wanted):
        call.refuse(f"gives {_spell(found)}, where {source} says {_spell(wanted)}")


def _spell(shapes: Shapes) -> str:
    return ", ".join(
        f"{key}: {str(spec.dtype).removeprefix('torch.')}{list(spec.shape)}" for key, spec in shapes.items()
    )


def _expect_sizes(call: Call, key: str, shape: Any) -> None:
    if not isinstance(shape, tuple) or not shape or not all(_counts(size) and size for size in shape):
        call.refuse(f"gives {key!r} the shape {shape!r}", "give a tuple of sizes, one at least, each above 0")


def _counts(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8)
