"""Numbers of the system calls the filters name, on the two machines they know.

Read off Linux 6.1's unistd headers (x86-64, and asm-generic for aarch64) and, above 450, Linux 6.18's tables.
A test compares them with the headers installed.
"""

from __future__ import annotations

import platform
from types import MappingProxyType

from hillclimb.harness.errors import SandboxError

AUDIT_ARCH = MappingProxyType({"x86_64": 0xC000003E, "aarch64": 0xC00000B7})
"""What the kernel calls each machine in a filter's data."""

NEWEST = 462
"""The highest number thought about (mseal). Higher ones look unimplemented inside."""

X32_BIT = 0x40000000
"""Marks the x32 calls of an x86-64 kernel; no honest program makes them."""

TABLE: MappingProxyType[str, tuple[int | None, int | None]] = MappingProxyType(
    {
        "_sysctl": (156, None),
        "accept": (43, 202),
        "accept4": (288, 242),
        "acct": (163, 89),
        "add_key": (248, 217),
        "adjtimex": (159, 171),
        "bind": (49, 200),
        "bpf": (321, 280),
        "chmod": (90, None),
        "chown": (92, None),
        "chroot": (161, 51),
        "clock_adjtime": (305, 266),
        "clock_settime": (227, 112),
        "clone": (56, 220),
        "clone3": (435, 435),
        "connect": (42, 203),
        "create_module": (174, None),
        "delete_module": (176, 106),
        "execve": (59, 221),
        "execveat": (322, 281),
        "fallocate": (285, 47),
        "fanotify_init": (300, 262),
        "fanotify_mark": (301, 263),
        "fchmod": (91, 52),
        "fcntl": (72, 25),
        "madvise": (28, 233),
        "timer_create": (222, 107),
        "fchmodat": (268, 53),
        "fchmodat2": (452, 452),
        "fchown": (93, 55),
        "fchownat": (260, 54),
        "finit_module": (313, 273),
        "fork": (57, None),
        "fremovexattr": (199, 16),
        "fsconfig": (431, 431),
        "fsetxattr": (190, 7),
        "fsmount": (432, 432),
        "fsopen": (430, 430),
        "fspick": (433, 433),
        "futimesat": (261, None),
        "init_module": (175, 105),
        "inotify_add_watch": (254, 27),
        "inotify_init": (253, None),
        "inotify_init1": (294, 26),
        "io_setup": (206, 0),
        "io_submit": (209, 2),
        "io_uring_enter": (426, 426),
        "io_uring_register": (427, 427),
        "io_uring_setup": (425, 425),
        "ioctl": (16, 29),
        "ioperm": (173, None),
        "iopl": (172, None),
        "ioprio_set": (251, 30),
        "kcmp": (312, 272),
        "kexec_file_load": (320, 294),
        "kexec_load": (246, 104),
        "keyctl": (250, 219),
        "landlock_add_rule": (445, 445),
        "landlock_create_ruleset": (444, 444),
        "landlock_restrict_self": (446, 446),
        "lchown": (94, None),
        "listen": (50, 201),
        "listmount": (458, 458),
        "lookup_dcookie": (212, 18),
        "lremovexattr": (198, 15),
        "lsetxattr": (189, 6),
        "lsm_set_self_attr": (460, 460),
        "memfd_create": (319, 279),
        "memfd_secret": (447, 447),
        "migrate_pages": (256, 238),
        "mknod": (133, None),
        "mknodat": (259, 33),
        "modify_ldt": (154, None),
        "mount": (165, 40),
        "mount_setattr": (442, 442),
        "move_mount": (429, 429),
        "move_pages": (279, 239),
        "mq_open": (240, 180),
        "mq_unlink": (241, 181),
        "msgctl": (71, 187),
        "msgget": (68, 186),
        "msgrcv": (70, 188),
        "msgsnd": (69, 189),
        "name_to_handle_at": (303, 264),
        "nfsservctl": (180, 42),
        "open_by_handle_at": (304, 265),
        "open_tree": (428, 428),
        "perf_event_open": (298, 241),
        "personality": (135, 92),
        "pidfd_getfd": (438, 438),
        "pidfd_open": (434, 434),
        "pivot_root": (155, 41),
        "prctl": (157, 167),
        "prlimit64": (302, 261),
        "process_madvise": (440, 440),
        "process_mrelease": (448, 448),
        "process_vm_readv": (310, 270),
        "process_vm_writev": (311, 271),
        "ptrace": (101, 117),
        "quotactl": (179, 60),
        "quotactl_fd": (443, 443),
        "reboot": (169, 142),
        "removexattr": (197, 14),
        "request_key": (249, 218),
        "sched_setaffinity": (203, 122),
        "sched_setattr": (314, 274),
        "sched_setparam": (142, 118),
        "sched_setscheduler": (144, 119),
        "seccomp": (317, 277),
        "sendmmsg": (307, 269),
        "sendmsg": (46, 211),
        "sendto": (44, 206),
        "semctl": (66, 191),
        "semget": (64, 190),
        "semop": (65, 193),
        "semtimedop": (220, 192),
        "setdomainname": (171, 162),
        "sethostname": (170, 161),
        "setns": (308, 268),
        "setpgid": (109, 154),
        "setpriority": (141, 140),
        "setsid": (112, 157),
        "settimeofday": (164, 170),
        "setxattr": (188, 5),
        "shmat": (30, 196),
        "shmctl": (31, 195),
        "shmget": (29, 194),
        "socket": (41, 198),
        "socketpair": (53, 199),
        "statmount": (457, 457),
        "swapoff": (168, 225),
        "swapon": (167, 224),
        "syslog": (103, 116),
        "umount2": (166, 39),
        "unshare": (272, 97),
        "uselib": (134, None),
        "userfaultfd": (323, 282),
        "utime": (132, None),
        "utimensat": (280, 88),
        "utimes": (235, None),
        "vfork": (58, None),
        "vhangup": (153, 58),
    }
)
"""name: (x86_64, aarch64); None where the machine has no such call."""


def machine() -> str:
    """Name this machine's instruction set, or raise SandboxError where no filter can be written for it."""
    name = platform.machine()
    if name not in AUDIT_ARCH:
        raise SandboxError(f"no seccomp filter for machine {name!r}; known: {', '.join(AUDIT_ARCH)}")
    return name


def number(name: str, machine_name: str) -> int | None:
    """Look one call up; None where the machine lacks it."""
    return TABLE[name][0 if machine_name == "x86_64" else 1]
