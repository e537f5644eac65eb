"""Knobs: named environment variables with typed, finite or bounded domains, kept in knobs.yaml."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from hillclimb.harness.errors import CaseError
from hillclimb.harness.knobs import constraints as constraint
from hillclimb.harness.knobs.constraints import KnobValue as KnobValue
from hillclimb.harness.knobs.solutions import TooMany, nearest_setting
from hillclimb.harness.wording import choices
from hillclimb.harness.yaml_errors import case_error, parse_yaml, read_yaml

KNOBS_FILE = "knobs.yaml"
"""Below workspace/."""

KNOWN_STEERING = "NUMBA_(OPT|LOOP_VECTORIZE|SLP_VECTORIZE|ENABLE_AVX|THREADING_LAYER)"
"""Variables of a compiler that only say how well it optimises, and may be knobs."""

RESERVED = re.compile(
    rf"(?!{KNOWN_STEERING}$)("
    r"LD_|GLIBC_|GCONV_|LOCPATH|PYTHON|MALLOC_|MIMALLOC_|JEMALLOC_|TCMALLOC_"
    r"|([ABLMTU]|UB)SAN_|COMPUTE_SANITIZER|SANITIZER_|LLVM_|GCC_|CLANG_|NVCC_|NVRTC_|PTXAS_"
    r"|CUDA_|CUBLAS|CUDNN|CUFFT|CUPTI|CUTE_|CUTLASS_|NCCL_|NVIDIA_|NV_|NVSHMEM_|PROTON_"
    r"|TRITON_|TORCH|PYTORCH_|ATEN_|NUMBA_|OPENBLAS|GOTO_|BLIS_|MKL_|DNNL_|ONEDNN_|OMP_|KMP_|GOMP_|TBB_"
    r"|GIT_|SSL_|XDG_|HILLCLIMB_"
    r"|(HOME|LANG|LC_ALL|PATH|SHELL|TMPDIR|TEMP|TMP|USER|CC|CXX|CFLAGS|CXXFLAGS|CPPFLAGS|LDFLAGS)$)"
)
"""Variables that the lab itself sets for a candidate, or that steer loaders, interpreters, drivers, compilers,
sanitizers and libraries; no knob may be one."""

MAX_KNOBS, MAX_CONSTRAINTS = 100, 1000
"""Knobs of a file, and constraints on all of them."""

MAX_VALUES = 1000
"""Values of the largest finite domain; a longer one is a float knob, or wants a larger step."""


class _KnobBase(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    doc: str = ""
    """What turning it does; shown to whoever proposes values."""
    requires: list[str] = Field(default_factory=list)
    """Constraints: expressions over this and other knobs that hold of every configuration worth running, see
    hillclimb.harness.knobs.constraints. They stand with one of the knobs they are about, and go when it goes."""


class IntKnob(_KnobBase):
    """Whole numbers low, low + step, ... up to high."""

    type: Literal["int"]
    low: int
    high: int
    step: int = Field(default=1, gt=0)
    default: int

    @model_validator(mode="after")
    def _domain_is_sane(self) -> IntKnob:
        _refuse_empty(self.low, self.high)
        _refuse_large((self.high - self.low) // self.step + 1)
        return self

    def values(self) -> list[KnobValue]:
        return list(range(self.low, self.high + 1, self.step))


class LogIntKnob(_KnobBase):
    """Whole numbers low, low * base, low * base^2, ... up to high."""

    type: Literal["log-int"]
    low: int = Field(gt=0)
    high: int
    base: int = Field(default=2, gt=1)
    default: int

    @model_validator(mode="after")
    def _domain_is_sane(self) -> LogIntKnob:
        _refuse_empty(self.low, self.high)
        _refuse_large(self.high.bit_length())
        return self

    def values(self) -> list[KnobValue]:
        found: list[KnobValue] = []
        value = self.low
        while value <= self.high:
            found.append(value)
            value *= self.base
        return found


class FloatKnob(_KnobBase):
    """Any number between low and high."""

    type: Literal["float"]
    low: float
    high: float
    log: bool = False
    default: float

    @model_validator(mode="after")
    def _domain_is_sane(self) -> FloatKnob:
        _refuse_empty(self.low, self.high)
        if self.log and self.low <= 0:
            raise ValueError("low must be above 0 where log is true")
        return self

    def values(self) -> None:
        return None


class ChoiceKnob(_KnobBase):
    """One of a list."""

    type: Literal["choice"]
    choices: list[KnobValue] = Field(min_length=1)
    default: KnobValue

    @model_validator(mode="after")
    def _domain_is_sane(self) -> ChoiceKnob:
        _refuse_large(len(self.choices))
        texts = [environment_text(choice) for choice in self.choices]
        if len(set(texts)) < len(texts) or len(set(self.choices)) < len(texts):
            raise ValueError("the choices must differ, as environment variables too (true is 1, false is 0)")
        if not all(text.isprintable() for text in texts):
            raise ValueError("a choice must be printable on one line")
        return self

    def values(self) -> list[KnobValue]:
        return list(self.choices)


class BoolKnob(_KnobBase):
    """On or off; 1 or 0 in the environment."""

    type: Literal["bool"]
    default: bool

    def values(self) -> list[KnobValue]:
        return [False, True]


Knob = Annotated[IntKnob | LogIntKnob | FloatKnob | ChoiceKnob | BoolKnob, Field(discriminator="type")]


Knobs = dict[str, Knob]
_adapter: TypeAdapter[Knob] = TypeAdapter(Knob)

TAGS = ("int", "log-int", "float", "choice", "bool", "str")
"""Words that pydantic puts among the keys for the type it tried."""


KEYS = tuple(
    dict.fromkeys(
        key for kind in (IntKnob, LogIntKnob, FloatKnob, ChoiceKnob, BoolKnob) for key in kind.model_fields
    )
)
"""All that the body of any knob may have."""


def contains(knob: Knob, value: KnobValue) -> bool:
    """Whether `value` lies in the knob's domain, its type included (True is not 1)."""
    if not isinstance(knob, FloatKnob):
        return any(type(v) is type(value) and v == value for v in knob.values())
    return not isinstance(value, bool | str) and knob.low <= value <= knob.high


