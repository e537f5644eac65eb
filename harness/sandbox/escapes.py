"""The canary's program: tries every way out it knows. `python -m harness.sandbox.escapes BAIT` prints JSON.

Each function below is one attempt, named for what it would achieve; it returns True, or raises nothing and does
its deed, only when it got out. Attempts are harmless where they succeed: they open without writing, send signal
0, set what is set already. What they change lies in the bait's own temporary folder.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import mmap
import os
import resource
import signal
import socket
import stat
import struct
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from errno import EPERM
from pathlib import Path

from harness.sandbox import seccomp, syscalls

SECRET = "the canary's secret"

OUTLIVES_SECONDS = 2.0
"""Far longer than the judge needs to look."""


@dataclass(frozen=True)
class Bait:
    """What the judge has laid out, and what the rung under test promises."""

    judge: int
    session: int
    descriptor: int
    """Number of a descriptor of the judge's, open on the secret."""
    address: int
    """Where the secret lies in the judge's memory."""
    folder: str
    """Outside the border: holds `secret`, `victim`, `socket`, `drop/`, `.env`, `repository/`."""
    marks: Sequence[str]
    """Files that must not be left behind, in folders shared by everybody."""
    hidden: Sequence[str]
    """Parts of the lab that must be invisible."""
    workspace: str
    kernels: str
    """Granted for reading: what was compiled for another side."""
    decoy: int
    """A process of the judge's, there to be ended."""
    port: int
    abstract: str
    host: str
    namespaces: Mapping[str, str]
    """Of the judge: those that the candidate must not share."""
    variables: Sequence[str]
    """All that may be set in the candidate's environment."""
    descriptors: Sequence[int]
    """All that may be open."""
    capabilities: int
    """All that may be held."""
    memory_bytes: int
    scratch_bytes: int
    scratch_is_bounded: bool

    def to_json(self) -> str:
        return json.dumps(asdict(self))


UNNAMED = {"get_robust_list": (274, 100), "rt_sigqueueinfo": (129, 138), "tgkill": (234, 131)}
"""Calls that no filter names; their numbers on x86-64 and on aarch64."""

Attempt = Callable[[Bait], object]
"""False or an exception: held in. Anything else: out."""


# files


def read_a_secret(bait: Bait) -> bool:
    return SECRET in Path(bait.folder, "secret").read_text()


def read_a_secret_through_the_first_process(bait: Bait) -> bool:
    return SECRET in Path(f"/proc/1/root{bait.folder}/secret").read_text()


def read_a_secret_through_the_judge(bait: Bait) -> bool:
    return SECRET in Path(f"/proc/{bait.judge}/root{bait.folder}/secret").read_text()


def read_a_secret_through_the_judges_descriptor(bait: Bait) -> bool:
    return SECRET in Path(f"/proc/{bait.judge}/fd/{bait.descriptor}").read_text()


def read_a_key_of_the_users(bait: Bait) -> bool:
    return SECRET in Path(bait.folder, ".env").read_text()


def list_a_folder_outside(bait: Bait) -> bool:
    """The folder itself may be there inside, empty but for what was granted."""
    return "secret" in [entry.name for entry in Path(bait.folder).iterdir()]


def watch_a_folder_outside(bait: Bait) -> bool:
    everything = 0xFFF
    watcher = _call("inotify_init1", 0)
    return watcher >= 0 and _call("inotify_add_watch", watcher, bait.folder.encode(), everything) >= 0


def read_the_lab(bait: Bait) -> bool:
    return any(_opens(path, os.O_RDONLY) for path in bait.hidden)


def write_outside(bait: Bait) -> None:
    Path(bait.folder, "drop", "written").write_text("x")


def write_outside_through_a_link(bait: Bait) -> None:
    Path("link").symlink_to(Path(bait.folder, "drop"))
    Path("link", "linked").write_text("x")


def overwrite_a_file_outside(bait: Bait) -> bool:
    return _opens(f"{bait.folder}/victim", os.O_WRONLY)


