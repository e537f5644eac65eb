"""The C interface of generated kernels, as gemm.h.jinja declares it."""

from __future__ import annotations

import ctypes

WORKSPACE, PREPARE, RUN = 0, 1, 2
"""Actions of a kernel's function."""

SUCCESS = 0


class GemmRequest(ctypes.Structure):
    """What a function takes, in the header's order."""

    _fields_ = [
        *((name, ctypes.c_void_p) for name in ("a", "b", "result", "workspace")),
        *((name, ctypes.c_void_p) for name in ("row_scales", "column_scales", "stream")),
        ("workspace_bytes", ctypes.c_size_t),
        *((name, ctypes.c_int) for name in ("rows", "columns", "inner", "multiprocessors")),
        *((name, ctypes.c_int) for name in ("raster", "swizzle", "splits", "dependent", "is_transposed")),
        *((name, ctypes.c_int) for name in ("cluster_rows", "cluster_columns", "steps", "promotion")),
        *((name, ctypes.c_int) for name in ("row_cache", "column_cache", "groups")),
        ("group_ends", ctypes.c_void_p),
        ("persistent", ctypes.c_int),
    ]
