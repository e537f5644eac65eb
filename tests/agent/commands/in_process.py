"""Runs a command in the test's own process, for what it says before it starts any other: help and wrong usage."""

from __future__ import annotations

import io
import subprocess
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from hillclimb.agent.cli import main


def hillclimb(
    *arguments: str, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` of the command would tell it."""
    out, err, status = io.StringIO(), io.StringIO(), 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err), chdir(cwd):
        for name, value in {"COLUMNS": "100", **(environment or {})}.items():
            patch.setenv(name, value)
        patch.setattr("sys.argv", ["hillclimb", *arguments])
        try:
            main()
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 1
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())
