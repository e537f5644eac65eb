"""The look inside: what honest kernels show; what others do or say there comes to a sentence and no more."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.case.case import Case
from hillclimb.harness.channel.profile_limits import MAX_NAME_CHARS, MAX_ROWS
from hillclimb.harness.device.cpu.cpu import CpuDevice
from hillclimb.harness.errors import CandidateFault, SandboxError
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.profile.rows import MAX_DETAIL, combine, parse_rows, printable, whole
from hillclimb.harness.records import Bucket, Profile, Progress, Reason, Side, Watch
from hillclimb.harness.sandbox.rungs.choose import Rung, bubblewrap_rung, choose_rung, landlock_rung
from tests.cases.workspace import CASES
from tests.fakes.cases import HONEST, SETTINGS, write_case, write_workspace

RUNGS: dict[str, Callable[[], Rung]] = {"bubblewrap": bubblewrap_rung, "landlock": landlock_rung}

UNEVEN = """
import numpy as np

def run(x, y):
    for _ in range(9):
        heavy(x, y)
    light(x, y)

def heavy(x, y):
    for _ in range(3):
        np.multiply(x, np.float32(2), out=y)

def light(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
"""

OF_SMALL_FUNCTIONS = """
def nothing():
    pass

def run(x, y):
    for _ in range(20_000):
        nothing()
    y[:] = x * 2 + 1
"""

OF_ONE_FUNCTION = """
import numpy as np

def run(x, y):
    for _ in range(5):
        np.sort(x)
    y[:] = x * 2 + 1
"""
"""Of compiled code: Python's own loops take two times as long as soon as anything is told of calls (3.11)."""

WITH_A_WORKER = """
import threading, time
import numpy as np

begin, done = threading.Semaphore(0), threading.Semaphore(0)
given = []

def work():
    while True:
        begin.acquire()
        finish(*given)
        done.release()

def finish(x, y):
    np.add(y, np.float32(1), out=y)
    time.sleep(0.005)

thread = threading.Thread(target=work, daemon=True)

def run(x, y):
    if not thread.is_alive():
        thread.start()
    np.multiply(x, np.float32(2), out=y)
    given[:] = x, y
    begin.release()
    done.acquire()
"""

TURNS_IT_OFF = "import sys\nsys.setprofile = lambda function: None\n" + HONEST

MISBEHAVES_WHEN_PROFILED = {
    "raises": ("raise ValueError('not today')", "raised: "),
    "prints to the terminal": ("raise ValueError('\\x1b[2Jgone')", "ValueError: ?[2Jgone"),
    "hangs": ("time.sleep(60)", "hung: no answer after "),
    "segfaults": ("ctypes.string_at(0)", "crashed: "),
    "leaves": ("os._exit(0)", "exited: "),
    "forks": ("os.fork()", "started_process: "),
    "closes the channel": ("os.close(int(sys.argv[1]))", "exited: "),
    "floods": ("os.write(1, bytes(2 << 20))", "flooded_output: "),
}
"""What a kernel does that notices the profiler -> what is told."""

FORGED: dict[str, Any] = {
    "no rows": {},
    "no list": {"rows": "kernel.py:run"},
    "a mapping": {"rows": {"kernel.py:run": 1}},
    "too many": {"rows": [["f", 0.001, 0.1, 1]] * (MAX_ROWS + 1)},
    "nested": {"rows": [[[["f", 1, 1, 1]]]]},
    "a short row": {"rows": [["f", 1, 1]]},
    "a long row": {"rows": [["f", 1, 1, 1, 1]]},
    "a share above 1": {"rows": [["f", 1.01, 1, 1]]},
    "a negative time": {"rows": [["f", 1, -1, 1]]},
    "infinite": {"rows": [["f", 1, float("inf"), 1]]},
    "not a number": {"rows": [["f", float("nan"), 1, 1]]},
    "an enormous number": {"rows": [["f", 1, 1, 10**400]]},
    "truth for a number": {"rows": [["f", True, 1, 1]]},
    "text for a number": {"rows": [["f", "1", 1, 1]]},
    "a nameless row": {"rows": [["", 1, 1, 1]]},
    "a name without end": {"rows": [["f" * (MAX_NAME_CHARS + 1), 1, 1, 1]]},
    "a name that clears the screen": {"rows": [["\x1b[2J", 1, 1, 1]]},
    "a name of two lines": {"rows": [["f\nkept", 1, 1, 1]]},
    "a name with markup": {"rows": [["`f`|# & $", 1, 1, 1]]},
    "a name half a character long": {"rows": [["\ud800", 1, 1, 1]]},
    "a number for a name": {"rows": [[1, 1, 1, 1]]},
}


@pytest.fixture(params=RUNGS)
def rung(request: pytest.FixtureRequest) -> Rung:
    try:
        return RUNGS[request.param]()
    except SandboxError as error:
        pytest.skip(f"{request.param} does not run here: {error}")


@dataclass(frozen=True)
class Lab:
    """One judge of the small case, whose ceilings are measured once, and workspaces of its own."""

    root: Path
    judge: CaseJudge

    def profile(self, kernel: str, watch: Watch = lambda progress: None) -> Profile:
        folder = self.root / secrets.token_hex(8) / "workspace"
        return self.judge.profile(Side(tree=str(write_workspace(folder, kernel))), watch)


def lab_below(root: Path, rung: Rung) -> Lab:
    root.chmod(0o755)
    settings = SETTINGS.replace("call_seconds: 2", "call_seconds: 0.5")
    return Lab(root, CaseJudge(Case(write_case(root, settings=settings)), rung, CpuDevice()))


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """On the strongest rung there is."""
    return lab_below(tmp_path_factory.mktemp("lab"), choose_rung(trust_workspace=False))


@pytest.fixture
def rung_lab(tmp_path: Path, rung: Rung) -> Lab:
    return lab_below(tmp_path, rung)


def when_profiled(action: str) -> str:
    """An honest kernel that does something else under the profiler."""
    noticed = f"def run(x, y):\n    if sys.getprofile():\n        {action}\n"
    return "import ctypes, json, os, sys, time\n" + HONEST.replace("def run(x, y):\n", noticed)


@pytest.mark.clock
def test_time_goes_where_it_goes(rung_lab: Lab) -> None:
    seen: list[Progress] = []
    found = rung_lab.profile(UNEVEN, seen.append)
    assert not found.detail.startswith("no buckets")
    [problem] = found.problems
    assert (problem.problem, problem.flops, problem.bytes) == ("timed", 40_000, 160_000)
    assert 1e-6 < problem.seconds_per_call < 1
    heavy, light = (next(b for b in found.buckets if b.name == f"kernel.py:{n}") for n in ("heavy", "light"))
    assert found.buckets[0] == heavy
    assert heavy.share > light.share > 0
    assert (heavy.calls, light.calls) == (9, 1)
    assert 0.5 < sum(bucket.share for bucket in found.buckets) <= 1.001
    assert heavy.seconds_per_call > light.seconds_per_call > 0
    assert found.ceilings is not None
    assert found.seconds > 0
    assert {p.stage for p in seen} == {"profile"}


@pytest.mark.clock
@pytest.mark.slow(3)
def test_small_functions_are_slowed_by_the_profiler_and_that_is_told(lab: Lab) -> None:
    assert "times as long; shares of small functions, and gaps" in lab.profile(OF_SMALL_FUNCTIONS).detail


@pytest.mark.clock
def test_calls_that_are_not_slowed_have_no_note_of_it(lab: Lab) -> None:
    """Nor do those that are short beside what starting a profiler takes."""
    assert "times as long" not in lab.profile(OF_ONE_FUNCTION).detail


@pytest.mark.slow(4)
def test_worker_threads_are_seen_and_so_is_waiting_for_them(rung_lab: Lab) -> None:
    shares = {bucket.name: bucket.share for bucket in rung_lab.profile(WITH_A_WORKER).buckets}
    assert shares["waiting for other threads"] > 0.2
    assert shares["time.sleep (worker threads)"] > 0.2
    assert shares["waiting for other threads (worker threads)"] < 0.8


@pytest.mark.slow(5)
def test_the_demo_shows_its_compiled_function_on_both_threads(tmp_path: Path, rung: Rung) -> None:
    """After the right to start processes is gone, and under seccomp; compilation is not part of it."""
    tmp_path.chmod(0o755)
    case = CASES / "demo" / "cpu_matmul"
    tree = shutil.copytree(case / "workspace", tmp_path / "workspace")
    knobs = {"MM_ORDER": "ikj", "MM_FASTMATH": "1", "MM_THREADS": "2"}
    found = CaseJudge(Case(case), rung, CpuDevice()).profile(
        Side(tree=str(tree), knobs=knobs), lambda progress: None
    )
    entered = {bucket.name: bucket.calls for bucket in found.buckets}
    assert entered["kernel.py:multiply_band"] == 1
    if "waiting for other threads (worker threads)" in entered:  # on one CPU it starts no worker
        assert entered["kernel.py:multiply_band (worker threads)"] == pytest.approx(1, abs=0.5)
    assert found.problems[0].flops == 2 * 256**3


@pytest.mark.slow(6)
def test_it_crosses_to_the_controller(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    side = Side(tree=str(write_workspace(tmp_path / "candidate" / "workspace", HONEST)))
    seen: list[Progress] = []
    judge = LocalJudge(write_case(tmp_path), tmp_path / "judge.log")
    try:
        first, second = (judge.profile(side, seen.append) for _ in range(2))
        assert judge.gate(side, seen.append).passed
    finally:
        judge.close()
    assert first.buckets
    assert first.ceilings == second.ceilings, "measured once"
    assert {p.stage for p in seen} == {"profile", "prepare", "gate"}


@pytest.mark.slow(4)
@pytest.mark.parametrize("name", MISBEHAVES_WHEN_PROFILED)
def test_what_misbehaves_under_the_profiler_still_has_its_times(lab: Lab, name: str) -> None:
    action, told = MISBEHAVES_WHEN_PROFILED[name]
    found = lab.profile(when_profiled(action))
    assert found.detail.startswith("no buckets: under the profiler it stopped, ")
    assert told in found.detail
    assert "\x1b" not in found.detail
    assert found.problems[0].seconds_per_call > 0
    assert found.buckets == ()
    assert found.ceilings is not None


@pytest.mark.usefixtures("unread")
def test_turning_the_profiler_off_leaves_nothing_to_show(lab: Lab) -> None:
    found = lab.profile(TURNS_IT_OFF)
    assert found.problems
    assert found.buckets == ()
    assert found.detail == "no buckets: the profiler was told of no function"


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        ("raise RuntimeError('no')\n", "does_not_load: "),
        ("import antigravity_engine\n", "policy: "),
        ("def run(x, y):\n    y[:] = 0\n", "wrong_result: problem timed, inputs normal (while profiled)"),
        ("def run(x, y):\n    pass\n", "output_not_written: "),
        ("import os\ndef run(x, y):\n    os.abort()\n", "crashed: "),
    ],
)
def test_what_fails_while_timed_is_told(lab: Lab, kernel: str, told: str) -> None:
    found = lab.profile(kernel)
    assert found.detail.startswith("stopped while it was timed, ")
    assert told in found.detail
    assert (found.problems, found.buckets) == ((), ())
    assert found.ceilings is not None


