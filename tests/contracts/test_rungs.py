"""Every rung: what works inside, how endings are told, what freezing and ending do, which limits hold."""

from __future__ import annotations

import mmap
import os
import secrets
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from hillclimb.harness.errors import HillclimbError, SandboxError, UsageError
from hillclimb.harness.sandbox.rungs import choose
from hillclimb.harness.sandbox.rungs.choose import Confinement, ExitStatus, Rung
from tests.harness.sandbox.conftest import MAKERS
from tests.harness.sandbox.inside import MEMORY_BYTES, SCRATCH_BYTES, Start
from tests.open_descriptors import nothing_left_open

PARALLEL_KERNEL = """
from hillclimb.harness.sandbox.kernel.seccomp import forbid_processes
import numba, numpy, yaml
forbid_processes()

@numba.njit(parallel=True)
def total(values):
    result = 0.0
    for i in numba.prange(values.size):
        result += values[i]
    return result

print(total(numpy.ones(1000)), numba.get_num_threads())
"""


@pytest.mark.slow(2)
def test_numba_runs_in_parallel_behind_both_filters(start: Start) -> None:
    ending, said = start(PARALLEL_KERNEL, environment={"NUMBA_NUM_THREADS": "2"}).finish()
    assert (ending, said.split()) == (ExitStatus(0, None), ["1000.0", "2"]), said


def expect_a_wall_around_files(rung: Rung) -> None:
    if rung.name == "none":
        pytest.skip("none is for a workspace that the user trusts: it keeps no file from it")


def test_a_hidden_folder_of_the_workspace_is_empty_where_there_are_mounts(start: Start) -> None:
    if start.rung.name != "bubblewrap":
        pytest.skip("the other rungs have no mounts")
    (start.workspace / "tests").mkdir()
    (start.workspace / "tests" / "evil.py").write_text("print('ran')\n")
    code = """
    import os, sys
    folder = os.path.join(os.path.dirname(os.environ["PYTHONPATH"]), "workspace")
    print(os.listdir(os.path.join(folder, "tests")), "kernel.py" in os.listdir(folder), flush=True)
    sys.path.insert(0, folder)
    try:
        import tests.evil
    except ModuleNotFoundError as error:
        print(error, flush=True)
    open(os.path.join(folder, "tests", "evil.py"), "w")
    """
    running = start(textwrap.dedent(code), hidden=("tests", "absent"))
    ending, said = running.finish()
    assert said.splitlines()[:2] == ["[] True", "No module named 'tests.evil'"], said
    assert ending == ExitStatus(1, None) and "Read-only" in said


def test_the_workspace_is_readable_and_read_only_where_the_rung_says(start: Start) -> None:
    expect_a_wall_around_files(start.rung)
    code = """
    import os, sys
    sys.path.insert(0, os.path.join(os.path.dirname(os.environ["PYTHONPATH"]), "workspace"))
    import kernel
    print(kernel.ANSWER, os.path.dirname(kernel.__file__), flush=True)
    open(kernel.__file__, "w")
    """
    running = start(textwrap.dedent(code))
    ending, said = running.finish()
    assert ending == ExitStatus(1, None)
    assert said.splitlines()[0] == f"42 {running.confined.workspace_inside}"
    assert "Read-only" in said or "Permission" in said
    assert (start.workspace / "kernel.py").read_text() == "ANSWER = 42\n"


def test_only_the_harness_of_the_lab_can_be_imported(start: Start) -> None:
    expect_a_wall_around_files(start.rung)
    code = """
    import hillclimb.harness.candidate, hillclimb.harness.sandbox.kernel.seccomp, os
    lab = os.environ["PYTHONPATH"]
    print(os.listdir(lab), sorted(os.listdir(lab + "/hillclimb")))
    try:
        import hillclimb.agent.proposal
        print("agent")
    except (ImportError, PermissionError):
        pass
    """
    ending, said = start(textwrap.dedent(code)).finish()
    assert (ending, said) == (ExitStatus(0, None), "['hillclimb'] ['__init__.py', 'harness']\n")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("pass", ExitStatus(0, None)),
        ("import sys; sys.exit(3)", ExitStatus(3, None)),
        ("import os; os._exit(127)", ExitStatus(127, None)),
        ("import os; os.abort()", ExitStatus(None, signal.SIGABRT)),
        ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", ExitStatus(None, signal.SIGKILL)),
        ("import ctypes; ctypes.string_at(0)", ExitStatus(None, signal.SIGSEGV)),
    ],
)
def test_endings_are_told_apart(start: Start, code: str, expected: ExitStatus) -> None:
    assert start(code).finish()[0] == expected


