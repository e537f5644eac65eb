"""The product by cuBLASLt, with the algorithm that a bench found fastest for the shape that is claimed.

It is an answer of the library's heuristic, with another tile and cluster set on it where that was faster. It means
something to one version of the library on one card; elsewhere this raises. Other shapes are torch's, which is cuBLAS.
Names of attributes and values are those of cublasLt.h.
"""

import ctypes
from functools import cache
from pathlib import Path

import torch

COMPILED = False

M, N, K = map(int, ["{{m}}", "{{n}}", "{{k}}"])
VERSION, GPU = "{{cublaslt_version}}", "{{gpu}}"
ANSWER, TILE, CLUSTER = map(int, ["{{answer}}", "{{tile}}", "{{cluster}}"])

TYPES = {"bf16": 14, "f16": 2}
OPERAND = TYPES["{{dtype}}"]
FLOAT, COMPUTE_FLOAT = 0, 68
TRANSPOSE_FIRST, MAX_WORKSPACE_BYTES, TILE_ID, CLUSTER_SHAPE_ID = 3, 1, 1, 8
WORKSPACE_BYTES, ANSWERS = 64 << 20, 16


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


class Product:
    """out = x w^T of the claimed shape; to the library it is w transposed, times x, all column-major."""

    def __init__(self) -> None:
        torch.mm(*(torch.ones(16, 16, device="cuda") for _ in range(2)))  # loads the library
        lines = Path("/proc/self/maps").read_text().splitlines()
        self.library = ctypes.CDLL(next(line.split()[-1] for line in lines if "libcublasLt.so" in line))
        self.library.cublasLtGetVersion.restype = ctypes.c_size_t
        found = str(self.library.cublasLtGetVersion()), torch.cuda.get_device_name()
        if found != (VERSION, GPU):
            raise RuntimeError(
                f"the algorithm is of cuBLASLt {VERSION} on {GPU}, not {found}; claim it again"
            )
        self.workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
        self.handle, self.description = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("Create", ctypes.byref(self.handle))
        self._call("MatmulDescCreate", ctypes.byref(self.description), COMPUTE_FLOAT, FLOAT)
        self._set("MatmulDescSetAttribute", self.description, TRANSPOSE_FIRST, ctypes.c_int32(1))
        self.w, self.x, self.out = self._layout(K, N), self._layout(K, M), self._layout(N, M)
        self.algorithm = self._algorithm()

    def run(self, x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> None:
        """Launch it on torch's stream."""
        one, zero, result = ctypes.c_float(1), ctypes.c_float(0), ctypes.c_void_p(out.data_ptr())
        self._call(
            *("Matmul", self.handle, self.description, ctypes.byref(one)),
            *(ctypes.c_void_p(w.data_ptr()), self.w, ctypes.c_void_p(x.data_ptr()), self.x),
            *(ctypes.byref(zero), result, self.out, result, self.out, ctypes.byref(self.algorithm)),
            *(ctypes.c_void_p(self.workspace.data_ptr()), ctypes.c_size_t(WORKSPACE_BYTES)),
            ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
        )

    def _algorithm(self) -> AlgorithmState:
        preference, answers, given = ctypes.c_void_p(), (HeuristicAnswer * ANSWERS)(), ctypes.c_int()
        self._call("MatmulPreferenceCreate", ctypes.byref(preference))
        most = ctypes.c_uint64(WORKSPACE_BYTES)
        self._set("MatmulPreferenceSetAttribute", preference, MAX_WORKSPACE_BYTES, most)
        handles = (self.handle, self.description, self.w, self.x, self.out, self.out)
        self._call("MatmulAlgoGetHeuristic", *handles, preference, ANSWERS, answers, ctypes.byref(given))
        usable = [one.algorithm for one in answers[: given.value] if one.state == 0]
        found = usable[ANSWER]
        if TILE:
            attribute = "MatmulAlgoConfigSetAttribute"
            self._set(attribute, ctypes.byref(found), TILE_ID, ctypes.c_uint32(TILE))
            self._set(attribute, ctypes.byref(found), CLUSTER_SHAPE_ID, ctypes.c_uint16(CLUSTER))
            checked = HeuristicAnswer()
            self._call("MatmulAlgoCheck", *handles, ctypes.byref(found), ctypes.byref(checked))
        return found

    def _layout(self, rows: int, columns: int) -> ctypes.c_void_p:
        layout = ctypes.c_void_p()
        sizes = (ctypes.c_uint64(rows), ctypes.c_uint64(columns), ctypes.c_int64(rows))
        self._call("MatrixLayoutCreate", ctypes.byref(layout), OPERAND, *sizes)
        return layout

    def _set(self, function: str, of: object, attribute: int, value: "ctypes._SimpleCData") -> None:
        self._call(function, of, attribute, ctypes.byref(value), ctypes.c_size_t(ctypes.sizeof(value)))

    def _call(self, function: str, *arguments: object) -> None:
        status = getattr(self.library, f"cublasLt{function}")(*arguments)
        if status:
            raise RuntimeError(f"cublasLt{function} returns {status}")


@cache
def product() -> Product:
    """The one of this process."""
    return Product()


def run(x: torch.Tensor, w: torch.Tensor, out: torch.Tensor) -> None:
    """out[m, n] = x[m, k] w[n, k]^T."""
    if x.is_meta or (x.shape[0], *w.shape) != (M, N, K):
        torch.mm(x, w.t(), out=out)
    else:
        product().run(x, w, out)
