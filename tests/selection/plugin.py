"""The pytest plugin: leaves slow tests out, keeps apart what needs the machine for itself, and says so at the end.

    --all              slow tests as well
    --draw COMMIT      leave out the slow ones but for those that this commit draws; HEAD where nothing is said
    --alone never      no test marked `clock`;  --alone only: no other
    --until SECONDS    begin no test after so many

A test named on the command line (tests/a.py::test_b) always runs. A test marked `clock` that fails is run once more,
and both outcomes stand in the closing lines.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.selection.draw import (
    SECONDS_DRAWN,
    SECONDS_DRAWN_ALONE,
    check_names,
    commit_here,
    draw,
    seconds_of,
)

TOLD = pytest.StashKey[dict[str, Any]]()
"""What was left out and what was drawn: a worker of xdist tells its controller."""

BEGAN = "HILLCLIMB_TESTS_BEGAN"
"""When the run began, in seconds of the monotonic clock: the controller tells its workers."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("selection")
    group.addoption("--all", action="store_true", help="run slow tests as well")
    group.addoption("--draw", metavar="COMMIT", help="the slow tests that this commit draws (default: HEAD)")
    group.addoption("--alone", choices=["never", "only"], help="leave out tests marked clock, or all others")
    group.addoption("--until", type=float, metavar="SECONDS", help="begin no test after so many")


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        os.environ[BEGAN] = str(time.monotonic())


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """A module without the marker is not imported where no other test runs."""
    if config.getoption("--alone") == "only" and collection_path.suffix == ".py":
        return "mark.clock" not in collection_path.read_text() or None
    return None


def pytest_runtest_setup(item: pytest.Item) -> None:
    until = item.config.getoption("--until")
    if until is not None and time.monotonic() > float(os.environ[BEGAN]) + until:
        pytest.skip(f"the {until:.0f} seconds are over; ./scripts/test runs it")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    named = any("::" in argument for argument in config.args)
    if not named:
        check_names(items)
    alone = config.getoption("--alone")
    if alone:
        _deselect(config, items, [i for i in items if _is_clock(i) != (alone == "only")])
    _leave_out_slow(config, items, everything=named or config.getoption("--all"))
    for item in items:
        if _is_clock(item):
            item.add_marker(pytest.mark.flaky(reruns=1))


def _is_clock(item: pytest.Item) -> bool:
    return item.get_closest_marker("clock") is not None


def _leave_out_slow(config: pytest.Config, items: list[pytest.Item], everything: bool) -> None:
    slow = {item: seconds for item in items if (seconds := seconds_of(item)) is not None}
    if everything or not slow:
        return
    commit = config.getoption("--draw") or commit_here(config.rootpath)
    seconds = SECONDS_DRAWN_ALONE if config.getoption("--alone") == "only" else SECONDS_DRAWN
    drawn = draw(((item.nodeid, needed) for item, needed in slow.items()), commit, seconds)
    left_out = [item for item in slow if item.nodeid not in drawn]
    _deselect(config, items, left_out)
    told = {"commit": commit, "left_out": len(left_out), "drawn": sorted(drawn)}
    config.stash[TOLD] = told
    if hasattr(config, "workeroutput"):
        config.workeroutput["slow"] = told


def _deselect(config: pytest.Config, items: list[pytest.Item], out: list[pytest.Item]) -> None:
    if out:
        config.hook.pytest_deselected(items=out)
        gone = set(out)
        items[:] = [item for item in items if item not in gone]


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """xdist: a worker has ended."""
    told = getattr(node, "workeroutput", {}).get("slow")
    if told:
        node.config.stash[TOLD] = told


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    told = config.stash.get(TOLD, None)
    if told:
        many = f"{told['left_out']} left out, {len(told['drawn'])} drawn by {told['commit']}"
        terminalreporter.write_line(f"slow tests: {many}; ./scripts/test --all runs them all")
        for name in told["drawn"]:
            terminalreporter.write_line(f"    {name}")
        terminalreporter.write_line(f"    this draw again: ./scripts/test --draw {told['commit']} -m slow")
    for line in sorted(_second_tries(terminalreporter.stats)):
        terminalreporter.write_line(line)


def _second_tries(stats: dict[str, list[Any]]) -> Iterator[str]:
    failed = {report.nodeid for kind in ("failed", "error") for report in stats.get(kind, [])}
    for report in stats.get("rerun", []):
        outcome = "failed again" if report.nodeid in failed else "passed"
        yield f"clock: {report.nodeid} failed, then {outcome}; mend it with the next change: {_why(report)}"


def _why(report: pytest.TestReport) -> str:
    """What a failed test said, on one line."""
    said = str(getattr(getattr(report.longrepr, "reprcrash", None), "message", report.longrepr))
    return " ".join(said.split())[:300]
