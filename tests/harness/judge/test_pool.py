"""The judge as a process: it answers, reports progress, is named when it dies, and never outlives its controller."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import cast

import pytest

from hillclimb.harness.duel.gated_problems import NEIGHBOURS
from hillclimb.harness.errors import CaseError, JudgeError, StorageError, UnreapedError
from hillclimb.harness.judge.__main__ import IDLE_SECONDS, answer_one, serve
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.judge.protocol import EmptyAnswer
from hillclimb.harness.os_errors import DISK, machine_error
from hillclimb.harness.records import Progress, Reason, Side
from tests.fakes.cases import HONEST, write_case, write_workspace
from tests.open_descriptors import nothing_left_open


@pytest.fixture
def side(tmp_path: Path) -> Side:
    tmp_path.chmod(0o755)
    return Side(tree=str(write_workspace(tmp_path / "candidate" / "workspace", HONEST)))


@pytest.mark.slow(6)
def test_it_answers_and_reports_progress(tmp_path: Path, side: Side) -> None:
    seen: list[Progress] = []
    judge = LocalJudge(write_case(tmp_path), tmp_path / "judge.log")
    try:
        provenance = judge.describe()
        assert len(provenance.contract) == len(provenance.seed_commitment) == 64
        assert provenance.sandbox in ("bubblewrap", "landlock")
        assert judge.gate(side, seen.append).passed
        assert {p.stage for p in seen} == {"prepare", "gate"}
        assert [p.done for p in seen if p.stage == "prepare" and p.of] == list(range(3 + NEIGHBOURS)), (
            "each problem's first call"
        )
        wrong = Side(tree=str(write_workspace(tmp_path / "wrong" / "workspace", "def run(x, y): y[:] = 0\n")))
        assert judge.gate(wrong, seen.append).reason is Reason.WRONG_RESULT
    finally:
        judge.close()


@pytest.mark.slow(4)
def test_a_broken_case_is_told_as_such(tmp_path: Path) -> None:
    folder = write_case(tmp_path)
    (folder / "contract.py").write_text("import nothing_of_the_kind\n")
    with pytest.raises(CaseError, match=r"contract\.py: Contract: cannot be loaded"):
        LocalJudge(folder, tmp_path / "judge.log")


@pytest.mark.slow(3)
def test_a_dead_judge_is_a_judge_error(tmp_path: Path, side: Side) -> None:
    judge = LocalJudge(write_case(tmp_path), tmp_path / "judge.log")
    os.kill(judge._process.pid, signal.SIGKILL)
    with pytest.raises(JudgeError, match="SIGKILL"):
        judge.gate(side, lambda progress: None)
    judge.close()


@pytest.mark.slow(3)
def test_modules_in_the_callers_folder_are_not_taken_for_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("yaml", "numpy", "harness", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')\n")
    monkeypatch.chdir(tmp_path)
    judge = LocalJudge(write_case(tmp_path), tmp_path / "judge.log")
    try:
        assert judge.describe().software
    finally:
        judge.close()


@pytest.mark.slow(3)
def test_no_bytecode_is_written_into_the_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    folder = write_case(tmp_path)
    (folder / "sizes.py").write_text("SIZE = 1\n")
    before = sorted(folder.rglob("*"))
    LocalJudge(folder, tmp_path / "judge.log").close()
    assert sorted(folder.rglob("*")) == before


def test_a_log_that_cannot_be_opened_is_a_judge_error(tmp_path: Path) -> None:
    problem = r"judge could not be started: .*nowhere/judge\.log: No such file"
    with nothing_left_open(), pytest.raises(JudgeError, match=problem):
        LocalJudge(write_case(tmp_path), tmp_path / "nowhere" / "judge.log")


def test_no_descriptors_left_is_a_judge_error(tmp_path: Path) -> None:
    folder, limits = write_case(tmp_path), resource.getrlimit(resource.RLIMIT_NOFILE)
    used = max(int(path.name) for path in Path("/proc/self/fd").iterdir())
    with contextlib.ExitStack() as opened:
        for number in range(3, used):
            with contextlib.suppress(OSError):
                opened.callback(os.close, fcntl.fcntl(0, fcntl.F_DUPFD_CLOEXEC, number))
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, limits)
        resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, limits[1]))
        with pytest.raises(JudgeError, match=r"Too many open files; raise the open file limit"):
            LocalJudge(folder, tmp_path / "judge.log")


@pytest.mark.parametrize("number", sorted(DISK))
def test_what_a_disk_refuses_is_a_storage_error(number: int) -> None:
    error = machine_error(
        "the judge could not be started", OSError(number, os.strerror(number), "/there/judge.log")
    )
    assert type(error) is StorageError
    assert str(error).startswith(f"the judge could not be started: /there/judge.log: {os.strerror(number)}; ")


class Untidy:
    """A judge whose last candidate's process cannot be ended."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def clean_up(self) -> None:
        if "clean_up" not in self.done:
            self.done.append("clean_up")
            raise UnreapedError("it hangs in the kernel", 4711)

    def quarantine(self, error: UnreapedError) -> None:
        self.done.append(f"quarantine {error.pid}")

    def prepare(self, side: Side, parent: Side) -> EmptyAnswer:
        return EmptyAnswer()

    def gate(self, side: Side, watch: object) -> EmptyAnswer:
        return EmptyAnswer()

    def close(self) -> None:
        self.done.append("close")