@pytest.mark.parametrize("name", ["too many", "a name that clears the screen", "infinite"])
def test_forged_answers_are_dropped_at_the_judge(lab: Lab, name: str) -> None:
    answer = json.dumps({"ok": True, **FORGED[name]})
    found = lab.profile(when_profiled(f"os.write(int(sys.argv[1]), {answer.encode()!r})"))
    assert found.detail.startswith("no buckets: under the profiler it stopped, broke_protocol: its profile ")
    assert found.buckets == ()
    assert found.problems


def test_an_answer_too_long_for_the_wire_is_dropped(lab: Lab) -> None:
    forged = 'b\'{"ok": true, "rows": ["\' + b"x" * 100_000 + b\'"]}\''
    found = lab.profile(when_profiled(f"os.write(int(sys.argv[1]), {forged})"))
    assert "broke_protocol: " in found.detail
    assert (found.buckets, len(found.problems)) == ((), 1)


@pytest.mark.parametrize("name", FORGED)
def test_no_other_form_is_taken(name: str) -> None:
    with pytest.raises(CandidateFault) as caught:
        parse_rows(FORGED[name].get("rows"))
    assert caught.value.reason is Reason.BROKE_PROTOCOL
    assert len(caught.value.detail) < 200
    assert caught.value.detail.isprintable()


