"""Sides of a judgement by name: folders, revisions and yardsticks."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.agent.evaluate.versions import find_opponent
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import UsageError
from tests.agent.climb.climbed import git
from tests.fakes.cases import HONEST, QUICK, write_case, write_workspace

YARDSTICK = "COMPILED = False\n\ndef run(x, y):\n    pass\n"


@pytest.fixture
def case(tmp_path: Path) -> Case:
    folder = write_case(tmp_path, HONEST, QUICK)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "start")
    return Case(folder)


def test_a_file_of_python_is_a_yardstick_and_a_folder_is_none(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "cublas.py"
    file.write_text(YARDSTICK)
    found = find_opponent(case, str(file))
    assert found.yardstick and found.version["kernel.py"].content == YARDSTICK.encode()
    assert found.version.keys() == {"kernel.py"} and found.committed["kernel.py"].content == HONEST.encode()
    write_workspace(tmp_path / "other.py", YARDSTICK)
    folder = find_opponent(case, str(tmp_path / "other.py"))
    assert folder.yardstick is None and folder.committed is folder.version
    assert find_opponent(case, "HEAD").yardstick is None


def test_what_a_candidate_may_write_is_no_yardstick(case: Case, tmp_path: Path) -> None:
    """Nor by a link to it."""
    (case.workspace / "library.py").write_text(YARDSTICK)
    (tmp_path / "elsewhere.py").symlink_to(case.workspace / "library.py")
    for file in (case.workspace / "library.py", tmp_path / "elsewhere.py"):
        with pytest.raises(UsageError, match="lies in the workspace, whose files may not call libraries"):
            find_opponent(case, str(file))


def test_a_kernel_that_is_no_python_has_no_yardstick(case: Case, tmp_path: Path) -> None:
    file = tmp_path / "library.py"
    file.write_text(YARDSTICK)
    settings = case.folder / "case.yaml"
    (case.workspace / "kernel.c").write_text("void run(const float *x, float *y) {}\n")
    settings.write_text(f"{settings.read_text()}\nentry: kernel.c:run\n")
    with pytest.raises(UsageError, match=r"a yardstick is Python, and test/affine runs kernel\.c"):
        find_opponent(Case(case.folder), str(file))


def test_what_has_no_entry_is_no_opponent(case: Case, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty: has no kernel\.py, which test/affine runs"):
        find_opponent(case, str(tmp_path / "empty"))


def test_what_is_no_python_is_told(case: Case, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_bytes(b"COMPILED = False\n\xff")
    with pytest.raises(UsageError, match=r"broken\.py: is no Python"):
        find_opponent(case, str(tmp_path / "broken.py"))


def test_a_file_that_is_not_there_is_told_as_no_version(case: Case) -> None:
    with pytest.raises(UsageError, match=r"'none\.py' is neither a folder nor a revision"):
        find_opponent(case, "none.py")