def truncate_a_file_outside(bait: Bait) -> None:
    os.truncate(f"{bait.folder}/victim", 0)


def leave_a_pipe_outside(bait: Bait) -> None:
    os.mkfifo(Path(bait.folder, "drop", "pipe"))


def make_a_device_node(bait: Bait) -> None:
    null = os.makedev(1, 3)
    os.mknod("node", 0o600 | stat.S_IFCHR, null)


def write_into_a_mapped_file(bait: Bait) -> bool:
    """By the kernel's own links: in a fork they lead out of the sandbox."""
    return any(_opens(str(link), os.O_WRONLY) for link in Path("/proc/self/map_files").iterdir())


def write_into_the_running_program(bait: Bait) -> bool:
    """The file this process was started from, by the kernel's own link: in a fork it leads out of the sandbox."""
    return _opens("/proc/self/exe", os.O_WRONLY)


def climb_out_of_the_working_folder(bait: Bait) -> bool:
    return SECRET in Path("../" * 40 + bait.folder.lstrip("/"), "secret").read_text()


def move_a_file_out(bait: Bait) -> None:
    Path("mine").write_text("x")
    Path("mine").rename(Path(bait.folder, "drop", "moved"))


def link_a_secret_in(bait: Bait) -> bool:
    Path("linked").hardlink_to(Path(bait.folder, "secret"))
    return SECRET in Path("linked").read_text()


def change_the_mode_of_a_file_outside(bait: Bait) -> None:
    Path(bait.folder, "victim").chmod(0o777)


def change_the_times_of_a_file_outside(bait: Bait) -> None:
    os.utime(f"{bait.folder}/victim")


def tag_a_file_outside(bait: Bait) -> None:
    os.setxattr(f"{bait.folder}/victim", "user.canary", b"x")


def set_flags_of_a_file_outside(bait: Bait) -> bool:
    """Those it has. A descriptor for reading will do for its owner."""
    get, put, flags = 0x80086601, 0x40086602, bytearray(8)
    file = os.open(f"{bait.kernels}/KEY/kernel.cubin", os.O_RDONLY)
    try:
        fcntl.ioctl(file, get, flags)
        fcntl.ioctl(file, put, bytes(flags))
    finally:
        os.close(file)
    return True


def hold_up_whoever_writes(bait: Bait) -> bool:
    """By a lease on a file that it may only read."""
    file = os.open(f"{bait.kernels}/KEY/kernel.cubin", os.O_RDONLY)
    try:
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    finally:
        os.close(file)
    return True


def leave_files_behind(bait: Bait) -> bool:
    """Whether one got out is for the judge to see: the same path may be the candidate's own folder."""
    for mark in bait.marks:
        with suppress(OSError):
            Path(mark).write_text("x")
    return False


def write_into_the_workspace(bait: Bait) -> bool:
    """By its name outside, and by its name inside, where it lies beside the lab's package."""
    inside = Path(os.environ.get("PYTHONPATH", bait.folder)).parent / "workspace"
    return any(_opens(f"{path}/planted.py", os.O_CREAT | os.O_WRONLY) for path in (bait.workspace, inside))


def add_a_kernel_for_another(bait: Bait) -> bool:
    return _opens(f"{bait.kernels}/KEY/added.cubin", os.O_CREAT | os.O_WRONLY)


def change_a_kernel_of_another(bait: Bait) -> bool:
    return _opens(f"{bait.kernels}/KEY/kernel.cubin", os.O_WRONLY)


def put_a_kernel_in_the_place_of_another(bait: Bait) -> None:
    Path("forged").write_text("forged")
    Path("forged").rename(Path(bait.kernels, "KEY", "replaced.cubin"))


def remove_a_kernel_of_another(bait: Bait) -> None:
    Path(bait.kernels, "KEY", "removed.cubin").unlink()


def plant_a_git_hook(bait: Bait) -> None:
    Path(bait.folder, "repository/.git/hooks/post-checkout").write_text("#!/bin/sh\n")


