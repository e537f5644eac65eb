"""The canary's program: tries every way out it knows.

`python -m hillclimb.harness.sandbox.canary.escapes BAIT` prints JSON.

Each function of `attempts` is one attempt, named for what it would achieve; it returns True, or raises nothing and does
its deed, only when it got out. Attempts are harmless where they succeed: they open without writing, send signal
0, set what is set already. What they change lies in the bait's own temporary folder.
"""

from __future__ import annotations

import json
import sys

from hillclimb.harness.sandbox.canary.attempts import files, granted, kernel, processes, sockets
from hillclimb.harness.sandbox.canary.attempts.bait import Attempt, Bait

ATTEMPTS: tuple[Attempt, ...] = (
    *files.ATTEMPTS,
    *processes.ATTEMPTS,
    *sockets.ATTEMPTS,
    *kernel.ATTEMPTS,
    *granted.ATTEMPTS,
)


def title(attempt: Attempt) -> str:
    """An attempt's name in words."""
    return getattr(attempt, "__name__", "").replace("_", " ")


def has_escaped(attempt: Attempt, bait: Bait) -> bool:
    """Make one attempt; what fails in any ordinary way was held in."""
    try:
        return attempt(bait) is not False
    except (OSError, ValueError, MemoryError, OverflowError):
        return False


def main() -> None:
    """Make every attempt and print which got out."""
    bait = Bait(**json.loads(sys.argv[1]))
    print(json.dumps({title(attempt): has_escaped(attempt, bait) for attempt in ATTEMPTS}))


if __name__ == "__main__":
    main()
