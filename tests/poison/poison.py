"""A poisoned candidate: an honest kernel that at one moment does something dreadful, and what that has to be called.

The kernel does its work first, so that nothing but the poison can be held against it. `When` says at which moment the
poison is taken: at import, in the first call, in a later one that is compared, in a timed one, in a thread of the first
call, or in every call.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from hillclimb.harness.records import Reason

When = Literal["import", "first", "later", "timed", "thread", "always"]
Surface = Literal["cpu", "gpu"]

LATER = 9
"""A call that the gate compares."""

MOMENTS: Mapping[When, str] = {
    "import": "",
    "first": "if calls == 1:\n    poison(x, y)",
    "later": f"if calls == {LATER}:\n    poison(x, y)",
    "timed": "if is_timed(x):\n    poison(x, y)",
    "always": "poison(x, y)",
    "thread": (
        "if calls == 1:\n    lane = threading.Thread(target=poison, args=(x, y))\n    lane.start()\n    lane.join()"
    ),
}

CLOCK = """
places, leak_watch = [], set()


def is_timed(x):
    place = tuple(x.shape), {address}
    if leak_watch:
        return place not in leak_watch
    if places and places[0][0] != place[0]:
        places.clear()
    places.append(place)
    if len(places) == 6:
        leak_watch.update(places)
    return False
"""
"""A gate ends with six or more calls in a row of one problem, by which it watches the memory, and asks for at most five
before that; what is called at another place afterwards is timed."""

ADDRESS: Mapping[Surface, str] = {"cpu": "x.__array_interface__['data'][0]", "gpu": "x.data_ptr()"}

KERNELS: Mapping[Surface, str] = {
    "cpu": """\
import numpy as np


def honest(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
""",
    "gpu": """\
import torch
import triton
import triton.language as tl


@triton.jit
def affine(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n) + 1, mask=at < n)


def honest(x, y):
    affine[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
""",
}
"""y = 2 x + 1, as in tests/fakes/cases.py."""


@dataclass(frozen=True)
class Poison:
    """One candidate."""

    kind: str
    variant: str
    when: When
    expected: frozenset[Reason]
    """The reasons that are right; more than one only where the machine, and not the judge, decides between them."""
    setup: str
    """Module-level source: imports and helpers."""
    body: str
    """Of `poison(x, y)`; both are None at import."""
    surface: Surface = "cpu"
    files: Mapping[str, str] = field(default_factory=dict)
    """Further files of the workspace."""
    whole: str | None = None
    """The kernel's source, where it is not made of setup and body."""

    @property
    def name(self) -> str:
        return f"{self.kind}, {self.variant} ({self.when})"

    @property
    def is_taken_while_timed(self) -> bool:
        return self.when == "timed"

    def source(self, salt: str = "") -> str:
        """kernel.py; a salt makes it another file and nothing else."""
        tail = f"\n# {salt}\n" if salt else ""
        if self.whole is not None:
            return self.whole + tail
        parts = [
            "import threading\n",
            KERNELS[self.surface],
            self.setup,
            CLOCK.format(address=ADDRESS[self.surface]) if self.is_taken_while_timed else "",
            "\ndef poison(x, y):\n" + textwrap.indent(self.body.strip("\n"), "    ") + "\n",
            "\ncalls = 0\n\n\ndef run(x, y):\n    global calls\n    calls += 1\n    honest(x, y)\n"
            + textwrap.indent(MOMENTS[self.when], "    ")
            + "\n",
        ]
        if self.when == "import":
            parts.append("\npoison(None, None)\n")
        return "\n".join(parts) + tail


def honest_source(surface: Surface, salt: str = "") -> str:
    """The kernel without poison."""
    tail = f"\n# {salt}\n" if salt else ""
    return KERNELS[surface] + "\n\ndef run(x, y):\n    honest(x, y)\n" + tail
