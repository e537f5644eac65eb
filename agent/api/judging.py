"""Judges one tree from Python, as `hillclimb evaluate` does."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hillclimb.agent.evaluate.evaluation import EvaluationRequest, EvaluationResult, evaluate
from hillclimb.harness.case.case import find_case
from hillclimb.harness.records import Progress, Watch


def ignore_progress(progress: Progress) -> None:
    """Nobody watches."""


def judge_tree(
    case: str | Path,
    tree: str | Path | None = None,
    *,
    against: str = "HEAD",
    knobs: Mapping[str, object] | None = None,
    trust_workspace: bool = False,
    watch: Watch = ignore_progress,
) -> EvaluationResult:
    """Gate, screen and confirm one version of a case's workspace against another. Nothing is written.

    `case` is a folder or `<family>/<case>`; `tree` a folder or a revision, by default the working files; `against`
    what it must beat, a version or the .py file of a yardstick. The record is that of `hillclimb evaluate --json`:
    `kept`, `reason`, `confirmation.speedup`. Raises CaseError for a case that is wrong, UsageError for a version that
    cannot be found, MachineError where nothing can be measured here.
    """
    asked = tuple(f"{name}={value}" for name, value in (knobs or {}).items())
    candidate = None if tree is None else str(tree)
    return evaluate(
        EvaluationRequest(find_case(str(case)), candidate, against, asked, trust_workspace), watch
    )
