"""Assembles two seccomp filters: what no kernel needs (before exec), and no new process (once the runner is loaded).

Standard library only: the launcher imports it inside the border.

    stage one   border_program()    loaded by bubblewrap or by the launcher, then the candidate's Python is exec'd
    stage two   stage_two_program() sent by the judge, loaded by the candidate's runner after its trusted imports

Of a forked candidate, stage one also asks the supervisor about every new process and program (`load_notifying_filter`):
allowed while it prepares, the end of it once the judge has sealed it, whatever it did to stage two.

Refused calls fail with EPERM. clone3 fails with ENOSYS, so that libc falls back to clone, whose flags a filter
can read. Another machine's call numbers (i386, x32) and, after stage two, any new process end the process with
SIGSYS.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from errno import EBUSY, EINVAL, ENOSYS, EPERM
from functools import cache
from typing import Literal

from hillclimb.harness.channel.process_filter import WITH_LISTENER, load_filter
from hillclimb.harness.sandbox.kernel import syscalls


class Action(IntEnum):
    """What the kernel does with a matching call."""

    KILL = 0x80000000
    ASK = 0x7FC00000
    """Whoever holds the filter's listener decides; once nobody does: ENOSYS."""
    ALLOW = 0x7FFF0000
    REFUSE = 0x00050000 | EPERM
    UNKNOWN = 0x00050000 | ENOSYS


@dataclass(frozen=True)
class ArgumentTest:
    """A test on the low 32 bits of one argument (every argument tested here is an int or a flag word)."""

    argument: int
    test: Literal["is", "is not", "has", "lacks"]
    value: int


@dataclass(frozen=True)
class Rule:
    """One system call, what to do with it, and when."""

    call: str
    action: Action
    when: ArgumentTest | None = None


REFUSED = {
    "other processes: memory, descriptors, identity": (
        "ptrace process_vm_readv process_vm_writev process_madvise process_mrelease pidfd_open pidfd_getfd kcmp "
        "migrate_pages move_pages setpriority ioprio_set setsid setpgid"
    ),
    "kernel surfaces with a history": (
        "io_uring_setup io_uring_enter io_uring_register io_setup io_submit bpf perf_event_open userfaultfd "
        "fanotify_init fanotify_mark inotify_init inotify_init1 inotify_add_watch lookup_dcookie syslog "
        "modify_ldt iopl ioperm personality uselib lsm_set_self_attr vhangup add_key request_key keyctl"
    ),
    "mounts, roots and namespaces": (
        "mount umount2 pivot_root chroot move_mount open_tree fsopen fsconfig fsmount fspick mount_setattr "
        "statmount listmount unshare setns name_to_handle_at open_by_handle_at quotactl quotactl_fd swapon swapoff"
    ),
    "attributes of files, which Landlock does not guard": (
        "chmod fchmod fchmodat fchmodat2 chown fchown lchown fchownat utime utimes futimesat utimensat setxattr "
        "lsetxattr fsetxattr removexattr lremovexattr fremovexattr mknod mknodat"
    ),
    "the machine": (
        "kexec_load kexec_file_load init_module finit_module delete_module create_module reboot acct sethostname "
        "setdomainname settimeofday clock_settime clock_adjtime adjtimex nfsservctl _sysctl"
    ),
    "every way to talk but the one socket inherited": (
        "socket socketpair connect bind listen accept accept4 msgget msgsnd msgrcv msgctl mq_open mq_unlink "
        "semget semop semtimedop semctl"
    ),
    "memory that outlives or evades the limits": "shmget shmat shmctl memfd_create memfd_secret",
    "waking up by oneself, and buffers shared with the opponent": "timer_create fallocate",
}
"""Calls no compute kernel needs."""

ALLOWED_FOR_GPU = ("socket", "bind", "listen")
"""libcuda fails to start without them (driver 580, measured): it listens where other processes could ask for its
descriptors. Nobody can: `connect` and `accept` stay refused."""

ALLOWED_FOR_TOOLS = (
    *REFUSED["every way to talk but the one socket inherited"].split(),
    *REFUSED["attributes of files, which Landlock does not guard"].split(),
    *REFUSED["memory that outlives or evades the limits"].split(),
    *("setsid", "setpgid", "timer_create", "fallocate"),
)
"""What the two halves of compute-sanitizer or ncu say to each other stays in namespaces of their own."""

ALLOWED_FOR_SERVERS = ("listen", "accept", "accept4", "socketpair")
"""A server takes connections at the one socket it was handed, which is one of Unix: one of TCP could be turned to reach
others. Its event loop wakes itself through a pair."""

