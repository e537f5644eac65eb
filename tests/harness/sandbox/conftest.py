from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.harness.errors import SandboxError
from hillclimb.harness.sandbox.fork.prefork import PreforkRung
from hillclimb.harness.sandbox.rungs.choose import Rung, bubblewrap_rung, landlock_rung, trusted_rung
from tests.harness.sandbox.inside import Start

MAKERS = {
    "bubblewrap": bubblewrap_rung,
    "landlock": landlock_rung,
    "forked-bubblewrap": bubblewrap_rung,
    "forked-landlock": landlock_rung,
    "none": trusted_rung,
    "forked-none": trusted_rung,
}


RUNGS = [
    pytest.param(name, marks=[] if name.endswith("bubblewrap") else [pytest.mark.slow(1)]) for name in MAKERS
]
"""Landlock is for machines without user namespaces; its walls are tested one by one in tests/escapes."""


@pytest.fixture(params=RUNGS, scope="module")
def rung(request: pytest.FixtureRequest) -> Iterator[Rung]:
    """Each real rung in turn, whose candidates are fresh or forked; skipped where the machine lacks it."""
    try:
        made = MAKERS[request.param]()
    except SandboxError as error:
        pytest.skip(str(error))
    if not request.param.startswith("forked"):
        yield made
        return
    threads = {"NUMBA_NUM_THREADS": "2"}
    with PreforkRung(
        made, ["numba", "numpy", "hillclimb.harness.sandbox.canary.escapes"], threads
    ) as forking:
        yield forking


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A materialised tree."""
    made = tmp_path / "workspace"
    made.mkdir()
    (made / "kernel.py").write_text("ANSWER = 42\n")
    return made


@pytest.fixture
def start(rung: Rung, workspace: Path) -> Iterator[Start]:
    """Starts Python inside the rung."""
    starter = Start(rung, workspace)
    yield starter
    starter.end_all()
