#!/usr/bin/env python3
"""Climb a case by hand and by sweep, and bring back all there is to publish of it.

    scripts/experiments/study_climb.py unroll_for_loop/softmax_optimize --tag published --seconds 300 --output /tmp/out
    scripts/experiments/study_climb.py demo/cpu_matmul --edit tuned.py --tag tried --seconds 60 --output /tmp/out

First each --edit FILE is tried as the case's entry file, as a person's or an agent's candidate (default: the case's own
optimized.py); then the sweep goes on for so many seconds; at last what stands on the branch is judged against the first
edit, in fresh pairs. The output folder gets the run's ledger and report, the branch as a bundle that applies to the
commit it was climbed from, and comparison.json. Run it in a clone: the run and its branch stay there as well.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
KEPT = ("ledger.jsonl", "report.html", "run.json")
"""Of a run's folder, where there is such."""


def main() -> int:
    options = _parse()
    case, branch = ROOT / "cases" / options.case, f"hillclimb/{options.case}/{options.tag}"
    start, began = git("rev-parse", "HEAD"), time.monotonic()
    edits = options.edit or [case / "workspace" / "optimized.py"]
    with tempfile.TemporaryDirectory(prefix="hillclimb-climb-") as name:
        trees = [stage(case / "workspace", edit, Path(name) / str(n)) for n, edit in enumerate(edits)]
        for tree, edit in zip(trees, edits, strict=True):
            words = ("--from", str(tree), "--commit", "--tag", options.tag, "--author", options.author)
            hillclimb("evaluate", options.case, *words, "--idea", f"{edit.name} as it is", "--no-webhook")
        seconds = options.seconds + time.monotonic() - began  # a run's budget counts its edits too
        words = ("--tag", options.tag, "--proposer", "sweep", "--budget-seconds", f"{seconds:.0f}")
        hillclimb("climb", options.case, *words, "--no-webhook", "--quiet")
        hillclimb("report", options.case, "--tag", options.tag)
        against = hillclimb("evaluate", options.case, "--from", branch, "--against", str(trees[0]), "--json")
    folder = options.output / options.case / options.tag
    publish(ROOT / "runs" / options.case / options.tag, branch, start, folder)
    (folder / "comparison.json").write_text(json.dumps(against, indent=1) + "\n")
    return 0


def stage(workspace: Path, edit: Path, tree: Path) -> Path:
    """The case's workspace with the edit for its entry file."""
    shutil.copytree(workspace, tree, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(edit, tree / "kernel.py")
    return tree


def hillclimb(*words: str) -> Any:
    """The command's JSON where it printed some; a rejection is no failure of ours. Raises SystemExit for others."""
    program = (sys.executable, "-c", "from agent.cli import main; main()")
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    print("hillclimb", *words, flush=True)
    told = subprocess.run(
        [*program, *words],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE if "--json" in words else None,
        text=True,
    )
    if told.returncode > 1:
        raise SystemExit(f"hillclimb {words[0]} ended with status {told.returncode}")
    return json.loads(told.stdout) if "--json" in words else None


def publish(run: Path, branch: str, start: str, folder: Path) -> None:
    """Copy what lasts of a run, and bundle the branch from the commit it was climbed from."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if (run / name).exists():
            shutil.copy2(run / name, folder / name)
    if git("rev-list", "--count", f"{start}..{branch}") != "0":
        git("bundle", "create", str(folder / "branch.bundle"), f"{start}..{branch}")


def git(*words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", help="<family>/<case>")
    parser.add_argument("--edit", type=Path, action="append", metavar="FILE", help="may be repeated")
    parser.add_argument("--author", choices=("human", "agent"), default="agent", help="of the edits")
    parser.add_argument("--tag", default="published")
    parser.add_argument("--seconds", type=float, default=300.0, help="of the sweep")
    parser.add_argument("--output", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
