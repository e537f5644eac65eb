"""Attempts to read, write or leave files."""

from __future__ import annotations

import fcntl
import os
import stat
from contextlib import suppress
from pathlib import Path

from hillclimb.harness.sandbox.canary.attempts.bait import SECRET, Attempt, Bait
from hillclimb.harness.sandbox.canary.attempts.primitives import (
    can_create,
    can_open,
    system_call,
)


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
    watcher = system_call("inotify_init1", 0)
    return watcher >= 0 and system_call("inotify_add_watch", watcher, bait.folder.encode(), everything) >= 0


def read_the_lab(bait: Bait) -> bool:
    return any(can_open(path, os.O_RDONLY) for path in bait.hidden)


def write_outside(bait: Bait) -> None:
    Path(bait.folder, "drop", "written").write_text("x")


def write_outside_through_a_link(bait: Bait) -> None:
    Path("link").symlink_to(Path(bait.folder, "drop"))
    Path("link", "linked").write_text("x")


def overwrite_a_file_outside(bait: Bait) -> bool:
    return can_open(f"{bait.folder}/victim", os.O_WRONLY)


def truncate_a_file_outside(bait: Bait) -> None:
    os.truncate(f"{bait.folder}/victim", 0)


def leave_a_pipe_outside(bait: Bait) -> None:
    os.mkfifo(Path(bait.folder, "drop", "pipe"))


def make_a_device_node(bait: Bait) -> None:
    null = os.makedev(1, 3)
    os.mknod("node", 0o600 | stat.S_IFCHR, null)


def write_into_a_mapped_file(bait: Bait) -> bool:
    """By the kernel's own links: in a fork they lead out of the sandbox."""
    return any(can_open(str(link), os.O_WRONLY) for link in Path("/proc/self/map_files").iterdir())


def write_into_the_running_program(bait: Bait) -> bool:
    """The file this process was started from, by the kernel's own link: in a fork it leads out of the sandbox."""
    return can_open("/proc/self/exe", os.O_WRONLY)


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
    return any(can_open(f"{path}/planted.py", os.O_CREAT | os.O_WRONLY) for path in (bait.workspace, inside))


def add_a_kernel_for_another(bait: Bait) -> bool:
    return can_open(f"{bait.kernels}/KEY/added.cubin", os.O_CREAT | os.O_WRONLY)


def change_a_kernel_of_another(bait: Bait) -> bool:
    return can_open(f"{bait.kernels}/KEY/kernel.cubin", os.O_WRONLY)


def put_a_kernel_in_the_place_of_another(bait: Bait) -> None:
    Path("forged").write_text("forged")
    Path("forged").rename(Path(bait.kernels, "KEY", "replaced.cubin"))


def remove_a_kernel_of_another(bait: Bait) -> None:
    Path(bait.kernels, "KEY", "removed.cubin").unlink()


def plant_a_git_hook(bait: Bait) -> None:
    Path(bait.folder, "repository/.git/hooks/post-checkout").write_text("#!/bin/sh\n")


def change_the_git_configuration(bait: Bait) -> bool:
    return can_open(f"{bait.folder}/repository/.git/config", os.O_WRONLY | os.O_APPEND)


def name_a_filter_in_the_git_attributes(bait: Bait) -> None:
    Path(bait.folder, "repository/.git/info/attributes").write_text("* filter=planted\n")


def move_a_git_branch(bait: Bait) -> None:
    Path(bait.folder, "repository/.git/refs/heads/main").write_text("0" * 40)


def write_into_the_harness(bait: Bait) -> bool:
    return can_open(__file__, os.O_WRONLY)


def write_into_the_interpreter(bait: Bait) -> bool:
    return can_open(os.__file__, os.O_WRONLY)


def write_into_the_root_folder(bait: Bait) -> bool:
    return can_create(f"/canary-{bait.judge}")


def write_into_the_device_folder(bait: Bait) -> bool:
    return can_create(f"/dev/canary-{bait.judge}")


def open_a_raw_device(bait: Bait) -> bool:
    devices = ("/dev/mem", "/dev/kmsg", "/dev/vda", "/dev/sda", "/dev/nvme0n1", "/proc/kcore", "/proc/kmsg")
    return any(can_open(device, os.O_RDONLY) for device in devices)


def write_a_kernel_setting(bait: Bait) -> bool:
    return can_open("/proc/sys/kernel/core_pattern", os.O_WRONLY)


def write_the_system_request_trigger(bait: Bait) -> bool:
    return can_open("/proc/sysrq-trigger", os.O_WRONLY)


def write_a_device_setting(bait: Bait) -> bool:
    settings = (
        "/sys/kernel/mm/transparent_hugepage/enabled",
        "/sys/power/state",
        "/sys/kernel/uevent_helper",
    )
    return any(can_open(setting, os.O_WRONLY) for setting in settings)


def leave_the_cgroup(bait: Bait) -> bool:
    groups = ("/sys/fs/cgroup", *(str(group) for group in Path("/sys/fs/cgroup").glob("*/")))
    return any(can_open(f"{group}/cgroup.procs", os.O_WRONLY) for group in groups)


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
)