@pytest.mark.parametrize(
    "deed",
    [
        "os.fork()",
        "subprocess.run(['true'])",
        "os.posix_spawn('/bin/true', ['true'], {})",
        "os.execv(sys.executable, ['python'])",
        "os.system('true')",
        "multiprocessing.get_context('fork').Process(target=print).start()",
    ],
)
def test_a_new_process_behind_the_locked_door_is_sigsys(start: Start, deed: str) -> None:
    code = f"""
    import multiprocessing.context, os, subprocess, sys, threading
    from hillclimb.harness.sandbox.kernel.seccomp import forbid_processes
    early = threading.Event()
    def wait_and_try():
        early.wait()
        {deed}
    waiting = threading.Thread(target=wait_and_try)
    waiting.start()
    forbid_processes()
    late = threading.Thread(target=print, args=("threads work",), kwargs={{"flush": True}})
    late.start(); late.join()
    early.set(); waiting.join()
    """
    assert start(textwrap.dedent(code)).finish() == (ExitStatus(None, signal.SIGSYS), "threads work\n")


def test_a_frozen_process_stands_still_and_a_thawed_one_goes_on(start: Start) -> None:
    page = os.memfd_create("counters")
    os.truncate(page, 4096)
    with mmap.mmap(page, 4096) as counters:
        code = """
        import mmap, sys, threading
        counters = mmap.mmap(int(sys.argv[1]), 4096)
        def count(at):
            while True: counters[at] = (counters[at] + 1) % 256
        for at in (0, 1): threading.Thread(target=count, args=(at,)).start()
        """
        running = start(textwrap.dedent(code), str(page), descriptors=(page,))
        wait_for(lambda: counters[0] and counters[1])
        for _ in range(5):
            running.confined.freeze()
            before = counters[:2]
            time.sleep(0.02)
            assert counters[:2] == before
            assert running.confined.poll() is None
            running.confined.thaw()
            wait_for(lambda before=before: counters[0] != before[0] and counters[1] != before[1])
        running.confined.freeze()
        running.confined.kill()
    os.close(page)
    assert running.confined.poll() == ExitStatus(None, signal.SIGKILL)


def test_freezing_an_ended_process_does_nothing(start: Start) -> None:
    running = start("pass")
    assert running.finish()[0] == ExitStatus(0, None)
    running.confined.freeze()
    running.confined.thaw()
    running.confined.kill()
    assert running.confined.cpu_seconds() == running.confined.resident_bytes() == 0
    assert running.confined.scratch_used_bytes() == 0
    assert running.confined.poll() == ExitStatus(0, None)


def test_waiting_gives_up_in_time(start: Start) -> None:
    running = start("import time; time.sleep(60)")
    begun = time.monotonic()
    assert running.confined.wait(0.1) is None
    assert time.monotonic() - begun < 30


def test_cpu_time_and_memory_are_the_candidates_own(start: Start) -> None:
    code = "held = bytearray(64 << 20)\nfor i in range(0, len(held), 4096): held[i] = 1\nwhile True: pass"
    running = start(code)
    wait_for(lambda: running.confined.cpu_seconds() > 0.3)
    assert running.confined.resident_bytes() > 64 << 20
    assert Path(f"/proc/{running.confined.pid}/comm").read_text().startswith("python")


def test_the_memory_limit_holds(start: Start) -> None:
    code = "import sys\ntry: bytearray(300 << 20)\nexcept MemoryError: sys.exit(7)"
    assert start(code, memory=256 << 20).finish()[0] == ExitStatus(7, None)
    assert start(code, memory=MEMORY_BYTES).finish()[0] == ExitStatus(0, None)


def test_the_scratch_is_the_working_folder_and_bounded(start: Start) -> None:
    code = f"""
    import os, sys
    assert os.getcwd() == os.environ["HOME"] == os.environ["TMPDIR"]
    open("kept", "wb").write(bytes(1 << 20))
    print("kept", flush=True)
    try:
        open("large", "wb").write(bytes({SCRATCH_BYTES} + (1 << 20)))
    except OSError as error:
        print(error.strerror)
    print(sum(os.path.getsize(name) for name in os.listdir()) <= {SCRATCH_BYTES} + (1 << 20), flush=True)
    import time; time.sleep(60)
    """
    running = start(textwrap.dedent(code))
    wait_for(lambda: b"True" in b"".join(running.pieces))
    assert 1 << 20 <= running.confined.scratch_used_bytes() <= SCRATCH_BYTES + (2 << 20)
    running.confined.kill()
    said = running.finish()[1].splitlines()
    assert said[1] in ("File too large", "No space left on device")


