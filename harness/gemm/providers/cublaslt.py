"""cuBLASLt with tile and cluster chosen by timing instead of by its heuristic.

The algorithms that the heuristic gives are templates: other ids of tiles and clusters are set on them, as far as
cublasLtMatmulAlgoCheck takes them. How K is split is left alone: algorithms with another split passed the check and
then read where they must not. Names of attributes and values are those of cublasLt.h.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from hillclimb.harness.gemm.providers.cost import cost_seconds
from hillclimb.harness.gemm.providers.cublaslt_algorithms import CLUSTERS, TILES, Algorithm
from hillclimb.harness.gemm.providers.provider import Launch, Operands, UnsupportedError
from hillclimb.harness.gemm.shape import Dtype, GemmShape, stored

R_16F, R_16BF, R_8F_E4M3, R_8I, R_32I, R_32F = 2, 14, 28, 3, 10, 0
COMPUTE_32F, COMPUTE_32I = 68, 72
TRANSA, A_SCALE_POINTER, B_SCALE_POINTER, FAST_ACCUM, A_SCALE_MODE, B_SCALE_MODE = 3, 17, 18, 25, 31, 32
OUTER_VECTOR = 3
"""Of a scale: one for each row or column of the result."""
MAX_WORKSPACE_BYTES = 1
CONFIG_ID, CONFIG_TILE_ID, CONFIG_CLUSTER_SHAPE_ID = 0, 1, 8
CAP_TILE_IDS = 6
SUCCESS, TRANSPOSED = 0, 1

TYPES: dict[Dtype, tuple[int, int, int, int]] = {
    "bf16": (R_16BF, R_16BF, COMPUTE_32F, R_32F),
    "f16": (R_16F, R_16F, COMPUTE_32F, R_32F),
    "fp8": (R_8F_E4M3, R_16BF, COMPUTE_32F, R_32F),
    "int8": (R_8I, R_32I, COMPUTE_32I, R_32I),
}
"""Of the operands, of the result, of the sums and of the scale."""

WORKSPACE_BYTES = 64 << 20
ANSWERS = 16
"""Asked of the heuristic; it gives 8 at the most."""

TEMPLATES, VARIANTS = 2, 48
"""Algorithms that are varied, and how many variants of each are worth timing."""

MAX_CLUSTER = 4


class AlgorithmState(ctypes.Structure):
    """cublasLtMatmulAlgo_t, opaque."""

    _fields_ = [("data", ctypes.c_uint64 * 8)]


class HeuristicAnswer(ctypes.Structure):
    """cublasLtMatmulHeuristicResult_t."""

    _fields_ = [
        ("algorithm", AlgorithmState),
        ("workspace_bytes", ctypes.c_size_t),
        ("state", ctypes.c_int),
        ("waves", ctypes.c_float),
        ("reserved", ctypes.c_int * 4),
    ]


@dataclass(frozen=True)
class Matmul:
    """Handles of one shape: of the product of the weights, transposed, and the tokens, column-major."""

    description: ctypes.c_void_p
    w: ctypes.c_void_p
    x: ctypes.c_void_p
    out: ctypes.c_void_p


class CublasLt:
    """One library, its workspace, and the algorithms of one shape."""

    def __init__(self) -> None:
        torch.mm(
            *(torch.ones(16, 16, device="cuda", dtype=torch.bfloat16) for _ in range(2))
        )  # loads the library
        self.library = ctypes.CDLL(_library())
        self.library.cublasLtGetVersion.restype = ctypes.c_size_t
        self.handle = ctypes.c_void_p()
        self._call("Create", ctypes.byref(self.handle))
        self.workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
        self.one = torch.ones((), device="cuda")
        self.matmul: Matmul | None = None
        self.algorithms: dict[str, AlgorithmState] = {}

    def software(self) -> dict[str, str]:
        """The library's own version: an algorithm means something to this one alone."""
        return {"cublaslt": str(self.library.cublasLtGetVersion())}

    def kernels(self, shape: GemmShape, example: Operands) -> Sequence[str]:
        """What the heuristic gives, then variants of its first two answers, the likeliest first.

        Raises UnsupportedError where it gives none, for a dtype that it does not have, and for products of groups.
        """
        if shape.groups > 1:
            raise UnsupportedError("this provider has single products alone, none of groups")
        if shape.dtype == "scaled_int8":
            raise UnsupportedError(f"cuBLASLt has no {shape.dtype}")
        self.matmul = self._matmul(shape)
        found = self._heuristic()
        if not found:
            raise UnsupportedError("cuBLASLt's heuristic gives no algorithm")
        self.algorithms = {Algorithm(at).name: one for at, one in enumerate(found)}
        for at, template in enumerate(found[:TEMPLATES]):
            for tile, cluster, algorithm in self._variants(template, shape):
                self.algorithms[Algorithm(at, tile, cluster).name] = algorithm
        return list(self.algorithms)

    def launch(self, shape: GemmShape, kernel: str) -> Launch:
        """One of those."""
        algorithm, matmul = self.algorithms[kernel], self.matmul
        scale = ctypes.c_int32 if shape.dtype == "int8" else ctypes.c_float
        alpha, beta = scale(1), scale(0)

        def run(to: Operands) -> None:
            assert matmul is not None
            out = ctypes.c_void_p(to.out.data_ptr())
            if to.w_scales is not None:
                self._scale(matmul, to.w_scales, to.x_scales)
            self._call(
                *("Matmul", self.handle, matmul.description, ctypes.byref(alpha)),
                *(ctypes.c_void_p(to.w.data_ptr()), matmul.w, ctypes.c_void_p(to.x.data_ptr()), matmul.x),
                *(ctypes.byref(beta), out, matmul.out, out, matmul.out, ctypes.byref(algorithm)),
                *(ctypes.c_void_p(self.workspace.data_ptr()), ctypes.c_size_t(WORKSPACE_BYTES)),
                ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
            )

        return run

    def _matmul(self, shape: GemmShape) -> Matmul:
        operand, result, compute, scale = TYPES[stored(shape.dtype)]
        description = ctypes.c_void_p()
        self._call("MatmulDescCreate", ctypes.byref(description), compute, scale)
        self._set("MatmulDesc", description, TRANSA, ctypes.c_int32(TRANSPOSED))
        if shape.dtype == "scaled_fp8":
            for attribute in (A_SCALE_MODE, B_SCALE_MODE):
                self._set("MatmulDesc", description, attribute, ctypes.c_int32(OUTER_VECTOR))
        if operand == R_8F_E4M3:
            self._set("MatmulDesc", description, FAST_ACCUM, ctypes.c_int8(1))
        layouts = [
            self._layout(operand, shape.k, shape.n),
            self._layout(operand, shape.k, shape.m),
            self._layout(result, shape.n, shape.m),
        ]
        matmul = Matmul(description, *layouts)
        if operand == R_8F_E4M3:
            self._scale(matmul, self.one, self.one)
        return matmul

    def _scale(self, matmul: Matmul, w_scales: Any, x_scales: Any) -> None:
        """Tells where they lie."""
        for attribute, scales in ((A_SCALE_POINTER, w_scales), (B_SCALE_POINTER, x_scales)):
            self._set("MatmulDesc", matmul.description, attribute, ctypes.c_void_p(scales.data_ptr()))

    def _layout(self, data_type: int, rows: int, columns: int) -> ctypes.c_void_p:
        layout = ctypes.c_void_p()
        sizes = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows))
        self._call("MatrixLayoutCreate", ctypes.byref(layout), data_type, *sizes)
        return layout

    def _heuristic(self) -> list[AlgorithmState]:
        preference = ctypes.c_void_p()
        self._call("MatmulPreferenceCreate", ctypes.byref(preference))
        self._set("MatmulPreference", preference, MAX_WORKSPACE_BYTES, ctypes.c_uint64(WORKSPACE_BYTES))
        answers, given = (HeuristicAnswer * ANSWERS)(), ctypes.c_int()
        status = self.library.cublasLtMatmulAlgoGetHeuristic(
            *(self.handle, *self._handles(), preference, ANSWERS, answers, ctypes.byref(given))
        )
        if status != SUCCESS:
            return []
        return [one.algorithm for one in answers[: given.value] if one.state == SUCCESS]

    def _variants(
        self, template: AlgorithmState, shape: GemmShape
    ) -> Iterator[tuple[int, int, AlgorithmState]]:
        """Those that the check takes, of the tiles and clusters that the cost model thinks most of."""
        pairs = [
            (tile, cluster)
            for tile in self._tiles(template)
            for cluster, (along, across) in CLUSTERS.items()
            if along * across <= MAX_CLUSTER
        ]
        pairs.sort(key=lambda pair: cost_seconds(shape, TILES[pair[0]], CLUSTERS[pair[1]]))
        kept = 0
        for tile, cluster in pairs:
            algorithm = AlgorithmState.from_buffer_copy(template)
            if self._configure(algorithm, CONFIG_TILE_ID, ctypes.c_uint32(tile)) and self._configure(
                algorithm, CONFIG_CLUSTER_SHAPE_ID, ctypes.c_uint16(cluster)
            ):
                answer = HeuristicAnswer()
                status = self.library.cublasLtMatmulAlgoCheck(
                    *(self.handle, *self._handles(), ctypes.byref(algorithm), ctypes.byref(answer))
                )
                if status == SUCCESS and answer.workspace_bytes <= WORKSPACE_BYTES:
                    yield tile, cluster, algorithm
                    kept += 1
            if kept == VARIANTS:
                return

    def _tiles(self, template: AlgorithmState) -> list[int]:
        written = ctypes.c_size_t()
        ids = (ctypes.c_uint32 * 1024)()
        self.library.cublasLtMatmulAlgoCapGetAttribute(
            *(
                ctypes.byref(template),
                CAP_TILE_IDS,
                ids,
                ctypes.c_size_t(ctypes.sizeof(ids)),
                ctypes.byref(written),
            )
        )
        return [one for one in ids[: written.value // 4] if one in TILES]

    def _configure(self, algorithm: AlgorithmState, attribute: int, value: Any) -> bool:
        status: int = self.library.cublasLtMatmulAlgoConfigSetAttribute(
            *(ctypes.byref(algorithm), attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))
        )
        return status == SUCCESS

    def _handles(self) -> tuple[ctypes.c_void_p, ...]:
        assert self.matmul is not None
        one = self.matmul
        return (one.description, one.w, one.x, one.out, one.out)

    def _set(self, what: str, of: ctypes.c_void_p, attribute: int, value: Any) -> None:
        size = ctypes.c_size_t(ctypes.sizeof(value))
        self._call(f"{what}SetAttribute", of, attribute, ctypes.byref(value), size)

    def _call(self, function: str, *arguments: Any) -> None:
        """Raises RuntimeError with the library's status."""
        status = getattr(self.library, f"cublasLt{function}")(*arguments)
        if status != SUCCESS:
            raise RuntimeError(f"cublasLt{function} returns {status}")


def _library() -> str:
    """The one that torch has loaded."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    found = next((line.split()[-1] for line in lines if "libcublasLt.so" in line), "")
    if not found:
        raise UnsupportedError("torch has loaded no cuBLASLt")
    return found
