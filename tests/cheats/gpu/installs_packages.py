"""Installs a package that would do the work.

family: other-processes
case: rows
entries: [44]
reason: policy
says: "imports 'subprocess'"
"""

import subprocess
import sys

subprocess.run([sys.executable, "-m", "pip", "install", "flash-attn"])


def run(x, y):
    y.zero_()
