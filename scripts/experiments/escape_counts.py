#!/usr/bin/env python3
"""How many escape attempts get out: on every rung, fresh and forked, as root and as an ordinary user, and with no rung.

    python -m scripts.experiments.escape_counts --output docs/evidence/escapes.json

Attempts are those of the canary (harness/sandbox/escapes.py) and what the judge sees for itself. Run as root, it runs
itself once more as an ordinary user; run as an ordinary user, it counts for that one alone.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.errors import SandboxError
from harness.sandbox import canary, escapes, landlock
from harness.sandbox.prefork import Prefork
from harness.sandbox.rungs import Forkable, bubblewrap_rung, landlock_rung
from tests.escapes.outside import run_as_user, unsandboxed

MAKERS: dict[str, Callable[[], Forkable]] = {"bubblewrap": bubblewrap_rung, "landlock": landlock_rung}
SECONDS = 240


@dataclass(frozen=True)
class Count:
    """What became of the attempts in one place."""

    user: str
    rung: str
    start: str
    tried: int
    out: list[str]
    """The names of the attempts that got out, and what the judge saw."""
    missing: str = ""
    """Why this rung is not to be had here; then nothing was tried."""


def count_here(repeats: int) -> Iterator[Count]:
    """Every rung as the current user, and no rung."""
    user, tried = "root" if os.geteuid() == 0 else "ordinary user", len(escapes.ATTEMPTS)
    outcome = unsandboxed()
    yield Count(user, "none", "subprocess", tried, outcome.out())
    for name, make in MAKERS.items():
        try:
            rung = make()
        except SandboxError as error:
            yield Count(user, name, "fresh", 0, [], str(error))
            continue
        yield Count(user, name, "fresh", repeats * tried, tried_on(rung, repeats))
        with Prefork(rung, ["harness.sandbox.escapes"]) as forking:
            yield Count(user, name, "forked", repeats * tried, tried_on(forking, repeats))


def tried_on(rung: canary.Testable, repeats: int) -> list[str]:
    return [name for _ in range(repeats) for name in canary.escapes_from(rung)]


def count_as_user(repeats: int) -> list[Count]:
    """The same by an ordinary user, in a process of its own; LookupError where root cannot make one."""
    module = [sys.executable, "-m", "scripts.experiments.escape_counts", "--repeats", str(repeats), "--json"]
    with tempfile.TemporaryDirectory(prefix="hillclimb-user-") as folder:
        done = run_as_user(Path(folder), module, SECONDS)
    if done.returncode:
        raise subprocess.CalledProcessError(done.returncode, module, done.stdout, done.stderr)
    return [Count(**entry) for entry in json.loads(done.stdout.splitlines()[-1])]


def describe(count: Count) -> str:
    if count.missing:
        return f"{count.user:14} {count.rung:11} {count.start:11} not to be had: {count.missing}"
    out = f"{len(count.out)} out of {count.tried}"
    named = f": {', '.join(count.out)}" if count.out and count.rung != "none" else ""
    return f"{count.user:14} {count.rung:11} {count.start:11} {out}{named}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3, help="times every rung is tried (default 3)")
    parser.add_argument("--output", type=Path, help="where to write the counts as JSON")
    parser.add_argument("--json", action="store_true", help="print the counts of this user alone, as JSON")
    options = parser.parse_args()
    counts = list(count_here(options.repeats))
    if options.json:
        print(json.dumps([asdict(count) for count in counts]))
        return 0
    if os.geteuid() == 0:
        counts += count_as_user(options.repeats)
    print("\n".join(map(describe, counts)))
    if options.output:
        options.output.write_text(json.dumps(record(counts, options.repeats), indent=1) + "\n")
    return int(any(count.out for count in counts if count.rung != "none"))


def record(counts: list[Count], repeats: int) -> dict[str, object]:
    return {
        "attempts": [escapes.title(attempt) for attempt in escapes.ATTEMPTS],
        "repeats": repeats,
        "kernel": platform.release(),
        "landlock": landlock.abi(),
        "counts": [asdict(count) for count in counts],
    }


if __name__ == "__main__":
    sys.exit(main())
