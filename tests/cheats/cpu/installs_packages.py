"""Installs a package that would do the work.

family: other-processes
entries: [44]
case: affine
reason: policy
says: "imports 'subprocess'"
unread:
  reason: started_process
"""

import subprocess
import sys

subprocess.run([sys.executable, "-m", "pip", "install", "fastaffine"])


def run(x, y):
    y[:] = 2 * x + 1
