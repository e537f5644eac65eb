"""A machine that lacks something the border needs: another rung is taken that holds, or nothing runs at all.

What is missing is really missing: a filter refuses the kernel's call to the judge and to all that it starts, or
bubblewrap is another program.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from hillclimb.harness.errors import SandboxError
from hillclimb.harness.sandbox.canary import canary
from hillclimb.harness.sandbox.kernel import landlock
from hillclimb.harness.sandbox.rungs import bubblewrap
from hillclimb.harness.sandbox.rungs.landlock import MIN_ABI, MIN_ABI_AS_ROOT
from tests.escapes.conftest import MAKERS
from tests.fakes.cases import write_case

JUDGE = """
import json, os, sys, threading
from pathlib import Path
from hillclimb.harness.errors import HillclimbError
from hillclimb.harness.sandbox.kernel import seccomp, syscalls
from hillclimb.harness.sandbox.fork.listener import RESPONSE, SEND, SeccompListener
from hillclimb.harness.sandbox.kernel.seccomp import Action, Rule, ArgumentTest

def answer_for_the_kernel(listener, value):
    while True:
        asked = listener._receive()
        if asked is not None:
            listener._control(SEND, bytearray(RESPONSE.pack(asked, value, 0, 0)))

UNNAMED = {"capset": (126, 91), "setgroups": (116, 159), "setresuid": (117, 147), "setrlimit": (160, 164)}
syscalls.TABLE = {**syscalls.TABLE, **UNNAMED}
told = json.loads(sys.argv[1])
rules = [
    Rule(call, Action[action], ArgumentTest(*when) if when else None) for call, action, when in told["calls"]
]
if told["landlock"] is None:
    seccomp.load_filter(seccomp.assemble(rules, syscalls.machine()))
else:
    rules.append(Rule("landlock_create_ruleset", Action.ASK, ArgumentTest(2, "is", 1)))
    listeners = []
    ready, handed = threading.Event(), threading.Event()
    def serve():
        handed.wait()
        answer_for_the_kernel(listeners[0], told["landlock"])
    threading.Thread(target=serve, daemon=True).start()
    program = seccomp.assemble(rules, syscalls.machine())
    listeners.append(SeccompListener(seccomp.load_filter(program, seccomp.WITH_LISTENER)))
    handed.set()

said = {}
try:
    if told["case"]:
        from hillclimb.harness.case.case import Case
        from hillclimb.harness.judge.__main__ import open_judge
        open_judge(Case(Path(told["case"])), False).close()
    from hillclimb.harness.sandbox.rungs.choose import choose_rung, prefork_rung
    rung = choose_rung(trust_workspace=told["trusted"])
    said["chosen"] = rung.name
    prefork_rung(rung, [], {}).close()
    said["forked"] = True
except HillclimbError as error:
    said["refused"] = f"{type(error).__name__}: {error}"
