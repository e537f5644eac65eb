"""What the rungs without namespaces leave on the disk, and whom they let in."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hillclimb.harness.sandbox.confinement import Confinement
from hillclimb.harness.sandbox.rungs import locked_folder as folders
from hillclimb.harness.sandbox.rungs.choose import ExitStatus
from hillclimb.harness.sandbox.rungs.landlock import trusted_rung
from hillclimb.harness.sandbox.rungs.locked_folder import PREFIX, CandidateFolder, remove_stale
from tests.harness.sandbox.inside import MEMORY_BYTES, Start


def test_a_tree_too_deep_to_name_is_deleted(tmp_path: Path) -> None:
    here = Path.cwd()
    os.chdir(tmp_path)
    try:
        for _ in range(1200):
            Path("a-folder").mkdir()
            os.chdir("a-folder")
        Path("file").write_text("x")
    finally:
        os.chdir(here)
    folders.empty_nested_folder(tmp_path)
    assert [path for path in tmp_path.iterdir() if path.is_dir()] == []


def test_a_folder_nested_too_deep_to_look_counts_as_full(tmp_path: Path, workspace: Path) -> None:
    folder = CandidateFolder.make(tmp_path, Confinement(workspace, 1, 1 << 20), uid=None)
    try:
        Path(folder.layout.scratch, "file").write_bytes(bytes(10_000))
        assert 10_000 <= folder.used_bytes() < 100_000
        nested = Path(folder.layout.scratch, *["x" * 200] * 15)
        nested.mkdir(parents=True)
        assert folder.used_bytes() > 1 << 60
    finally:
        folder.remove()
    assert not folder.path.exists()


def test_what_a_killed_judge_left_is_swept_and_what_a_living_one_uses_stays(
    tmp_path: Path, workspace: Path
) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from hillclimb.harness.sandbox.rungs.locked_folder import CandidateFolder\n"
        "from hillclimb.harness.sandbox.confinement import Confinement\n"
        "print(CandidateFolder.make(Path(sys.argv[1]), Confinement(Path(sys.argv[2]), 1, 1), None).path, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    killed = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path), str(workspace)], stdout=subprocess.PIPE, text=True
    )
    left = Path(killed.stdout.strip())
    used = CandidateFolder.make(tmp_path, Confinement(workspace, 1, 1 << 20), uid=None)
    try:
        remove_stale(tmp_path)
        assert left.exists(), "too young to be told from one that is being made"
        for path in (left, used.path):
            os.utime(path, (0, 0))
        remove_stale(tmp_path)
        assert not left.exists()
        assert used.path.exists()
    finally:
        used.remove()


def test_a_trap_laid_by_another_user_is_not_swept(tmp_path: Path) -> None:
    """A link in place of a folder, as anyone may lay in a shared temporary folder."""
    treasure = tmp_path / "treasure"
    (treasure / "kept").mkdir(parents=True)
    (treasure / "in-use").touch()
    (tmp_path / f"{PREFIX}trap").symlink_to(treasure)
    remove_stale(tmp_path)
    assert (treasure / "kept").exists()


def test_the_trusted_rung_runs_with_limits_and_a_clean_environment(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    start = Start(trusted_rung(), workspace)
    code = (
        "import os, resource\n"
        "print('OPENAI_API_KEY' in os.environ, resource.getrlimit(resource.RLIMIT_DATA)[0], flush=True)\n"
        "import socket; socket.socket()"
    )
    ending, said = start(code).finish()
    assert ending == ExitStatus(1, None)
    assert said.splitlines()[0] == f"False {MEMORY_BYTES}"
    assert "PermissionError" in said


def test_as_root_every_candidate_is_a_user_of_its_own(start: Start) -> None:
    if os.geteuid() != 0 or start.rung.name != "landlock":
        pytest.skip("only root's Landlock rung gives users")
    code = "import os; print(os.getuid(), os.getgid(), os.getgroups(), os.geteuid())"
    first, second = (start(code).finish()[1].split() for _ in range(2))
    assert first != second
    assert first[0] == first[1] == first[3] != "0"
    assert first[2] == "[]"
