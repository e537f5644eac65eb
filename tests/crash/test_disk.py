"""A disk that fills up or fails at the Nth file operation, for every N: one message, a wait, and the twin's end."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from hillclimb.agent.climb.climb import climb
from hillclimb.agent.climb.request import ClimbRequest, Tools
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.screen.events import Event, TroubleEvent
from tests.crash.state import State, complaints, users_side
from tests.crash.world import TAG
from tests.fakes.clock import LedgerClock
from tests.fakes.judge import SimulatedJudge
from tests.fakes.proposer import PlannedProposer

T = TypeVar("T")
PLAN = ("both",)
"""One candidate that edits files, sets knobs, wins: every kind of file operation there is."""
ERRORS = {"full": errno.ENOSPC, "failing": errno.EIO}
SLICES = 12


class Weather:
    """Whether the disk takes writes: bad from the Nth operation on, until the climb has slept twice."""

    def __init__(self, bad_at: int, error: int) -> None:
        self._bad_at, self._error = bad_at, error
        self.operations = 0
        self.slept = 0

    def strike(self, half_done: Callable[[], object]) -> None:
        """One operation. Raises OSError in bad weather, having done half of what can be done by half."""
        self.operations += 1
        if self._bad_at <= self.operations and self.slept < 2:
            half_done()
            raise OSError(self._error, os.strerror(self._error))


class WeatheredDisk(Disk):
    def __init__(self, weather: Weather) -> None:
        self._weather = weather
        self._half: Callable[[], object] = lambda: None

    def effect(self, name: str, path: Path, action: Callable[[], T]) -> T:
        def weathered() -> T:
            if name != "write":
                self._weather.strike(lambda: None)
            return action()

        return super().effect(name, path, weathered)

    def write(self, descriptor: int, data: bytes) -> None:
        self._weather.strike(lambda: os.write(descriptor, data[: len(data) // 2]))
        super().write(descriptor, data)


class WeatheredClock(LedgerClock):
    def __init__(self, ledger: Path, weather: Weather) -> None:
        super().__init__(ledger)
        self._weather = weather

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self._weather.slept += 1


def _run(repository: Path, weather: Weather) -> list[Event]:
    events: list[Event] = []
    ledger = repository / "runs/demo/toy" / TAG / "ledger.jsonl"
    tools = Tools(
        emit=events.append,
        clock=WeatheredClock(ledger, weather),
        disk=WeatheredDisk(weather),
        draw=lambda folder: "",
    )
    request = ClimbRequest(case=repository / "cases/demo/toy", tag=TAG)
    climb(
        request,
        lambda case, log: SimulatedJudge(),
        lambda background: PlannedProposer(background.seed, PLAN),
        tools,
    )
    return events


@pytest.fixture(scope="session")
def calm(template: Path, fast_folder: Path) -> tuple[State, int]:
    """The end of a run in fair weather, and how many file operations it takes."""
    root = shutil.copytree(template, fast_folder / "calm")
    weather = Weather(bad_at=10**9, error=0)
    _run(root, weather)
    return State.of(root), weather.operations


@pytest.mark.slow(3, but=["0-full"])
@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize("part", range(SLICES))
def test_bad_from_the_nth_operation(
    part: int, error: str, template: Path, fast_folder: Path, calm: tuple[State, int]
) -> None:
    (twin, operations), users = calm, users_side(template)
    assert operations > 60
    for bad_at in range(1 + part, operations + 1, SLICES):
        repository = shutil.copytree(template, fast_folder / f"{error} {bad_at}")
        events = _run(repository, Weather(bad_at, ERRORS[error]))
        troubles = [event.message for event in events if isinstance(event, TroubleEvent)]
        assert len(troubles) == 1, troubles
        assert str(repository) in troubles[0]
        assert os.strerror(ERRORS[error]) in troubles[0]
        assert "free some space" in troubles[0] or "check the disk" in troubles[0]
        assert State.of(repository) == twin
        assert users_side(repository) == users
        assert complaints(repository) == []
        shutil.rmtree(repository)


@pytest.mark.slow(6)
def test_a_file_system_that_is_really_full(template: Path, tmp_path: Path) -> None:
    """Git's own writes fail too; a small tmpfs in a mount namespace of its own."""
    climbs = shlex.join([sys.executable, "-m", "tests.crash.full_disk", str(tmp_path), str(template)])
    script = f"mount -t tmpfs -o size=8m none {tmp_path} && exec {climbs}"
    unshare = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*unshare, f"mount -t tmpfs none {tmp_path}"], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs in a user namespace")
    done = subprocess.run([*unshare, script], capture_output=True, text=True, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    for answer in answers:
        assert answer["wrong"] == [] and answer["untouched"] and answer["equal"], answer
        assert len(answer["troubles"]) <= 1, answer
    said = {message.split(":")[0] for answer in answers for message in answer["troubles"]}
    assert any(place.startswith("git ") for place in said), said
    assert any(place.startswith("/") for place in said), said