def change_the_git_configuration(bait: Bait) -> bool:
    return _opens(f"{bait.folder}/repository/.git/config", os.O_WRONLY | os.O_APPEND)


def name_a_filter_in_the_git_attributes(bait: Bait) -> None:
    Path(bait.folder, "repository/.git/info/attributes").write_text("* filter=planted\n")


def move_a_git_branch(bait: Bait) -> None:
    Path(bait.folder, "repository/.git/refs/heads/main").write_text("0" * 40)


def write_into_the_harness(bait: Bait) -> bool:
    return _opens(__file__, os.O_WRONLY)


def write_into_the_interpreter(bait: Bait) -> bool:
    return _opens(os.__file__, os.O_WRONLY)


def write_into_the_root_folder(bait: Bait) -> bool:
    return _makes(f"/canary-{bait.judge}")


def write_into_the_device_folder(bait: Bait) -> bool:
    return _makes(f"/dev/canary-{bait.judge}")


def open_a_raw_device(bait: Bait) -> bool:
    devices = ("/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/proc/kcore", "/proc/kmsg")
    return any(_opens(device, os.O_RDONLY) for device in devices)


def write_a_kernel_setting(bait: Bait) -> bool:
    return _opens("/proc/sys/kernel/core_pattern", os.O_WRONLY)


def write_the_system_request_trigger(bait: Bait) -> bool:
    return _opens("/proc/sysrq-trigger", os.O_WRONLY)


def write_a_device_setting(bait: Bait) -> bool:
    settings = (
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/power/state",
        "/sys/kernel/uevent_helper",
    )
    return any(_opens(setting, os.O_WRONLY) for setting in settings)


def leave_the_cgroup(bait: Bait) -> bool:
    groups = ("/sys/fs/cgroup", *(str(group) for group in Path("/sys/fs/cgroup").glob("*/")))
    return any(_opens(f"{group}/cgroup.procs", os.O_WRONLY) for group in groups)


# other processes


def see_the_judge(bait: Bait) -> bool:
    return bool(Path(f"/proc/{bait.judge}/stat").read_text())


def see_another_process(bait: Bait) -> bool:
    """Anybody's: the zygote's, the one that holds the namespaces open, a stranger's."""
    return any(
        _opens(f"{entry}/environ", os.O_RDONLY)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and int(entry.name) != os.getpid()
    )


def read_the_judges_environment(bait: Bait) -> bool:
    return bool(Path(f"/proc/{bait.judge}/environ").read_bytes())


def open_the_judges_memory(bait: Bait) -> bool:
    return _opens(f"/proc/{bait.judge}/mem", os.O_RDWR)


def open_the_first_processs_memory(bait: Bait) -> bool:
    return _opens("/proc/1/mem", os.O_RDWR)


def copy_the_judges_memory(bait: Bait) -> bool:
    here = ctypes.create_string_buffer(len(SECRET))
    local = struct.pack("PN", ctypes.addressof(here), len(SECRET))
    remote = struct.pack("PN", bait.address, len(SECRET))
    return _call("process_vm_readv", bait.judge, local, 1, remote, 1, 0) > 0 and here.raw == SECRET.encode()


def signal_the_judge(bait: Bait) -> None:
    os.kill(bait.judge, 0)


def write_the_judges_memory(bait: Bait) -> bool:
    """What stands there already."""
    here = ctypes.create_string_buffer(SECRET.encode())
    local = struct.pack("PN", ctypes.addressof(here), len(SECRET))
    remote = struct.pack("PN", bait.address, len(SECRET))
    return _call("process_vm_writev", bait.judge, local, 1, remote, 1, 0) > 0


def signal_a_thread_of_the_judges(bait: Bait) -> bool:
    return _call("tgkill", bait.judge, bait.judge, 0) == 0


def queue_a_signal_for_the_judge(bait: Bait) -> bool:
    queued = ctypes.create_string_buffer(struct.pack("3i", 0, 0, -1), 128)
    return _call("rt_sigqueueinfo", bait.judge, 0, queued) == 0


