"""What every test is run under."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import settings

pytest_plugins = ["tests.selection.plugin"]

os.environ.setdefault("OMP_NUM_THREADS", "1")
"""Threads of torch spin while they wait for the next operation: beside others some tests took five times as long."""

# a deadline says nothing of one example on a shared machine; a plain run tries the same examples every time
settings.register_profile("plain", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("all", deadline=None, max_examples=200)

os.environ.setdefault("GIT_TEMPLATE_DIR", "")
"""A fifth of all files that the tests made were git's samples of hooks."""

MAX_NAME_CHARS = 100
"""Characters of a parameter in a test's name, which every worker is told and every process finds in its environment."""

BESIDE_THE_CORES = 1
"""Workers more than there are cores: tests wait for processes now and then. Each costs 10 s before its first test."""


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()  # what collecting the tests makes stays
    settings.load_profile("all" if config.getoption("--all") else "plain")


def pytest_collection_finish() -> None:
    gc.freeze()  # or each full collection would walk torch and 6,000 tests: a tenth of the processor's time
    gc.enable()


def pytest_xdist_auto_num_workers() -> int:
    return len(os.sched_getaffinity(0)) + BESIDE_THE_CORES


def pytest_make_parametrize_id(val: object) -> str | None:
    if isinstance(val, str | bytes) and len(val) > MAX_NAME_CHARS:
        return f"{val[:60]!a} and {len(val) - 60} more"
    return None


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A snapshot of a model, as the script makes it."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    script = Path(__file__).resolve().parents[1] / "scripts" / "make_tiny_model.py"
    done = subprocess.run([sys.executable, script, folder], capture_output=True, text=True, check=True)
    assert "million parameters" in done.stdout
    return folder


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a job put into the background by a script inherits that, and so would the programs that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(tryfirst=True)  # xdist puts the group into the name
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        keep_together(item)


def keep_together(item: pytest.Item) -> None:
    """A module whose fixtures start judges or sandboxes runs on one worker, or every worker would start its own."""
    if item.get_closest_marker("xdist_group"):
        return
    scopes = {
        fixture.scope
        for fixtures in getattr(item, "_fixtureinfo").name2fixturedefs.values()  # noqa: B009 - not in the types
        for fixture in fixtures
        if fixture.baseid.startswith("tests")
    }
    if scopes & {"module", "package", "session"}:
        item.add_marker(pytest.mark.xdist_group(item.path.stem))
