"""What a CPU was measured to do at its best: the roofs that a kernel's time is held against.

Measured once per judge process. They decide nothing; a kernel may beat them where its arrays lie in cache.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from hillclimb.harness.device import host
from hillclimb.harness.device.cores import usable_cpus
from hillclimb.harness.records import Ceilings
from hillclimb.harness.wording import count

Rate = tuple[float, str]
"""Units per second, and what was run."""

SIZES = (512, 1024)
"""Square float32 matrix products; which is faster differs between machines."""

MIN_REPETITIONS, MIN_SECONDS = 3, 0.12
"""Each piece of work is repeated this often at the least, and until this time has gone by."""

MAX_ATTEMPTS = 3
"""Times that all of it is measured on a busy machine, the best of them counting."""

MIN_ARRAY_BYTES, MAX_ARRAY_BYTES = 64 << 20, 128 << 20
"""Of one array: four times the last-level cache within these limits, since a virtual machine may not tell all of it."""


def measure_cpu() -> Ceilings:
    """This process's CPUs, all of them together; about half a second, and again where others were at work meanwhile.

    Torch's thread count is put back.
    """
    cpus = usable_cpus()
    rates: list[tuple[Rate, Rate]] = []
    busy = True
    while busy and len(rates) < MAX_ATTEMPTS:
        start, own = host.read_counters(), time.process_time()
        with _threads(cpus):
            rates.append((max(map(_product, SIZES)), _copy(array_bytes(last_level_cache_bytes()))))
        load = host.load_since(start, time.process_time() - own)
        busy = load.steal > host.STEAL_LIMIT or load.others > host.OTHERS_LIMIT
    (flops, product), (rate, copy) = (max(kind) for kind in zip(*rates, strict=True))
    how = f"{product} for FLOP/s, {copy} for bytes/s; best of several runs on {count(cpus, 'thread')}"
    if busy:
        how += f"; too low, perhaps: others used {load.others:.1f} CPUs meanwhile"
    return Ceilings(flops=flops, bytes=rate, how=how)


def _product(size: int) -> Rate:
    a, b = torch.rand(size, size), torch.rand(size, size)
    out = torch.empty(size, size)
    seconds = _best(lambda: torch.mm(a, b, out=out))
    return 2 * size**3 / seconds, f"torch.mm of {size}x{size} float32"


def _copy(nbytes: int) -> Rate:
    """Read once and written once, as contracts count."""
    source, target = (torch.full((nbytes // 4,), value) for value in (1.0, 2.0))
    seconds = _best(lambda: target.copy_(source))
    return 2 * nbytes / seconds, f"tensor.copy_ between arrays of {nbytes >> 20} MiB"


def _best(work: Callable[[], object]) -> float:
    """Fewest seconds of several runs after one that is not timed."""
    work()
    end, runs, best = time.perf_counter() + MIN_SECONDS, 0, float("inf")
    while runs < MIN_REPETITIONS or time.perf_counter() < end:
        start = time.perf_counter()
        work()
        best, runs = min(best, time.perf_counter() - start), runs + 1
    return best


def array_bytes(cache: int) -> int:
    """How long an array is that a cache of `cache` bytes holds little of."""
    return min(MAX_ARRAY_BYTES, max(MIN_ARRAY_BYTES, 4 * cache))


def last_level_cache_bytes() -> int:
    """Size of the largest cache of CPU 0, as Linux tells it; 0 where it does not."""
    sizes = [0]
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = path.read_text().strip()
        if text.endswith("K") and text[:-1].isdigit():
            sizes.append(int(text[:-1]) << 10)
    return max(sizes)


@contextmanager
def _threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