def test_nothing_of_the_scratch_stays(start: Start) -> None:
    code = """
    import os
    print(os.getcwd(), flush=True)
    for depth in range(1500):
        os.mkdir("deep"); os.chdir("deep")
    os.mkdir("sealed", 0)
    """
    ending, said = start(textwrap.dedent(code)).finish()
    assert ending == ExitStatus(0, None)
    assert not Path(said.strip()).exists()


def test_one_inherited_socket_can_be_used_and_no_other_made(start: Start) -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    code = """
    import socket, sys
    end = socket.socket(fileno=int(sys.argv[1]))
    end.send(end.recv(100).upper())
    try:
        socket.socketpair()
    except PermissionError:
        end.send(b"refused")
    """
    with ours, theirs:
        running = start(textwrap.dedent(code), str(theirs.fileno()), descriptors=(theirs.fileno(),))
        ours.settimeout(20)
        ours.send(b"hello")
        assert ours.recv(100) == b"HELLO"
        assert ours.recv(100) == b"refused"
        assert running.finish()[0] == ExitStatus(0, None)


@pytest.mark.parametrize("frozen", [False, True], ids=["running", "frozen"])
def test_killing_reaps_everything(start: Start, frozen: bool) -> None:
    token = secrets.token_hex(7)
    code = """
    import ctypes, os, signal, sys, threading
    ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)  # its name, for the test to find it by
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD}:
        signal.signal(number, signal.SIG_IGN)
    for _ in range(3):
        os.fork()
    def spin():
        while True: pass
    for _ in range(2): threading.Thread(target=spin).start()
    print("up", flush=True)
    spin()
    """
    running = start(textwrap.dedent(code), token)
    wait_for(lambda: b"".join(running.pieces).count(b"up") == 8)
    assert len(processes_of(token)) >= 8
    if frozen:
        running.confined.freeze()
    begun = time.monotonic()
    running.confined.kill()
    assert time.monotonic() - begun < 30
    assert running.confined.poll() == ExitStatus(None, signal.SIGKILL)
    assert processes_of(token) == []


def test_killing_at_once_is_a_kill_like_any_other(start: Start) -> None:
    for delay in (0, 0, 0.001, 0.002, 0.005, 0.01):
        running = start("import time; time.sleep(60)")
        time.sleep(delay)
        running.confined.kill()
        assert running.confined.poll() == ExitStatus(None, signal.SIGKILL)


def test_children_left_behind_end_with_the_candidate(start: Start) -> None:
    token = secrets.token_hex(7)
    code = """
    import ctypes, os, sys, time
    ctypes.CDLL(None).prctl(15, sys.argv[1].encode(), 0, 0, 0)
    if os.fork() == 0: time.sleep(60)
    """
    assert start(textwrap.dedent(code), token).finish()[0] == ExitStatus(0, None)
    assert processes_of(token) == []


def test_the_candidate_dies_with_its_judge(rung: Rung, workspace: Path) -> None:
    make = "trusted_rung()" if rung.name == "none" else f"{rung.name}_rung()"
    candidate = spawned_by_a_judge_that_is_killed(make, workspace)
    wait_for(lambda: not is_alive(candidate))


def test_the_candidate_dies_with_its_judge_however_slowly_its_namespace_begins(workspace: Path) -> None:
    """The first process of the namespace stands still between its child's birth and its bond to its own parent."""
    try:
        candidate = spawned_by_a_judge_that_is_killed("bubblewrap_rung()", workspace, before=SLOW_INIT)
    except SandboxError as error:
        pytest.skip(str(error))
    wait_for(lambda: not is_alive(candidate), seconds=10)


def test_without_its_wall_the_candidate_outlives_its_judge(workspace: Path) -> None:
    """What the test above sees is that wall, and no accident."""
    try:
        candidate = spawned_by_a_judge_that_is_killed('bubblewrap_rung(frozenset({"life"}))', workspace)
    except SandboxError as error:
        pytest.skip(str(error))
    time.sleep(0.3)
    assert is_alive(candidate)
    os.kill(candidate, signal.SIGKILL)


