"""Tests here need an NVIDIA GPU; without one they are skipped, and say so. Run them alone: `pytest tests/gpu -n 0`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.harness.errors import SandboxError
from hillclimb.harness.sandbox.rungs.choose import (
    ForkableRung,
    PreforkRung,
    Rung,
    bubblewrap_rung,
    landlock_rung,
    prefork_rung,
)
from tests.gpu.inside import WithGpu, nodes

MODULES = ("torch", "triton", "triton.language")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if not Path("/dev/nvidiactl").exists():
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here (/dev/nvidiactl is missing)"))


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def plain(request: pytest.FixtureRequest) -> ForkableRung:
    try:
        return {"bubblewrap": bubblewrap_rung, "landlock": landlock_rung}[request.param]()
    except SandboxError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def forking(plain: ForkableRung) -> Iterator[PreforkRung]:
    """A zygote with torch and triton, canary-checked with the device nodes granted."""
    with prefork_rung(plain, MODULES, {}, nodes()) as made:
        yield made


@pytest.fixture(params=["fresh", "forked"])
def rung(request: pytest.FixtureRequest, plain: ForkableRung, forking: PreforkRung) -> Rung:
    return forking if request.param == "forked" else plain


@pytest.fixture
def start(rung: Rung, tmp_path: Path) -> Iterator[WithGpu]:
    (tmp_path / "workspace").mkdir()
    starter = WithGpu(rung, tmp_path / "workspace")
    yield starter
    starter.end_all()
