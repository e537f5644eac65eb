"""Sends the runner's answer itself, and eats the next order.

family: forged-answer
entries: [41]
case: affine
reason: policy
says: "imports 'socket'"
unread:
  reason: output_not_written
"""

import socket
import sys

end = socket.socket(fileno=int(sys.argv[1]))


def run(x, y):
    end.send(b'{"ok": true, "ns": 1}')
    end.recv(65536)
