#!/usr/bin/env python3
"""How many escape attempts get out: on every rung, fresh and forked, as root and as an ordinary user, and with no rung.

    python -m scripts.experiments.escape_counts --output docs/evidence/escapes.json

Attempts are those of the canary (harness/sandbox/canary/) and what the judge sees for itself. Run as root, it runs
itself once more as an ordinary user; run as an ordinary user, it counts for that one alone. Every rung of a user is a
part, as is the ordinary user that root runs it as.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Set
from dataclasses import asdict, dataclass
from pathlib import Path

from hillclimb.harness.errors import SandboxError
from hillclimb.harness.sandbox.canary import canary, escapes
from hillclimb.harness.sandbox.fork.prefork import PreforkRung
from hillclimb.harness.sandbox.kernel import landlock
from hillclimb.harness.sandbox.rungs.choose import ForkableRung, bubblewrap_rung, landlock_rung
from scripts.experiments import frame
from tests.escapes.outside import run_as_user, unsandboxed

MAKERS: dict[str, Callable[[], ForkableRung]] = {"bubblewrap": bubblewrap_rung, "landlock": landlock_rung}
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


def count_here(repeats: int, have: Set[tuple[str, str]]) -> Iterator[list[Count]]:
    """No rung and every rung as the current user, without the (user, rung) that are counted already."""
    user = "root" if os.geteuid() == 0 else "ordinary user"
    if (user, "none") not in have:
        yield [Count(user, "none", "subprocess", len(escapes.ATTEMPTS), unsandboxed().out())]
    for name in MAKERS:
        if (user, name) not in have:
            yield count_rung(user, name, repeats)


def count_rung(user: str, name: str, repeats: int) -> list[Count]:
    """One rung, fresh and forked."""
    tried = repeats * len(escapes.ATTEMPTS)
    try:
        rung = MAKERS[name]()
    except SandboxError as error:
        return [Count(user, name, "fresh", 0, [], str(error))]
    fresh = Count(user, name, "fresh", tried, tried_on(rung, repeats))
    with PreforkRung(rung, ["hillclimb.harness.sandbox.canary.escapes"]) as forking:
        return [fresh, Count(user, name, "forked", tried, tried_on(forking, repeats))]


def count_all(repeats: int, have: Set[tuple[str, str]]) -> Iterator[list[Count]]:
    """As the current user and, where that is root, as an ordinary one."""
    yield from count_here(repeats, have)
    if os.geteuid() == 0 and ("ordinary user", "none") not in have:
        yield count_as_user(repeats)


def tried_on(rung: canary.Testable, repeats: int) -> list[str]:
    return [name for _ in range(repeats) for name in canary.escapes_from(rung)]


def count_as_user(repeats: int) -> list[Count]:
    """The same by an ordinary user, in a process of its own; LookupError where root cannot make one."""
    script = [sys.executable, "-m", "scripts.experiments.escape_counts", "--repeats", str(repeats), "--json"]
    module = ["env", f"PYTHONPATH={frame.ROOT}", *script]
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
    parser = frame.make_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="times every rung is tried (default 3)")
    parser.add_argument("--json", action="store_true", help="print the counts of this user alone, as JSON")
    options = parser.parse_args()
    if options.json:
        print(json.dumps([asdict(count) for part in count_here(options.repeats, set()) for count in part]))
        return 0
    attempts = [escapes.title(attempt) for attempt in escapes.ATTEMPTS]
    output = frame.Output(options.output, {"repeats": options.repeats, "attempts": len(attempts)})
    output.found |= {"attempts": attempts, "repeats": options.repeats, "landlock": landlock.abi_version()}
    counts = [Count(**entry) for entry in output.found.get("counts", [])]
    for part in count_all(options.repeats, {(count.user, count.rung) for count in counts}):
        counts += part
        output.save(counts=[asdict(count) for count in counts])
    print("\n".join(map(describe, counts)))
    return int(any(count.out for count in counts if count.rung != "none"))


if __name__ == "__main__":
    sys.exit(main())
