"""What a candidate leaves behind when it ends or is ended: nothing that runs, holds, or lies about."""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from hillclimb.harness.sandbox.canary.canary import SHARED_FOLDERS
from hillclimb.harness.sandbox.rungs.choose import ExitStatus, ForkableRung
from tests.contracts.test_rungs import is_alive, wait_for
from tests.harness.sandbox.inside import Start

TRACES = """
import ctypes, fcntl, os, signal, socket, subprocess, sys, threading, time
from contextlib import suppress
token, ends = sys.argv[1], sys.argv[2]
libc = ctypes.CDLL(None, use_errno=True)
x86 = os.uname().machine == "x86_64"

def named(deed):
    '''In a process of its own, under a name to be found by.'''
    with suppress(OSError):
        if os.fork() == 0:
            try:
                libc.prctl(15, token.encode(), 0, 0, 0)
                deed()
            finally:
                os._exit(0)

def stay():
    time.sleep(60)

def daemon():
    with suppress(OSError): os.setsid()
    with suppress(OSError): os.setpgid(0, 0)
    named(stay)

def deaf():
    for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
        with suppress(OSError, ValueError): signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
    libc.prctl(1, 0, 0, 0, 0)
    stay()

def stopped():
    os.kill(os.getpid(), signal.SIGSTOP)

def waiting_for_its_vfork():
    libc.vfork.restype = int
    pid = libc.syscall(58 if x86 else 220, *(() if x86 else (0x4100 | 17, 0, 0, 0, 0)))
    if pid == 0: libc.sleep(60); libc._exit(0)

def sibling():
    pid = libc.syscall(56 if x86 else 220, ctypes.c_long(0x8000 | 17), 0, 0, 0, 0)
    if pid == 0:
        libc.prctl(15, token.encode(), 0, 0, 0)
        stay()

def breeding():
    until = time.monotonic() + 20  # outside of every border it must end by itself, too
    while time.monotonic() < until:
        if os.fork():
            time.sleep(0.005)
            os._exit(0)

def another_program():
    with suppress(OSError):
        subprocess.Popen(["/bin/sleep", "61", token], stderr=subprocess.DEVNULL)
        subprocess.Popen(["/bin/sh", "-c", "sleep 62", token], start_new_session=False)

def threaded():
    for _ in range(3): threading.Thread(target=stay).start()

for deed in (stay, daemon, deaf, stopped, waiting_for_its_vfork, breeding, threaded): named(deed)
sibling()
another_program()

kept = []
for place in sys.argv[3:]:
    with suppress(OSError):
        path = os.path.join(place, token)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR)
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        kept.append(descriptor)
        os.symlink("/", path + "-link")
for kind in (socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM):
    with suppress(OSError):
        end = socket.socket(socket.AF_UNIX, kind)
        kept.append(end)
        end.bind(f"\\0{token}{kind}")
with suppress(OSError):
    kept.append(os.memfd_create(token))
libc.syscall(29 if x86 else 194, int(token[-6:], 16), 4096, 0o1600)
libc.syscall(68 if x86 else 186, int(token[-6:], 16), 0o1600)
libc.syscall(64 if x86 else 190, int(token[-6:], 16), 1, 0o1600)
small = (ctypes.c_long * 8)(0, 1, 8)  # one message of 8 bytes: queues count against a limit of the user
libc.syscall(240 if x86 else 180, token.encode(), os.O_CREAT | os.O_RDWR, 0o600, small)
with suppress(OSError):
    os.kill(os.getppid(), 0)
print("up", flush=True)
if ends == "it ends": os._exit(0)
stay()
"""


class Traces:
    """What on this machine bears a token, or appeared since."""

    def __init__(self, token: str) -> None:
        self.token, self.key, self._before = token, int(token[-6:], 16), _shared_things()

    def found(self) -> list[str]:
        things = sorted(_shared_things() - self._before)
        things = [thing for thing in things if self.token in thing or thing.endswith(f" {self.key:x}")]
        queue = ["named queue"] if _unlink_queue(self.token) else []
        return [*(f"process {name}" for name in self.processes().values()), *things, *queue]

    def processes(self) -> dict[int, str]:
        """Those that live, by their name or an argument."""
        found = {}
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and is_alive(int(entry.name)):
                with suppress(OSError):
                    words = [*(entry / "cmdline").read_bytes().split(b"\0"), (entry / "comm").read_bytes()]
                    if (
                        self.token.encode() in [word.strip() for word in words]
                        and int(entry.name) != os.getpid()
                    ):
                        found[int(entry.name)] = words[-1].decode().strip()
        return found

    def remove(self) -> None:
        """What an unconfined program left."""
        while processes := self.processes():
            for pid in processes:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        for place in SHARED_FOLDERS:
            for path in Path(place).glob(f"{self.token}*"):
                path.unlink()
        key = hex(self.key)
        subprocess.run(["ipcrm", "-M", key, "-Q", key, "-S", key], capture_output=True)


