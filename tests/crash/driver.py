"""Runs climbs that end in SIGKILL: `python -m tests.crash.driver`, JSON lines in and out.

Everything is imported once; each request is served by a fork, which costs milliseconds, and which is really killed.
A request: {"repository", "kill": <point> | null, "after": <seconds> | null}.
The answer: {"killed", "reached": {point: times}, "error"}.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.crash.world import run_watched


class Assassin:
    """Notes every point on a pipe, and kills this process at one of them."""

    def __init__(self, target: str | None, notes: int) -> None:
        self._target, self._notes = target, notes

    def reach(self, point: str) -> None:
        os.write(self._notes, f"{point}\n".encode())
        if point == self._target:
            os.kill(os.getpid(), signal.SIGKILL)

    def tear(self, point: str, half_done: Callable[[], object]) -> None:
        if point == self._target:
            half_done()
        self.reach(point)


def main() -> None:
    for line in sys.stdin:
        request = json.loads(line)
        print(json.dumps(serve(Path(request["repository"]), request["kill"], request["after"])), flush=True)


def serve(repository: Path, kill: str | None, after: float | None) -> dict[str, object]:
    """Fork, let the child climb, and say how it ended."""
    notes, child_notes = os.pipe()
    complaints, child_complaints = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(notes)
        _climb(repository, Assassin(kill, child_notes), child_complaints)
    os.close(child_notes)
    os.close(child_complaints)
    if after is not None:
        time.sleep(after)
        _kill_with_its_git(child)
    reached = Counter(_drain(notes).split("\n")[:-1])
    error = _drain(complaints)
    status = os.waitpid(child, 0)[1]
    return {"killed": os.WIFSIGNALED(status), "reached": reached, "error": error}


def _climb(repository: Path, assassin: Assassin, complaints: int) -> None:
    try:
        run_watched(repository, assassin, emit=lambda event: None)
    except BaseException:  # noqa: BLE001 - whatever it is, the test that asked shows it
        os.write(complaints, traceback.format_exc().encode()[-60_000:])
        os._exit(1)
    os._exit(0)


def _kill_with_its_git(child: int) -> None:
    """SIGKILL the climb and, as a machine that goes down would, the git at work for it."""
    gits = Path(f"/proc/{child}/task/{child}/children")
    found = gits.read_text().split() if gits.exists() else []
    os.kill(child, signal.SIGKILL)
    for git in found:
        try:
            os.kill(int(git), signal.SIGKILL)
        except ProcessLookupError:
            continue


def _drain(descriptor: int) -> str:
    with os.fdopen(descriptor) as pipe:
        return pipe.read()


if __name__ == "__main__":
    main()