def test_what_goes_wrong_while_nothing_is_asked_answers_the_next_question_and_no_hint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judge = Untidy()
    monkeypatch.setattr("hillclimb.harness.judge.__main__.open_judge", lambda case, trust_workspace: judge)
    ours, theirs = socket.socketpair()
    side = {"tree": "/nowhere"}
    with theirs, ours:
        serving = threading.Thread(target=serve, args=(theirs, write_case(tmp_path), False))
        serving.start()
        lines = ours.makefile("rwb", buffering=0)
        assert json.loads(lines.readline()) == {"answer": None}
        time.sleep(IDLE_SECONDS + 0.2)
        told = []
        for op, arguments in (("prepare", {"side": side, "parent": side}), *[("gate", {"side": side})] * 2):
            lines.write(json.dumps({"op": op, "arguments": arguments}).encode() + b"\n")
            told.append(next(iter(json.loads(lines.readline()))))
        lines.close()
        ours.shutdown(socket.SHUT_RDWR)
        serving.join()
    assert told == ["answer", "error", "answer"]
    assert judge.done == ["clean_up", "quarantine 4711", "close"]


class FullDisk:
    """A judge whose disk is full, or whose socket's other end is gone."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    def describe(self) -> None:
        raise self.error


def test_a_disk_that_is_full_while_judging_is_a_storage_error() -> None:
    full = cast(CaseJudge, FullDisk(OSError(errno.ENOSPC, "No space left on device", "/tmp/x")))
    with pytest.raises(StorageError, match=r"could not describe: /tmp/x: No space left on device; free some"):
        answer_one(full, "describe", {}, print)
    with pytest.raises(BrokenPipeError):
        answer_one(cast(CaseJudge, FullDisk(BrokenPipeError())), "describe", {}, print)


CONTROLLER = """
import sys
from pathlib import Path
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Side
judge = LocalJudge(Path(sys.argv[1]), Path(sys.argv[2]))
print(judge._process.pid, flush=True)
while True:
    judge.compare(Side(tree=sys.argv[3]), Side(tree=sys.argv[3]), "noise", lambda p: None)
"""


def test_it_dies_with_its_controller(tmp_path: Path, side: Side) -> None:
    arguments = [str(write_case(tmp_path)), str(tmp_path / "judge.log"), side.tree]
    controller = subprocess.Popen(
        [sys.executable, "-c", CONTROLLER, *arguments], stdout=subprocess.PIPE, text=True
    )
    with controller:
        assert controller.stdout is not None
        judge = int(controller.stdout.readline())
        time.sleep(1.5)
        controller.kill()
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and (_alive(judge) or _holds(side.tree)):
        time.sleep(0.05)
    assert not _alive(judge)
    assert not _holds(side.tree), "candidates are gone as well"


def _alive(pid: int) -> bool:
    status = Path(f"/proc/{pid}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


def _holds(tree: str) -> bool:
    """Whether a process on this machine names the tree on its command line."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if tree.encode() in path.read_bytes():
                return True
        except OSError:
            continue
    return False
