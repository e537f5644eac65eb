from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import SandboxError
from harness.sandbox.prefork import Prefork
from harness.sandbox.rungs import Forkable, bubblewrap_rung, landlock_rung
from tests.harness.sandbox.inside import Start

MAKERS = {"bubblewrap": bubblewrap_rung, "landlock": landlock_rung}
WAYS = [f"{how}-{name}" for name in MAKERS for how in ("fresh", "forked")]


@pytest.fixture(scope="module", params=WAYS)
def rung(request: pytest.FixtureRequest) -> Iterator[Forkable]:
    """Each real rung in turn, started afresh and forked; skipped where the machine lacks it."""
    how, _, name = request.param.partition("-")
    try:
        made = MAKERS[name]()
    except SandboxError as error:
        pytest.skip(str(error))
    if how == "fresh":
        yield made
        return
    with Prefork(made, ["harness.sandbox.escapes"]) as forking:
        yield forking


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A materialised tree."""
    made = tmp_path / "workspace"
    made.mkdir()
    (made / "kernel.py").write_text("ANSWER = 42\n")
    return made


@pytest.fixture
def start(rung: Forkable, workspace: Path) -> Iterator[Start]:
    """Starts Python inside the rung."""
    starter = Start(rung, workspace)
    yield starter
    starter.end_all()
