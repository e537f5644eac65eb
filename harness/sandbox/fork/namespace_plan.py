"""Where a forked candidate goes: the plan it confines itself by, the namespaces it joins, and what is cleared up."""

from __future__ import annotations

import ctypes
import fcntl
import os
from abc import ABC, abstractmethod
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.sandbox.confinement import SandboxLayout
from hillclimb.harness.sandbox.launch import ConfinementPlan

NS_GET_USERNS = 0xB701
"""ioctl_ns(2): the user namespace that owns a namespace."""

JOINED = ("mnt", "pid", "net", "ipc", "uts", "cgroup")


@dataclass(frozen=True)
class Namespaces:
    """Open descriptors of the namespaces to join, in the order to join them, and what one then finds at `/`."""

    descriptors: tuple[int, ...]
    root: tuple[int, int]
    """Device and inode number."""

    @classmethod
    def of(cls, pid: int) -> Namespaces:
        """Those of a process that differ from our own. OSError where they may not be opened.

        The user namespace that owns the others comes first, since it gives an ordinary user the right to join
        them; the one in which the process itself holds nothing comes last.
        """
        root = Path(f"/proc/{pid}/root").stat()
        with ExitStack() as opened:
            named = {name: _open(opened, pid, name) for name in (*JOINED, "user") if _differs(pid, name)}
            owner = fcntl.ioctl(named["mnt"], NS_GET_USERNS)
            opened.callback(os.close, owner)
            own = named.pop("user")
            users = (owner,) if os.path.sameopenfile(owner, own) else (owner, own)
            if users == (owner,):
                os.close(own)
            opened.pop_all()
        return cls((owner, *named.values(), *users[1:]), (root.st_dev, root.st_ino))

    def join(self) -> None:
        """Enter them one by one, and see that the root folder is theirs; OSError otherwise. Closes them."""
        libc = ctypes.CDLL(None, use_errno=True)
        for descriptor in self.descriptors:
            if libc.setns(descriptor, 0):
                raise OSError(ctypes.get_errno(), f"setns: {os.strerror(ctypes.get_errno())}")
            os.close(descriptor)
        found = Path("/").stat()
        if (found.st_dev, found.st_ino) != self.root:
            raise OSError("the root folder is not the sandbox's after joining its namespaces")


@dataclass(frozen=True)
class Holder:
    """A process to come, whose namespaces are to be joined."""

    status: int
    """The pipe on which bubblewrap names it."""
    program: str
    """What it has become when its namespaces are as they will stay."""


class PreparedSandbox(ABC):
    """One place behind the border, ready for one process or about to be."""

    layout: SandboxLayout
    plan: ConfinementPlan
    holder: Holder | None = None
    """None: the namespaces are the host's own."""

    def attach_holder(self, first: int, descriptors: list[int]) -> None:
        """Take what is known of the holder once it is there: its host pid, its pidfd, its namespace's /proc."""
        raise NotImplementedError

    def error_output(self) -> str:
        """What those who make it have said."""
        return ""

    @abstractmethod
    def other_pids(self, pid: int) -> list[int]:
        """Host pids of the living who are there besides the candidate `pid`; 0 for one that has gone since."""

    @abstractmethod
    def scratch_used_bytes(self) -> int:
        """Bytes that lie in the scratch folder."""

    @abstractmethod
    def send_sigkill(self) -> None:
        """Send SIGKILL to everything there; again at will."""

    @abstractmethod
    def clean_up(self) -> None:
        """End, reap and remove everything, once; MachineError where something stays."""


def _differs(pid: int, name: str) -> bool:
    theirs, ours = Path(f"/proc/{pid}/ns/{name}"), Path(f"/proc/self/ns/{name}")
    return theirs.exists() and theirs.readlink() != ours.readlink()


def _open(opened: ExitStack, pid: int, name: str) -> int:
    descriptor = os.open(f"/proc/{pid}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC)
    opened.callback(os.close, descriptor)
    return descriptor
