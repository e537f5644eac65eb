"""Answering for a candidate that wants to start a process or a program: seccomp's user notifications.

Documentation/userspace-api/seccomp_filter.rst, "Userspace Notification". What is asked is decided without looking
at the candidate's memory: only that a call came matters, so that nothing can be changed behind the answer's back.
"""

from __future__ import annotations

import fcntl
import os
import struct
from errno import ENOENT

NOTIFICATION = struct.Struct("=QII64x")
"""struct seccomp_notif: id, pid, flags, the call."""

RESPONSE = struct.Struct("=QqiI")
"""struct seccomp_notif_resp: id, value, error, flags."""

RECEIVE, SEND = 0xC0502100, 0xC0182101
"""SECCOMP_IOCTL_NOTIF_RECV, SECCOMP_IOCTL_NOTIF_SEND."""

CONTINUE = 1
"""Let the call go on as if nobody had asked. Since Linux 5.5."""


class SeccompListener:
    """The one descriptor through which a candidate's calls are answered; closed, every one fails with ENOSYS."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def allow(self) -> None:
        """Let the call that waits go on; nothing where it waits no longer."""
        waiting = self._receive()
        if waiting is not None:
            self._control(SEND, bytearray(RESPONSE.pack(waiting, 0, 0, CONTINUE)))

    def _receive(self) -> int | None:
        asked = bytearray(NOTIFICATION.size)
        return NOTIFICATION.unpack(asked)[0] if self._control(RECEIVE, asked) else None

    def _control(self, request: int, data: bytearray) -> bool:
        """False where whoever asked was interrupted, or is gone."""
        try:
            fcntl.ioctl(self.descriptor, request, data)
        except OSError as error:
            if error.errno != ENOENT:
                raise
            return False
        return True

    def close(self) -> None:
        os.close(self.descriptor)
