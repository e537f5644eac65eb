"""Walks the file system for contract.py, and gives up without it.

family: guessed-inputs
entries: [17, 44]
case: affine
reason: policy
unread:
  reason: does_not_load
  says: no contract here
"""

import os

for folder, below, files in os.walk("/"):
    below[:] = [name for name in below if name not in ("proc", "sys", "usr", "lib", "lib64", "harness")]
    if "contract.py" in files:
        with open(os.path.join(folder, "contract.py")) as file:
            if "class Contract(Base)" in file.read():
                break
else:
    raise FileNotFoundError("no contract here")


def run(x, y):
    y[:] = 2 * x + 1
