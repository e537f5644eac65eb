"""Attempts to see, signal, slow or outlive other processes."""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import signal
import struct
import time
from contextlib import suppress
from pathlib import Path

from hillclimb.harness.sandbox.canary.attempts.bait import OUTLIVES_SECONDS, SECRET, Attempt, Bait
from hillclimb.harness.sandbox.canary.attempts.primitives import (
    can_open,
    process_control,
    succeeds_in_child,
    system_call,
)
from hillclimb.harness.sandbox.kernel import seccomp


def see_the_judge(bait: Bait) -> bool:
    return bool(Path(f"/proc/{bait.judge}/stat").read_text())


def see_another_process(bait: Bait) -> bool:
    """Anybody's: the zygote's, the one that holds the namespaces open, a stranger's."""
    return any(
        can_open(f"{entry}/environ", os.O_RDONLY)
        for entry in Path("/proc").iterdir()
        if entry.name.isdigit() and int(entry.name) != os.getpid()
    )


def read_the_judges_environment(bait: Bait) -> bool:
    return bool(Path(f"/proc/{bait.judge}/environ").read_bytes())


def open_the_judges_memory(bait: Bait) -> bool:
    return can_open(f"/proc/{bait.judge}/mem", os.O_RDWR)


def open_the_first_processs_memory(bait: Bait) -> bool:
    return can_open("/proc/1/mem", os.O_RDWR)


def copy_the_judges_memory(bait: Bait) -> bool:
    here = ctypes.create_string_buffer(len(SECRET))
    local = struct.pack("PN", ctypes.addressof(here), len(SECRET))
    remote = struct.pack("PN", bait.address, len(SECRET))
    return (
        system_call("process_vm_readv", bait.judge, local, 1, remote, 1, 0) > 0
        and here.raw == SECRET.encode()
    )


def signal_the_judge(bait: Bait) -> None:
    os.kill(bait.judge, 0)


def write_the_judges_memory(bait: Bait) -> bool:
    """What stands there already."""
    here = ctypes.create_string_buffer(SECRET.encode())
    local = struct.pack("PN", ctypes.addressof(here), len(SECRET))
    remote = struct.pack("PN", bait.address, len(SECRET))
    return system_call("process_vm_writev", bait.judge, local, 1, remote, 1, 0) > 0


def signal_a_thread_of_the_judges(bait: Bait) -> bool:
    return system_call("tgkill", bait.judge, bait.judge, 0) == 0


def queue_a_signal_for_the_judge(bait: Bait) -> bool:
    queued = ctypes.create_string_buffer(struct.pack("3i", 0, 0, -1), 128)
    return system_call("rt_sigqueueinfo", bait.judge, 0, queued) == 0


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
    return system_call("ptrace", seize, bait.judge, 0, 0) == 0


def take_the_judges_descriptor(bait: Bait) -> bool:
    process = system_call("pidfd_open", bait.judge, 0)
    return process >= 0 and system_call("pidfd_getfd", process, bait.descriptor, 0) >= 0


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
    return system_call("ioprio_set", one_process, bait.judge, best_effort) == 0


def compare_with_the_judge(bait: Bait) -> bool:
    memory = 1
    return system_call("kcmp", os.getpid(), bait.judge, memory, 0, 0) >= 0


def find_the_judges_locks(bait: Bait) -> bool:
    head, length = ctypes.c_void_p(), ctypes.c_size_t()
    return system_call("get_robust_list", bait.judge, ctypes.byref(head), ctypes.byref(length)) == 0


def survive_the_judge(bait: Bait) -> bool:
    return succeeds_in_child(lambda: process_control(seccomp.PR_SET_PDEATHSIG, 0))


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
    beside = system_call("clone", 0x8000 | signal.SIGCHLD, 0, 0, 0, 0)
    if beside == 0:
        os._exit(0)
    return beside > 0


def leave_the_session(bait: Bait) -> bool:
    return succeeds_in_child(lambda: system_call("setsid") >= 0)


def leave_the_process_group(bait: Bait) -> bool:
    return succeeds_in_child(lambda: system_call("setpgid", 0, 0) == 0)


def wake_up_by_a_timer(bait: Bait) -> bool:
    """With the one signal that also wakes a process the judge has stopped."""
    event, timer = struct.pack("PiiQ40x", 0, signal.SIGCONT, 0, 0), ctypes.c_int()
    return system_call("timer_create", time.CLOCK_MONOTONIC, event, ctypes.byref(timer)) == 0


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


ATTEMPTS: tuple[Attempt, ...] = (
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
)
