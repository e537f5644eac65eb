"""A study on the CPU, small enough to be gated and timed for real: y = 2 x + 1, plainly and fast."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.fakes.cases import HONEST, repeated, write_case

PLAIN = repeated(30)
KERNEL = '"""What is climbed."""\n\nfrom baseline import run as run\n'
WRONG = HONEST.replace("np.float32(1)", "np.float32(2)")


def write_study(root: Path, names: tuple[str, ...] = ("affine",), study: str = "small") -> Path:
    """The folder `cases`, with a study of these cases; each has a baseline and a faster kernel."""
    root.chmod(0o755)
    made = write_case(root, KERNEL)
    (made / "workspace" / "baseline.py").write_text(PLAIN)
    (made / "workspace" / "optimized.py").write_text(HONEST)
    (made / "benchmarks" / "rest.yaml").write_text("problems: [odd, timed]\ndistribution: normal\n")
    for name in names:
        shutil.copytree(made, root / "cases" / study / name)
    shutil.rmtree(made.parent)
    return root / "cases"
