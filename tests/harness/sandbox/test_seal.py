"""What the judge sees of a candidate that has sealed itself, or says so: filters by the kernel's count, and company."""

from __future__ import annotations

import os
import platform
import signal
import textwrap
from dataclasses import dataclass
from pathlib import Path

import pytest

from hillclimb.harness.errors import SandboxError
from hillclimb.harness.sandbox.fork.prefork import PreforkRung
from hillclimb.harness.sandbox.rungs.choose import ExitStatus
from tests.contracts.test_rungs import is_alive, wait_for
from tests.harness.sandbox.inside import Inside, Start

STAY = """
print("up", flush=True)
time.sleep(60)
"""


def begin(start: Start, code: str) -> Inside:
    """Run code that ends with STAY as far as its last line."""
    running = start("import os, subprocess, sys, threading, time\n" + textwrap.dedent(code) + STAY)
    wait_for(lambda: b"up" in b"".join(running.pieces))
    return running


def test_the_seal_is_one_more_filter_on_every_thread(start: Start) -> None:
    code = """
    from hillclimb.harness.sandbox.kernel.seccomp import forbid_processes
    threads = [threading.Thread(target=time.sleep, args=(60,), daemon=True) for _ in range(4)]
    for thread in threads: thread.start()
    print("begun", flush=True)
    time.sleep(0.3)
    forbid_processes()
    """
    running = start("import sys, threading, time\n" + textwrap.dedent(code) + STAY)
    wait_for(lambda: b"begun" in b"".join(running.pieces))
    before = running.confined.seccomp_filter_count()
    wait_for(lambda: b"up" in b"".join(running.pieces))
    assert (before, running.confined.seccomp_filter_count()) == (1, 2)
    assert running.confined.other_pids() == []


def test_an_ended_candidate_has_no_filters_and_no_company(start: Start) -> None:
    running = start("pass")
    assert running.finish()[0] == ExitStatus(0, None)
    assert (running.confined.seccomp_filter_count(), running.confined.other_pids()) == (0, [])


COMPANY = {
    "a child": "if os.fork() == 0: time.sleep(60)",
    "a daemon, double-forked": """
        if os.fork() == 0:
            if os.fork() == 0: time.sleep(60)
            os._exit(0)
        os.wait()
        """,
    "a program": "subprocess.Popen(['sleep', '60'])",
    "a child of a thread that has ended": """
        thread = threading.Thread(target=lambda: subprocess.Popen(['sleep', '60']))
        thread.start(); thread.join()
        """,
    "one that tried to leave": """
        if os.fork() == 0:
            for escape in (os.setsid, lambda: os.setpgid(0, 0)):
                try: escape()
                except PermissionError: pass
            if os.fork(): os._exit(0)
            time.sleep(60)
        os.wait()
        """,
    "one with a misleading name": """
        if os.fork() == 0:
            import ctypes
            ctypes.CDLL(None).prctl(15, b") S 1 1 1", 0, 0, 0)
            time.sleep(60)
        """,
}


@pytest.mark.parametrize("code", COMPANY.values(), ids=COMPANY)
def test_company_is_seen_even_after_a_seal(start: Start, code: str) -> None:
    seal = "\nfrom hillclimb.harness.sandbox.kernel.seccomp import forbid_processes\nforbid_processes()\n"
    running = begin(start, textwrap.dedent(code) + seal)
    others = running.confined.other_pids()
    assert len(others) == 1
    assert running.confined.pid not in others
    os.kill(others[0], signal.SIGKILL)
    wait_for(lambda: running.confined.other_pids() == [])
    assert running.confined.poll() is None


def test_what_has_ended_and_was_not_collected_is_no_company(start: Start) -> None:
    running = begin(start, "if os.fork() == 0: os._exit(0)\ntime.sleep(0.2)")
    assert running.confined.other_pids() == []


def test_freezing_stops_the_candidate_and_nobody_else(start: Start) -> None:
    running = begin(start, "if os.fork() == 0:\n    while True: pass")
    (other,) = running.confined.other_pids()
    running.confined.freeze()
    assert state(other) != "T"
    assert state(running.confined.pid) == "T"
    running.confined.thaw()
    wait_for(lambda: state(running.confined.pid) != "T")
    running.confined.kill()
    assert not is_alive(other)