def typed(knob: Knob, value: KnobValue) -> KnobValue:
    """A value of the knob as its kernels see it: of a float knob 1 and -0 are 1.0 and 0.0."""
    return float(value) + 0.0 if isinstance(knob, FloatKnob) else value


def _refuse_empty(low: float, high: float) -> None:
    if low > high:
        raise ValueError(f"low {low} must not exceed high {high}")


def _refuse_large(count: int) -> None:
    if count > MAX_VALUES:
        raise ValueError(f"a domain has at most {MAX_VALUES} values, this one has about {count}")


def load_knobs(path: Path) -> Knobs:
    """Read knobs.yaml; a missing file is no knobs.

    Raises CaseError naming file, key and value.
    """
    return _validate(read_yaml(path), path) if path.exists() else {}


def parse_knobs(text: str, path: Path) -> Knobs:
    """The knobs in the text of a knobs.yaml that would stand at `path`. Raises CaseError."""
    return _validate(parse_yaml(text, path), path)


def parse_declarations(text: str, path: Path) -> Knobs:
    """The knobs of some part of a knobs.yaml, whose constraints may name knobs of another part. Raises CaseError."""
    return _validate_each(parse_yaml(text, path), path)


def broken_constraint(knobs: Knobs, values: Mapping[str, KnobValue]) -> str | None:
    """The first constraint that a configuration does not satisfy, in words; None where it satisfies all.

    `values` go before the defaults, and lie in their domains.
    """
    return _first_broken(knobs, {**defaults(knobs), **values}, all_constraints(knobs))


def broken_by_themselves(knobs: Knobs, values: Mapping[str, KnobValue]) -> str | None:
    """As `broken_constraint`, of those that these values satisfy or break whatever the other knobs are."""
    about = [one for one in all_constraints(knobs) if constraint.knob_names(one) <= values.keys()]
    return _first_broken(knobs, values, about)


def _first_broken(knobs: Knobs, values: Mapping[str, KnobValue], expressions: Iterable[str]) -> str | None:
    for expression in expressions:
        if not constraint.is_satisfied(expression, values):
            about = {name: values[name] for name in knobs if name in constraint.knob_names(expression)}
            set_to = ", ".join(f"{name}={text}" for name, text in to_environment(about).items())
            return f"it breaks the constraint {expression} ({set_to})"
    return None


def all_constraints(knobs: Knobs) -> tuple[str, ...]:
    """All constraints of a configuration."""
    return tuple(expression for knob in knobs.values() for expression in knob.requires)


def _validate(document: dict[str, Any], path: Path) -> Knobs:
    knobs = _validate_each(document, path)
    domains = {name: knob.values() for name, knob in knobs.items()}
    for name, knob in knobs.items():
        for expression in knob.requires:
            _check_constraint(f"{name}.requires", expression, domains, path)
    if trouble := broken_constraint(knobs, {}):
        raise _impossible_defaults(knobs, trouble, path)
    return knobs


def _impossible_defaults(knobs: Knobs, trouble: str, path: Path) -> CaseError:
    """The error for defaults that break a constraint; it names defaults that satisfy all, where that can be told."""
    remedy = "choose defaults that satisfy every constraint"
    domains = {name: values for name, knob in knobs.items() if (values := knob.values())}
    if len(domains) == len(knobs):
        with suppress(TooMany):
            found = nearest_setting(domains, all_constraints(knobs), defaults(knobs))
            if found is None:
                problem = f"of the knobs cannot be satisfied: no setting at all satisfies the constraints ({trouble})"
                return CaseError(path, "requires", problem, "loosen a constraint, or widen a domain")
            turned = {name: value for name, value in found.items() if value != knobs[name].default}
            example = ", ".join(f"{name}={text}" for name, text in to_environment(turned).items())
            remedy = f"{remedy}, such as {example}"
    return CaseError(
        path, "default", f"of the knobs is impossible: {trouble}", f"{remedy}, or mend the constraint"
    )