def test_the_environment_is_clean(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    code = "import os; print(*(f'{k}={v}' for k, v in os.environ.items()), sep='\\n')"
    _, said = start(code, environment={"TILE": "64", "HOME": "/root"}).finish()
    lines = said.splitlines()
    assert "TILE=64" in lines
    assert "secret" not in said
    assert "HOME=/root" not in lines


@pytest.mark.parametrize(
    "name", ["LD_PRELOAD", "LD_AUDIT", "PYTHONPATH", "PYTHONHOME", "GCONV_PATH", "OMP_TOOL_LIBRARIES"]
)
def test_a_variable_that_would_load_code_early_is_refused(workspace: Path, name: str) -> None:
    with pytest.raises(UsageError, match=name):
        Confinement(workspace, 1, 1, {name: "x"})


def test_a_missing_workspace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nowhere"):
        Confinement(tmp_path / "nowhere", 1, 1)


def test_a_program_that_does_not_exist_is_the_machines_fault(rung: Rung, workspace: Path) -> None:
    with nothing_left_open():
        confined = None
        with pytest.raises(SandboxError):
            confined = rung.spawn(["/nonexistent"], Confinement(workspace, MEMORY_BYTES, SCRATCH_BYTES))
            confined.wait(20)
        if confined:
            confined.kill()
            with pytest.raises(SandboxError):
                confined.poll()


def test_starting_and_ending_leaks_no_descriptor(start: Start) -> None:
    start("pass").finish()
    with nothing_left_open():
        for _ in range(3):
            start("pass").finish()


JUDGE = """
import sys, time
from pathlib import Path
from hillclimb.harness.sandbox.rungs import choose
from hillclimb.harness.sandbox.rungs.choose import Confinement, bubblewrap_rung, landlock_rung, trusted_rung
rung = {rung}
{before}
confined = rung.spawn(
    [sys.executable, "-c", "import time; time.sleep(30)"], Confinement(Path(sys.argv[1]), 1 << 30, 1 << 20)
)
print(confined.pid, flush=True)
time.sleep(30)
"""


SLOW_INIT = """
import os, signal, threading
from hillclimb.harness.sandbox.kernel.process_table import child_pids
enclose = type(rung)._enclose
def enclose_and_stop(*given):
    pid = enclose(*given)
    while not child_pids(pid):
        pass
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(0.3, os.kill, (pid, signal.SIGCONT)).start()
    return pid
type(rung)._enclose = enclose_and_stop
"""


def spawned_by_a_judge_that_is_killed(rung: str, workspace: Path, before: str = "") -> int:
    """Start a judge in a process of its own, SIGKILL it, and return its candidate's pid."""
    judge = subprocess.Popen(
        [sys.executable, "-c", JUDGE.format(rung=rung, before=before), str(workspace)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert judge.stdout
    assert judge.stderr
    with judge.stdout, judge.stderr:
        line = judge.stdout.readline()
        if not line:
            raise SandboxError(judge.stderr.read())
        assert is_alive(int(line))
        judge.kill()
        judge.wait()
    return int(line)


def is_alive(pid: int) -> bool:
    """Whether a process exists and is more than a zombie nobody has collected yet."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def processes_of(token: str) -> list[int]:
    """Pids, on the host, of all processes of this name or with it among their arguments, bubblewrap's included."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and is_alive(int(entry.name)):
            try:
                words = [
                    *(entry / "cmdline").read_bytes().split(b"\0"),
                    (entry / "comm").read_bytes().strip(),
                ]
                if token.encode() in words:
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def wait_for(condition: object, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.005)


def test_sandbox_errors_are_machine_errors() -> None:
    """A border that fails is never held against a candidate."""
    assert issubclass(SandboxError, HillclimbError)
    assert not issubclass(SandboxError, UsageError)


def test_the_judge_reaches_the_scratch_of_a_living_candidate(start: Start) -> None:
    running = start("open('kept', 'w').write('x' * 9)\nprint('up', flush=True)\nimport time; time.sleep(60)")
    wait_for(lambda: b"up" in b"".join(running.pieces))
    running.confined.freeze()
    assert (running.confined.scratch() / "kept").read_text() == "x" * 9


def test_a_program_that_ends_at_once_is_no_failure(rung: Rung, workspace: Path) -> None:
    with nothing_left_open():
        for _ in range(20):
            confined = rung.spawn(
                ["/bin/sh", "-c", "exit 3"], Confinement(workspace, MEMORY_BYTES, SCRATCH_BYTES)
            )
            assert confined.wait(20) == ExitStatus(3, None)


def test_no_rung_is_left_out() -> None:
    """Each is tried twice: with candidates that are fresh, and with forks."""
    made = {name for name in vars(choose) if name.endswith("_rung")} - {"choose_rung", "prefork_rung"}
    assert {make.__name__ for make in MAKERS.values()} == made
    assert len(MAKERS) == 2 * len(made)
