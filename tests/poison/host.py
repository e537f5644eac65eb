"""Poisons of the host: what a process may do to itself, its machine and its judge. Every kind in several variants.

What is right for each was decided before it was run. `RAISED` becomes `DOES_NOT_LOAD` where it happens at import.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hillclimb.harness.records import Reason
from tests.poison.poison import Poison, Surface, When

X86 = platform.machine() == "x86_64"
"""Machine code below is for it; elsewhere those candidates are left out."""

EVER: tuple[When, ...] = ("import", "first", "later", "timed", "thread")
IN_A_CALL: tuple[When, ...] = ("first", "later", "timed")

CTYPES = "import ctypes\nlibc = ctypes.CDLL(None)\n"

MACHINE_CODE = """\
import ctypes
import mmap


def execute(code, library=ctypes.CFUNCTYPE):
    page = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(code)
    return library(None)(ctypes.addressof(ctypes.c_char.from_buffer(page)))()
"""

SCRATCH = "import os\nscratch = os.environ['TMPDIR']\n"

ADDRESS = CTYPES + "\n\ndef address(array):\n    return array.__array_interface__['data'][0]\n"

CHANNEL = "import os\nimport sys\nchannel = int(sys.argv[1])\n"


@dataclass(frozen=True)
class Dose:
    """One way to do it, and when it is taken."""

    variant: str
    setup: str
    body: str
    whens: tuple[When, ...]
    expected: frozenset[Reason]
    surfaces: tuple[Surface, ...] = ("cpu", "gpu")


def dose(
    variant: str,
    setup: str,
    body: str,
    whens: tuple[When, ...],
    *expected: Reason,
    surfaces: tuple[Surface, ...] = ("cpu", "gpu"),
) -> Dose:
    return Dose(variant, setup, body, whens, frozenset(expected), surfaces)


NUMPY_ONLY: tuple[Surface, ...] = ("cpu",)

KINDS: Mapping[str, tuple[Dose, ...]] = {
    "host segfault": (
        dose("reads address 0", CTYPES, "ctypes.string_at(0)", EVER, Reason.CRASHED),
        dose("jumps to nowhere", CTYPES, "ctypes.CFUNCTYPE(None)(64)()", ("first", "later"), Reason.CRASHED),
    ),
    "illegal address": (
        dose(
            "writes a terabyte beyond the buffers",
            ADDRESS,
            "ctypes.memset(address(y) + (1 << 40), 1, 8)",
            ("first", "timed"),
            Reason.CRASHED,
            surfaces=NUMPY_ONLY,
        ),
        dose(
            "touches a mapping behind its file's end",
            SCRATCH + "import mmap\n",
            "with open(scratch + '/short', 'wb+') as file:\n"
            "    file.truncate(8192)\n"
            "    page = mmap.mmap(file.fileno(), 8192)\n"
            "    file.truncate(0)\n"
            "    page[4096] = 1\n",
            ("later",),
            Reason.CRASHED,
        ),
    ),
    "misaligned": (
        dose(
            "loads 16 bytes from an odd address",
            MACHINE_CODE,
            r"execute(b'\x0f\x28\x44\x24\x01\xc3')",
            ("first", "timed"),
            Reason.CRASHED,
        ),
    ),
    "illegal instruction": (
        dose("executes one", MACHINE_CODE, r"execute(b'\x0f\x0b')", ("import", "later"), Reason.CRASHED),
    ),
    "assertion": (
        dose("Python's", "", "assert 1 + 1 == 3, 'tile'", ("import", *IN_A_CALL), Reason.RAISED),
        dose("C's abort", "import os\n", "os.abort()", ("later", "thread"), Reason.CRASHED),
    ),
    "endless loop": (
        dose("in Python", "", "while True:\n    pass", EVER, Reason.HUNG),
        dose("in machine code", MACHINE_CODE, r"execute(b'\xeb\xfe')", ("later",), Reason.HUNG),
        dose(
            "in machine code that holds the interpreter's lock",
            MACHINE_CODE,
            r"execute(b'\xeb\xfe', ctypes.PYFUNCTYPE)",
            ("later", "timed"),
            Reason.HUNG,
        ),
        dose(
            "in a pattern that backtracks",
            "import re\n",
            "re.match('(a*)*b', 'a' * 64)",
            ("later",),
            Reason.HUNG,
        ),
    ),
    "huge allocation": (
        dose(
            "64 GiB at once",
            "import numpy as np\n",
            "np.ones(1 << 36, np.uint8)",
            ("import", *IN_A_CALL),
            Reason.OUT_OF_MEMORY,
        ),
        dose(
            "a megabyte again and again",
            "hoard = []\n",
            "while True:\n    hoard.append(b'x' * (1 << 20))",
            ("first",),
            Reason.OUT_OF_MEMORY,
        ),
        dose(
            "shared pages, which no limit on private memory counts",
            "import mmap\nheld = []\n",
            "held.append(mmap.mmap(-1, 700 << 20))\nheld[0].write(bytes(350 << 20))\nheld[0].write(bytes(350 << 20))",
            ("first",),
            Reason.OUT_OF_MEMORY,
            surfaces=NUMPY_ONLY,
        ),
        dose(
            "shared pages, given back before the call ends",
            "import mmap\n",
            "held = mmap.mmap(-1, 700 << 20)\nheld.write(bytes(350 << 20))\nheld.write(bytes(350 << 20))\nheld.close()",
            ("first",),
            Reason.OUT_OF_MEMORY,
            surfaces=NUMPY_ONLY,
        ),
    ),
    "exit 0": (
        dose("at once", "import os\n", "os._exit(0)", EVER, Reason.EXITED),
        dose("politely", "import sys\n", "sys.exit(0)", ("import", "first"), Reason.EXITED),
        dose("through libc", CTYPES, "libc.exit(0)", ("later",), Reason.EXITED),
    ),
    "stdout flood": (
        dose("printed", "", "while True:\n    print('x' * 4096)", EVER, Reason.FLOODED_OUTPUT),
        dose(
            "on stderr, refusals ignored",
            "import os\n",
            "for _ in range(4096):\n    try:\n        os.write(2, b'x' * 1024)\n    except OSError:\n        pass",
            ("first", "later"),
            Reason.FLOODED_OUTPUT,
        ),
    ),
    "fork bomb": (
        dose("os.fork", "import os\n", "while True:\n    os.fork()", EVER, Reason.STARTED_PROCESS),
        dose(
            "clone(2) past libc",
            CTYPES,
            f"libc.syscall({56 if X86 else 220}, 17, 0, 0, 0, 0)",
            ("later",),
            Reason.STARTED_PROCESS,
        ),
        dose(
            "a program",
            "import subprocess\n",
            "subprocess.Popen(['/bin/sleep', '1000'])",
            ("first", "timed"),
            Reason.STARTED_PROCESS,
        ),
        dose(
            "another program in its place",
            "import os\n",
            "os.execv('/bin/sleep', ['sleep', '1000'])",
            ("later",),
            Reason.STARTED_PROCESS,
        ),
    ),
    "thread bomb": (
        dose(
            "until none can be started",
            "import time\n",
            "while True:\n    threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()",
            ("first", "later"),
            Reason.RAISED,
        ),
    ),
    "50 GB file": (
        dose(
            "written",
            SCRATCH,
            "with open(scratch + '/big', 'wb') as file:\n"
            "    for _ in range(50 << 6):\n        file.write(bytes(1 << 24))\n",
            ("first", "later", "timed", "thread"),
            Reason.WROTE_TOO_MUCH,
        ),
        dose(
            "with a hole in it",
            SCRATCH,
            "with open(scratch + '/hole', 'wb') as file:\n    file.truncate(50 << 30)\n",
            ("import", "first"),
            Reason.WROTE_TOO_MUCH,
        ),
        dose(
            "in many pieces",
            SCRATCH,
            "for piece in range(50 << 5):\n"
            "    with open(f'{scratch}/piece-{piece}', 'wb') as file:\n        file.write(bytes(1 << 25))\n",
            ("later",),
            Reason.WROTE_TOO_MUCH,
        ),
    ),
    "inode exhaustion": (
        dose(
            "empty files without end",
            SCRATCH + "import itertools\n",
            "for number in itertools.count():\n    os.close(os.open(f'{scratch}/{number}', os.O_CREAT))\n",
            ("later",),
            Reason.HUNG,
            Reason.WROTE_TOO_MUCH,
        ),
    ),
    "shared memory exhaustion": (
        dose(
            "/dev/shm filled",
            "import os\n",
            "with open('/dev/shm/hoard', 'wb') as file:\n    file.write(bytes(1 << 24))\n",
            ("first",),
            Reason.RAISED,
        ),
        dose(
            "memory files",
            "import os\nhoard = []\n",
            "while True:\n    hoard.append(os.memfd_create('hoard'))\n    os.write(hoard[-1], bytes(1 << 24))\n",
            ("later",),
            Reason.RAISED,
        ),
    ),
    "descriptor exhaustion": (
        dose(
            "and the kernel goes on",
            "import os\nheld = []\n",
            "try:\n    while True:\n        held.append(os.dup(0))\nexcept OSError:\n    pass",
            ("import",),
            Reason.EXITED,
            surfaces=NUMPY_ONLY,
        ),
        dose(
            "until refused",
            "import os\nheld = []\n",
            "while True:\n    held.append(os.pipe())",
            ("import", "first"),
            Reason.RAISED,
        ),
    ),
    "deadlock": (
        dose(
            "a lock taken twice",
            "",
            "lock = threading.Lock()\nlock.acquire()\nlock.acquire()",
            EVER,
            Reason.HUNG,
        ),
        dose(
            "two threads, two locks",
            "import time\n",
            "a, b = threading.Lock(), threading.Lock()\n"
            "def take(first, second):\n"
            "    with first:\n        time.sleep(0.05)\n        with second:\n            pass\n"
            "lanes = [threading.Thread(target=take, args=pair) for pair in ((a, b), (b, a))]\n"
            "[lane.start() for lane in lanes]\n[lane.join() for lane in lanes]\n",
            ("later",),
            Reason.HUNG,
        ),
        dose("reads its own pipe", "import os\n", "os.read(os.pipe()[0], 1)", ("later",), Reason.HUNG),
    ),
    "endless compile": (
        dose(
            "a function of 4000 lines",
            "import numba\n",
            "def much(x):\n    " + "x = x * x + 1\n    " * 4000 + "return x\nnumba.njit(much)(1.5)\n",
            ("later",),
            Reason.HUNG,
            surfaces=NUMPY_ONLY,
        ),
    ),
    "pulls the floor away": (
        dose(
            "closes its buffers to itself",  # unmapped, the place might have been taken by somebody at once
            ADDRESS,
            "libc.mprotect(ctypes.c_void_p(address(y) & ~4095), ctypes.c_size_t(1 << 16), 0)\ny.flat[0] = 0",
            ("later", "timed"),
            Reason.CRASHED,
            surfaces=NUMPY_ONLY,
        ),
    ),
    "unkillable sleep": (
        dose(
            "with every signal blocked",
            "import signal\nimport time\n",
            "signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())\n"
            "while True:\n    time.sleep(1000)\n",
            ("later", "thread"),
            Reason.HUNG,
        ),
    ),
    "leak": (
        dose(
            "arrays",
            "import numpy as np\nkept = []\n",
            "kept.append(np.ones(1 << 19, np.uint8))",
            ("always",),
            Reason.LEAKED,
        ),
        dose(
            "memory of libc's",
            CTYPES + "libc.malloc.restype = ctypes.c_void_p\n",
            "ctypes.memset(libc.malloc(1 << 19), 1, 1 << 19)",
            ("always",),
            Reason.LEAKED,
        ),
        dose(
            "large arrays",
            "import numpy as np\nkept = []\n",
            "kept.append(np.ones(1 << 26, np.uint8))",
            ("timed",),
            Reason.OUT_OF_MEMORY,
        ),
    ),
    "double free": (
        dose(
            "of one block",
            "import ctypes\nlibc = ctypes.CDLL(None)\nlibc.malloc.restype = ctypes.c_void_p\n"
            "libc.free.argtypes = [ctypes.c_void_p]\n",
            "block = libc.malloc(64)\nlibc.free(block)\nlibc.free(block)\n",
            ("first", "timed"),
            Reason.CRASHED,
        ),
    ),
    "stack overflow": (
        dose(
            "a pattern of a million brackets",
            CTYPES,
            "libc.regcomp(ctypes.create_string_buffer(1024), b'(' * 1_000_000, 1)\n",
            ("first", "later", "thread"),
            Reason.CRASHED,
        ),
    ),
    "recursion": (dose("without end", "", "poison(x, y)", ("import", *IN_A_CALL), Reason.RAISED),),
    "kills itself": (
        dose(
            "SIGKILL",
            "import os\nimport signal\n",
            "os.kill(os.getpid(), signal.SIGKILL)",
            EVER,
            Reason.OUT_OF_MEMORY,
        ),
        dose(
            "SIGTERM",
            "import os\nimport signal\n",
            "os.kill(os.getpid(), signal.SIGTERM)\n",
            ("later",),
            Reason.CRASHED,
        ),
    ),
    "stops itself": (
        dose(
            "SIGSTOP",
            "import os\nimport signal\n",
            "os.kill(os.getpid(), signal.SIGSTOP)",
            ("import", "first", "later", "thread"),
            Reason.HUNG,
        ),
    ),
    "zombie": (
        dose(
            "its first thread leaves, another stays",
            CTYPES + "import time\n",
            "threading.Thread(target=time.sleep, args=(1000,)).start()\n"
            f"libc.syscall({60 if X86 else 93}, 0)\n",
            ("first", "later"),
            Reason.HUNG,
            Reason.EXITED,
        ),
    ),
    "alarm": (
        dose(
            "that nobody handles",
            "import signal\nimport time\n",
            "signal.setitimer(signal.ITIMER_REAL, 0.01)\ntime.sleep(0.5)",
            ("later",),
            Reason.CRASHED,
        ),
    ),
    "wrong exception": (
        dose("of a megabyte", "", "raise ValueError('x' * (1 << 20))", ("later",), Reason.RAISED),
        dose("that ends the interpreter", "", "raise GeneratorExit", ("later",), Reason.EXITED),
        dose(
            "that hangs while it is told",
            "import time\n\n\nclass Slow(Exception):\n    def __str__(self):\n        return time.sleep(1000) or ''\n",
            "raise Slow",
            ("later",),
            Reason.HUNG,
        ),
    ),
    "wrong protocol": (
        dose(
            "answers for itself, then sleeps",
            CHANNEL + "import time\n",
            'os.write(channel, b\'{"ok": true, "ns": 1}\')\ntime.sleep(1000)',
            ("later",),
            Reason.HUNG,
        ),
        dose(
            "answers twice",
            CHANNEL,
            'os.write(channel, b\'{"ok": true, "ns": 1}\')',
            ("later", "timed"),
            Reason.BROKE_PROTOCOL,
        ),
        dose(
            "no JSON",
            CHANNEL,
            "os.write(channel, b'[1, 2')",
            ("first", "later", "timed"),
            Reason.BROKE_PROTOCOL,
        ),
        dose(
            "nested too deep", CHANNEL, "os.write(channel, b'[' * 60000)", ("later",), Reason.BROKE_PROTOCOL
        ),
        dose(
            "no known answer",
            CHANNEL,
            'os.write(channel, b\'{"fault": "kept"}\')',
            ("import", "later"),
            Reason.BROKE_PROTOCOL,
        ),
        dose(
            "too long",
            CHANNEL,
            "os.write(channel, b'{\"ok\": true, \"x\": \"' + b'x' * 100000 + b'\"}')",
            ("later",),
            Reason.BROKE_PROTOCOL,
        ),
        dose("hangs up", CHANNEL, "os.close(channel)", ("later",), Reason.EXITED),
        dose("hangs up on everybody", CHANNEL, "os.closerange(0, 512)", ("first",), Reason.EXITED),
    ),
    "not finite": (
        dose("NaN", "", "y[3] = float('nan')", ("later", "timed"), Reason.NOT_FINITE),
        dose("infinity", "", "y[-1] = float('inf')", ("later",), Reason.NOT_FINITE),
    ),
    "out of bounds": (
        dose(
            "behind the output",
            ADDRESS,
            "ctypes.memset(address(y) + y.nbytes, 0, 64)",
            ("later", "timed"),
            Reason.WROTE_OUT_OF_BOUNDS,
            surfaces=NUMPY_ONLY,
        ),
        dose(
            "before the input",
            ADDRESS,
            "ctypes.memset(address(x) - 64, 0, 64)",
            ("later",),
            Reason.WROTE_OUT_OF_BOUNDS,
            surfaces=NUMPY_ONLY,
        ),
        dose("into the input", "", "x[0] += 1", ("later", "timed"), Reason.INPUTS_CHANGED),
    ),
}


BEFORE_SEAL: tuple[When, ...] = ("import", "first", "thread")
UNSEALED = frozenset({Reason.DOES_NOT_LOAD, Reason.RAISED, Reason.HUNG, Reason.BROKE_PROTOCOL})
"""A kernel for a GPU may start processes until it is sealed: a bomb of them hits the limit first, and then whichever
process of them answers first, or none."""


def host_poisons(surface: Surface) -> Iterator[Poison]:
    """Every dose at every moment it is taken at, dressed for a surface."""
    for kind, doses in KINDS.items():
        for each in doses:
            if surface in each.surfaces and not (each.setup == MACHINE_CODE and not X86):
                for when in _moments(each, surface):
                    expected = _at(when, each.expected)
                    if surface == "gpu" and kind == "fork bomb" and when in BEFORE_SEAL:
                        expected |= UNSEALED
                    yield Poison(kind, each.variant, when, expected, each.setup, each.body, surface)
    yield from _sources(surface)


def _moments(each: Dose, surface: Surface) -> tuple[When, ...]:
    """Whatever hangs costs a GPU the whole budget each time, so there it hangs in one call that has little."""
    if surface == "cpu" or each.expected != {Reason.HUNG}:
        return each.whens
    return ("later",) if "later" in each.whens else each.whens[:1]


def _at(when: When, expected: frozenset[Reason]) -> frozenset[Reason]:
    if when != "import":
        return expected
    return frozenset(Reason.DOES_NOT_LOAD if reason is Reason.RAISED else reason for reason in expected)


def _sources(surface: Surface) -> Iterator[Poison]:
    """Sources that no interpreter gets through, or that import each other."""
    from tests.poison.poison import honest_source

    honest = honest_source(surface)
    loads_not, hung = frozenset({Reason.DOES_NOT_LOAD}), frozenset({Reason.HUNG})

    def whole(kind: str, variant: str, expected: frozenset[Reason], text: str, **files: str) -> Poison:
        named = {f"{name}.py": content for name, content in files.items()}
        return Poison(kind, variant, "import", expected, "", "", surface, named, text)

    yield whole("giant source", "two megabytes", loads_not, honest + "# " + "x" * (2 << 20) + "\n")
    yield whole(
        "giant source", "brackets in brackets", loads_not, honest + "z = " + "[" * 5000 + "]" * 5000 + "\n"
    )
    yield whole(
        "giant source", "a sum of 100 000", loads_not, honest + "z = " + "+".join(["1"] * 100_000) + "\n"
    )
    yield whole("giant source", "bytes that are no text", loads_not, honest + "z = '\0'\n")
    yield whole(
        "import loop",
        "in a circle",
        loads_not,
        "from ring import link\n" + honest,
        ring="from kernel import run\nlink = run\n",
    )
    yield whole(
        "import loop",
        "waits for itself",
        hung,
        "import gate\n" + honest,
        gate="import threading\n\n\n\ndef later():\n    from gate import lane\n\n\n"
        "lane = threading.Thread(target=later)\nlane.start()\nlane.join()\n",
    )