def test_the_right_form_is_taken() -> None:
    longest = "f" * MAX_NAME_CHARS
    rows = [["numpy._core._multiarray_umath.c_einsum", 0.75, 1e-3, 2.0], [longest, 0, 0, 1]]
    first, second = parse_rows(rows)
    expected = ("numpy._core._multiarray_umath.c_einsum", 0.75, 1e-3, 2.0)
    assert (first.name, first.share, first.seconds_per_call, first.calls) == expected
    assert second.name == longest


SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
ROWS = st.lists(st.lists(SCALARS, min_size=4, max_size=4), max_size=3)


@given(ROWS | st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)))
def test_whatever_is_answered_is_a_bucket_or_a_fault(told: object) -> None:
    try:
        buckets = parse_rows(told)
    except CandidateFault:
        return
    for bucket in buckets:
        assert Bucket.model_validate_json(bucket.model_dump_json()) == bucket
        assert 0 <= bucket.share <= 1
        assert bucket.name.isprintable() and bucket.name.isascii()


def bucket(name: str, share: float) -> Bucket:
    return Bucket(name=name, share=share, seconds_per_call=share / 10, calls=2)


def test_the_whole_is_what_shares_are_of() -> None:
    assert whole([bucket("f", 0.1), bucket("gaps", 0.0), bucket("g", 0.8)]) == pytest.approx(0.1)
    assert whole([]) == whole([bucket("f", 0.0)]) == 0


