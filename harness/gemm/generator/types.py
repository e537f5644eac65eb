"""What can be generated: each generator type is two templates and an entry here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.families.collective_point import CollectivePoint
from hillclimb.harness.gemm.families.collective_rules import refusal as collective_refusal
from hillclimb.harness.gemm.families.collective_sets import COLLECTIVE_SETS
from hillclimb.harness.gemm.families.collective_source import values as collective_values
from hillclimb.harness.gemm.families.point import MAX_CLUSTER, KernelPoint
from hillclimb.harness.gemm.families.run_option import RunOption, as_run, compiled_name, option_named
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupPoint
from hillclimb.harness.gemm.families.warpgroup_rules import refusal as warpgroup_refusal
from hillclimb.harness.gemm.families.warpgroup_sets import GROUPED_SETS, WARPGROUP_SETS
from hillclimb.harness.gemm.families.warpgroup_source import values as warpgroup_values
from hillclimb.harness.gemm.shape import UNSCALED, Dtype
from hillclimb.harness.wording import suggestion

TEMPLATES = Path(__file__).with_name("templates")

AnyPoint = CollectivePoint | WarpgroupPoint
Point = TypeVar("Point", bound=KernelPoint)


@dataclass(frozen=True)
class GeneratorType(Generic[Point]):
    """A kind of function."""

    name: str
    kernel_template: str
    """Of a source with several functions."""
    prototype_template: str
    """Of what they take, and their declarations; the source includes it."""
    dtypes: tuple[Dtype, ...]
    parameter_sets: Mapping[str, Callable[[Dtype], Iterator[Point]]]
    refusal: Callable[[Point], str]
    """Why a kernel is not worth a compiler's time; empty where it is."""
    values: Callable[[Sequence[Point]], Mapping[str, object]]
    """What the templates are filled with, for kernels that are alike."""
    needs_cutlass: bool = True


SIMPLE_GEMM = GeneratorType[CollectivePoint](
    name="simple_gemm",
    kernel_template="simple_gemm.cu.jinja",
    prototype_template="gemm.h.jinja",
    dtypes=("bf16", "f16", "fp8", "int8"),
    parameter_sets=COLLECTIVE_SETS,
    refusal=collective_refusal,
    values=collective_values,
)
SCALED_MM = replace(
    SIMPLE_GEMM, name="scaled_mm", kernel_template="scaled_mm.cu.jinja", dtypes=tuple(UNSCALED)
)
WARPGROUP_GEMM = GeneratorType[WarpgroupPoint](
    name="warpgroup_gemm",
    kernel_template="warpgroup_gemm.cu.jinja",
    prototype_template="gemm.h.jinja",
    dtypes=("bf16", "f16", "fp8", "scaled_fp8"),
    parameter_sets=WARPGROUP_SETS,
    refusal=warpgroup_refusal,
    values=warpgroup_values,
    needs_cutlass=False,
)
GROUPED_GEMM = replace(WARPGROUP_GEMM, name="grouped_gemm", parameter_sets=GROUPED_SETS)
GENERATOR_TYPES: dict[str, GeneratorType[Any]] = {
    one.name: one for one in (SIMPLE_GEMM, SCALED_MM, WARPGROUP_GEMM, GROUPED_GEMM)
}


def generator_type(name: str) -> GeneratorType[Any]:
    """Raises UsageError for one that nobody knows."""
    if name not in GENERATOR_TYPES:
        raise UsageError(f"generator type {name}: {suggestion(name, GENERATOR_TYPES)}")
    return GENERATOR_TYPES[name]


def chosen_points(generator: str, name: str, dtype: Dtype) -> list[AnyPoint]:
    """Of this set. Raises UsageError for a generator, a set or a dtype that there is not."""
    kind = generator_type(generator)
    if name not in kind.parameter_sets:
        raise UsageError(f"set of parameters {name}: {suggestion(name, kind.parameter_sets)}")
    if dtype not in kind.dtypes:
        raise UsageError(f"{generator} has no dtype {dtype}; it has {', '.join(kind.dtypes)}")
    return list(kind.parameter_sets[name](dtype))


def point_named(name: str) -> AnyPoint | None:
    """That of a compiled kernel's name, in a set or not; None where its type has no such kernel."""
    point = CollectivePoint.named(name) or WarpgroupPoint.named(name)
    return point if point and point.dtype in generator_type(point.generator).dtypes else None


def way_named(name: str) -> tuple[AnyPoint, RunOption] | None:
    """A kernel that can be built and a way to run it, by a bench's name; None for what is no such name."""
    compiled = compiled_name(name)
    point = point_named(compiled)
    option = option_named(point, name[len(compiled) + 1 :]) if point else None
    if point is None or option is None or refusal(point):
        return None
    splits = as_run(point, option).splits if isinstance(point, WarpgroupPoint) else 1
    return (point, option) if option.cluster[0] * option.cluster[1] * splits <= MAX_CLUSTER else None


def refusal(point: KernelPoint) -> str:
    """Why it is not worth a compiler's time; empty where it is."""
    return generator_type(point.generator).refusal(point)
