"""Candidates that misbehave are named as what they are, by every rung; tricky honest ones pass."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from harness.case.case import Case
from harness.device.cpu import Cpu
from harness.errors import SandboxError
from harness.judge.judge import CaseJudge
from harness.records import GateReport, Reason, Side
from harness.sandbox.rungs import Rung, bubblewrap_rung, landlock_rung
from tests.fakes.cases import HONEST, write_case, write_workspace

HOSTILE: dict[str, tuple[Reason, str]] = {
    "hangs in a call": (Reason.HUNG, "import time\ndef run(x, y):\n    time.sleep(60)\n"),
    "hangs at import": (Reason.HUNG, "while True: pass\n"),
    "spins with threads": (
        Reason.HUNG,
        "import threading\n"
        "def spin():\n    while True: pass\n"
        "def run(x, y):\n"
        "    ts = [threading.Thread(target=spin) for _ in range(3)]\n"
        "    [t.start() for t in ts]\n    [t.join() for t in ts]\n",
    ),
    "raises at import": (Reason.DOES_NOT_LOAD, "raise RuntimeError('no')\n"),
    "has no entry": (Reason.DOES_NOT_LOAD, "def walk(x, y): pass\n"),
    "imports what is not there": (Reason.POLICY, "import antigravity_engine\n"),
    "raises in a call": (Reason.RAISED, "def run(x, y):\n    raise ValueError('bad tile')\n"),
    "segfaults": (Reason.CRASHED, "import ctypes\ndef run(x, y):\n    ctypes.string_at(0)\n"),
    "aborts": (Reason.CRASHED, "import os\ndef run(x, y):\n    os.abort()\n"),
    "leaves with status 0": (Reason.EXITED, "import os\ndef run(x, y):\n    os._exit(0)\n"),
    "leaves politely": (Reason.EXITED, "import sys\ndef run(x, y):\n    sys.exit(0)\n"),
    "leaves at import": (Reason.EXITED, "import os\nos._exit(0)\n"),
    "allocates without bound": (
        Reason.OUT_OF_MEMORY,
        "import numpy as np\ndef run(x, y):\n    np.ones(1 << 34, np.uint8)\n",
    ),
    "leaks": (
        Reason.LEAKED,
        "import numpy as np\nkept = []\n" + HONEST + "    kept.append(np.ones(1 << 19, np.uint8))\n",
    ),
    "floods stdout": (Reason.FLOODED_OUTPUT, "def run(x, y):\n    while True: print('x' * 1000)\n"),
    "forks": (Reason.STARTED_PROCESS, "import os\ndef run(x, y):\n    os.fork()\n"),
    "fork-bombs": (Reason.STARTED_PROCESS, "import os\nwhile True: os.fork()\n"),
    "runs a program": (
        Reason.STARTED_PROCESS,
        "import subprocess\ndef run(x, y):\n    subprocess.run(['/bin/true'])\n",
    ),
    "replaces itself": (
        Reason.STARTED_PROCESS,
        "import os\ndef run(x, y):\n    os.execv('/bin/true', ['true'])\n",
    ),
    "writes a huge file": (
        Reason.WROTE_TOO_MUCH,
        "import os\ndef run(x, y):\n    with open(os.environ['TMPDIR'] + '/big', 'wb') as f:\n"
        "        while True: f.write(bytes(1 << 24))\n",
    ),
    "answers for itself": (
        Reason.OUTPUT_NOT_WRITTEN,
        "import sys, socket\n"
        "end = socket.socket(fileno=int(sys.argv[1]))\n"
        'def run(x, y):\n    end.send(b\'{"ok": true, "ns": 1}\')\n    end.recv(65536)\n',
    ),
    "answers nonsense": (
        Reason.BROKE_PROTOCOL,
        "import sys, os\ndef run(x, y):\n    os.write(int(sys.argv[1]), b'[1, 2')\n",
    ),
    "answers a made-up fault": (
        Reason.BROKE_PROTOCOL,
        'import sys, os\ndef run(x, y):\n    os.write(int(sys.argv[1]), b\'{"fault": "kept"}\')\n',
    ),
    "sets a timer to wake itself": (
        Reason.RAISED,
        "import ctypes, os\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        "def run(x, y):\n    event, timer = (ctypes.c_int * 16)(), ctypes.c_int()\n"
        "    event[2] = 18\n"
        "    if libc.timer_create(1, event, ctypes.byref(timer)):\n"
        "        raise OSError(ctypes.get_errno(), 'refused')\n    y[:] = 2 * x + 1\n",
    ),
    "dies of a signal without a name": (
        Reason.CRASHED,
        "import os\ndef run(x, y):\n    os.kill(os.getpid(), 40)\n",
    ),
    "raises what cannot be written down": (
        Reason.RAISED,
        "def run(x, y):\n    raise ValueError('\\ud800')\n",
    ),
    "holds shared memory beyond its limit": (
        Reason.OUT_OF_MEMORY,
        "import mmap\nheld = []\ndef run(x, y):\n    y[:] = 2 * x + 1\n    if not held:\n"
        "        held.append(mmap.mmap(-1, 700 << 20))\n"
        "        for i in range(0, 700 << 20, 4096): held[0][i] = 1\n",
    ),
    "speaks unasked": (
        Reason.BROKE_PROTOCOL,
        "import sys, os\ndef run(x, y):\n    y[:] = 2 * x + 1\n"
        '    os.write(int(sys.argv[1]), b\'{"ok": true, "ns": 1}\')\n',
    ),
    "closes the channel": (
        Reason.EXITED,
        "import sys, os\ndef run(x, y):\n    os.close(int(sys.argv[1]))\n",
    ),
    "writes zeros": (Reason.WRONG_RESULT, "def run(x, y):\n    y[:] = 0\n"),
    "writes nothing": (Reason.OUTPUT_NOT_WRITTEN, "def run(x, y):\n    pass\n"),
    "writes a part": (Reason.OUTPUT_NOT_WRITTEN, "def run(x, y):\n    y[:-1] = 2 * x[:-1] + 1\n"),
    "writes NaN": (
        Reason.NOT_FINITE,
        "import numpy as np\ndef run(x, y):\n    y[:] = 2 * x + 1\n    y[3] = np.nan\n",
    ),
    "computes in half precision": (
        Reason.WRONG_RESULT,
        "import numpy as np\ndef run(x, y):\n    y[:] = 2 * x.astype(np.float16) + np.float16(1)\n",
    ),
    "is right for small sizes only": (
        Reason.WRONG_RESULT,
        "def run(x, y):\n    y[:] = 2 * x + 1\n    y[1000:] = 0\n",
    ),
    "changes its inputs": (Reason.INPUTS_CHANGED, "def run(x, y):\n    y[:] = 2 * x + 1\n    x[0] += 1\n"),
    "writes out of bounds": (
        Reason.WROTE_OUT_OF_BOUNDS,
        "import ctypes\ndef run(x, y):\n    y[:] = 2 * x + 1\n"
        "    ctypes.memset(y.ctypes.data + y.nbytes, 0, 64)\n",
    ),
    "caches by pointer": (
        Reason.WRONG_RESULT,
        "seen = {}\ndef run(x, y):\n"
        "    key = (x.ctypes.data, x.size)\n"
        "    if key not in seen: seen[key] = 2 * x + 1\n    y[:] = seen[key]\n",
    ),
    "repeats its last answer": (
        Reason.WRONG_RESULT,
        "last = {}\ndef run(x, y):\n    y[:] = last.get(x.size, 2 * x + 1)\n    last[x.size] = 2 * x + 1\n",
    ),
}

TRICKY = {
    "plain": HONEST,
    "joins its threads": "import threading\ndef half(x, y, s):\n    y[s] = 2 * x[s] + 1\n"
    "def run(x, y):\n    n = x.size // 2\n"
    "    ts = [threading.Thread(target=half, args=(x, y, s)) for s in (slice(0, n), slice(n, None))]\n"
    "    [t.start() for t in ts]\n    [t.join() for t in ts]\n",
    "reuses a workspace of its own": "import numpy as np\nbuffers = {}\ndef run(x, y):\n"
    "    t = buffers.setdefault(x.size, np.empty_like(x))\n    np.multiply(x, 2, out=t)\n    np.add(t, 1, out=y)\n",
    "specialises on each shape": "made = {}\ndef make(n):\n    def go(x, y): y[:n] = 2 * x + 1\n    return go\n"
    "def run(x, y):\n    made.setdefault(x.size, make(x.size))(x, y)\n",
    "prints a little": "print('loaded')\n" + HONEST,
    "catches its own errors": "def run(x, y):\n    try:\n        raise ValueError\n"
    "    except ValueError:\n        y[:] = 2 * x + 1\n",
}

RUNGS: dict[str, Callable[[], Rung]] = {"bubblewrap": bubblewrap_rung, "landlock": landlock_rung}


@pytest.fixture(params=RUNGS)
def rung(request: pytest.FixtureRequest) -> Rung:
    try:
        return RUNGS[request.param]()
    except SandboxError as error:
        pytest.skip(f"{request.param} does not run here: {error}")


def _gate(tmp_path: Path, rung: Rung, kernel: str) -> GateReport:
    tmp_path.chmod(0o755)
    judge = CaseJudge(Case(write_case(tmp_path)), rung, Cpu())
    workspace = write_workspace(tmp_path / "candidate" / "workspace", kernel)
    return judge.gate(Side(tree=str(workspace)), lambda progress: None)


@pytest.mark.parametrize("name", HOSTILE)
def test_misbehaviour_is_named(tmp_path: Path, rung: Rung, name: str, request: pytest.FixtureRequest) -> None:
    reason, kernel = HOSTILE[name]
    if reason != Reason.POLICY:
        request.getfixturevalue("unread")
    report = _gate(tmp_path, rung, kernel)
    assert (report.passed, report.reason) == (False, reason), report.detail
    assert report.detail


@pytest.mark.parametrize("name", TRICKY)
def test_tricky_honest_kernels_pass(tmp_path: Path, rung: Rung, name: str) -> None:
    report = _gate(tmp_path, rung, TRICKY[name])
    assert report.passed, f"{report.reason}: {report.detail}"
    assert report.runs == 12
    assert 0 < report.worst <= 1
