#!/usr/bin/env python3
"""Climb a case by hand and by sweep, and bring back all there is to publish of it.

    scripts/experiments/study_climb.py unroll_for_loop/softmax_optimize --tag published --seconds 300 --output /tmp/out
    scripts/experiments/study_climb.py unroll_for_loop/softmax_optimize --at 176d7f6 --output /tmp/out
    scripts/experiments/study_climb.py demo/cpu_matmul --edit tuned.py --tag tried --seconds 60 --output /tmp/out

First each --edit FILE is tried as the case's entry file, with the knobs.yaml beside it where there is one, as a
person's or an agent's candidate; then the sweep goes on for so many seconds; at last what stands on the branch is
judged against the first edit, in fresh pairs. Without --edit it is the case's own optimized.py; with --at, that
commit's and then the one here: a climb from where the case stood once, over what was best then. The output folder gets
the run's ledger and report, the branch as a bundle that applies to the commit it was climbed from, and comparison.json.
All is run in a clone.
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

HERE = Path(__file__).resolve().parents[2]
ENTRY, OPTIMIZED, KNOBS = "kernel.py", "optimized.py", "knobs.yaml"
KEPT = ("ledger.jsonl", "report.html", "run.json")
"""Of a run's folder, where there is such."""


def main() -> int:
    options = _parse()
    with tempfile.TemporaryDirectory(prefix="hillclimb-climb-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # sandboxes look in from outside
        climb(options, clone(options.at, folder / "clone"), folder)
    return 0


def clone(commit: str, folder: Path) -> Path:
    """A checkout of a commit, with a branch of its own, since a climb wants a main to start from."""
    git(HERE, "clone", "--quiet", "--shared", "--no-checkout", str(HERE), str(folder))
    git(folder, "checkout", "--quiet", "-B", "main", git(HERE, "rev-parse", commit))
    return folder


def climb(options: argparse.Namespace, root: Path, folder: Path) -> None:
    """Edits, sweep and comparison in a checkout; what lasts is copied to the output."""
    case, branch = root / "cases" / options.case, f"hillclimb/{options.case}/{options.tag}"
    output, began = options.output / options.case / options.tag, time.monotonic()
    edits = options.edit or own_edits(options.case, case / "workspace")
    trees = [stage(case / "workspace", edit, folder / str(n)) for n, edit in enumerate(edits)]
    for tree, edit in zip(trees, edits, strict=True):
        words = ("--from", str(tree), "--commit", "--tag", options.tag, "--author", options.author)
        hillclimb(root, "evaluate", options.case, *words, "--idea", f"{edit.name} as it is", "--no-webhook")
        publish(root, options, branch, output)
    seconds = options.seconds + time.monotonic() - began  # a run's budget counts its edits too
    words = ("--tag", options.tag, "--proposer", "sweep", "--budget-seconds", f"{seconds:.0f}")
    hillclimb(root, "climb", options.case, *words, "--no-webhook", "--quiet")
    hillclimb(root, "report", options.case, "--tag", options.tag)
    publish(root, options, branch, output)
    words = ("--from", branch, "--against", str(trees[0]), "--json")
    against = hillclimb(root, "evaluate", options.case, *words)
    (output / "comparison.json").write_text(json.dumps(against, indent=1) + "\n")


def own_edits(case: str, workspace: Path) -> list[Path]:
    """The optimized.py of the checkout's workspace and, where it is another, the one here."""
    then, now = workspace / OPTIMIZED, HERE / "cases" / case / "workspace" / OPTIMIZED
    return [then] if then.read_bytes() == now.read_bytes() else [then, now]


def stage(workspace: Path, edit: Path, tree: Path) -> Path:
    """The case's workspace with the edit for its entry file, and the knobs that lie beside the edit."""
    shutil.copytree(workspace, tree, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copyfile(edit, tree / ENTRY)
    if edit.with_name(KNOBS).exists():
        shutil.copyfile(edit.with_name(KNOBS), tree / KNOBS)
    return tree


def hillclimb(root: Path, *words: str) -> Any:
    """The command's JSON where it printed some; a rejection by evaluate is no failure. Raises SystemExit for others."""
    program = (sys.executable, "-c", "from agent.cli import main; main()")
    paths = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH", "")]))
    print("hillclimb", *words, flush=True)
    told = subprocess.run(
        [*program, *words],
        cwd=root,
        env={**os.environ, "PYTHONPATH": paths},
        stdout=subprocess.PIPE if "--json" in words else None,
        text=True,
    )
    if told.returncode not in ((0, 1) if words[0] == "evaluate" else (0,)):
        raise SystemExit(f"hillclimb {words[0]} ended with status {told.returncode}")
    return json.loads(told.stdout) if "--json" in words else None


def publish(root: Path, options: argparse.Namespace, branch: str, output: Path) -> None:
    """Copy what lasts of a run as far as it has come, and bundle the branch from the commit it was climbed from."""
    output.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if (file := root / "runs" / options.case / options.tag / name).exists():
            shutil.copy2(file, output / name)
    if git(root, "rev-list", "--count", f"HEAD..{branch}") != "0":
        git(root, "bundle", "create", "--quiet", str(output / "branch.bundle"), f"HEAD..{branch}")


def git(folder: Path, *words: str) -> str:
    told = subprocess.run(["git", *words], cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    return told.stdout.strip()


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", help="<family>/<case>")
    parser.add_argument("--at", default="HEAD", metavar="COMMIT", help="climb the case as it was then")
    parser.add_argument("--edit", type=Path, action="append", metavar="FILE", help="may be repeated")
    parser.add_argument("--author", choices=("human", "agent"), default="agent", help="of the edits")
    parser.add_argument("--tag", default="published")
    parser.add_argument("--seconds", type=float, default=300.0, help="of the sweep")
    parser.add_argument("--output", type=Path, required=True)
    options = parser.parse_args()
    options.output = options.output.resolve()
    options.edit = [edit.resolve() for edit in options.edit or ()]
    return options


if __name__ == "__main__":
    sys.exit(main())
