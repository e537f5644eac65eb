"""The marker `slow`: left out of a plain run, but for a minute's worth that the commit's hash draws.

@pytest.mark.slow(40)                      # each takes about 40 seconds on a core of its own
@pytest.mark.slow(40, but=["a", "b-2"])    # these parameters stay in every run
@pytest.mark.slow(40, only=["c"])          # this one alone is slow
"""

from __future__ import annotations

import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

SECONDS_DRAWN = 25.0
"""What the drawn ones take together on a quiet core, at most, and half as much again beside others; longer ones run
with --all alone."""

SECONDS_DRAWN_ALONE = 20.0
"""The same of those marked clock."""


def seconds_of(item: pytest.Item) -> float | None:
    """What a slow test takes; None for one that every run has. Raises pytest.UsageError for a marker without it."""
    found = []
    for marker in item.iter_markers("slow"):
        if not marker.args:
            raise pytest.UsageError(f"{item.nodeid}: say how many seconds it takes: @pytest.mark.slow(20)")
        only, own = marker.kwargs.get("only"), parameters(item)
        if own not in marker.kwargs.get("but", ()) and (only is None or own in only):
            found.append(float(marker.args[0]))
    return max(found, default=None)


def parameters(item: pytest.Item) -> str:
    """What stands in the brackets behind a test's name."""
    callspec = getattr(item, "callspec", None)
    return callspec.id if callspec else ""


def draw(slow: Iterable[tuple[str, float]], commit: str, seconds: float) -> set[str]:
    """Names of (name, seconds) tests, in the order of a hash over the commit and the name, until the time is full."""
    left, drawn = seconds, set()
    for name, needed in sorted(slow, key=lambda test: _rank(commit, test[0])):
        if needed <= left:
            left -= needed
            drawn.add(name)
    return drawn


def _rank(commit: str, name: str) -> str:
    return hashlib.sha256(f"{commit} {name}".encode()).hexdigest()


def commit_here(root: Path) -> str:
    """The first nine digits of the commit checked out; "none" outside of git."""
    asked = ["git", "-C", str(root), "rev-parse", "--short=9", "HEAD"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True)
    except OSError:
        return "none"
    return done.stdout.strip() if done.returncode == 0 else "none"


def check_names(items: Iterable[pytest.Item]) -> None:
    """Raises pytest.UsageError where a marker names parameters that a test does not have."""
    known: dict[str, set[str]] = {}
    asked: dict[str, set[str]] = {}
    for item in items:
        function = item.nodeid.partition("[")[0]
        known.setdefault(function, set()).add(parameters(item))
        for marker in item.iter_markers("slow"):
            for names in marker.kwargs.values():
                asked.setdefault(function, set()).update(names)
    for function, names in asked.items():
        if missing := names - known[function]:
            raise pytest.UsageError(
                f"{function}: its marker slow has {sorted(missing)}, which names none of its parameters"
            )