AF_UNIX = 1
DATAGRAM_BIT = 2
"""Set in SOCK_DGRAM and SOCK_RAW, with which one could send to a socket file without connecting; not in
SOCK_STREAM and SOCK_SEQPACKET."""

SandboxKind = Literal["cpu", "gpu", "tools", "server", "gpu server"]
"""Whom the border is for: kernels, kernels with device nodes, trusted tools, servers without and with device nodes."""

NEW_NAMESPACE = 0x7E020000
"""Every CLONE_NEW* flag that clone takes."""

CLONE_THREAD = 0x00010000
PR_SET_PDEATHSIG, PR_SET_DUMPABLE = 1, 4
TERMINAL_REQUESTS = (0x5412, 0x541C, 0x5423)
"""TIOCSTI types into a terminal, TIOCLINUX pastes into it, TIOCSETD changes its line discipline."""

F_SETSIG, F_NOTIFY = 10, 1026
"""Let the kernel send a signal of one's choice; SIGCONT would wake a process that the judge has frozen."""

F_SETLEASE = 1024
"""Holds up whoever opens a file for writing, for the 45 s of /proc/sys/fs/lease-break-time; a file that may only be
read will do."""

FILE_REQUESTS = (0x40086602, 0x40046602, 0x401C5820, 0x40087602, 0x40047602)
"""FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_SETVERSION (and the 32-bit forms): attributes of a file that is open for
reading, which only its owner may change; without a user of its own, the candidate is that."""

CLONE_PARENT = 0x00008000
"""Makes a sibling, which the judge would have to collect and never does."""

MSG_FASTOPEN = 0x20000000
"""Connects a socket of TCP with the first data, without `connect`."""

MADV_REMOVE, MADV_PAGEOUT, MADV_COLLAPSE = 9, 21, 25
"""Change the pages of shared memory under whoever else has mapped it."""

CONDITIONAL = (
    Rule("clone3", Action.UNKNOWN),
    Rule("clone", Action.REFUSE, ArgumentTest(0, "has", NEW_NAMESPACE)),
    Rule("clone", Action.REFUSE, ArgumentTest(0, "has", CLONE_PARENT)),
    Rule("prctl", Action.REFUSE, ArgumentTest(0, "is", PR_SET_PDEATHSIG)),
    Rule("prctl", Action.REFUSE, ArgumentTest(0, "is", PR_SET_DUMPABLE)),
    *(
        Rule("ioctl", Action.REFUSE, ArgumentTest(1, "is", request))
        for request in (*TERMINAL_REQUESTS, *FILE_REQUESTS)
    ),
    *(
        Rule("fcntl", Action.REFUSE, ArgumentTest(1, "is", request))
        for request in (F_SETSIG, F_NOTIFY, F_SETLEASE)
    ),
    *(
        Rule("madvise", Action.REFUSE, ArgumentTest(2, "is", advice))
        for advice in (MADV_REMOVE, MADV_PAGEOUT, MADV_COLLAPSE)
    ),
    *(
        Rule(call, Action.REFUSE, ArgumentTest(at, "has", MSG_FASTOPEN))
        for call, at in (("sendto", 3), ("sendmsg", 2), ("sendmmsg", 3))
    ),
    Rule("socketpair", Action.REFUSE, ArgumentTest(0, "is not", AF_UNIX)),
    Rule("socketpair", Action.REFUSE, ArgumentTest(1, "has", DATAGRAM_BIT)),
    # of another process; 0 is the caller itself
    *(
        Rule(call, Action.REFUSE, ArgumentTest(0, "is not", 0))
        for call in (
            "prlimit64",
            "sched_setaffinity",
            "sched_setscheduler",
            "sched_setparam",
            "sched_setattr",
        )
    ),
)
"""Refused or not by what the call is asked to do."""

UNIX_LISTENERS_ONLY = (
    Rule("socket", Action.REFUSE, ArgumentTest(0, "is not", AF_UNIX)),
    Rule("socket", Action.REFUSE, ArgumentTest(1, "has", DATAGRAM_BIT)),
)


def stage_one_rules(kind: SandboxKind) -> tuple[Rule, ...]:
    """Stage one."""
    left = {
        "cpu": (),
        "gpu": ALLOWED_FOR_GPU,
        "tools": ALLOWED_FOR_TOOLS,
        "server": ALLOWED_FOR_SERVERS,
        "gpu server": (*ALLOWED_FOR_GPU, *ALLOWED_FOR_SERVERS),
    }[kind]
    refused = [call for calls in REFUSED.values() for call in calls.split() if call not in left]
    return (
        *CONDITIONAL,
        *(UNIX_LISTENERS_ONLY if kind in ("gpu", "gpu server") else ()),
        *(Rule(call, Action.REFUSE) for call in refused),
    )


