"""C = A B in float32, compiled by numba. The knobs are read once and become constants of the generated code.

Indices are unsigned: a signed index that might be negative has to be wrapped around, and the compiler then
vectorises none of these loops. Functions are few and flat: each level of calls is optimised again by its caller.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from typing import Any

import numba
import numpy as np
from knobs import knob

ORDER = knob("MM_ORDER")
TILE_M, TILE_N, TILE_K = (np.uintp(knob(name)) for name in ("MM_TILE_M", "MM_TILE_N", "MM_TILE_K"))
ROWS, UNROLL = np.uintp(knob("MM_ROWS")), np.uintp(knob("MM_UNROLL"))
PACK, FASTMATH = knob("MM_PACK"), knob("MM_FASTMATH")
THREADS = min(knob("MM_THREADS"), numba.config.NUMBA_NUM_THREADS)
DOT = ORDER in ("ijk", "jik")
TRANSPOSED = PACK and DOT
ZERO, ONE = np.uintp(0), np.uintp(1)

compiled = numba.njit(fastmath=FASTMATH, error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)
callable_without_lock = numba.njit(fastmath=FASTMATH, error_model="numpy", nogil=True, no_cfunc_wrapper=True)


@compiled
def element(panel: Any, k: Any, j: Any) -> Any:
    """Element k, j of a panel of B."""
    return panel[j, k] if TRANSPOSED else panel[k, j]


def row_update(rows: np.uintp, depth: np.uintp) -> Any:
    """Compile C[i:i+rows, j0:j1] += A[i:i+rows, k:k+depth] B[k:k+depth, j0:j1]; innermost along j."""

    @compiled
    def update(a, panel, c, i, j0, j1, k, pk, pj):  # type: ignore[no-untyped-def]
        for j in range(j0, j1):
            for r in range(ZERO, rows):
                total = c[i + r, j]
                for u in range(ZERO, depth):
                    total += a[i + r, k + u] * element(panel, k + u - pk, j - pj)
                c[i + r, j] = total

    return update


def product_sum(rows: np.uintp, depth: np.uintp) -> Any:
    """Compile C[i:i+rows, j] += A[i:i+rows, k0:k1] B[k0:k1, j]; innermost along k, depth steps at a time."""

    @compiled
    def add(a, panel, c, i, j, k0, k1, pk, pj):  # type: ignore[no-untyped-def]
        for r in range(ZERO, rows):
            total = c[i + r, j]
            for k in range(k0, k1, depth):
                for u in range(ZERO, depth):
                    total += a[i + r, k + u] * element(panel, k + u - pk, j - pj)
            c[i + r, j] = total

    return add


def tile_ijk(rows: np.uintp, depth: np.uintp) -> Any:
    """Compile one tile: dot products, row by row of C."""
    add = product_sum(rows, depth)

    @compiled
    def tile(a, panel, c, i0, i1, j0, j1, k0, k1, pk, pj):  # type: ignore[no-untyped-def]
        for i in range(i0, i1, rows):
            for j in range(j0, j1):
                add(a, panel, c, i, j, k0, k1, pk, pj)

    return tile


def tile_jik(rows: np.uintp, depth: np.uintp) -> Any:
    """Compile one tile: dot products, column by column of C."""
    add = product_sum(rows, depth)

    @compiled
    def tile(a, panel, c, i0, i1, j0, j1, k0, k1, pk, pj):  # type: ignore[no-untyped-def]
        for j in range(j0, j1):
            for i in range(i0, i1, rows):
                add(a, panel, c, i, j, k0, k1, pk, pj)

    return tile


def tile_ikj(rows: np.uintp, depth: np.uintp) -> Any:
    """Compile one tile: row updates, all of one row of C before the next."""
    update = row_update(rows, depth)

    @compiled
    def tile(a, panel, c, i0, i1, j0, j1, k0, k1, pk, pj):  # type: ignore[no-untyped-def]
        for i in range(i0, i1, rows):
            for k in range(k0, k1, depth):
                update(a, panel, c, i, j0, j1, k, pk, pj)

    return tile


def tile_kij(rows: np.uintp, depth: np.uintp) -> Any:
    """Compile one tile: row updates, all rows of C for one step along k."""
    update = row_update(rows, depth)

    @compiled
    def tile(a, panel, c, i0, i1, j0, j1, k0, k1, pk, pj):  # type: ignore[no-untyped-def]
        for k in range(k0, k1, depth):
            for i in range(i0, i1, rows):
                update(a, panel, c, i, j0, j1, k, pk, pj)

    return tile


TILES = {"ijk": tile_ijk, "jik": tile_jik, "ikj": tile_ikj, "kij": tile_kij}
blocked = TILES[ORDER](ROWS, UNROLL)
single = TILES[ORDER](ONE, ONE) if ROWS * UNROLL > ONE else blocked


@compiled
def packed(b, k0, k1, j0, j1):  # type: ignore[no-untyped-def]
    """A contiguous copy of B[k0:k1, j0:j1], transposed for dot products."""
    panel = np.empty((j1 - j0, k1 - k0) if TRANSPOSED else (k1 - k0, j1 - j0), np.float32)
    for k in range(k0, k1):
        for j in range(j0, j1):
            if TRANSPOSED:
                panel[j - j0, k - k0] = b[k, j]
            else:
                panel[k - k0, j - j0] = b[k, j]
    return panel


@callable_without_lock
def multiply_band(a, b, c, i0, i1):  # type: ignore[no-untyped-def]
    """Rows i0 to i1 of C, tile by tile; what is left over from blocks of ROWS and UNROLL is done singly."""
    depth, n = np.uintp(b.shape[0]), np.uintp(b.shape[1])
    for i in range(i0, i1):
        for j in range(n):
            c[i, j] = 0
    for k0 in range(ZERO, depth, TILE_K):
        k1 = min(k0 + TILE_K, depth)
        k_even = k1 - (k1 - k0) % UNROLL
        for j0 in range(ZERO, n, TILE_N):
            j1 = min(j0 + TILE_N, n)
            panel = packed(b, k0, k1, j0, j1) if PACK else b
            pk, pj = (k0, j0) if PACK else (ZERO, ZERO)
            for t0 in range(i0, i1, TILE_M):
                t1 = min(t0 + TILE_M, i1)
                t_even = t1 - (t1 - t0) % ROWS
                blocked(a, panel, c, t0, t_even, j0, j1, k0, k_even, pk, pj)
                single(a, panel, c, t0, t_even, j0, j1, k_even, k1, pk, pj)
                single(a, panel, c, t_even, t1, j0, j1, k0, k1, pk, pj)


CPUS = sorted(os.sched_getaffinity(0))
workers = [ThreadPoolExecutor(1) for _ in range(THREADS - 1)]


@cache
def settle() -> None:
    """Give this thread and each worker a CPU of its own; left alone, they may share one for as long as they live."""
    for worker, cpu in zip(workers, CPUS[1:], strict=False):
        worker.submit(os.sched_setaffinity, 0, {cpu}).result()
    if workers:
        os.sched_setaffinity(0, {CPUS[0]})


def run(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> None:
    """C = A B with one band of rows a thread; the compiled code runs without Python's lock."""
    edges = [np.uintp(c.shape[0] * t // THREADS) for t in range(THREADS + 1)]
    others = [
        worker.submit(multiply_band, a, b, c, start, end)
        for worker, (start, end) in zip(workers, pairwise(edges[1:]), strict=True)
    ]
    multiply_band(a, b, c, edges[0], edges[1])
    for other in others:
        other.result()
    settle()
