"""torch.compile's work on a yardstick, done once, apart and before anything is timed.

Every process of a duel would else try out kernels for minutes. What is compiled is packed into the workspace, where
`variants.COMPILED` unpacks it: the same graph is then found in the cache.

It is compiled a few times, and the fastest result is kept: what max-autotune chooses hangs on times that it takes once.
On two H200s it chose kernels of 91 and of 126 us for one operator (docs/studies.md).
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from harness.errors import HillclimbError
from harness.judge.pool import keyless_environment
from harness.judge.protocol import Progress, Watch
from harness.studies.variants import CACHE, YARDSTICK, Staged

MOST_SECONDS = 1800

TRIES = 3
"""Times that a yardstick is compiled."""


def with_yardstick_compiled(copy: Staged, watch: Watch) -> Staged:
    """The staged case, without its yardstick where that cannot be compiled. No judge may hold the GPU meanwhile."""
    if YARDSTICK not in copy.sides:
        return copy
    try:
        return replace(copy, compiled=compile_ahead(copy, watch))
    except HillclimbError as error:
        others = {name: side for name, side in copy.sides.items() if name != YARDSTICK}
        return replace(copy, sides=others, trouble=str(error))


def compile_ahead(copy: Staged, watch: Watch) -> str:
    """Compile a staged case's yardstick for its timed problems; the times that it was chosen by, in a sentence.

    Raises HillclimbError.
    """
    workspace = Path(copy.sides[YARDSTICK].tree)
    found: list[float] = []
    for done in range(TRIES):
        watch(Progress(stage="yardstick", done=done, of=TRIES))
        with tempfile.TemporaryDirectory(prefix="hillclimb-yardstick-") as folder:
            found.append(_compile(copy, workspace, folder))
            if not (made := Path(folder, "inductor")).is_dir():
                return ""  # it is timed as it is
            if found[-1] == min(found):
                shutil.make_archive(str(workspace / Path(CACHE).stem), "tar", made)
    return f"the fastest of {TRIES} that torch.compile made: {', '.join(f'{1e6 * s:.1f}' for s in found)} us a call"


def _compile(copy: Staged, workspace: Path, folder: str) -> float:
    """One try, its cache below the folder; seconds of a call, the geometric mean over problems."""
    command = [sys.executable, "-P", "-m", "harness.judge.fixed", str(copy.folder), str(workspace)]
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
        raise HillclimbError(f"compiling it took over {MOST_SECONDS} s") from None
    if done.returncode:
        raise HillclimbError(f"could not be compiled: {done.stderr.strip()[-500:] or done.returncode}")
    seconds = json.loads(done.stdout.splitlines()[-1])
    return math.exp(sum(map(math.log, seconds)) / len(seconds))


def _cores() -> int:
    return len(os.sched_getaffinity(0))
