"""Attempts to reach parts of the kernel that no compute kernel needs."""

from __future__ import annotations

import ctypes
import mmap
import os
import resource
import signal
import struct
from pathlib import Path

from hillclimb.harness.sandbox.canary.attempts.bait import Attempt, Bait
from hillclimb.harness.sandbox.canary.attempts.primitives import (
    reaches_kernel,
    start_a_process_locked,
    succeeds_in_child,
    system_call,
)


def start_an_io_uring(bait: Bait) -> bool:
    return system_call("io_uring_setup", 4, ctypes.create_string_buffer(256)) >= 0


def start_asynchronous_io(bait: Bait) -> bool:
    """Of events there are so many on the whole machine (fs.aio-max-nr)."""
    context = ctypes.c_ulong()
    return system_call("io_setup", 1, ctypes.byref(context)) == 0


def load_a_module(bait: Bait) -> bool:
    """EPERM is the border's answer; the kernel's own to what is no file would be another."""
    return reaches_kernel("finit_module", -1, b"", 0)


def restart_the_machine(bait: Bait) -> bool:
    """Without the number that the kernel demands, so that it answers EINVAL to those who may."""
    return reaches_kernel("reboot", 0, 0, 0, 0)


def mount_a_file_system(bait: Bait) -> bool:
    return reaches_kernel("mount", b"none", b"/nonexistent", b"tmpfs", 0, 0)


def open_a_file_system(bait: Bait) -> bool:
    return system_call("fsopen", b"tmpfs", 0) >= 0


def copy_the_file_tree(bait: Bait) -> bool:
    clone = 1
    return system_call("open_tree", -100, b"/", clone) >= 0


def name_the_host(bait: Bait) -> bool:
    name = os.uname().nodename.encode()
    return system_call("sethostname", name, len(name)) == 0


def read_the_kernels_log(bait: Bait) -> bool:
    read_all, here = 3, ctypes.create_string_buffer(64)
    return system_call("syslog", read_all, here, 64) >= 0


def load_a_kernel_program(bait: Bait) -> bool:
    array = ctypes.create_string_buffer(struct.pack("5I", 2, 4, 8, 1, 0), 128)
    return system_call("bpf", 0, array, 128) >= 0


def watch_the_kernels_counters(bait: Bait) -> bool:
    software_clock = ctypes.create_string_buffer(struct.pack("IIQ", 1, 128, 0), 128)
    return system_call("perf_event_open", software_clock, 0, -1, -1, 0) >= 0


def handle_page_faults(bait: Bait) -> bool:
    return system_call("userfaultfd", 0) >= 0


def open_a_keyring(bait: Bait) -> bool:
    return system_call("keyctl", 0, -3, 1) >= 0


def enter_a_new_user_namespace(bait: Bait) -> bool:
    return succeeds_in_child(lambda: system_call("unshare", 0x10000000) == 0)


def enter_a_new_mount_namespace(bait: Bait) -> bool:
    return succeeds_in_child(lambda: system_call("unshare", 0x00020000) == 0)


def clone_into_a_new_user_namespace(bait: Bait) -> bool:
    child = system_call("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)
    if child == 0:
        os._exit(0)
    return child > 0 and os.waitpid(child, 0)[1] == 0


def join_a_namespace(bait: Bait) -> bool:
    """EPERM is the border's answer; the kernel's own to a file that is no namespace would be another."""
    with Path("/dev/null").open() as file:
        refused = system_call("setns", file.fileno(), 0) < 0
    return not (refused and ctypes.get_errno() == 1)


def change_the_root_folder(bait: Bait) -> bool:
    return succeeds_in_child(lambda: system_call("chroot", b"/") == 0)


def open_a_file_by_its_handle(bait: Bait) -> bool:
    """EPERM is the border's answer; the kernel's own to this nonsense would be another."""
    refused = (
        system_call("open_by_handle_at", -100, ctypes.create_string_buffer(struct.pack("Ii", 8, 1), 16), 0)
        < 0
    )
    return not (refused and ctypes.get_errno() == 1)


def make_memory_no_limit_counts(bait: Bait) -> bool:
    return system_call("memfd_create", b"canary", 0) >= 0


def make_memory_that_nobody_sees(bait: Bait) -> bool:
    return system_call("memfd_secret", 0) >= 0


def become_another_user(bait: Bait) -> bool:
    return succeeds_in_child(lambda: os.setresuid(65534, 65534, 65534))


def leave_its_groups(bait: Bait) -> bool:
    return succeeds_in_child(lambda: os.setgroups([]))


def run_before_everybody(bait: Bait) -> bool:
    return succeeds_in_child(lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))


def hide_from_the_kernels_killer(bait: Bait) -> bool:
    """A process that memory will be taken from later than from others."""
    return succeeds_in_child(lambda: Path("/proc/self/oom_score_adj").write_text("-500"))


def raise_a_limit(bait: Bait) -> bool:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1] + 1
    return succeeds_in_child(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard)))


def hold_memory_down(bait: Bait) -> bool:
    """Locked pages are taken from everybody else."""
    page = ctypes.create_string_buffer(mmap.PAGESIZE)
    return bool(ctypes.CDLL(None).mlock(page, mmap.PAGESIZE) == 0)


def dump_its_memory_into_a_file(bait: Bait) -> bool:
    return resource.getrlimit(resource.RLIMIT_CORE)[1] != 0


def change_the_execution_domain(bait: Bait) -> bool:
    return system_call("personality", 0xFFFFFFFF) >= 0


def start_a_process_behind_the_locked_door(bait: Bait) -> bool:
    return succeeds_in_child(start_a_process_locked)


ATTEMPTS: tuple[Attempt, ...] = (
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
)
