"""torch.compile's work on a yardstick, done apart and before anything is timed.

Every process of a duel would else try out kernels for minutes. What is compiled is packed into the workspace, where
`variants.COMPILED` unpacks it: the same graph is then found in the cache.

It is compiled a few times, each from nothing, and the fastest result is kept: what max-autotune chooses hangs on times
that it takes once. On two H200s it chose kernels of 91 and of 126 us for one operator (docs/results/studies.md).
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from hillclimb.harness.device.cores import usable_cpus
from hillclimb.harness.errors import HillclimbError
from hillclimb.harness.judge.pool import keyless_environment
from hillclimb.harness.records import Progress, Watch
from hillclimb.harness.studies.variants import INDUCTOR_FOLDER, YARDSTICK, StagedCase

MAX_COMPILE_SECONDS = 1800
"""For all tries."""

MAX_COMPILE_TRIES = 3
"""Times that a yardstick is compiled."""


def with_yardstick_compiled(copy: StagedCase, watch: Watch) -> StagedCase:
    """The staged case, without its yardstick where that cannot be compiled. No judge may hold the GPU meanwhile."""
    if YARDSTICK not in copy.sides:
        return copy
    try:
        return replace(copy, yardstick_note=compile_yardstick(copy, watch))
    except HillclimbError as error:
        others = {name: side for name, side in copy.sides.items() if name != YARDSTICK}
        return replace(copy, sides=others, yardstick_error=str(error))


def compile_yardstick(copy: StagedCase, watch: Watch) -> str:
    """Compile a staged case's yardstick for its timed problems; the times that it was chosen by, in a sentence.

    A try that fails ends it; what was made before counts. Raises HillclimbError where nothing was.
    """
    workspace, end = Path(copy.sides[YARDSTICK].tree), time.monotonic() + MAX_COMPILE_SECONDS
    found: list[float] = []
    with tempfile.TemporaryDirectory(prefix="hillclimb-yardstick-") as root:
        for done in range(MAX_COMPILE_TRIES):
            watch(Progress(stage="yardstick", done=done, of=MAX_COMPILE_TRIES))
            folder = Path(root, str(done))
            folder.mkdir()
            try:
                found.append(_compile(copy, workspace, folder, end - time.monotonic()))
            except HillclimbError:
                if not found:
                    raise
                break
            if not (folder / INDUCTOR_FOLDER).is_dir():
                return ""  # it is timed as it is
        fastest = Path(root, str(found.index(min(found))), INDUCTOR_FOLDER)
        shutil.make_archive(
            str(workspace / INDUCTOR_FOLDER), "tar", fastest
        )  # at last, for a try would find it there
    times = ", ".join(f"{1e6 * seconds:.1f}" for seconds in found)
    return f"the fastest of {len(found)} that torch.compile made: {times} us for one call of each problem"


def _compile(copy: StagedCase, workspace: Path, folder: Path, most_seconds: float) -> float:
    """One try, its cache below the folder; seconds of one call of each problem together."""
    command = [
        sys.executable,
        "-P",
        "-m",
        "hillclimb.harness.studies.compile_reference",
        str(copy.folder),
        str(workspace),
    ]
    try:
        done = subprocess.run(
            [*command, *copy.suites],
            env={
                **keyless_environment(),
                "TMPDIR": str(folder),
                "TORCHINDUCTOR_COMPILE_THREADS": str(_cores()),
            },
            capture_output=True,
            text=True,
            timeout=most_seconds,
        )
    except subprocess.TimeoutExpired:
        raise HillclimbError(f"compiling it took over {MAX_COMPILE_SECONDS} s") from None
    told = re.search(
        "^seconds: (.+)$", done.stdout, re.MULTILINE
    )  # of hillclimb.harness.studies.compile_reference
    if done.returncode or told is None:
        raise HillclimbError(f"could not be compiled: {done.stderr.strip()[-500:] or done.returncode}")
    return float(told[1])


def _cores() -> int:
    return usable_cpus()