def signal_the_judge_by_its_folder(bait: Bait) -> None:
    """The kernel takes a descriptor of a folder in /proc for a pidfd."""
    process = os.open(f"/proc/{bait.judge}", os.O_RDONLY | os.O_DIRECTORY)
    try:
        signal.pidfd_send_signal(process, 0)
    finally:
        os.close(process)


def end_a_process_of_the_judges(bait: Bait) -> None:
    os.kill(bait.decoy, signal.SIGKILL)


def end_a_process_of_the_judges_through_a_pipe(bait: Bait) -> bool:
    """By the signal that announces input. Nobody says whether it arrives: the judge has to look."""
    reading, writing = os.pipe()
    with suppress(OSError):
        fcntl.fcntl(reading, fcntl.F_SETOWN, bait.decoy)
        fcntl.fcntl(reading, fcntl.F_SETFL, os.O_ASYNC | os.O_NONBLOCK)
        os.write(writing, b"x")
    os.close(reading)
    os.close(writing)
    return False


def trace_the_judge(bait: Bait) -> bool:
    seize = 0x4206
    return _call("ptrace", seize, bait.judge, 0, 0) == 0


def take_the_judges_descriptor(bait: Bait) -> bool:
    process = _call("pidfd_open", bait.judge, 0)
    return process >= 0 and _call("pidfd_getfd", process, bait.descriptor, 0) >= 0


def limit_the_judge(bait: Bait) -> None:
    resource.prlimit(bait.judge, resource.RLIMIT_CORE)


def pin_the_judge(bait: Bait) -> None:
    os.sched_setaffinity(bait.judge, os.sched_getaffinity(bait.judge))


def slow_the_judge(bait: Bait) -> None:
    os.setpriority(os.PRIO_PROCESS, bait.judge, os.getpriority(os.PRIO_PROCESS, bait.judge))


def reschedule_the_judge(bait: Bait) -> None:
    os.sched_setscheduler(bait.judge, os.sched_getscheduler(bait.judge), os.sched_param(0))


def order_the_judges_disk(bait: Bait) -> bool:
    one_process, best_effort = 1, 2 << 13 | 4
    return _call("ioprio_set", one_process, bait.judge, best_effort) == 0


def compare_with_the_judge(bait: Bait) -> bool:
    memory = 1
    return _call("kcmp", os.getpid(), bait.judge, memory, 0, 0) >= 0


def find_the_judges_locks(bait: Bait) -> bool:
    head, length = ctypes.c_void_p(), ctypes.c_size_t()
    return _call("get_robust_list", bait.judge, ctypes.byref(head), ctypes.byref(length)) == 0


def survive_the_judge(bait: Bait) -> bool:
    return _in_a_child(lambda: _control(seccomp.PR_SET_PDEATHSIG, 0))


def outlive_the_run(bait: Bait) -> bool:
    """As a daemon that holds the output open, by which the judge sees it."""
    if os.fork() == 0:
        with suppress(OSError):
            os.setsid()
        if os.fork() == 0:
            for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCONT):
                signal.signal(number, signal.SIG_IGN)
            time.sleep(OUTLIVES_SECONDS)
        os._exit(0)
    return False


def become_a_sibling(bait: Bait) -> bool:
    """A child of the judge's own, for it to collect."""
    beside = _call("clone", 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)
    if beside == 0:
        os._exit(0)
    return beside > 0


def leave_the_session(bait: Bait) -> bool:
    return _in_a_child(lambda: _call("setsid") >= 0)


def leave_the_process_group(bait: Bait) -> bool:
    return _in_a_child(lambda: _call("setpgid", 0, 0) == 0)


def wake_up_by_a_timer(bait: Bait) -> bool:
    """With the one signal that also wakes a process the judge has stopped."""
    event, timer = struct.pack("PiiQ40x", 0, signal.SIGCONT, 0, 0), ctypes.c_int()
    return _call("timer_create", time.CLOCK_MONOTONIC, event, ctypes.byref(timer)) == 0


def wake_up_by_a_file(bait: Bait) -> None:
    fcntl.fcntl(0, seccomp.F_SETSIG, signal.SIGCONT)