@pytest.mark.slow(3, but=["forked-bubblewrap"])
def test_the_seal_can_be_loaded_late_from_any_thread(start: Start) -> None:
    """With threads of compiled code alive, and by another thread than the first."""
    code = """
    import numpy, numba
    from hillclimb.harness.sandbox.kernel.seccomp import forbid_processes
    @numba.njit(parallel=True)
    def total(values):
        result = 0.0
        for i in numba.prange(values.size): result += values[i]
        return result
    values = numpy.ones(100000)
    total(values)
    numpy.ones((400, 400)) @ numpy.ones((400, 400))
    sealing = threading.Thread(target=forbid_processes)
    sealing.start(); sealing.join()
    assert total(values) == 100000
    """
    running = begin(start, code)
    assert running.confined.seccomp_filter_count() == 2
    running.confined.kill()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


AWAIT = """
print("ready", flush=True)
deadline = time.monotonic() + 60
while not os.path.exists("go") and time.monotonic() < deadline: time.sleep(0.002)
"""
"""Until the judge has put a file into the scratch folder."""


FORKED = pytest.mark.parametrize("rung", ["forked-bubblewrap", "forked-landlock"], indirect=True)
"""Those started afresh are sealed from inside only."""


@dataclass
class Sealed:
    """A candidate that is frozen, sealed from outside and thawed, and what the judge saw of it when it was."""

    running: Inside
    has_seal: bool
    others: list[int]


def seal_before(start: Start, first: str, then: str) -> Sealed:
    """Run `first`, seal it, and let it go on to `then`."""
    head = "import ctypes, os, subprocess, sys, threading, time\n"
    code = head + textwrap.dedent(first) + AWAIT + textwrap.dedent(then)
    running = start(code)
    wait_for(lambda: b"ready" in b"".join(running.pieces) or running.confined.poll() is not None)
    running.confined.freeze()
    (running.confined.scratch() / "go").touch()
    sealed = Sealed(running, running.confined.seal(), running.confined.other_pids())
    running.confined.thaw()
    return sealed


def is_forked(start: Start) -> bool:
    return isinstance(start.rung, PreforkRung)


STARTING = {
    "fork": "os.fork()",
    "a program": "subprocess.run(['/bin/true'])",
    "a shell": "os.system('true')",
    "exec": "os.execv('/bin/true', ['true'])",
    "execveat": "ctypes.CDLL(None).syscall(322, os.open('/bin/true', os.O_RDONLY), b'', 0, 0, 0x1000)",
    "clone, sharing memory": "ctypes.CDLL(None).syscall(56, 0x100 | 17, 0, 0, 0, 0)",
    "from a thread": """
        thread = threading.Thread(target=lambda: subprocess.Popen(['/bin/true']))
        thread.start(); thread.join()
        """,
    "with SIGSYS and SIGTERM ignored": """
        import signal
        for number in (signal.SIGSYS, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)
        os.fork()
        """,
}


@FORKED
@pytest.mark.parametrize("attempt", STARTING.values(), ids=STARTING)
def test_what_starts_a_process_after_the_seal_from_outside_is_ended(start: Start, attempt: str) -> None:
    """Nothing was loaded inside: this seal needs no help from there."""
    if "syscall(" in attempt and platform.machine() != "x86_64":
        pytest.skip("numbers of another machine's calls")
    prepare = (
        "assert subprocess.run(['/bin/echo', 'prepared'], stdout=subprocess.PIPE).stdout == b'prepared\\n'\n"
    )
    sealed = seal_before(start, prepare, textwrap.dedent(attempt) + "\nprint('LEFT', flush=True)\n")
    ending, said = sealed.running.finish(20)
    assert (sealed.has_seal, sealed.others) == (True, [])
    assert ending == ExitStatus(None, signal.SIGSYS), said
    assert "LEFT" not in said


@pytest.mark.slow(3, but=["forked-bubblewrap"])
def test_threads_and_compiled_code_go_on_behind_the_seal_from_outside(start: Start) -> None:
    prepare = """
    import numpy, numba
    @numba.njit(parallel=True)
    def total(values):
        result = 0.0
        for i in numba.prange(values.size): result += values[i]
        return result
    """
    then = """
    threads = [threading.Thread(target=time.sleep, args=(0.01,)) for _ in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    print(total(numpy.ones(100000)))
    """
    sealed = seal_before(start, prepare, then)
    assert (sealed.has_seal, sealed.others) == (is_forked(start), [])
    ending, said = sealed.running.finish()
    assert (ending, said) == (ExitStatus(0, None), "ready\n100000.0\n"), said


