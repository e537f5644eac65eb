"""What a provider of kernels was measured to do: one JSON file a provider, whoever wrote it.

A provider is what one would call for a matrix product: a library, the CUTLASS profiler, Triton, generated kernels.
"""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, TypeAdapter, ValidationError, model_validator

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.shape import ITEM_BYTES, Dtype, GemmShape
from hillclimb.harness.records.record import Record
from hillclimb.harness.wording import suggestion
from hillclimb.harness.yaml_errors import case_error, read_yaml

Statistic = Literal["median", "mean", "min"]
FailureStatus = Literal["incorrect", "failed", "unsupported", "aborted", "timed_out", "impossible"]
Name = Annotated[str, Field(min_length=1)]

GENERATED = "generated"
"""The provider of the kernels that `gemm generate` wrote."""

TFLOPS_TOLERANCE = 0.02
"""By how much, as a share, a file's own TFLOP/s may differ from flops / runtime: its digits, or 2(mnk + mn)."""

PEAK_TFLOPS: dict[str, dict[int, float]] = {
    "H100": {2: 989.5, 1: 1979.0},
    "H200": {2: 989.5, 1: 1979.0},
}
"""Dense, by a part of the card's name and the bytes of an operand's element, as NVIDIA's data sheets of the SXM cards
give it: no kernel can be faster."""


PEAK_GIGABYTES = {"H100 NVL": 3938.0, "H100": 3350.0, "GH200": 4900.0, "H200": 4800.0}
"""Bandwidth of the memory in GB/s, by the first part that the name has."""


class GpuCard(Record):
    """Where it was measured."""

    name: Name
    """As the driver gives it, such as NVIDIA H100 80GB HBM3."""
    driver: str = ""

    def peak_tflops(self, dtype: Dtype) -> float:
        """Infinite for a card that is not known."""
        peaks = next((peaks for part, peaks in PEAK_TFLOPS.items() if part in self.name), {})
        return peaks.get(ITEM_BYTES[dtype], math.inf)

    @property
    def peak_gigabytes(self) -> float:
        """A second, from memory; likewise."""
        return next((peak for part, peak in PEAK_GIGABYTES.items() if part in self.name), math.inf)


class Product(Record):
    """A shape: what was multiplied."""

    name: Name
    m: PositiveInt
    n: PositiveInt
    k: PositiveInt
    dtype: Dtype
    groups: PositiveInt = 1

    @staticmethod
    def of(shape: GemmShape) -> Product:
        """The shape as a record."""
        return Product(
            name=shape.name, m=shape.m, n=shape.n, k=shape.k, dtype=shape.dtype, groups=shape.groups
        )

    @property
    def shape(self) -> GemmShape:
        """By which products of several files are told to be the same, whatever they are named."""
        return GemmShape("", self.m, self.n, self.k, self.dtype, self.groups)


class Measured(Product):
    """One kernel's time for one shape."""

    kernel: str = ""
    """Its own name, where the provider has several."""
    runtime_ms: PositiveFloat
    statistic: Statistic = "median"
    """Of the calls: a mean is not compared with a minimum."""
    low_ms: PositiveFloat | None = None
    high_ms: PositiveFloat | None = None
    """A 95 % interval of the time, where there is one. Of fewer than six times it is the shortest and the longest."""
    choosing_ms: PositiveFloat | None = None
    """Of other calls: the best of several is chosen by it, for a time that was chosen by itself is flattered."""
    tflops: PositiveFloat | None = None
    """As the file gives it; it follows from the shape and the time, and has to agree with them."""
    is_checked: bool = False
    """Whether the result was compared with a reference, and was right."""

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        low, high = self.interval_ms
        if not low <= self.runtime_ms <= high < math.inf:
            raise ValueError(
                f"runtime_ms {self.runtime_ms} is not between low_ms and high_ms, {low} to {high}"
            )
        own = self.achieved_tflops
        if self.tflops and abs(self.tflops / own - 1) > TFLOPS_TOLERANCE + 1 / self.k:
            raise ValueError(f"tflops {self.tflops} is not 2mnk / runtime_ms, {own:.6g}")
        return self

    @property
    def interval_ms(self) -> tuple[float, float]:
        """The time itself at both ends, where no interval was given."""
        return self.low_ms or self.runtime_ms, self.high_ms or self.runtime_ms

    @property
    def rank_ms(self) -> float:
        """By which the best of a file's kernels is chosen."""
        return self.choosing_ms or self.runtime_ms

    @property
    def achieved_tflops(self) -> float:
        """From the shape and the time."""
        return self.shape.flops / self.runtime_ms / 1e9


