"""A run followed through its ledger tells what the climb's own screen told, whatever happens to the file meanwhile."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.machine.clock import SystemClock
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.record.entries import (
    CalledEntry,
    FinishedEntry,
    NotifiedEntry,
    SessionEntry,
    TokenUsage,
    TurnedEntry,
    WebhookState,
)
from hillclimb.agent.record.run import open_run
from hillclimb.agent.review.watching import MAX_SHOWN_VERDICTS, LedgerTail, find_folder, follow_run
from hillclimb.agent.screen.events import (
    CalledEvent,
    Event,
    FinishedEvent,
    JudgedEvent,
    OpenedEvent,
    ProgressEvent,
    ProposedEvent,
    TroubleEvent,
    TurnedEvent,
)
from hillclimb.agent.screen.screen import JsonScreen, LineScreen, LiveScreen
from hillclimb.harness.errors import UsageError
from hillclimb.harness.records import Record
from tests.fakes.night import Night, git, make_repository

LEDGER = "ledger.jsonl"


class Enough(Exception):
    """The test has seen enough of an endless watch."""


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    night = Night(make_repository(tmp_path_factory.mktemp("night") / "repository"))
    night.climb()
    return night


@pytest.fixture(scope="module")
def lines(night: Night) -> list[bytes]:
    return (night.folder / LEDGER).read_bytes().splitlines(keepends=True)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "runs/demo/toy/night"
    found.mkdir(parents=True)
    return found


def watch(folder: Path, *steps: Callable[[], object]) -> list[Event]:
    """Follow a run while the steps happen to it, one in each pause."""
    seen: list[Event] = []
    left = list(steps)

    def sleep(seconds: float) -> None:
        if not left:
            raise Enough
        left.pop(0)()

    with contextlib.suppress(Enough):
        follow_run(folder, seen.append, once=False, sleep=sleep)
    return seen


def append(folder: Path, *what: bytes | Record) -> Callable[[], None]:
    def write() -> None:
        with (folder / LEDGER).open("ab") as file:
            for part in what:
                file.write(part if isinstance(part, bytes) else part.model_dump_json().encode() + b"\n")

    return write


def kinds(events: list[Event]) -> list[str]:
    return [event.event for event in events]


def test_a_followed_run_tells_what_its_own_screen_told(
    night: Night, lines: list[bytes], folder: Path
) -> None:
    seen = watch(folder, *(append(folder, line) for line in lines))
    silent = (ProgressEvent, TroubleEvent)
    told = [event for event in seen if not isinstance(event, silent)]
    original = [event for event in night.events if not isinstance(event, silent)]
    assert kinds(told) == kinds(original)
    for mine, theirs in zip(told, original, strict=True):
        if isinstance(mine, JudgedEvent) and isinstance(theirs, JudgedEvent):
            same = {"time": 0, "left": None, "elapsed": 0, "per_hour": 0}
            assert mine.model_copy(update=same) == theirs.model_copy(update=same)
        if isinstance(mine, ProposedEvent) and isinstance(theirs, ProposedEvent):
            assert (mine.n, mine.idea, mine.author) == (theirs.n, theirs.idea, theirs.author)
    assert isinstance(told[-1], FinishedEvent) and isinstance(original[-1], FinishedEvent)
    assert told[-1].cumulative == original[-1].cumulative
    assert told[-1].importances == original[-1].importances


def test_a_finished_run_is_summed_up_and_left(lines: list[bytes], folder: Path) -> None:
    append(folder, *lines)()
    seen = watch(folder)
    assert isinstance(seen[0], OpenedEvent)
    assert seen[0].candidates == 11 - MAX_SHOWN_VERDICTS
    assert kinds(seen).count("judged") == MAX_SHOWN_VERDICTS
    assert kinds(seen)[:2] == ["opened", "baselined"]
    assert isinstance(seen[-1], FinishedEvent)


def test_a_post_after_the_end_changes_nothing(lines: list[bytes], folder: Path) -> None:
    append(folder, *lines, NotifiedEntry(n=1, time=2e9, webhook=WebhookState()))()
    assert kinds(watch(folder))[-1] == "finished"


def test_nobody_climbing_is_said_once_and_again_after_a_climb(
    night: Night, lines: list[bytes], folder: Path
) -> None:
    append(folder, *lines[:6])()
    seen = watch(folder, lambda: None, lambda: None, append(folder, lines[6]))
    assert [event.message for event in seen if isinstance(event, TroubleEvent)] == [
        "nobody climbs this run at the moment; the same 'hillclimb climb' takes it up"
    ]


def test_a_run_that_has_not_begun_is_waited_for(lines: list[bytes], tmp_path: Path) -> None:
    folder = tmp_path / "runs/demo/toy/night"
    seen = watch(folder, lambda: folder.mkdir(parents=True), append(folder, *lines))
    assert isinstance(seen[0], TroubleEvent) and "this run has not begun" in seen[0].message
    assert isinstance(seen[1], OpenedEvent) and not seen[1].resumed
    assert isinstance(seen[-1], FinishedEvent)


def test_a_torn_line_is_told_when_it_is_whole_and_never_when_it_is_cut_off(
    lines: list[bytes], folder: Path
) -> None:
    half = len(lines[8]) // 2
    seen = watch(
        folder,
        append(folder, *lines[:8], lines[8][:half]),
        append(folder, lines[8][half:]),
        append(folder, b"\0\0\0\n"),
        lambda: os.truncate(folder / LEDGER, sum(map(len, lines[:9]))),
        append(folder, *lines[9:]),
    )
    assert isinstance(seen[-1], FinishedEvent)
    assert kinds(seen).count("judged") == 11


@settings(max_examples=15)
@given(st.data())
def test_however_the_bytes_arrive_each_line_is_told_once(lines: list[bytes], data: st.DataObject) -> None:
    import tempfile

    content = b"".join(lines)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(content)), max_size=8)))
    with tempfile.TemporaryDirectory() as name:
        path = Path(name) / LEDGER
        tail, found = LedgerTail(path), []
        for begin, end in zip([0, *cuts], [*cuts, len(content)], strict=True):
            with path.open("ab") as file:
                file.write(content[begin:end])
            found += tail.entries()
    assert b"".join(entry.model_dump_json().encode() + b"\n" for entry in found) == content


def test_damage_before_the_last_line_is_an_error(lines: list[bytes], folder: Path) -> None:
    append(folder, lines[0], b"{}\n", *lines[1:])()
    with pytest.raises(UsageError, match=r"ledger.jsonl: what was appended is no entry"):
        watch(folder)
    (folder / LEDGER).write_bytes(lines[0] + lines[0] + lines[1])
    with pytest.raises(UsageError, match="a second 'opened'"):
        watch(folder)


def test_a_run_begun_anew_is_followed_from_its_beginning(lines: list[bytes], folder: Path) -> None:
    append(folder, *lines[:9])()
    seen = watch(folder, lambda: (folder / LEDGER).write_bytes(b"".join(lines[:3])))
    assert kinds(seen)[-2:] == ["opened", "baselined"]


def test_taking_a_run_up_and_the_models_calls_are_told(lines: list[bytes], folder: Path) -> None:
    append(folder, *lines[:-2])()
    spent = {"k": 1, "time": 2e9, "seconds": 3.0, "model": "m", "incumbent": "0" * 40, "cost": 0.5}
    seen = watch(
        folder,
        append(
            folder,
            FinishedEntry(time=2e9, reason="interrupted by SIGINT", interrupted=True),
            SessionEntry(time=2e9, pid=1, host="h"),
            TurnedEntry(time=2e9, n=12, phase="edit", family="tiling", reason="the sweep\nstands still"),
            CalledEntry(
                outcome="fault", fault="slow", detail="no \x1b[2Jreply", usage=TokenUsage(prompt=7), **spent
            ),
        ),
    )
    ended, taken_up, turned, called = seen[-4:]
    assert isinstance(ended, FinishedEvent) and ended.interrupted
    assert isinstance(taken_up, OpenedEvent) and taken_up.resumed and taken_up.candidates == 11
    assert isinstance(turned, TurnedEvent) and turned.reason == "the sweep stands still"
    assert isinstance(called, CalledEvent) and (called.run_tokens, called.run_cost) == (7, 0.5)
    assert called.detail == "no [2Jreply"


def test_a_climbed_run_is_not_called_idle(night: Night, folder: Path) -> None:
    with open_run(Repository.open(night.root), "demo/toy", "busy", Disk(), SystemClock()) as run:
        seen = watch(run.folder, lambda: None)
    assert seen == []


def test_every_screen_can_show_it(lines: list[bytes], folder: Path) -> None:
    from rich.console import Console

    append(folder, *lines)()
    events = watch(folder)
    text, stream = io.StringIO(), io.StringIO()
    for screen in (LineScreen(text), JsonScreen(stream), LiveScreen(Console(file=io.StringIO(), width=100))):
        with screen:
            for event in events:
                screen.show(event)
    assert "taken up after 5 candidates" in text.getvalue()
    assert "ended: the proposer has no ideas left" in text.getvalue()
    assert json.loads(stream.getvalue().splitlines()[0])["left"]["candidates"] == 45
    assert "budgets: 277 h 46 min, 50 candidates, patience 50" in text.getvalue()


def test_the_run_is_found_by_case_tag_or_as_the_newest(night: Night) -> None:
    root = night.root
    assert find_folder(root, None, None).parent == night.folder.parent
    assert find_folder(root, None, "night") == night.folder
    assert find_folder(root, "demo/toy", None).parent == night.folder.parent
    assert find_folder(root, "demo/toy", "later") == root / "runs/demo/toy/later"
    with pytest.raises(UsageError, match="no run 'nope' in"):
        find_folder(root, None, "nope")
    with pytest.raises(UsageError, match="no run of demo/other in"):
        find_folder(root, "demo/other", None)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-c", "from hillclimb.agent.cli import main; main()", "watch", *arguments]


ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.mark.parametrize("arguments", [("demo/toy", "night"), ("night",)])
def test_the_command_tells_how_a_run_stands(night: Night, arguments: tuple[str, ...]) -> None:
    done = subprocess.run(
        command(*arguments, "--once"),
        cwd=night.root,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "ended: the proposer has no ideas left" in done.stdout


def test_ctrl_c_ends_the_watch_and_not_the_run(lines: list[bytes], tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repository")
    folder = root / "runs/demo/toy/slow"
    folder.mkdir(parents=True)
    append(folder, *lines[:9])()
    process = subprocess.Popen(
        command("demo/toy", "slow", "--json"),
        cwd=root,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None and process.stderr is not None
        assert json.loads(process.stdout.readline())["event"] == "opened"
        append(folder, *lines[9:12])()
        time.sleep(1.2)
        process.send_signal(signal.SIGINT)
        rest = [json.loads(line)["event"] for line in process.stdout]
        complaint = process.stderr.read()
    assert (process.returncode, complaint) == (130, "")
    assert "trouble" in rest and rest.count("judged") >= 1
    assert git(root, "status", "--porcelain") == ""


def test_a_word_that_is_neither_case_nor_tag_is_told(night: Night) -> None:
    done = subprocess.run(
        command("nope"), cwd=night.root, env=ENVIRONMENT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert done.stderr.startswith("hillclimb: no run 'nope' in ")
