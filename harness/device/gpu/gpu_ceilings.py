"""What a GPU was measured to do at its best, kept on disk for as long as GPU, driver and torch stay the same.

Random data in all of it: matrix products of zeros draw less power and run up to a seventh faster. Short bursts with
rests between them, so that power and heat of one do not slow the next. Nothing here decides anything.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import torch
from pydantic import BaseModel, ConfigDict, ValidationError

from hillclimb.harness.device.gpu.state_files import is_own, read_regular_file, write_atomically
from hillclimb.harness.records import Ceilings

VERSION = 1
"""Of the way of measuring; raised when it changes."""

MIN_L2_SIZES = 16
"""Arrays are this many times the L2 cache at the least."""

MIN_ARRAY_BYTES, MAX_ARRAY_BYTES = 256 << 20, 1 << 30
"""Of one array."""

WARM_UP_RUNS, TIMED_RUNS = 3, 12
"""Runs before, and runs whose median counts."""

REST_SECONDS = 0.1

PRODUCT = 8192
"""Rows of the square matrices, in 16 and 8 bits: a millisecond or two."""

SMALL_PRODUCT = 4096
"""In 32 bits."""


class StoredCeilings(BaseModel):
    """The file. Measurements of anything else than this GPU, driver and torch are measured again."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    version: int
    device: str
    driver: str
    torch: str
    ceilings: Ceilings


def load_or_measure(path: Path, device: str, driver: str, measure: Callable[[], Ceilings]) -> Ceilings:
    """What the file at `path` says of this GPU, driver and torch; else measured, and written there if that can be."""
    key = {"version": VERSION, "device": device, "driver": driver, "torch": torch.__version__}
    kept = _recall(path)
    if kept is not None and kept.model_dump(include=set(key)) == key:
        return kept.ceilings
    found = measure()
    try:
        write_atomically(
            path, StoredCeilings.model_validate({**key, "ceilings": found}).model_dump_json() + "\n"
        )
    except OSError:
        return found  # measured again by the next judge: a disk that is full costs seconds, no verdict
    return found


def measure_gpu(place: str, l2_bytes: int, free_bytes: int) -> Ceilings:
    """All ceilings of one GPU that is otherwise idle; in about two seconds.

    `place` is torch's name of it. Rates of copies count bytes read and written, as contracts do.
    """
    nbytes = array_bytes(l2_bytes, free_bytes)
    copy, read, write = memory_rates(place, nbytes)
    products = {
        "bfloat16": lambda: _product_rate(place, torch.bfloat16, PRODUCT),
        "float16": lambda: _product_rate(place, torch.float16, PRODUCT),
        "float8_e4m3fn": lambda: _float8_rate(place, PRODUCT),
        "float32": lambda: _product_rate(place, torch.float32, SMALL_PRODUCT),
    }
    flops = {dtype: rate for dtype, measure in products.items() if (rate := _supported(measure)) is not None}
    torch.cuda.empty_cache()
    best = "bfloat16" if "bfloat16" in flops else max(flops, key=lambda dtype: flops[dtype])
    return Ceilings(
        flops=flops[best],
        bytes=copy,
        read_bytes=read,
        write_bytes=write,
        flops_by_dtype=flops,
        how=f"torch.mm of {PRODUCT}x{PRODUCT} {best} for FLOP/s, tensor.copy_ between arrays of {nbytes >> 20} MiB for "
        f"bytes/s; random data, median of {TIMED_RUNS} runs by device events",
    )


def array_bytes(l2_bytes: int, free_bytes: int) -> int:
    """How long an array is that the L2 holds little of, and of which two fit into an eighth of the memory."""
    return (
        min(MAX_ARRAY_BYTES, max(MIN_ARRAY_BYTES, MIN_L2_SIZES * l2_bytes), free_bytes // 16) // 1024 * 1024
    )


def memory_rates(place: str, nbytes: int) -> tuple[float, float, float]:
    """Bytes a second of a copy, of reading alone and of writing alone."""
    source = torch.rand(nbytes // 4, device=place)
    target = torch.rand(nbytes // 4, device=place)
    total = torch.empty((), device=place)
    rows = source.view(-1, 256)
    sums = torch.empty(len(rows), device=place)
    copy = 2 * nbytes / _median_seconds(lambda: target.copy_(source))
    read = max(
        nbytes / _median_seconds(lambda: torch.sum(source, dim=0, out=total)),
        nbytes / _median_seconds(lambda: torch.sum(rows, dim=1, out=sums)),
    )
    write = nbytes / _median_seconds(lambda: target.fill_(0.5))
    return copy, read, write


def _product_rate(place: str, dtype: torch.dtype, size: int) -> float:
    a, b = (torch.randn(size, size, device=place, dtype=torch.float32).to(dtype) for _ in range(2))
    out = torch.empty(size, size, device=place, dtype=dtype)
    return 2 * size**3 / _median_seconds(lambda: torch.mm(a, b, out=out))


def _float8_rate(place: str, size: int) -> float:
    """By cuBLASLt through torch._scaled_mm, which wants the second matrix column-major."""
    a, b = (
        torch.randn(size, size, device=place, dtype=torch.float32).to(torch.float8_e4m3fn) for _ in range(2)
    )
    one = torch.ones((), device=place)
    return (
        2
        * size**3
        / _median_seconds(
            lambda: torch._scaled_mm(a, b.t(), one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
        )
    )


def _supported(measure: Callable[[], float]) -> float | None:
    """None where this GPU or this torch cannot do it."""
    try:
        return measure()
    except torch.cuda.OutOfMemoryError:
        raise
    except (RuntimeError, ValueError, NotImplementedError, AttributeError):
        torch.cuda.synchronize()  # a context that is broken is not a dtype that is missing: this raises again
        return None


def _median_seconds(work: Callable[[], object]) -> float:
    """Of one run, by events around each of several that are queued without a pause."""
    for _ in range(WARM_UP_RUNS):
        work()
    torch.cuda.synchronize()
    time.sleep(REST_SECONDS)
    work()  # the clocks fall while a GPU rests
    events = [torch.cuda.Event(enable_timing=True) for _ in range(TIMED_RUNS + 1)]  # type: ignore[no-untyped-call]
    events[0].record()
    for event in events[1:]:
        work()
        event.record()
    torch.cuda.synchronize()
    return float(statistics.median(start.elapsed_time(end) / 1e3 for start, end in pairwise(events)))


def _recall(path: Path) -> StoredCeilings | None:
    try:
        text = read_regular_file(path) if is_own(path) else None
        return None if text is None else StoredCeilings.model_validate_json(text)
    except (OSError, ValidationError):
        return None