def wake_up_by_a_folder(bait: Bait) -> None:
    once_made = 4
    folder = os.open(".", os.O_RDONLY)
    try:
        fcntl.fcntl(folder, seccomp.F_NOTIFY, once_made)
    finally:
        os.close(folder)


def share_the_judges_session(bait: Bait) -> bool:
    """Session 0 is one whose leader is outside our process namespace."""
    return os.getsid(0) in (0, bait.session)


def share_a_namespace(bait: Bait) -> bool:
    return any(str(Path("/proc/self/ns", name).readlink()) == link for name, link in bait.namespaces.items())


def see_the_hosts_name(bait: Bait) -> bool:
    return "uts" in bait.namespaces and os.uname().nodename == bait.host


# talking


def reach_the_loopback(bait: Bait) -> None:
    socket.create_connection(("127.0.0.1", bait.port), 1).close()


def make_a_datagram_socket(bait: Bait) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()


def make_a_datagram_socket_for_files(bait: Bait) -> None:
    """It could send to a socket file by name, without connecting; Landlock would not see it."""
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).close()


def make_a_netlink_socket(bait: Bait) -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()


def make_a_socket_of_another_kind(bait: Bait) -> bool:
    """To the hypervisor, to the kernel's ciphers, to the wire."""
    return any(_makes_a_socket(family) for family in (socket.AF_VSOCK, socket.AF_ALG, socket.AF_PACKET))


def reach_an_abstract_socket(bait: Bait) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.connect("\0" + bait.abstract)


def reach_a_socket_file(bait: Bait) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(f"{bait.folder}/socket")


def make_a_message_queue(bait: Bait) -> bool:
    queue = _call("msgget", 0, 0o600)
    return queue >= 0 and _call("msgctl", queue, 0, 0) == 0


def make_shared_memory(bait: Bait) -> bool:
    segment = _call("shmget", 0, 4096, 0o600)
    return segment >= 0 and _call("shmctl", segment, 0, 0) == 0


def make_a_semaphore(bait: Bait) -> bool:
    semaphores = _call("semget", 0, 1, 0o600)
    return semaphores >= 0 and _call("semctl", semaphores, 0, 0) == 0


def make_a_named_queue(bait: Bait) -> bool:
    name = f"canary-{bait.judge}".encode()
    queue = _call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, 0)
    return queue >= 0 and _call("mq_unlink", name) == 0


def type_into_the_terminal(bait: Bait) -> None:
    with Path("/dev/tty").open("wb") as terminal:
        fcntl.ioctl(terminal, seccomp.TERMINAL_REQUESTS[0], b"\n")


# the kernel


def start_an_io_uring(bait: Bait) -> bool:
    return _call("io_uring_setup", 4, ctypes.create_string_buffer(256)) >= 0


def start_asynchronous_io(bait: Bait) -> bool:
    """Of events there are so many on the whole machine (fs.aio-max-nr)."""
    context = ctypes.c_ulong()
    return _call("io_setup", 1, ctypes.byref(context)) == 0


def load_a_module(bait: Bait) -> bool:
    """EPERM is the border's answer; the kernel's own to what is no file would be another."""
    return _passes("finit_module", -1, b"", 0)


def restart_the_machine(bait: Bait) -> bool:
    """Without the number that the kernel demands, so that it answers EINVAL to those who may."""
    return _passes("reboot", 0, 0, 0, 0)


def mount_a_file_system(bait: Bait) -> bool:
    return _passes("mount", b"none", b"/nonexistent", b"tmpfs", 0, 0)


def open_a_file_system(bait: Bait) -> bool:
    return _call("fsopen", b"tmpfs", 0) >= 0


def copy_the_file_tree(bait: Bait) -> bool:
    clone = 1
    return _call("open_tree", -100, b"/", clone) >= 0


def name_the_host(bait: Bait) -> bool:
    name = os.uname().nodename.encode()
    return _call("sethostname", name, len(name)) == 0


