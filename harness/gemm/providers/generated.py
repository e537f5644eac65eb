"""Kernels of a folder that `gemm generate` wrote, called through their C interface."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import ceil
from pathlib import Path

import torch

from hillclimb.harness.gemm.generator.catalog import GeneratedKernel, is_whole, read_catalog
from hillclimb.harness.gemm.generator.point import KernelPoint
from hillclimb.harness.gemm.generator.predicate import RESULT_BYTES
from hillclimb.harness.gemm.providers.cost import MULTIPROCESSORS, cost_seconds
from hillclimb.harness.gemm.providers.provider import Launch, Operands, UnsupportedError
from hillclimb.harness.gemm.shape import ITEM_BYTES, GemmShape

CAPABILITY = (9, 0)
LOOKS = 96
"""Kernels of one shape that are worth a look, each with its ways to run."""

WORKSPACE, PREPARE, RUN = 0, 1, 2
SUCCESS = 0
CHOICE, ALONG_ROWS, ALONG_COLUMNS = 0, 1, 2
SPLITS = (1, 2, 4)
ALIGNMENT_BYTES = 16


class GemmRequest(ctypes.Structure):
    """GemmRequest of the templates."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("a", "b", "result", "workspace", "stream")),
        ("workspace_bytes", ctypes.c_size_t),
        *((name, ctypes.c_int) for name in ("rows", "columns", "inner", "multiprocessors")),
        *((name, ctypes.c_int) for name in ("raster", "swizzle", "splits", "dependent")),
    ]


@dataclass(frozen=True)
class RunOption:
    """What is chosen when a kernel is called."""

    raster: int = CHOICE
    splits: int = 1
    is_dependent: bool = False
    """Programmatic dependent launch: it begins while the kernel before it ends."""

    def __str__(self) -> str:
        return f"raster{self.raster}_splits{self.splits}" + ("_pdl" if self.is_dependent else "")


class Generated:
    """All sound kernels of one folder."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.catalog = read_catalog(self.folder)
        self._libraries: dict[str, ctypes.CDLL] = {}
        self._ways: dict[str, tuple[GeneratedKernel, RunOption]] = {}
        self._scratch = Scratch()

    def software(self) -> dict[str, str]:
        """Which kernels these are."""
        return {**self.catalog.software, "kernels": self.catalog.digest}

    def kernels(self, shape: GemmShape, example: Operands) -> Sequence[str]:
        """The likeliest by the cost model. Raises UnsupportedError where none takes the shape, or this GPU."""
        self._scratch = Scratch()
        if torch.cuda.get_device_capability() != CAPABILITY:
            raise UnsupportedError(f"the kernels of {self.folder} are for sm_{self.catalog.architecture}")
        ways = sorted(self._all_ways(shape), key=lambda way: _cost(shape, way[0].point, way[1]))
        self._ways = {f"{kernel.point.name}_{option}": (kernel, option) for kernel, option in ways[:LOOKS]}
        if not self._ways:
            raise UnsupportedError(f"no kernel of {self.folder} takes {shape.dtype} with these sizes")
        return list(self._ways)

    def launch(self, shape: GemmShape, kernel: str) -> Launch:
        """Raises UnsupportedError where it refuses the shape."""
        generated, option = self._ways[kernel]
        function = getattr(self._library(generated), generated.point.name)
        return _KernelCall(function, generated.point, shape, option, self._scratch)

    def _library(self, kernel: GeneratedKernel) -> ctypes.CDLL:
        name = kernel.library
        if not self._libraries:
            ctypes.CDLL("libcuda.so.1", mode=ctypes.RTLD_GLOBAL)  # they take its functions from there
        if name not in self._libraries:
            path = self.folder / name
            if not is_whole(path, kernel.library_sha256):
                raise UnsupportedError(f"{path} is not what was compiled; generate it anew")
            self._libraries[name] = ctypes.CDLL(str(path))
        return self._libraries[name]

    def _all_ways(self, shape: GemmShape) -> Iterator[tuple[GeneratedKernel, RunOption]]:
        if shape.k * ITEM_BYTES[shape.dtype] % ALIGNMENT_BYTES:
            return
        if shape.n * RESULT_BYTES[shape.dtype] % ALIGNMENT_BYTES:
            return
        for kernel in self.catalog.kernels:
            if kernel.is_sound and kernel.point.dtype == shape.dtype:
                for option in _options(kernel.point, shape):
                    yield kernel, option


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
        point: KernelPoint,
        shape: GemmShape,
        option: RunOption,
        scratch: Scratch,
    ):
        rows, columns = _sides(point, shape)
        self.function, self.tokens_are_rows, self.scratch = function, point.rows == "tokens", scratch
        self.request = GemmRequest(
            rows=rows,
            columns=columns,
            inner=shape.k,
            multiprocessors=torch.cuda.get_device_properties(0).multi_processor_count,
            raster=option.raster,
            swizzle=1,
            splits=option.splits,
            dependent=option.is_dependent,
        )

    @cached_property
    def workspace(self) -> int:
        """Its address. It is set up once, but for what a stream-K kernel sets up in every call."""
        self._act(WORKSPACE)
        self.request.workspace = self.scratch.address(self.request.workspace_bytes)
        self._act(PREPARE)
        return int(self.request.workspace or 0)

    def __call__(self, to: Operands) -> None:
        rows, columns = (to.x, to.w) if self.tokens_are_rows else (to.w, to.x)
        self.request.a, self.request.b = rows.data_ptr(), columns.data_ptr()
        self.request.result = to.out.data_ptr()
        self.request.stream = torch.cuda.current_stream().cuda_stream
        _ = self.workspace
        self._act(RUN)

    def _act(self, action: int) -> None:
        status = self.function(action, ctypes.byref(self.request))
        if status != SUCCESS and action == RUN:
            raise RuntimeError(f"the kernel does not start: cutlass::Status {status}")
        if status != SUCCESS:
            raise UnsupportedError(f"the kernel refuses the shape: cutlass::Status {status}")


def _options(point: KernelPoint, shape: GemmShape) -> Iterator[RunOption]:
    if point.scheduler == "stream_k":
        for splits in SPLITS:
            yield RunOption(splits=splits)
        return
    rows, columns = _sides(point, shape)
    down, across = ceil(rows / point.tile[0]), ceil(columns / point.tile[1])
    is_one_wave = min(down, across) == 1 or down * across <= MULTIPROCESSORS
    rasters = (CHOICE,) if point.schedule == "basic" or is_one_wave else (ALONG_ROWS, ALONG_COLUMNS)
    for raster, is_dependent in product(rasters, (False, True)):
        yield RunOption(raster=raster, is_dependent=is_dependent)


def _sides(point: KernelPoint, shape: GemmShape) -> tuple[int, int]:
    return (shape.m, shape.n) if point.rows == "tokens" else (shape.n, shape.m)


def _cost(shape: GemmShape, point: KernelPoint, option: RunOption) -> float:
    rows, columns, _ = point.tile
    tile, cluster = (columns, rows), (point.cluster[1], point.cluster[0])
    if point.rows == "features":
        tile, cluster = (rows, columns), point.cluster
    return cost_seconds(shape, tile, cluster, option.splits)
