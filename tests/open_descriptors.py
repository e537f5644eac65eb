"""What a test leaves open in its own process."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


def open_descriptors() -> frozenset[tuple[str, str]]:
    """Number and target of every open descriptor of this process, but for the one that lists them."""
    found = set()
    for link in list(Path("/proc/self/fd").iterdir()):
        with suppress(FileNotFoundError):
            found.add((link.name, str(link.readlink())))
    return frozenset(found)


@contextmanager
def nothing_left_open() -> Iterator[None]:
    """Fail where the block leaves a descriptor open that was not open before it.

    Those of earlier tests may be collected meanwhile, so a count would change by itself.
    """
    gc.collect()
    before = open_descriptors()
    yield
    left = open_descriptors() - before
    assert not left, f"left open: {sorted(left)}"