def read_the_kernels_log(bait: Bait) -> bool:
    read_all, here = 3, ctypes.create_string_buffer(64)
    return _call("syslog", read_all, here, 64) >= 0


def load_a_kernel_program(bait: Bait) -> bool:
    array = ctypes.create_string_buffer(struct.pack("5I", 2, 4, 8, 1, 0), 128)
    return _call("bpf", 0, array, 128) >= 0


def watch_the_kernels_counters(bait: Bait) -> bool:
    software_clock = ctypes.create_string_buffer(struct.pack("IIQ", 1, 128, 0), 128)
    return _call("perf_event_open", software_clock, 0, -1, -1, 0) >= 0


def handle_page_faults(bait: Bait) -> bool:
    return _call("userfaultfd", 0) >= 0


def open_a_keyring(bait: Bait) -> bool:
    return _call("keyctl", 0, -3, 1) >= 0


def enter_a_new_user_namespace(bait: Bait) -> bool:
    return _in_a_child(lambda: _call("unshare", 0x10000000) == 0)


def enter_a_new_mount_namespace(bait: Bait) -> bool:
    return _in_a_child(lambda: _call("unshare", 0x00020000) == 0)


def clone_into_a_new_user_namespace(bait: Bait) -> bool:
    child = _call("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    return child > 0 and os.waitpid(child, 0)[1] == 0


def join_a_namespace(bait: Bait) -> bool:
    """EPERM is the border's answer; the kernel's own to a file that is no namespace would be another."""
    with Path("/dev/null").open() as file:
        refused = _call("setns", file.fileno(), 0) < 0
    return not (refused and ctypes.get_errno() == 1)


def change_the_root_folder(bait: Bait) -> bool:
    return _in_a_child(lambda: _call("chroot", b"/") == 0)


def open_a_file_by_its_handle(bait: Bait) -> bool:
    """EPERM is the border's answer; the kernel's own to this nonsense would be another."""
    refused = (
        _call("open_by_handle_at", -100, ctypes.create_string_buffer(struct.pack("Ii", 8, 1), 16), 0) < 0
    )
    return not (refused and ctypes.get_errno() == 1)


def make_memory_no_limit_counts(bait: Bait) -> bool:
    return _call("memfd_create", b"canary", 0) >= 0


def make_memory_that_nobody_sees(bait: Bait) -> bool:
    return _call("memfd_secret", 0) >= 0


def become_another_user(bait: Bait) -> bool:
    return _in_a_child(lambda: os.setresuid(65534, 65534, 65534))


def leave_its_groups(bait: Bait) -> bool:
    return _in_a_child(lambda: os.setgroups([]))


def run_before_everybody(bait: Bait) -> bool:
    return _in_a_child(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))


def hide_from_the_kernels_killer(bait: Bait) -> bool:
    """A process that memory will be taken from later than from others."""
    return _in_a_child(lambda: Path("/proc/self/oom_score_adj").write_text("-500"))


def raise_a_limit(bait: Bait) -> bool:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1] + 1
    return _in_a_child(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard)))


def hold_memory_down(bait: Bait) -> bool:
    """Locked pages are taken from everybody else."""
    page = ctypes.create_string_buffer(mmap.PAGESIZE)
    return bool(ctypes.CDLL(None).mlock(page, mmap.PAGESIZE) == 0)


def dump_its_memory_into_a_file(bait: Bait) -> bool:
    return resource.getrlimit(resource.RLIMIT_CORE)[1] != 0


def change_the_execution_domain(bait: Bait) -> bool:
    return _call("personality", 0xFFFFFFFF) >= 0


def start_a_process_behind_the_locked_door(bait: Bait) -> bool:
    return _in_a_child(_start_a_process_locked)


# what we are given


def find_a_variable_of_the_judges(bait: Bait) -> bool:
    """Among those set now, and those the process was started with."""
    named = set(os.environ)
    with suppress(OSError):
        started = Path("/proc/self/environ").read_bytes().split(b"\0")
        named |= {variable.partition(b"=")[0].decode() for variable in started if variable}
    return bool(named - set(bait.variables))