def _shared_things() -> set[str]:
    """Files, locks, sockets, segments, queues: all that a process can leave where others find it."""
    return {thing for thing in _list_shared_things() if thing}


def _list_shared_things() -> Iterator[str]:
    for place in SHARED_FOLDERS:
        with suppress(OSError):
            yield from (f"file {entry}" for entry in Path(place).iterdir())
    yield from (f"socket {line.split()[-1]}" for line in Path("/proc/net/unix").read_text().splitlines())
    for kind in ("shm", "msg", "sem"):
        with suppress(OSError):
            for line in Path(f"/proc/sysvipc/{kind}").read_text().splitlines()[1:]:
                yield f"{kind} {int(line.split()[0]) & 0xFFFFFFFF:x}"


def _unlink_queue(name: str) -> bool:
    """Whether there was a POSIX message queue of this name; there is none any more."""
    return bool(ctypes.CDLL("librt.so.1").mq_unlink(f"/{name}".encode()) == 0)


ENDS = {"it ends": ExitStatus(0, None), "it is ended": ExitStatus(None, signal.SIGKILL)}


@pytest.mark.parametrize("how", ENDS)
def test_nothing_outlives_the_run(start: Start, how: str) -> None:
    token = secrets.token_hex(7)
    traces = Traces(token)
    running = start(TRACES, token, how, *SHARED_FOLDERS)
    wait_for(lambda: b"up" in b"".join(running.pieces) or running.confined.poll() is not None)
    if how == "it is ended":
        running.confined.freeze()
        assert len(traces.processes()) >= 6, "it did not start what it was to leave behind"
        running.confined.kill()
    ending, said = running.finish()
    assert (ending, said.splitlines()[0]) == (ENDS[how], "up")
    assert traces.found() == []


def test_without_a_border_it_leaves_all_that(tmp_path: Path) -> None:
    """What is looked for above is there to be found."""
    token = secrets.token_hex(7)
    traces = Traces(token)
    code = ["-c", TRACES, token, "it ends", *SHARED_FOLDERS]
    left = subprocess.Popen(
        [sys.executable, *code], cwd=tmp_path, stdout=subprocess.DEVNULL, start_new_session=True
    )
    try:
        assert left.wait() == 0
        found = traces.found()
    finally:
        with suppress(ProcessLookupError):
            os.killpg(left.pid, signal.SIGKILL)
        traces.remove()
    assert traces.found() == []
    assert sum(line.startswith("process") for line in found) >= 6, found
    assert sum(line.startswith("file") for line in found) >= 6, found
    assert {line.split()[0] for line in found} >= {"process", "file", "shm", "msg", "sem", "named"}


def test_the_next_candidate_finds_nothing_of_the_last(rung: ForkableRung, workspace: Path) -> None:
    """Neither where caches lie nor anywhere it may write; its scratch is its own, and new."""
    start = Start(rung, workspace)
    token = secrets.token_hex(8)
    write = f"""
import os
from pathlib import Path
places = {{os.getcwd(), "/tmp", "/dev/shm", "/var/tmp", "/run"}}
places |= {{os.environ[name] for name in ("HOME", "TMPDIR", "TRITON_HOME", "NUMBA_CACHE_DIR", "PYTHONPATH")}}
places.add(os.path.dirname(os.environ["PYTHONPATH"]) + "/workspace/__pycache__")
written = 0
for place in places:
    for name in ("{token}", ".triton/cache/{token}", "triton/{token}/x.cubin", "usercustomize.py", ".pth"):
        path = Path(place, name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("{token}")
            written += 1
        except OSError:
            pass
print(written, os.getcwd())
"""
    look = f"""
import os
places = {{os.getcwd(), "/tmp", "/dev/shm", "/var/tmp", "/run", os.environ["PYTHONPATH"]}}
places.add(os.path.dirname(os.environ["PYTHONPATH"]) + "/workspace")
found = []
for place in places:
    for folder, folders, files in os.walk(place):
        found += [os.path.join(folder, name) for name in files if "{token}" in name or name == "usercustomize.py"]
print(found, os.listdir())
"""
    try:
        ending, said = start(write).finish()
        assert ending == ExitStatus(0, None), said
        assert int(said.split()[0]) >= 4, "it has somewhere to write"
        assert start(look).finish() == (ExitStatus(0, None), "[] []\n")
    finally:
        start.end_all()
    assert [path.name for path in workspace.iterdir()] == ["kernel.py"]
