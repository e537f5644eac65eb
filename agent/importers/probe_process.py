"""Asks a process of its own what running a source shows: a crash or an endless loop there ends nothing here."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

from pydantic import ValidationError

from hillclimb.agent.importers.formats.imported import Findings, Plan
from hillclimb.harness.errors import UsageError

MAX_PROBE_SECONDS = 300.0
"""Longest that a source may take. The largest public modules take one."""

PROBE = "hillclimb.agent.importers.probing"


def ask(plan: Plan, path: Path, seconds: float = MAX_PROBE_SECONDS) -> Findings:
    """Raises UsageError that says what came of it."""
    with tempfile.TemporaryDirectory(prefix="hillclimb_import_") as folder:
        source = Path(folder) / "source.py"
        for name, text in {"source.py": plan.source, **plan.beside}.items():
            (source.parent / name).write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", PROBE, str(source)]
        try:
            done = subprocess.run(
                command, input=plan.model_dump_json(), capture_output=True, text=True, timeout=seconds
            )
        except subprocess.TimeoutExpired:
            raise UsageError(
                f"{path}: {plan.operator.name} was not done after {seconds:.0f} s; make its constants smaller"
            ) from None
    if done.returncode < 0:
        raise UsageError(f"{path}: running it ended the process by signal {-done.returncode}; mend it")
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise UsageError(f"{path}: it cannot be a case: {said}")
    try:
        return Findings.model_validate_json(done.stdout)
    except ValidationError:
        raise UsageError(
            f"{path}: running it gave no answer; it must not end the process by itself"
        ) from None
