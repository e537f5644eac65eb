"""As root, the border's tests are run once more by an ordinary user, in a view of the disk that lets it in."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.escapes.outside import run_as_user

TESTS = Path(__file__).parents[1]
MODULES = (
    "escapes/test_canary.py",
    "escapes/test_walls.py",
    "escapes/test_outliving.py",
    "contracts/test_rungs.py",
    "harness/sandbox/test_landlock_rung.py",
    "harness/sandbox/test_prefork.py",
    "harness/sandbox/test_seal.py",
    "harness/sandbox/test_grants.py",
)


@pytest.mark.slow(30)
@pytest.mark.parametrize("module", MODULES)
def test_the_suite_passes_as_an_ordinary_user(module: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("not root: this is an ordinary user already")
    with TemporaryDirectory(prefix="hillclimb-user-") as folder:
        options = ["-n0", "-q", "-p", "no:cacheprovider", "-rfEs", f"--basetemp={folder}/home/pytest"]
        command = [sys.executable, "-m", "pytest", *options, str(TESTS / module)]
        try:
            result = run_as_user(Path(folder), command, 280)
        except LookupError as error:
            pytest.skip(str(error))
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
    assert " passed" in result.stdout
