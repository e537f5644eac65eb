"""Every wall of both recipes left out in turn: the canary gets out by it, or the border is not raised at all."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from hillclimb.harness.errors import SandboxError
from hillclimb.harness.sandbox.canary import canary
from hillclimb.harness.sandbox.fork.prefork import PreforkRung
from hillclimb.harness.sandbox.rungs import bubblewrap
from hillclimb.harness.sandbox.rungs import landlock as launched
from hillclimb.harness.sandbox.rungs.choose import ForkableRung, bubblewrap_rung, landlock_rung, prefork_rung

NOTICED = {
    "bubblewrap": {
        "user namespace": "share a namespace",
        "process namespace": "see the judge",
        "network namespace": "share a namespace",
        "ipc namespace": "share a namespace",
        "host name": "see the hosts name",
        "cgroup namespace": "share a namespace",
        "capabilities": "hold a capability",
        "environment": "find a variable of the judges",
        "session": "share the judges session",
        "masked proc": "write a kernel setting",
        "hidden init": "see another process",
        "sealed root": "write into the root folder",
        "sealed dev": "write into the device folder",
        "read-only workspace": "write into the workspace",
        "scratch size": "fill the scratch without bound",
        "seccomp": "watch a folder outside",
        "memory limit": "take more memory",
        "file limit": "grow a file without bound",
    },
    "landlock": {
        "files": "read a secret",
        "user": "become another user",
        "seccomp": "the judge saw a process outlive the run",
        "environment": "find a variable of the judges",
        "memory limit": "take more memory",
        "file limit": "grow a file without bound",
    },
}
"""One attempt by which each wall's absence is noticed; among others, in places."""

ONLY_ROOT_NEEDS = {"user namespace", "masked proc", "user"}
"""For an ordinary user the kernel itself holds these."""

ONLY_ROOT_NEEDS_AFRESH = {"capabilities"}
"""Of an ordinary user's own, bubblewrap drops them unasked; a fork has to."""

HELD_BY_ANOTHER_WHEN_FORKED = {"hidden init", "session"}
"""A fork leads a session of its own anyway, and the namespace's first process is nobody it could look into."""

NOT_RAISED_WHEN_FORKED = {"user namespace", "process namespace"}

NOT_FOR_THE_CANARY = {
    "life": "that a candidate ends with its judge (test_rungs, test_prefork)",
    "own tree": "what a fork may open of the host's mounts (test_prefork)",
}


def test_every_wall_is_listed() -> None:
    all_walls = {*bubblewrap.WALLS, *bubblewrap.MOUNTED_WALLS, *bubblewrap.LATER_WALLS}
    assert set(NOTICED["bubblewrap"]) == all_walls - set(NOT_FOR_THE_CANARY)
    assert set(NOTICED["landlock"]) == set(launched.WALLS)


WITHOUT_ONE = [(name, wall) for name, walls in NOTICED.items() for wall in walls]
MAKE: dict[str, Callable[[frozenset[str]], ForkableRung]] = {
    "bubblewrap": bubblewrap_rung,
    "landlock": landlock_rung,
}


@pytest.mark.parametrize(("name", "wall"), WITHOUT_ONE)
def test_a_wall_that_is_missing_is_noticed(name: str, wall: str) -> None:
    if os.geteuid() != 0 and wall in ONLY_ROOT_NEEDS | ONLY_ROOT_NEEDS_AFRESH:
        pytest.skip(f"{wall}: needs root to make a difference")
    assert NOTICED[name][wall] in canary.escapes_from(_made(name, wall))


@pytest.mark.slow(1, but=["bubblewrap-seccomp", "bubblewrap-masked proc", "bubblewrap-capabilities"])
@pytest.mark.parametrize(("name", "wall"), WITHOUT_ONE)
def test_a_wall_that_is_missing_in_a_fork_is_noticed(name: str, wall: str) -> None:
    if os.geteuid() != 0 and wall in ONLY_ROOT_NEEDS:
        pytest.skip(f"{wall}: needs root to make a difference")
    made = _made(name, wall)
    if wall in NOT_RAISED_WHEN_FORKED:
        with pytest.raises(SandboxError, match="could not be confined"):
            prefork_rung(made, [], {})
    elif wall in HELD_BY_ANOTHER_WHEN_FORKED:
        with PreforkRung(made, []) as forking:
            assert canary.escapes_from(forking) == []
    else:
        with pytest.raises(SandboxError, match="the canary got out") as refused:
            prefork_rung(made, [], {})
        assert NOTICED[name][wall] in str(refused.value)


def _made(name: str, wall: str) -> ForkableRung:
    try:
        return MAKE[name](frozenset({wall}))
    except SandboxError as error:
        pytest.skip(str(error))
