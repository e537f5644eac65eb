from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import SandboxError
from harness.sandbox.rungs import Rung, bubblewrap_rung, landlock_rung
from tests.harness.sandbox.inside import Start


@pytest.fixture(params=[bubblewrap_rung, landlock_rung], ids=["bubblewrap", "landlock"])
def rung(request: pytest.FixtureRequest) -> Rung:
    """Each real rung in turn; skipped where the machine lacks it."""
    try:
        made: Rung = request.param()
    except SandboxError as error:
        pytest.skip(str(error))
    return made


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
