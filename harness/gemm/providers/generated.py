"""Kernels of a folder that `gemm generate` wrote, called through their C interface."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.families.run_option import RunOption, option_named, way_name
from hillclimb.harness.gemm.families.warpgroup_rules import MAX_GROUPS
from hillclimb.harness.gemm.generator.catalog import ARCHITECTURE, GeneratedKernel, is_whole, read_catalogs
from hillclimb.harness.gemm.generator.interface import PREPARE, RUN, SUCCESS, WORKSPACE, GemmRequest
from hillclimb.harness.gemm.generator.types import AnyPoint
from hillclimb.harness.gemm.providers.provider import (
    HOPPER,
    Launch,
    Operands,
    UnsupportedError,
    is_for_tma,
)
from hillclimb.harness.gemm.providers.ways import (
    MOST_WASTE,
    further_options,
    is_for,
    orders,
    run_options,
    sides,
    way_seconds,
)
from hillclimb.harness.gemm.shape import GemmShape

LOOKS = 96
"""Kernels of one type, each with its way to run, that are worth a look for a shape."""

LOOKS_OF_KERNEL = 3
LOOKS_NEAR = 1.3
"""Ways of a kernel that is named without one, but for the order of tiles, and how many times the likeliest time of all
each may take."""


@dataclass(frozen=True)
class KernelWay:
    """A kernel and how it is run."""

    folder: Path
    kernel: GeneratedKernel
    option: RunOption

    @property
    def point(self) -> AnyPoint:
        """What decided the kernel."""
        return self.kernel.point


class Generated:
    """All sound kernels of one folder, and of those in it."""

    def __init__(self, folder: str, *only: str, pdl: bool = True) -> None:
        """`only` are names of kernels, with the way to run each, or without for its likeliest ones.

        Without any, the likeliest of all are looked at.

        With `pdl` a kernel may begin while the one before it ends (programmatic dependent launch).
        Raises UsageError for a name that is of none.
        """
        self.folder, self._pdl = Path(folder), pdl
        self.catalogs = read_catalogs(self.folder)
        self._is_named = bool(only)
        self._whole = [one for one in self._kernels() if one[1].point.name in only]
        whole = {kernel.point.name for _, kernel in self._whole}
        self._only = [self._named(name) for name in only if name not in whole]
        self._libraries: dict[Path, ctypes.CDLL] = {}
        self._ways: dict[str, KernelWay] = {}
        self._scratch = Scratch()

    def software(self) -> dict[str, str]:
        """Which kernels these are."""
        software: dict[str, set[str]] = {}
        for folder, catalog in self.catalogs.items():
            for name, version in {**catalog.software, f"kernels {folder.name}": catalog.digest}.items():
                software.setdefault(name, set()).add(version)
        if self._is_named:
            chosen = [way_name(way.point, way.option) for way in self._only]
            names = "\n".join([*chosen, *(kernel.point.name for _, kernel in self._whole)])
            software["chosen"] = {hashlib.sha256(names.encode()).hexdigest()}
        return {name: ", ".join(sorted(versions)) for name, versions in software.items()}

    def kernels(self, shape: GemmShape, example: Operands) -> Sequence[str]:
        """The likeliest by the cost model. Raises UnsupportedError where none takes the shape, or this GPU."""
        self._scratch = Scratch()
        if torch.cuda.get_device_capability() != HOPPER:
            raise UnsupportedError(f"the kernels of {self.folder} are for sm_{ARCHITECTURE}")
        self._ways.clear()
        self._choose(shape)
        if not self._ways:
            groups = f" of {shape.groups} groups" if shape.groups > 1 else ""
            raise UnsupportedError(f"no kernel of {self.folder} takes {shape.dtype}{groups} with these sizes")
        return list(self._ways)

    def _choose(self, shape: GemmShape) -> None:
        if self._is_named:
            self._keep(way for way in self._only if _takes(way.kernel, shape))
            self._keep(self._ways_of_whole(shape))
            return
        by_type: dict[str, list[KernelWay]] = {}
        for way in self._all_ways(shape):
            by_type.setdefault(way.point.generator, []).append(way)
        for ways in by_type.values():
            ways.sort(key=lambda way: way_seconds(way.point, way.option, shape))
            self._keep(ways[:LOOKS])

    def refine(self, best: Sequence[str]) -> Sequence[str]:
        """Other ways to run these kernels."""
        if self._is_named:
            return ()
        before = set(self._ways)
        found = [self._ways[name] for name in best]
        self._keep(
            replace(way, option=option)
            for way in found
            for option in further_options(way.point, way.option, pdl=self._pdl)
        )
        return [name for name in self._ways if name not in before]

    def _keep(self, ways: Iterable[KernelWay]) -> None:
        self._ways.update((way_name(way.point, way.option), way) for way in ways)

    def launch(self, shape: GemmShape, kernel: str) -> Launch:
        """Raises UnsupportedError where it refuses the shape."""
        way = self._ways[kernel]
        function = getattr(self._library(way), way.point.name)
        return _KernelCall(function, shape, way.option, self._scratch)

    def _library(self, way: KernelWay) -> ctypes.CDLL:
        path = way.folder / way.kernel.library
        if not self._libraries:
            ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)  # they take its functions from there
        if path not in self._libraries:
            if not is_whole(path, way.kernel.library_sha256):
                raise UnsupportedError(f"{path} is not what was compiled; generate it anew")
            self._libraries[path] = ctypes.CDLL(str(path))
        return self._libraries[path]

    def _kernels(self) -> Iterator[tuple[Path, GeneratedKernel]]:
        """The sound ones, with their folders."""
        for folder, catalog in self.catalogs.items():
            yield from ((folder, kernel) for kernel in catalog.kernels if kernel.is_sound)

    def _all_ways(self, shape: GemmShape) -> Iterator[KernelWay]:
        for folder, kernel in self._kernels():
            if _takes(kernel, shape):
                for option in run_options(kernel.point, shape, pdl=self._pdl):
                    yield KernelWay(folder, kernel, option)

    def _ways_of_whole(self, shape: GemmShape) -> Iterator[KernelWay]:
        """The likeliest of each kernel, but for those of kernels that are far from the best."""
        found: list[list[tuple[float, KernelWay]]] = []
        for folder, kernel in self._whole:
            if _takes(kernel, shape):
                options = run_options(kernel.point, shape, pdl=self._pdl, waste=MOST_WASTE)
                ways = [
                    (way_seconds(kernel.point, option, shape), KernelWay(folder, kernel, option))
                    for option in options
                ]
                found.append(sorted(ways, key=lambda way: way[0])[:LOOKS_OF_KERNEL])
        best = min((seconds for ways in found for seconds, _ in ways), default=0.0)
        for ways in found:
            near = [way for seconds, way in ways if seconds <= LOOKS_NEAR * best]
            for way in near:
                yield from (replace(way, option=option) for option in orders(way.point, way.option, shape))

    def _named(self, name: str) -> KernelWay:
        for folder, kernel in self._kernels():
            if name.startswith(f"{kernel.point.name}_"):
                option = option_named(kernel.point, name[len(kernel.point.name) + 1 :])
                if option:
                    is_dependent = option.is_dependent and self._pdl
                    return KernelWay(folder, kernel, replace(option, is_dependent=is_dependent))
        raise UsageError(
            f"{self.folder} has no kernel {name}; `hillclimb gemm generate` writes those of a set"
        )


def _takes(kernel: GeneratedKernel, shape: GemmShape) -> bool:
    """Whether it is of the shape's dtype, has such groups, and TMA can bring such rows."""
    return is_for_tma(shape) and is_for(kernel.point, shape) and shape.groups <= MAX_GROUPS


