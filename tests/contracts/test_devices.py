"""Every device keeps the promises of hillclimb.harness.device.device.Device; device_promises.py has them."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from hillclimb.harness.judge.open_device import open_device
from tests.contracts.device_promises import PROMISES, QUIET_PROMISES

ROOT = Path(__file__).resolve().parents[2]

HAS_GPU = Path("/dev/nvidiactl").exists()
KINDS = [
    "cpu",
    "interpreter",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not HAS_GPU, reason="no NVIDIA GPU here"),
        ],
    ),
]


class Holder:
    """A process that holds a device, and what it says of it."""

    def __init__(self, kind: str, state: Path) -> None:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.contracts.device_promises", kind],
            cwd=ROOT,
            env={**environment, "XDG_STATE_HOME": str(state)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.kind, self.description = kind, self._read()

    def keep(self, promise: str) -> str | None:
        """What was broken; None where the promise was kept."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{promise}\n")
        self._process.stdin.flush()
        return self._read()

    def end(self) -> int:
        """Its exit status."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.close()
        status = self._process.wait(60)
        self._process.stdout.close()
        return status

    def _read(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, f"the process that held it ended with status {self._process.wait(60)}"
        return json.loads(line)


@pytest.fixture
def hold(tmp_path: Path) -> Iterator[Callable[[str], Holder]]:
    """Opens the device of a kind; ended, and so given back, with the test."""
    with ExitStack() as stack:

        def opened(kind: str) -> Holder:
            holder = Holder(kind, tmp_path / "state")
            stack.callback(holder.end)
            return holder

        yield opened


@pytest.mark.clock
@pytest.mark.slow(10)
@pytest.mark.parametrize("kind", KINDS)
def test_it_keeps_every_promise_and_is_the_same_when_it_is_opened_again(
    kind: str, hold: Callable[[str], Holder]
) -> None:
    """All in one test, since it is the opening that takes the time."""
    holder = hold(kind)
    broken = {promise: trouble for promise in PROMISES if (trouble := holder.keep(promise))}
    assert broken == {}, "\n\n".join(broken.values())
    assert "KeyError: 'no_such_promise'" in str(holder.keep("no_such_promise")), "it would tell"
    assert holder.end() == 0
    assert hold(kind).description == holder.description


@pytest.mark.clock
@pytest.mark.slow(6)
@pytest.mark.parametrize("kind", KINDS)
def test_nothing_disturbs_where_nothing_happens(kind: str, hold: Callable[[str], Holder]) -> None:
    for promise in QUIET_PROMISES:
        trouble = hold(kind).keep(promise)
        assert trouble is None, trouble


@pytest.mark.slow(2)
@pytest.mark.parametrize("kind", ["cpu", "interpreter"])
def test_nobody_else_does_more_than_all_cpus_can(kind: typing.Literal["cpu", "interpreter"]) -> None:
    device = open_device(kind)
    most = max(device.environment_since(device.read_state(), 0.0).others for _ in range(5000))
    assert most <= (os.cpu_count() or 1)


def test_no_kind_and_no_implementation_is_left_out() -> None:
    """Read off the syntax: a class that knows a floor, or is made out of one that does, is a device."""
    kinds = {getattr(kind, "values", (kind,))[0] for kind in KINDS}
    assert set(typing.get_args(typing.get_type_hints(open_device)["kind"])) == kinds
    devices: set[str] = set()
    for path in sorted((ROOT / "harness/device").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and "Protocol" not in map(ast.unparse, node.bases):
                methods = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
                if "floor_seconds" in methods or devices & set(map(ast.unparse, node.bases)):
                    devices.add(node.name)
    assert len(devices) == len(kinds), devices
