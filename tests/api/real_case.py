"""A repository with the real case of tests.fakes.cases, whose knob TIMES makes its kernel slow on purpose."""

from __future__ import annotations

from pathlib import Path

from tests.agent.climb.climbed import git
from tests.fakes.cases import write_case

CASE = "test/affine"

KERNEL = """
import os
import numpy as np
import yaml

with open(os.path.join(os.path.dirname(__file__), "knobs.yaml")) as file:
    knobs = yaml.safe_load(file.read())
TIMES = int(os.environ.get("TIMES") or knobs["TIMES"]["default"])

def run(x, y):
    for _ in range(TIMES):
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)
"""

KNOBS = "TIMES: {type: int, low: 1, high: 64, default: 64}\n"


def make_real_repository(root: Path) -> Path:
    """The case folder, committed."""
    case = write_case(root, KERNEL)
    (case / "workspace" / "knobs.yaml").write_text(KNOBS)
    (root / ".gitignore").write_text("/runs/\n")
    git(root, "init", "-q")
    git(root, "add", "-A")
    git(root, "commit", "-q", "-m", "start")
    return case
