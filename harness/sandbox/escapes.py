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
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from harness.sandbox import seccomp, syscalls

SECRET = "the canary's secret"


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
    """Outside the border: holds `secret`, `victim`, `socket`, `drop/`."""
    marks: Sequence[str]
    """Files that must not be left behind, in folders shared by everybody."""
    hidden: Sequence[str]
    """Parts of the lab that must be invisible."""
    workspace: str
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


def type_into_the_terminal(bait: Bait) -> None:
    with Path("/dev/tty").open("wb") as terminal:
        fcntl.ioctl(terminal, seccomp.TERMINAL_REQUESTS[0], b"\n")


# the kernel


def start_an_io_uring(bait: Bait) -> bool:
    return _call("io_uring_setup", 4, ctypes.create_string_buffer(256)) >= 0


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
    read_the_lab,
    write_outside,
    write_outside_through_a_link,
    overwrite_a_file_outside,
    truncate_a_file_outside,
    write_into_the_running_program,
    climb_out_of_the_working_folder,
    move_a_file_out,
    link_a_secret_in,
    change_the_mode_of_a_file_outside,
    change_the_times_of_a_file_outside,
    tag_a_file_outside,
    leave_files_behind,
    write_into_the_workspace,
    write_into_the_harness,
    write_into_the_interpreter,
    write_into_the_root_folder,
    write_into_the_device_folder,
    open_a_raw_device,
    write_a_kernel_setting,
    write_the_system_request_trigger,
    write_a_device_setting,
    see_the_judge,
    see_another_process,
    read_the_judges_environment,
    open_the_judges_memory,
    open_the_first_processs_memory,
    copy_the_judges_memory,
    signal_the_judge,
    trace_the_judge,
    take_the_judges_descriptor,
    limit_the_judge,
    pin_the_judge,
    slow_the_judge,
    share_the_judges_session,
    share_a_namespace,
    see_the_hosts_name,
    reach_the_loopback,
    make_a_datagram_socket,
    make_a_datagram_socket_for_files,
    make_a_netlink_socket,
    reach_an_abstract_socket,
    reach_a_socket_file,
    make_a_message_queue,
    make_shared_memory,
    type_into_the_terminal,
    start_an_io_uring,
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
    number = syscalls.number(name, syscalls.machine())
    wide = [ctypes.c_long(value) if isinstance(value, int) else value for value in arguments]
    return int(ctypes.CDLL(None, use_errno=True).syscall(number, *wide))


def _in_a_child(deed: Callable[[], bool]) -> bool:
    """Do something that would change this process, in another one."""
    child = os.fork()
    if child == 0:
        done = False
        try:
            done = deed()
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
