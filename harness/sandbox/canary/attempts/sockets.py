"""Attempts to talk to anybody but the judge."""

from __future__ import annotations

import fcntl
import os
import socket
from pathlib import Path

from hillclimb.harness.sandbox.canary.attempts.bait import Attempt, Bait
from hillclimb.harness.sandbox.canary.attempts.primitives import (
    makes_a_socket,
    system_call,
)
from hillclimb.harness.sandbox.kernel import seccomp


def reach_the_loopback(bait: Bait) -> None:
    socket.create_connection(("127.0.0.1", bait.port), 1).close()


def make_a_datagram_socket(bait: Bait) -> None:
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).close()


def make_a_datagram_socket_for_files(bait: Bait) -> None:
    """It could send to a socket file by name, without connecting; Landlock would not see it."""
    socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).close()


def make_a_pair_of_datagram_sockets(bait: Bait) -> None:
    """Either could send to a socket file as well."""
    for end in socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM):
        end.close()


def reach_the_loopback_by_the_first_data(bait: Bait) -> None:
    with socket.socket() as end:
        end.sendto(b"", seccomp.MSG_FASTOPEN, ("127.0.0.1", bait.port))


def make_a_netlink_socket(bait: Bait) -> None:
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW).close()


def make_a_socket_of_another_kind(bait: Bait) -> bool:
    """To the hypervisor, to the kernel's ciphers, to the wire."""
    return any(makes_a_socket(family) for family in (socket.AF_VSOCK, socket.AF_ALG, socket.AF_PACKET))


def reach_an_abstract_socket(bait: Bait) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.connect("\0" + bait.abstract)


def reach_a_socket_file(bait: Bait) -> None:
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(f"{bait.folder}/socket")


def make_a_message_queue(bait: Bait) -> bool:
    queue = system_call("msgget", 0, 0o600)
    return queue >= 0 and system_call("msgctl", queue, 0, 0) == 0


def make_shared_memory(bait: Bait) -> bool:
    segment = system_call("shmget", 0, 4096, 0o600)
    return segment >= 0 and system_call("shmctl", segment, 0, 0) == 0


def make_a_semaphore(bait: Bait) -> bool:
    semaphores = system_call("semget", 0, 1, 0o600)
    return semaphores >= 0 and system_call("semctl", semaphores, 0, 0) == 0


def make_a_named_queue(bait: Bait) -> bool:
    name = f"canary-{bait.judge}".encode()
    queue = system_call("mq_open", name, os.O_CREAT | os.O_RDWR, 0o600, 0)
    return queue >= 0 and system_call("mq_unlink", name) == 0


def type_into_the_terminal(bait: Bait) -> None:
    with Path("/dev/tty").open("wb") as terminal:
        fcntl.ioctl(terminal, seccomp.TERMINAL_REQUESTS[0], b"\n")


ATTEMPTS: tuple[Attempt, ...] = (
    reach_the_loopback,
    make_a_datagram_socket,
    make_a_datagram_socket_for_files,
    make_a_pair_of_datagram_sockets,
    reach_the_loopback_by_the_first_data,
    make_a_netlink_socket,
    make_a_socket_of_another_kind,
    reach_an_abstract_socket,
    reach_a_socket_file,
    make_a_message_queue,
    make_shared_memory,
    make_a_semaphore,
    make_a_named_queue,
    type_into_the_terminal,
)