class Scratch:
    """Memory of a GPU that all kernels of one shape share, for they run one after another.

    It grows to the largest need; what was given out before stays, for graphs may have its address.
    """

    def __init__(self) -> None:
        self._parts: list[torch.Tensor] = []

    def address(self, size: int) -> int:
        """Of so many bytes."""
        if not self._parts or self._parts[-1].numel() < size:
            doubled = 1 << max(0, size - 1).bit_length()
            self._parts.append(torch.empty(doubled, dtype=torch.uint8, device="cuda"))
        return self._parts[-1].data_ptr()


class _KernelCall:
    """One kernel for one shape."""

    def __init__(
        self,
        function: ctypes._NamedFuncPointer,
        shape: GemmShape,
        option: RunOption,
        scratch: Scratch,
    ):
        rows, columns = sides(option.rows, shape)
        self.function, self.tokens_are_rows, self.scratch = function, option.rows == "tokens", scratch
        self._is_prepared = False
        self.request = GemmRequest(
            rows=rows,
            columns=columns,
            inner=shape.k,
            multiprocessors=torch.cuda.get_device_properties(0).multi_processor_count,
            raster=option.raster,
            swizzle=option.swizzle,
            splits=option.splits,
            dependent=option.is_dependent,
            is_transposed=option.rows == "features",
            cluster_rows=option.cluster[0],
            cluster_columns=option.cluster[1],
            steps=option.steps,
            promotion=option.promotion,
            row_cache=option.caches[0],
            column_cache=option.caches[1],
            groups=shape.groups,
            persistent=option.is_persistent,
        )

    def __call__(self, to: Operands) -> None:
        rows, columns = (to.x, to.w) if self.tokens_are_rows else (to.w, to.x)
        self.request.a, self.request.b = rows.data_ptr(), columns.data_ptr()
        if to.x_scales is not None:
            scales = (to.x_scales, to.w_scales) if self.tokens_are_rows else (to.w_scales, to.x_scales)
            self.request.row_scales, self.request.column_scales = (one.data_ptr() for one in scales)
        if to.group_ends is not None:
            self.request.group_ends = to.group_ends.data_ptr()
        self.request.result = to.out.data_ptr()
        self.request.stream = torch.cuda.current_stream().cuda_stream
        if not self._is_prepared:
            self._prepare()
        self._act(RUN)

    def _prepare(self) -> None:
        """Once, but for what a stream-K kernel sets up in every call."""
        self._act(WORKSPACE)
        self.request.workspace = self.scratch.address(self.request.workspace_bytes)
        self._act(PREPARE)
        self._is_prepared = True

    def _act(self, action: int) -> None:
        status = self.function(action, ctypes.byref(self.request))
        if status != SUCCESS and action == RUN:
            raise RuntimeError(f"the kernel does not start: status {status}")
        if status != SUCCESS:
            raise UnsupportedError(f"the kernel refuses the shape: status {status}")