def test_problems_count_alike() -> None:
    f, g = combine([[bucket("f", 0.5), bucket("g", 0.4)], [bucket("g", 0.8)]])
    assert (f.name, g.name) == ("g", "f")
    assert f.share == pytest.approx(0.6)
    assert (g.share, g.seconds_per_call, g.calls) == (0.25, 0.025, 1)


def test_no_more_buckets_than_a_table_holds() -> None:
    tables = [[bucket(f"f{i}", 0.01 * i) for i in range(n, n + 30)] for n in (0, 30)]
    kept = combine(tables)
    assert len(kept) == MAX_ROWS
    assert kept[0].name == "f59"


def test_a_long_detail_keeps_its_beginning_and_its_end() -> None:
    told = printable("raised: " + "x" * 5000 + "\x07ValueError: why\n")
    assert told.startswith("raised: x")
    assert told.endswith("?ValueError: why\n")
    assert len(told) <= MAX_DETAIL + 10


def test_a_busy_machine_is_told(lab: Lab) -> None:
    """Other processes on every CPU, ahead of most: waits are then not the kernel's own."""
    spin = [sys.executable, "-c", "import time\nend = time.time() + 30\nwhile time.time() < end: pass"]
    with ExitStack() as stack:
        for _ in range(len(os.sched_getaffinity(0))):
            busy = stack.enter_context(subprocess.Popen(spin))
            stack.callback(busy.kill)
        time.sleep(0.1)
        found = lab.profile(UNEVEN)
    assert found.detail.startswith("the machine was busy meanwhile (")
    assert found.buckets
