"""The judge's process with its first wall taken away: nobody reads the source. Started by court.py, never by a run."""

from __future__ import annotations

from hillclimb.harness.duel.process import launcher
from hillclimb.harness.judge import __main__


def _read_nothing(workspace: object, policy: object) -> None:
    """A hostile author can talk around any reading; this is how one is judged who has."""


if __name__ == "__main__":
    launcher.check_policy = _read_nothing
    __main__.main()
