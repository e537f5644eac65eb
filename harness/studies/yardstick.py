"""torch.compile's work on a yardstick, done once, apart and before anything is timed.

Every process of a duel would else try out kernels for minutes. What is compiled is packed into the workspace, where
`variants.COMPILED` unpacks it: the same graph is then found in the cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from harness.judge.pool import keyless_environment
from harness.studies.variants import CACHE, YARDSTICK, Staged

MOST_SECONDS = 1800


def with_yardstick_compiled(copy: Staged) -> Staged:
    """The staged case, without its yardstick where that cannot be compiled. No judge may hold the GPU meanwhile."""
    if YARDSTICK not in copy.sides or not (trouble := compile_ahead(copy)):
        return copy
    others = {name: side for name, side in copy.sides.items() if name != YARDSTICK}
    return replace(copy, sides=others, trouble=trouble)


def compile_ahead(copy: Staged) -> str:
    """Compile a staged case's yardstick for its timed problems; why that failed, empty where it did not."""
    workspace = Path(copy.sides[YARDSTICK].tree)
    command = [sys.executable, "-P", "-m", "harness.judge.fixed", str(copy.folder), str(workspace)]
    with tempfile.TemporaryDirectory(prefix="hillclimb-yardstick-") as folder:
        try:
            done = subprocess.run(
                [*command, *copy.suites],
                env={
                    **keyless_environment(),
                    "TMPDIR": folder,
                    "TORCHINDUCTOR_COMPILE_THREADS": str(_cores()),
                },
                capture_output=True,
                text=True,
                timeout=MOST_SECONDS,
            )
        except subprocess.TimeoutExpired:
            return f"compiling it took over {MOST_SECONDS} s"
        if done.returncode:
            return f"could not be compiled: {done.stderr.strip()[-500:] or done.returncode}"
        if (made := Path(folder, "inductor")).is_dir():  # not where it is timed as it is
            shutil.make_archive(str(workspace / Path(CACHE).stem), "tar", made)
    return ""


def _cores() -> int:
    return len(os.sched_getaffinity(0))