def find_a_descriptor_of_the_judges(bait: Bait) -> bool:
    return any(_is_open(number) for number in set(range(1024)) - {0, 1, 2, *bait.descriptors})


def hold_a_capability(bait: Bait) -> bool:
    """In any set; in a user namespace of our own, not even for a program to come."""
    status = Path("/proc/self/status").read_text()
    sets = ["CapInh", "CapPrm", "CapEff", "CapAmb", *(["CapBnd"] if "user" in bait.namespaces else [])]
    held = [int(status.partition(f"{name}:")[2].split()[0], 16) for name in sets]
    return any(capabilities & ~bait.capabilities for capabilities in held)


def gain_privileges_by_exec(bait: Bait) -> bool:
    return "NoNewPrivs:\t1" not in Path("/proc/self/status").read_text()


def take_more_memory(bait: Bait) -> None:
    mmap.mmap(-1, bait.memory_bytes + 4096, flags=mmap.MAP_PRIVATE).close()


def grow_a_file_without_bound(bait: Bait) -> None:
    with Path("grown").open("wb") as file:
        file.truncate(bait.scratch_bytes + 4096)


def fill_the_scratch_without_bound(bait: Bait) -> bool:
    if not bait.scratch_is_bounded:
        return False
    for name in ("first", "second"):
        Path(name).write_bytes(bytes(bait.scratch_bytes // 4 * 3))
    return True


ATTEMPTS: tuple[Attempt, ...] = (
    read_a_secret,
    read_a_secret_through_the_first_process,
    read_a_secret_through_the_judge,
    read_a_secret_through_the_judges_descriptor,
    read_a_key_of_the_users,
    list_a_folder_outside,
    watch_a_folder_outside,
    read_the_lab,
    write_outside,
    write_outside_through_a_link,
    overwrite_a_file_outside,
    truncate_a_file_outside,
    leave_a_pipe_outside,
    make_a_device_node,
    write_into_a_mapped_file,
    write_into_the_running_program,
    climb_out_of_the_working_folder,
    move_a_file_out,
    link_a_secret_in,
    change_the_mode_of_a_file_outside,
    change_the_times_of_a_file_outside,
    tag_a_file_outside,
    set_flags_of_a_file_outside,
    hold_up_whoever_writes,
    leave_files_behind,
    write_into_the_workspace,
    add_a_kernel_for_another,
    change_a_kernel_of_another,
    put_a_kernel_in_the_place_of_another,
    remove_a_kernel_of_another,
    plant_a_git_hook,
    change_the_git_configuration,
    name_a_filter_in_the_git_attributes,
    move_a_git_branch,
    write_into_the_harness,
    write_into_the_interpreter,
    write_into_the_root_folder,
    write_into_the_device_folder,
    open_a_raw_device,
    write_a_kernel_setting,
    write_the_system_request_trigger,
    write_a_device_setting,
    leave_the_cgroup,
    see_the_judge,
    see_another_process,
    read_the_judges_environment,
    open_the_judges_memory,
    open_the_first_processs_memory,
    copy_the_judges_memory,
    signal_the_judge,
    write_the_judges_memory,
    signal_a_thread_of_the_judges,
    queue_a_signal_for_the_judge,
    signal_the_judge_by_its_folder,
    end_a_process_of_the_judges,
    end_a_process_of_the_judges_through_a_pipe,
    trace_the_judge,
    take_the_judges_descriptor,
    limit_the_judge,
    pin_the_judge,
    slow_the_judge,
    reschedule_the_judge,
    order_the_judges_disk,
    compare_with_the_judge,
    find_the_judges_locks,
    survive_the_judge,
    outlive_the_run,
    become_a_sibling,
    leave_the_session,
    leave_the_process_group,
    wake_up_by_a_timer,
    wake_up_by_a_file,
    wake_up_by_a_folder,
    share_the_judges_session,
    share_a_namespace,
    see_the_hosts_name,
    reach_the_loopback,
    make_a_datagram_socket,
    make_a_datagram_socket_for_files,
    make_a_netlink_socket,
    make_a_socket_of_another_kind,
    reach_an_abstract_socket,
    reach_a_socket_file,
    make_a_message_queue,
    make_shared_memory,
    make_a_semaphore,
    make_a_named_queue,
    type_into_the_terminal,
    start_an_io_uring,
    start_asynchronous_io,
    load_a_module,
    restart_the_machine,
    mount_a_file_system,
    open_a_file_system,
    copy_the_file_tree,
    name_the_host,
    read_the_kernels_log,
    load_a_kernel_program,
    watch_the_kernels_counters,
    handle_page_faults,
    open_a_keyring,
    enter_a_new_user_namespace,
    enter_a_new_mount_namespace,
    clone_into_a_new_user_namespace,
    join_a_namespace,
    change_the_root_folder,
    open_a_file_by_its_handle,
    make_memory_no_limit_counts,
    make_memory_that_nobody_sees,
    become_another_user,
    leave_its_groups,
    run_before_everybody,
    hide_from_the_kernels_killer,
    raise_a_limit,
    hold_memory_down,
    dump_its_memory_into_a_file,
    change_the_execution_domain,
    start_a_process_behind_the_locked_door,
    find_a_variable_of_the_judges,
    find_a_descriptor_of_the_judges,
    hold_a_capability,
    gain_privileges_by_exec,
    take_more_memory,
    grow_a_file_without_bound,
    fill_the_scratch_without_bound,
)


def title(attempt: Attempt) -> str:
    """An attempt's name in words."""
    return getattr(attempt, "__name__", "").replace("_", " ")


def succeeds(attempt: Attempt, bait: Bait) -> bool:
    """Make one attempt; what fails in any ordinary way was held in."""
    try:
        return attempt(bait) is not False
    except (OSError, ValueError, MemoryError, OverflowError):
        return False


def main() -> None:
    """Make every attempt and print which got out."""
    bait = Bait(**json.loads(sys.argv[1]))
    print(json.dumps({title(attempt): succeeds(attempt, bait) for attempt in ATTEMPTS}))


def _opens(path: str, flags: int) -> bool:
    with suppress(OSError):
        os.close(os.open(path, flags | os.O_NONBLOCK))
        return True
    return False


def _makes(path: str) -> bool:
    if not _opens(path, os.O_CREAT | os.O_WRONLY):
        return False
    Path(path).unlink()
    return True


def _call(name: str, *arguments: object) -> int:
    machine = syscalls.machine()
    number = UNNAMED[name][machine != "x86_64"] if name in UNNAMED else syscalls.number(name, machine)
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return int(ctypes.CDLL(None, use_errno=True).syscall(number, *wide))


def _passes(name: str, *arguments: object) -> bool:
    """Whether a call came through to where its arguments are looked at, and found to be nonsense."""
    return _call(name, *arguments) < 0 and ctypes.get_errno() != EPERM


def _control(option: int, value: int) -> bool:
    return bool(ctypes.CDLL(None).prctl(option, value, 0, 0, 0) == 0)


def _makes_a_socket(family: int) -> bool:
    kind = socket.SOCK_STREAM if family == socket.AF_VSOCK else socket.SOCK_SEQPACKET
    with suppress(OSError):
        socket.socket(family, socket.SOCK_RAW if family == socket.AF_PACKET else kind).close()
        return True
    return False


def _in_a_child(deed: Callable[[], object]) -> bool:
    """Do something that would change this process, in another one; as with attempts, False or an exception: in vain."""
    child = os.fork()
    if child == 0:
        done = False
        try:
            done = deed() is not False
        finally:
            os._exit(0 if done else 1)
    return os.waitpid(child, 0)[1] == 0


def _start_a_process_locked() -> bool:
    seccomp.forbid_processes()
    if os.fork() == 0:
        os._exit(0)
    return True


def _is_open(number: int) -> bool:
    with suppress(OSError):
        os.fstat(number)
        return True
    return False


if __name__ == "__main__":
    main()
