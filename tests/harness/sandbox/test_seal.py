"""What the judge sees of a candidate that has sealed itself, or says so: filters by the kernel's count, and company."""

from __future__ import annotations

import os
import signal
import textwrap
from pathlib import Path

import pytest

from harness.sandbox.rungs import Exit
from tests.harness.sandbox.inside import Inside, Start
from tests.harness.sandbox.test_rungs import is_alive, wait_for

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
    from harness.sandbox.seccomp import forbid_processes
    threads = [threading.Thread(target=time.sleep, args=(60,), daemon=True) for _ in range(4)]
    for thread in threads: thread.start()
    print("begun", flush=True)
    time.sleep(0.3)
    forbid_processes()
    """
    running = start("import sys, threading, time\n" + textwrap.dedent(code) + STAY)
    wait_for(lambda: b"begun" in b"".join(running.pieces))
    before = running.confined.filters()
    wait_for(lambda: b"up" in b"".join(running.pieces))
    assert (before, running.confined.filters()) == (1, 2)
    assert running.confined.others() == []


def test_an_ended_candidate_has_no_filters_and_no_company(start: Start) -> None:
    running = start("pass")
    assert running.finish()[0] == Exit(0, None)
    assert (running.confined.filters(), running.confined.others()) == (0, [])


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
    seal = "\nfrom harness.sandbox.seccomp import forbid_processes\nforbid_processes()\n"
    running = begin(start, textwrap.dedent(code) + seal)
    others = running.confined.others()
    assert len(others) == 1
    assert running.confined.pid not in others
    os.kill(others[0], signal.SIGKILL)
    wait_for(lambda: running.confined.others() == [])
    assert running.confined.poll() is None


def test_what_has_ended_and_was_not_collected_is_no_company(start: Start) -> None:
    running = begin(start, "if os.fork() == 0: os._exit(0)\ntime.sleep(0.2)")
    assert running.confined.others() == []


def test_freezing_stops_the_candidate_and_nobody_else(start: Start) -> None:
    running = begin(start, "if os.fork() == 0:\n    while True: pass")
    (other,) = running.confined.others()
    running.confined.freeze()
    assert state(other) != "T"
    assert state(running.confined.pid) == "T"
    running.confined.thaw()
    wait_for(lambda: state(running.confined.pid) != "T")
    running.confined.kill()
    assert not is_alive(other)


def test_the_seal_can_be_loaded_late_from_any_thread(start: Start) -> None:
    """With threads of compiled code alive, and by another thread than the first."""
    code = """
    import numpy, numba
    from harness.sandbox.seccomp import forbid_processes
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
    assert running.confined.filters() == 2
    running.confined.kill()


def state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
