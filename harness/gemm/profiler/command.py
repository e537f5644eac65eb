"""How cutlass_profiler is called for one shape.

Its kernels write column-major results, and those of a language model are row-major. So the transposed product is asked
for: the weights take the rows, and the tokens the columns.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.shape import Dtype, GemmShape

ELEMENTS: dict[Dtype, dict[str, str]] = {
    "bf16": {"A": "bf16:row", "B": "bf16:column", "D": "bf16:column", "accum": "f32"},
    "f16": {"A": "f16:row", "B": "f16:column", "D": "f16:column", "accum": "f32"},
    "fp8": {"A": "fe4m3:row", "B": "fe4m3:column", "D": "bf16:column", "accum": "f32"},
    "int8": {"A": "s8:row", "B": "s8:column", "accum": "s32"},
}
"""Operands, result and sums of a shape, as the profiler spells them. It has no int8 kernel that writes bf16."""

COMMON = (
    "--operation=Gemm",
    "--print-kernel-before-running=true",
    "--verification-providers=device",
)
"""Of every call. The name of a kernel is printed before it runs, so the one that ended a process is known."""

DEVIATION: dict[Dtype, float] = {"bf16": 1.0, "f16": 1.0, "fp8": 1.0, "int8": 30.0}
"""Standard deviation of the operands. Random ones take the power that real ones do: with its own, which are small whole
numbers, a profiler of CUTLASS 4.2 told up to a quarter more TFLOP/s. int8 cuts off what is behind the point."""

OWN_FLAGS = frozenset(
    [
        *("operation", "function", "mode", "output", "append", "testlist-file", "kernels-file"),
        *("print-kernel-before-running", "help", "version", "device-info"),
        *("devices", "workspace-count", "dist", "nonzero-floor"),
        *("m", "problem-size::m", "n", "problem-size::n", "k", "problem-size::k"),
        *("A", "B", "D", "accum", "accumulator-type", "batch_count", "batch-count"),
    ]
)
"""Flags that are not for a caller to give: they decide what is timed, where, and how it is told."""

SEARCH, FIXED_SHAPE = "enable-kernel-performance-search", "enable-best-kernel-for-fixed-shape"
"""The first alone tries eight squares instead of the shape."""

OF_OPTIONS = frozenset({"kernels", "ignore-kernels", "operation_names", "verification-providers", "tags"})
"""Flags whose values may have commas: they are no arguments of the problem."""


@dataclass(frozen=True)
class CutlassProfiler:
    """A binary, what it is told beside the shape, and how many seconds it may be silent."""

    binary: Path
    flags: tuple[str, ...] = ()
    silent_seconds: float = 60.0

    def __post_init__(self) -> None:
        """Raises UsageError for flags that the sweep cannot take."""
        given = {}
        for flag in self.flags:
            name, mark, value = flag.removeprefix("--").partition("=")
            if not flag.startswith("--") or not mark:
                raise UsageError(f"profiler flag {flag!r}: write each as --name=value, with spaces between")
            if name in OWN_FLAGS:
                raise UsageError(f"profiler flag {flag!r}: the sweep decides --{name} itself; leave it out")
            if "," in value and name not in OF_OPTIONS:
                raise UsageError(f"profiler flag {flag!r}: give one value, and a sweep of its own to each")
            given[name] = value
        if SEARCH in given and FIXED_SHAPE not in given:
            raise UsageError(f"--{SEARCH} tries squares of its own; give --{FIXED_SHAPE}=true with it")

    def list_kernels(self, shape: GemmShape, output: str) -> list[str]:
        """Says which kernels the shape would run, and runs none. `output` is a name without a folder: the profiler
        reads no path with blanks.
        """
        return [*self.command(shape), f"--output={output}", "--mode=dry_run"]

    def run_kernels(self, shape: GemmShape, output: str, list_file: str) -> list[str]:
        """Runs those of the list alone."""
        return [*self.command(shape), f"--output={output}", f"--testlist-file={list_file}"]

    def command(self, shape: GemmShape) -> list[str]:
        """What every process of a shape is told."""
        problem = [f"--{name}={value}" for name, value in problem_arguments(shape).items()]
        data = f"--dist=gaussian,mean:0,stddev:{DEVIATION[shape.dtype]:g},scale:-1"
        floor = f"--nonzero-floor={near_zero(shape):g}"
        return [str(self.binary), *COMMON, data, floor, *problem, *self.flags]

    def kernel_list(self, shape: GemmShape, kernels: Sequence[str]) -> str:
        """The file of that list. Each line has the problem too: beside a list the command line's is not looked at.

        Columns that are no arguments of a problem are passed over there.
        """
        given = (flag.removeprefix("--").partition("=") for flag in self.flags)
        extra = {name: value for name, _, value in given if name not in OF_OPTIONS}
        columns = {**problem_arguments(shape), **extra}
        lines = [",".join(("kernel", *columns))]
        lines += [",".join((kernel, *columns.values())) for kernel in kernels]
        return "\n".join(lines) + "\n"


def near_zero(shape: GemmShape) -> float:
    """Results below this are compared by an absolute error of 5 % of it, others by 5 % of themselves.

    One standard deviation of the results: sums in another order differ by more than 5 % where they nearly cancel.
    """
    return math.sqrt(shape.k) * DEVIATION[shape.dtype] ** 2


def problem_arguments(shape: GemmShape) -> dict[str, str]:
    """By the profiler's names, of the transposed product. Raises UsageError for experts, and for scaled operands."""
    if shape.dtype not in ELEMENTS:
        raise UsageError(f"cutlass_profiler has no {shape.dtype}; take one of {', '.join(ELEMENTS)}")
    if shape.groups > 1:
        raise UsageError(f"{shape.name} has {shape.groups} groups: the sweep has single products alone")
    sizes = {"m": str(shape.n), "n": str(shape.m), "k": str(shape.k)}
    return {**sizes, **ELEMENTS[shape.dtype]}


def csv_of(output: Path) -> Path:
    """Where the profiler writes the rows of matrix products."""
    return output.with_name(output.name + ".gemm.csv")