def process_creation_rules(action: Action) -> tuple[Rule, ...]:
    """The same answer to every way to start a process or a program. Threads go on working."""
    return (
        Rule("clone3", Action.UNKNOWN),
        Rule("clone", action, ArgumentTest(0, "lacks", CLONE_THREAD)),
        *(Rule(call, action) for call in ("fork", "vfork", "execve", "execveat")),
    )


STAGE_TWO_RULES = process_creation_rules(Action.KILL)
"""Stage two."""


def notifying_rules(kind: SandboxKind) -> tuple[Rule, ...]:
    """Stage one of a forked candidate: whoever holds its listener decides about what stage two would forbid."""
    return (*stage_one_rules(kind), *process_creation_rules(Action.ASK))


LOAD, EQUALS, AT_LEAST, HAS_BITS, RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
NUMBER, ARCHITECTURE, ARGUMENTS = 0, 4, 16
"""Offsets in struct seccomp_data."""

Instruction = tuple[int, int, int, int]
"""code, jump if true, jump if false, operand."""


def stage_one_program(kind: SandboxKind = "cpu") -> bytes:
    """Assemble stage one for this machine."""
    return assemble(stage_one_rules(kind), syscalls.machine())


def notifying_program(kind: SandboxKind) -> bytes:
    """Assemble stage one, with the question about new processes behind what it refuses anyway."""
    return assemble(notifying_rules(kind), syscalls.machine())


def load_notifying_filter(kind: SandboxKind) -> int | None:
    """Load stage one; from here on every new process or program waits for an answer through the descriptor returned.

    None where this kernel, or whatever confines this machine itself, allows no such question: stage one is loaded
    without it then. OSError where that is refused as well.
    """
    try:
        return load_filter(notifying_program(kind), WITH_LISTENER)
    except OSError as error:
        if error.errno not in (EINVAL, EBUSY, ENOSYS):
            raise
    load_filter(stage_one_program(kind))
    return None


def stage_two_program() -> bytes:
    """Assemble stage two for this machine; the judge sends it to the candidate's runner."""
    return assemble(STAGE_TWO_RULES, syscalls.machine())


def forbid_processes() -> None:
    """Load stage two into every thread of this process: from here on a fork or exec ends it with SIGSYS.

    Raises OSError where the kernel refuses the filter.
    """
    load_filter(stage_two_program())


def assemble(rules: Iterable[Rule], machine: str) -> bytes:
    """Translate rules into a BPF program: the first match decides, no match allows."""
    return _assemble(tuple(rules), machine)


@cache
def _assemble(rules: tuple[Rule, ...], machine: str) -> bytes:
    code = [*_preamble(machine)]
    for rule in rules:
        code += _block(rule, machine)
    code.append((RETURN, 0, 0, Action.ALLOW))
    return b"".join(struct.pack("=HBBI", *instruction) for instruction in code)


def _preamble(machine: str) -> Iterator[Instruction]:
    """Kill foreign call numbers, hide calls newer than the tables; leaves the number loaded."""
    yield LOAD, 0, 0, ARCHITECTURE
    yield EQUALS, 1, 0, syscalls.AUDIT_ARCH[machine]
    yield RETURN, 0, 0, Action.KILL
    yield LOAD, 0, 0, NUMBER
    yield AT_LEAST, 0, 1, syscalls.X32_BIT
    yield RETURN, 0, 0, Action.KILL
    yield AT_LEAST, 0, 1, syscalls.NEWEST + 1
    yield RETURN, 0, 0, Action.UNKNOWN


def _block(rule: Rule, machine: str) -> list[Instruction]:
    """One rule's instructions; expects the call's number loaded, and leaves it loaded."""
    number = syscalls.number(rule.call, machine)
    if number is None:
        return []
    if rule.when is None:
        return [(EQUALS, 0, 1, number), (RETURN, 0, 0, rule.action)]
    return [
        (EQUALS, 0, 4, number),
        (LOAD, 0, 0, ARGUMENTS + 8 * rule.when.argument),
        _test(rule.when),
        (RETURN, 0, 0, rule.action),
        (LOAD, 0, 0, NUMBER),
    ]


def _test(when: ArgumentTest) -> Instruction:
    """Fall through when the test holds, else skip one instruction."""
    code = EQUALS if when.test in ("is", "is not") else HAS_BITS
    skip = (0, 1) if when.test in ("is", "has") else (1, 0)
    return (code, *skip, when.value)


def make_dumpable() -> None:
    """Let this process read its own entries in /proc again, as after an exec; a change of user had closed them.

    It lets the judge look as well. Other candidates cannot: they have other users, or namespaces, or a border.
    """
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