print(json.dumps(said), flush=True)
os._exit(0)
"""

Call = tuple[str, str, tuple[int, str, int] | None]
LANDLOCK_CALLS = ("landlock_create_ruleset", "landlock_add_rule", "landlock_restrict_self")


@dataclass(frozen=True)
class Machine:
    """What a machine lacks."""

    calls: tuple[Call, ...] = ()
    landlock: int | None = None
    """The version that the kernel claims."""
    path: Path | None = None
    """Folder with another bubblewrap in it."""

    def judge(self, case: Path | None = None, *, trusted: bool = False) -> dict[str, object]:
        """What a judge there comes to: `chosen`, `forked`, `refused`."""
        told = {
            "calls": self.calls,
            "landlock": self.landlock,
            "case": case and str(case),
            "trusted": trusted,
        }
        path = f"{self.path}:{os.environ['PATH']}" if self.path else os.environ["PATH"]
        done = subprocess.run(
            [sys.executable, "-c", JUDGE, json.dumps(told)],
            env={**os.environ, "PATH": path},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        said: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
        return said


def refusing(*calls: str, action: str = "REFUSE") -> tuple[Call, ...]:
    return tuple((call, action, None) for call in calls)


def other_bubblewrap(folder: Path, dropped: Iterable[str]) -> Path:
    """A bwrap that overlooks some of its options, which take no arguments."""
    real = shutil.which("bwrap")
    if real is None:
        pytest.skip("bwrap is not installed")
    folder.mkdir()
    tests = "|".join(f'"{option}"' for option in dropped)
    (folder / "bwrap").write_text(
        f"#!/bin/sh\nkept=\nfor word do\n  shift\n"
        f'  case $word in {tests}) ;; *) set -- "$@" "$word" ;; esac\ndone\nexec {real} "$@"\n'
    )
    (folder / "bwrap").chmod(0o755)
    return folder


NEW_NAMESPACES: tuple[Call, ...] = (
    ("unshare", "REFUSE", None),
    ("clone", "REFUSE", (0, "has", 0x7E020000)),
    ("clone3", "UNKNOWN", None),
)
NO_NEW_PRIVILEGES: Call = ("prctl", "REFUSE", (0, "is", 38))
SET_LIMIT: Call = ("prlimit64", "REFUSE", (2, "is not", 0))
FILTER_BY_PRCTL: Call = ("prctl", "REFUSE", (0, "is", 22))

BUBBLEWRAP, LANDLOCK = frozenset({"bubblewrap"}), frozenset({"landlock"})
BOTH = BUBBLEWRAP | LANDLOCK
AS_ROOT = frozenset({"landlock"} if os.geteuid() == 0 else ())


@dataclass(frozen=True)
class Lack:
    """What is refused, the rungs that cannot do without it, and those whose forks cannot."""

    calls: tuple[Call, ...]
    fresh: frozenset[str]
    forked: frozenset[str] = frozenset()


MISSING = {
    "user namespaces": Lack(NEW_NAMESPACES, BUBBLEWRAP),
    "mounting": Lack(refusing("mount"), BUBBLEWRAP),
    "another root folder": Lack(refusing("pivot_root"), BUBBLEWRAP),
    "a filter, for bubblewrap": Lack((FILTER_BY_PRCTL,), BUBBLEWRAP),
    "a filter, for others": Lack(refusing("seccomp"), LANDLOCK, BOTH),
    "filters": Lack((*refusing("seccomp"), FILTER_BY_PRCTL), BOTH),
    "giving up privileges": Lack((NO_NEW_PRIVILEGES,), BOTH),
    "giving up capabilities": Lack(refusing("capset"), AS_ROOT, BUBBLEWRAP),
    "another user": Lack((*NEW_NAMESPACES, *refusing("setresuid")), BUBBLEWRAP | AS_ROOT),
    "leaving groups": Lack((*NEW_NAMESPACES, *refusing("setgroups")), BUBBLEWRAP | AS_ROOT),
    "limits": Lack((SET_LIMIT, *refusing("setrlimit")), BOTH),
    "handles of processes": Lack(refusing("pidfd_open"), BOTH),
    "joining namespaces": Lack(refusing("setns"), frozenset(), BUBBLEWRAP),
    "Landlock": Lack(refusing(*LANDLOCK_CALLS, action="UNKNOWN"), LANDLOCK),
    "Landlock's rules": Lack((*NEW_NAMESPACES, *refusing("landlock_add_rule")), BOTH),
    "Landlock's restriction": Lack((*NEW_NAMESPACES, *refusing("landlock_restrict_self")), BOTH),
}


@pytest.fixture(scope="module")
def available() -> list[str]:
    """The rungs of this machine as it is, strongest first."""
    found = []
    for name, make in MAKERS.items():
        with suppress(SandboxError):
            if not canary.escapes_from(make()):
                found.append(name)
    return found


@pytest.mark.slow(1, but=["user namespaces", "a filter, for others", "Landlock", "another user"])
@pytest.mark.parametrize("feature", MISSING)
def test_a_feature_that_is_missing_costs_the_rungs_that_need_it(feature: str, available: list[str]) -> None:
    lack = MISSING[feature]
    left = [name for name in available if name not in lack.fresh]
    said = Machine(lack.calls).judge()
    assert said.get("chosen") == (left[0] if left else None), said
    assert ("forked" in said) == (bool(left) and left[0] not in lack.forked), said
    assert ("refused" in said) == ("forked" not in said)


@pytest.mark.parametrize("version", [2, 3, 5])
def test_an_older_landlock_holds_as_far_as_it_is_accepted(version: int, available: list[str]) -> None:
    """By what it knows of files, where a user of its own keeps the rest apart; else not at all."""
    if "landlock" not in available or landlock.abi_version() < 6:
        pytest.skip("this kernel's Landlock cannot stand for newer ones")
    said = Machine(NEW_NAMESPACES, landlock=version).judge()
    least = MIN_ABI_AS_ROOT if os.geteuid() == 0 else MIN_ABI
    if version < least:
        assert f"Landlock version {version} found, {least} needed" in str(said["refused"])
    else:
        assert said == {"chosen": "landlock", "forked": True}


@pytest.mark.parametrize("option", ["--unshare-net", "--clearenv"])
def test_a_bubblewrap_that_overlooks_an_option_is_refused(option: str, tmp_path: Path) -> None:
    machine = Machine(
        refusing(*LANDLOCK_CALLS, action="UNKNOWN"), path=other_bubblewrap(tmp_path / "bin", [option])
    )
    said = machine.judge()
    assert "bubblewrap: the canary got out" in str(said.get("refused")), said
    assert "chosen" not in said


@pytest.mark.slow(3)
def test_the_judge_does_not_take_up_a_case_without_a_border(tmp_path: Path) -> None:
    """With its own error, and not as anybody's failure but the machine's."""
    case = write_case(tmp_path / "repository")
    machine = Machine(
        refusing(*LANDLOCK_CALLS, action="UNKNOWN"),
        path=other_bubblewrap(tmp_path / "bin", bubblewrap.WALLS["user namespace"]),
    )
    said = machine.judge(case)
    assert str(said.get("refused")).startswith("SandboxError: no sandbox works here."), said
    assert "chosen" not in said


def test_a_trusted_workspace_goes_without_where_there_is_none() -> None:
    calls = (*NEW_NAMESPACES, *refusing(*LANDLOCK_CALLS, action="UNKNOWN"))
    assert Machine(calls).judge(trusted=True) == {"chosen": "none", "forked": True}
    said = str(Machine(calls).judge()["refused"])
    assert said.startswith("SandboxError: no sandbox works here. bubblewrap: ")
    for hint in ("Landlock version 0 found", "install bubblewrap", "--trust-workspace"):
        assert hint in said