class Failed(Product):
    """A kernel that gave no time for a shape, or a wrong result. Without a name: the provider as a whole."""

    kernel: str = ""
    status: FailureStatus
    """incorrect: it ran, and its result is wrong. aborted: its process ended, or what it wrote did."""
    reason: str = ""


class ProviderResults(Record):
    """One file."""

    schema_version: Literal[1] = Field(1, alias="schema")
    provider: Name
    gpu: GpuCard
    software: dict[str, str] = Field(default_factory=dict)
    """Versions by name, such as cuda, torch, cutlass."""
    digest: str = ""
    """sha256 of what else decides a time: the kernels' source, the flags of the compiler."""
    cache: Literal["cold", "hot", "unknown"] = "unknown"
    """Whether the operands were in the L2 cache."""
    results: tuple[Measured, ...] = ()
    failed: tuple[Failed, ...] = ()

    def beyond_card(self, one: Measured) -> str:
        """As the function of that name, of one of these."""
        return beyond_card(one, self.gpu, is_cold=self.cache == "cold")

    def possible(self) -> list[Measured]:
        """Those that are not faster than the card can be."""
        return [one for one in self.results if not self.beyond_card(one)]

    def best(self) -> dict[GemmShape, Measured]:
        """The fastest possible one of every shape, by `rank_ms`."""
        found: dict[GemmShape, Measured] = {}
        for one in self.possible():
            if one.shape not in found or one.rank_ms < found[one.shape].rank_ms:
                found[one.shape] = one
        return found


def beyond_card(one: Measured, gpu: GpuCard, *, is_cold: bool) -> str:
    """Which of the card's rates the time would need more of than there is; nothing where it is possible.

    Operands in the cache are not read from memory, and a result may stay there.
    """
    if one.achieved_tflops > (peak := gpu.peak_tflops(one.dtype)):
        return f"{one.runtime_ms} ms are {one.achieved_tflops:.6g} TFLOP/s; the card has {peak:g}"
    read = one.shape.read_bytes / one.runtime_ms / 1e6
    if is_cold and read > gpu.peak_gigabytes:
        return (
            f"{one.runtime_ms} ms are {read:.6g} GB/s read from memory; the card has {gpu.peak_gigabytes:g}"
        )
    return ""


def read_results(path: Path) -> ProviderResults:
    """One that gzip compressed is named so, with .gz at its end.

    Raises UsageError for a file that is not there, or does not hold what docs/reference/schema says.
    """
    try:
        content = path.read_bytes()
        return ProviderResults.model_validate_json(
            gzip.decompress(content) if path.suffix == ".gz" else content
        )
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UsageError(f"{path}: it is not what gzip writes ({error}); compress it anew") from None
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; give a file of a provider's results") from None
    except ValidationError as error:
        raise UsageError(
            f"{path}: {_first(error)}; docs/reference/schema/gemm-results.json says what a file holds"
        ) from None


def read_all(paths: Iterable[Path]) -> list[ProviderResults]:
    """Raises UsageError as `read_results` does, and where two files are of one provider."""
    found: dict[str, Path] = {}
    files = []
    for path in paths:
        file = read_results(path)
        if file.provider in found:
            raise UsageError(
                f"{path} and {found[file.provider]} are both of {file.provider!r}; give one of them"
            )
        found[file.provider] = path
        files.append(file)
    return files


def read_calls(path: Path) -> dict[str, float]:
    """How often each shape is called, by name. Raises CaseError for a file that says nothing of the kind."""
    document = read_yaml(path)
    try:
        return TypeAdapter(dict[str, float]).validate_python(document)
    except ValidationError as error:
        raise case_error(path, error, page="`hillclimb gemm select --help`") from None


def only(files: Sequence[ProviderResults], names: Sequence[str]) -> list[ProviderResults]:
    """The files with the shapes of these names alone; as they are where there are none.

    Raises UsageError for a name that no file has.
    """
    known = {one.name for file in files for one in (*file.results, *file.failed)}
    for name in names:
        if name not in known:
            raise UsageError(f"no file has a shape {name!r}: {suggestion(name, known)}")
    return [_only(file, names) if names else file for file in files]


def _only(file: ProviderResults, names: Sequence[str]) -> ProviderResults:
    results = tuple(one for one in file.results if one.name in names)
    failed = tuple(one for one in file.failed if one.name in names)
    return file.model_copy(update={"results": results, "failed": failed})


def _first(error: ValidationError) -> str:
    """Where the first slip is, and what it is."""
    slip, count = error.errors()[0], error.error_count()
    place = ".".join(str(part) for part in slip["loc"]) or "the file"
    more = f", and {count - 1} more" if count > 1 else ""
    given = f" (it is {slip['input']!r})" if isinstance(slip["input"], str | int | float) else ""
    return f"{place}: {slip['msg'].removeprefix('Value error, ')}{given}{more}"