def _check_constraint(
    key: str, expression: str, domains: Mapping[str, list[KnobValue] | None], path: Path
) -> None:
    try:
        constraint.check_constraint(expression, domains)
    except constraint.InvalidConstraint as error:
        problem, _, remedy = str(error).rpartition("; ")
        raise CaseError(path, key, f"{expression!r} is no constraint: {problem}", remedy) from None


def _validate_each(document: dict[str, Any], path: Path) -> Knobs:
    if len(document) > MAX_KNOBS:
        raise CaseError(
            path, "", f"declares {len(document)} knobs", f"keep those that matter, at most {MAX_KNOBS}"
        )
    knobs = {name: _validate_one(name, body, path) for name, body in document.items()}
    if (count := len(all_constraints(knobs))) > MAX_CONSTRAINTS:
        raise CaseError(path, "requires", f"has {count} constraints", f"keep at most {MAX_CONSTRAINTS}")
    return knobs


def _validate_one(name: str, body: Any, path: Path) -> Knob:
    if not (name.isascii() and name.isidentifier() and name.isupper()):
        raise CaseError(path, name, "is not an environment variable name", "use A-Z, 0-9 and _")
    if RESERVED.match(name):
        problem = (
            "is a variable that the lab sets itself, or that steers a loader, driver, compiler or library"
        )
        raise CaseError(path, name, problem, f"rename the knob, as MY_{name}")
    try:
        knob = _adapter.validate_python(body)
    except ValidationError as error:
        raise case_error(path, error, prefix=name, drop=TAGS, known=KEYS) from None
    if not contains(knob, knob.default):
        problem = f"value {knob.default!r} is outside the knob's domain"
        raise CaseError(path, f"{name}.default", problem, f"choose {spell(knob)}")
    return knob


def spell(knob: Knob) -> str:
    """What it takes, in words."""
    values = knob.values()
    if values is None:
        return f"a number from {knob.low} to {knob.high}" if isinstance(knob, FloatKnob) else "another"
    return "one of " + ", ".join(map(str, values[:20])) + (", ..." if len(values) > 20 else "")


def replace_defaults(text: str, values: Mapping[str, KnobValue]) -> str:
    """The text of a knobs.yaml with the named defaults replaced and everything else, comments too, as it was.

    Raises KeyError for a name that is not there.
    """
    spans = _default_spans(text)
    for name in sorted(values, key=lambda name: -spans[name][0]):
        start, end = spans[name]
        scalar = yaml.safe_dump(values[name], default_flow_style=True, allow_unicode=True, width=math.inf)
        text = text[:start] + scalar.removesuffix("\n").removesuffix("\n...") + text[end:]
    return text


@lru_cache(maxsize=8)  # a sweep asks of the same text for every candidate
def _default_spans(text: str) -> Mapping[str, tuple[int, int]]:
    """Where each knob's default stands in the text, as (start, end) offsets."""
    document = yaml.compose(text)
    if not isinstance(document, yaml.MappingNode):
        return {}
    return {
        name.value: (value.start_mark.index, value.end_mark.index)
        for name, body in document.value
        for key, value in body.value
        if key.value == "default"
    }


def defaults(knobs: Knobs) -> dict[str, KnobValue]:
    return {name: knob.default for name, knob in knobs.items()}


def environment_text(value: KnobValue) -> str:
    """One value as an environment variable holds it: booleans as 1 and 0, the rest as written."""
    return str(int(value)) if isinstance(value, bool) else str(value)


def to_environment(values: Mapping[str, KnobValue]) -> dict[str, str]:
    """Environment variables for knob values."""
    return {name: environment_text(value) for name, value in values.items()}


def parse_value(knobs: Knobs, name: str, text: str) -> KnobValue:
    """One knob's value from the text a person typed. Raises CaseError where it is not in the domain."""
    if name not in knobs:
        raise CaseError(KNOBS_FILE, name, "is not a knob", f"choose one of {choices(name, knobs)}")
    knob = knobs[name]
    if isinstance(knob, FloatKnob):
        return _parse_float(knob, name, text)
    for value in knob.values():
        if text == environment_text(value) or text.casefold() == str(value).casefold():
            return value
    domain = [environment_text(value) for value in knob.values()]
    raise CaseError(KNOBS_FILE, name, f"has no value {text!r}", f"choose one of {choices(text, domain)}")


def _parse_float(knob: FloatKnob, name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if contains(knob, value):
        return value
    raise CaseError(
        KNOBS_FILE, name, f"has no value {text!r}", f"give a number from {knob.low} to {knob.high}"
    )
