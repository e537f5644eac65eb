"""Processes that misbehave are named as what they are, by every rung. Kernels that cheat are in tests/cheats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.device.cpu.cpu import CpuDevice
from hillclimb.harness.duel.gated_problems import NEIGHBOURS
from hillclimb.harness.errors import SandboxError
from hillclimb.harness.judge.gate import LEAK_ROUNDS
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.records import GateReport, Reason, Side
from hillclimb.harness.sandbox.rungs.choose import Rung, bubblewrap_rung, choose_rung, landlock_rung
from tests.fakes.cases import HONEST, SETTINGS, write_case, write_workspace

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
    "leaves politely": (Reason.EXITED, "import sys\ndef run(x, y):\n    sys.exit(0)\n"),
    "leaves at import": (Reason.EXITED, "import os\nos._exit(0)\n"),
    "allocates without bound": (
        Reason.OUT_OF_MEMORY,
        "import numpy as np\ndef run(x, y):\n    np.ones(1 << 34, np.uint8)\n",
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
    "answers nonsense": (
        Reason.BROKE_PROTOCOL,
        "import sys, os\ndef run(x, y):\n    os.write(int(sys.argv[1]), b'[1, 2')\n",
    ),
    "answers a made-up fault": (
        Reason.BROKE_PROTOCOL,
        'import sys, os\ndef run(x, y):\n    os.write(int(sys.argv[1]), b\'{"fault": "kept"}\')\n',
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
        "import mmap\nimport numpy as np\nheld = []\ndef run(x, y):\n    y[:] = 2 * x + 1\n    if not held:\n"
        "        held.append(mmap.mmap(-1, 560 << 20))\n"
        "        np.frombuffer(held[0], np.uint8)[::4096] = 1\n",
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
}

RUNGS: dict[str, Callable[[], Rung]] = {"bubblewrap": bubblewrap_rung, "landlock": landlock_rung}


HANGING = frozenset(name for name, (reason, _) in HOSTILE.items() if reason is Reason.HUNG)
"""Waited for to the end of their budget, which is why they are given a small one."""

UNDER_EITHER = (
    "segfaults",
    "forks",
    "fork-bombs",
    "runs a program",
    "leaves at import",
    "allocates without bound",
)
"""What the border has a part in; all else is called by the judge what it is, under whatever rung."""

SLOW = [f"landlock-{name}" for name in HOSTILE if name not in UNDER_EITHER] + [
    "bubblewrap-spins with threads",
    "bubblewrap-hangs at import",
    # as in tests/poison
    "bubblewrap-hangs in a call",
    "bubblewrap-aborts",
    "bubblewrap-leaves politely",
]


BUDGET, PATIENT, HASTY = (
    f"prepare_seconds: {prepare}, call_seconds: {call}" for prepare, call in ((5, 2), (30, 10), (3, 0.5))
)


class Gates:
    """The judge of one rung over the small case, and another with less patience."""

    def __init__(self, root: Path, rung: Rung) -> None:
        self._root = root
        cases = [
            Case(write_case(root / name, settings=SETTINGS.replace(BUDGET, budget)))
            for name, budget in (("patient", PATIENT), ("hasty", HASTY))
        ]
        self._patient, self._hasty = (CaseJudge(case, rung, CpuDevice()) for case in cases)

    def judge(self, name: str, kernel: str) -> GateReport:
        workspace = write_workspace(self._root / name.replace(" ", "-") / "workspace", kernel)
        judge = self._hasty if name in HANGING else self._patient
        return judge.gate(Side(tree=str(workspace)), lambda progress: None)


@pytest.fixture(params=RUNGS, scope="module")
def gates(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Gates:
    try:
        rung = RUNGS[request.param]()
    except SandboxError as error:
        pytest.skip(f"{request.param} does not run here: {error}")
    root = tmp_path_factory.mktemp("hostile")
    root.chmod(0o755)
    return Gates(root, rung)


@pytest.mark.slow(5, only=SLOW)
@pytest.mark.parametrize("name", HOSTILE)
def test_misbehaviour_is_named(gates: Gates, name: str, request: pytest.FixtureRequest) -> None:
    reason, kernel = HOSTILE[name]
    if reason != Reason.POLICY:
        request.getfixturevalue("unread")
    report = gates.judge(name, kernel)
    assert (report.passed, report.reason) == (False, reason), report.detail
    assert report.detail


def test_an_honest_kernel_passes(gates: Gates) -> None:
    report = gates.judge("honest", HONEST)
    assert report.passed, f"{report.reason}: {report.detail}"
    assert report.runs == 12 + 4 * NEIGHBOURS
    assert 0 < report.worst <= 1


class Shrinking(CpuDevice):
    """A GPU, as far as its memory goes: 100 GiB are spare, and less while a candidate has made its calls and lives."""

    def __init__(self, left: int) -> None:
        super().__init__()
        self._spare = [gib << 30 for gib in (100, *[left] * (LEAK_ROUNDS + 1), 100)]

    def available_bytes(self) -> int:
        return self._spare.pop(0)


@pytest.mark.parametrize(("left", "reason"), [(60, None), (40, Reason.OUT_OF_MEMORY)])
def test_a_candidate_keeps_no_more_than_half_of_a_gpu(
    tmp_path: Path, left: int, reason: Reason | None
) -> None:
    tmp_path.chmod(0o755)
    side = Side(tree=str(write_workspace(tmp_path / "candidate" / "workspace", HONEST)))
    judge = CaseJudge(
        Case(write_case(tmp_path / "case")), choose_rung(trust_workspace=False), Shrinking(left)
    )
    report = judge.gate(side, lambda progress: None)
    judge.close()
    assert report.reason is reason
    assert ("60 of the GPU's 100 GiB" in report.detail) == (reason is not None)