TAMPERING = {
    "stage two that does nothing": "seccomp.forbid_processes = lambda: None",
    "filters of its own that allow, or ask nobody": """
        seccomp.load_filter(seccomp.assemble((), seccomp.syscalls.machine()))
        seccomp.load_filter(seccomp.assemble(
            tuple(rule for rule in seccomp.process_creation_rules(seccomp.Action.ALLOW)), seccomp.syscalls.machine()))
        """,
    "a listener of its own": """
        try: seccomp.load_filter(seccomp.notifying_program("cpu"), seccomp.WITH_LISTENER)
        except OSError as error: assert error.errno == 16, error
        else: raise SystemExit("two listeners")
        """,
    "closing every descriptor": "os.closerange(3, 1000)",
}


@FORKED
@pytest.mark.parametrize("tampering", TAMPERING.values(), ids=TAMPERING)
def test_nothing_done_inside_breaks_the_seal_from_outside(start: Start, tampering: str) -> None:
    prepare = "from hillclimb.harness.sandbox.kernel import seccomp\n" + textwrap.dedent(tampering)
    sealed = seal_before(start, prepare, "seccomp.forbid_processes\nos.fork()\nprint('LEFT', flush=True)\n")
    ending, said = sealed.running.finish(20)
    assert sealed.has_seal
    assert ending == ExitStatus(None, signal.SIGSYS), said


@FORKED
def test_one_that_asks_nobody_is_refused(start: Start) -> None:
    """A second question without a listener of its own: the kernel says ENOSYS."""
    prepare = """
    from hillclimb.harness.sandbox.kernel import seccomp
    rules = seccomp.process_creation_rules(seccomp.Action.ASK)
    seccomp.load_filter(seccomp.assemble(rules, seccomp.syscalls.machine()))
    """
    then = """
    try: os.fork()
    except OSError as error: print(error.errno)
    """
    ending, said = seal_before(start, prepare, then).running.finish(20)
    assert (ending, said) == (ExitStatus(0, None), "ready\n38\n"), said


@FORKED
def test_a_process_of_its_own_that_lives_on_is_seen_and_can_start_no_other(start: Start) -> None:
    prepare = """
    if os.fork() == 0:
        while True:
            if os.path.exists("go") and time.sleep(1.0) is None: os.fork()
            time.sleep(0.001)
    """
    sealed = seal_before(start, prepare, "time.sleep(60)")
    assert len(sealed.others) == 1
    assert sealed.running.finish(20)[0] == ExitStatus(None, signal.SIGSYS)


@FORKED
def test_a_candidate_that_never_stops_starting_processes_does_not_slip_through(start: Start) -> None:
    """Frozen and sealed at any moment: either company is seen, or the next attempt ends it."""
    prepare = """
    def restart():
        while True:
            pid = os.fork()
            if pid == 0: os._exit(0)
            os.waitpid(pid, 0)
    for _ in range(3): threading.Thread(target=restart, daemon=True).start()
    """
    for _ in range(5):
        sealed = seal_before(start, prepare, "time.sleep(60)")
        assert sealed.running.finish(20)[0] == ExitStatus(None, signal.SIGSYS)


def test_sealing_twice_and_sealing_the_ended_changes_nothing(start: Start) -> None:
    sealed = seal_before(start, "", "print('done')")
    assert sealed.running.confined.seal() == is_forked(start)
    assert sealed.running.finish() == (ExitStatus(0, None), "ready\ndone\n")
    sealed.running.confined.seal()
    assert sealed.running.confined.poll() == ExitStatus(0, None)


@FORKED
def test_without_a_supervisor_to_ask_nothing_is_started(start: Start) -> None:
    """Fail closed: a listener that is gone refuses, and the candidate ends with its supervisor anyway."""
    running = begin(start, "")
    supervisor = int(Path(f"/proc/{running.confined.pid}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(supervisor, signal.SIGKILL)
    wait_for(lambda: not is_alive(running.confined.pid))
    with pytest.raises(SandboxError, match="killed"):
        running.confined.wait(5)
