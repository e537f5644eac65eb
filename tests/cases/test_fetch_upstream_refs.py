"""Upstream examples come at their pinned commits, outside of any work tree, whole or not at all."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

SCRIPT = (
    Path(__file__).resolve().parents[2] / "cases/_template_serving/workspace/scripts/fetch_upstream_refs.sh"
)
PIN = re.compile(
    r"^(?P<pack>[a-z-]+) +(?P<repository>[\w-]+/[\w-]+) +(?P<commit>[0-9a-f]{40}) +\S+$", re.MULTILINE
)
TRI_DAO = ("flash-attention", "mamba", "quack", "sonic-moe")


@dataclass(frozen=True)
class Upstream:
    """A copy of the script whose pins are commits of repositories below `root`."""

    script: Path
    root: Path
    home: Path

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Runs it in an environment of its own, with a home that is empty at first."""
        return subprocess.run(
            [str(self.script), *arguments],
            env={
                "PATH": os.environ["PATH"],
                "HOME": str(self.home),
                "GIT_CONFIG_NOSYSTEM": "1",
                "HILLCLIMB_UPSTREAM": self.root.as_uri(),
                **environment,
            },
            cwd=self.home,
            capture_output=True,
            text=True,
            timeout=60,
        )


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def make_repository(root: Path, name: str) -> str:
    """A bare OWNER/NAME.git of three commits below `root`. Returns the second one, which no branch ends at."""
    work = root / "work" / name
    work.mkdir(parents=True)
    git(work, "init", "--quiet", "--initial-branch=main")
    for text in ("old", "pinned", "new"):
        (work / "kernel.py").write_text(text)
        git(work, "add", "kernel.py")
        git(work, "commit", "--quiet", "--message", f"{name}: {text}")
    git(root, "clone", "--quiet", "--bare", str(work), str(root / f"{name}.git"))
    return git(work, "rev-parse", "HEAD~1")


@pytest.fixture
def upstream(tmp_path: Path) -> Upstream:
    root, home = tmp_path / "an upstream", tmp_path / "home"
    root.mkdir()
    home.mkdir()

    def pin(found: re.Match[str]) -> str:
        if found["pack"] != "tri-dao":
            return found[0]
        return found[0].replace(found["commit"], make_repository(root, found["repository"]))

    script = tmp_path / SCRIPT.name
    script.write_text(PIN.sub(pin, SCRIPT.read_text()))
    script.chmod(0o755)
    return Upstream(script, root, home)


def pinned(upstream: Upstream, name: str) -> str:
    return next(
        pin["commit"] for pin in PIN.finditer(upstream.script.read_text()) if pin["repository"].endswith(name)
    )


def test_the_default_pack_comes_at_its_commits(upstream: Upstream) -> None:
    run = upstream.run()
    assert run.returncode == 0, run.stderr
    into = upstream.home / ".cache" / "hillclimb" / "upstream"
    assert sorted(path.name for path in into.iterdir()) == sorted(TRI_DAO)
    for name in TRI_DAO:
        assert git(into / name, "rev-parse", "HEAD") == pinned(upstream, name)
        assert git(into / name, "rev-list", "--count", "HEAD") == "1", "not shallow"
        assert (into / name / "kernel.py").read_text() == "pinned"
        assert f"{name}: fetched {pinned(upstream, name)} into {into / name}" in run.stdout


def test_a_second_call_does_nothing(upstream: Upstream, tmp_path: Path) -> None:
    into = tmp_path / "a folder"
    assert upstream.run("--into", str(into)).returncode == 0
    kept = into / "quack" / "kernel.py"
    os.utime(kept, (1, 1))
    run = upstream.run("--into", str(into), HILLCLIMB_UPSTREAM="file:///nowhere")
    assert (run.returncode, run.stderr) == (0, "")
    assert [f"{name}: already at {pinned(upstream, name)} in {into / name}" for name in TRI_DAO] == (
        run.stdout.splitlines()
    )
    assert kept.stat().st_mtime == 1


def test_what_else_is_there_is_left_alone(upstream: Upstream, tmp_path: Path) -> None:
    into = tmp_path / "into"
    (into / "mamba").mkdir(parents=True)
    (into / "mamba" / "mine").write_text("mine")
    assert upstream.run("--into", str(into)).returncode == 3
    git(into / "quack", "-c", "user.name=a", "commit", "--quiet", "--allow-empty", "--message", "mine")
    run = upstream.run("--into", str(into))
    assert run.returncode == 3
    lines = run.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == ["mamba", "quack"]
    assert all("move it away, then run this again" in line for line in lines)
    assert (into / "mamba" / "mine").read_text() == "mine"
    assert sorted(path.name for path in into.iterdir()) == sorted(TRI_DAO)


def test_offline_each_repository_has_a_line_and_nothing_stays(upstream: Upstream, tmp_path: Path) -> None:
    nowhere = (tmp_path / "nowhere").as_uri()
    run = upstream.run(HILLCLIMB_UPSTREAM=nowhere)
    assert run.returncode == 3
    lines = run.stderr.splitlines()
    assert [line.split(":")[0] for line in lines] == list(TRI_DAO)
    assert all(
        f"not fetched from {nowhere}/" in line and "run this again with a network" in line for line in lines
    )
    assert run.stdout == ""
    assert list(upstream.home.iterdir()) == []


def test_a_commit_that_is_not_there_leaves_the_others(upstream: Upstream, tmp_path: Path) -> None:
    text = upstream.script.read_text()
    upstream.script.write_text(text.replace(pinned(upstream, "mamba"), "0" * 39 + "1"))
    into = tmp_path / "into"
    run = upstream.run("--into", str(into))
    assert run.returncode == 3
    assert len(run.stderr.splitlines()) == 1 and run.stderr.startswith("mamba: not fetched from file://")
    assert sorted(path.name for path in into.iterdir()) == ["flash-attention", "quack", "sonic-moe"]


def test_a_folder_in_a_work_tree_is_refused_unless_git_ignores_it(upstream: Upstream, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    git(tree, "init", "--quiet")
    (tree / ".gitignore").write_text("/refs/\n")
    for folder in (tree, tree / "sub", tree / "sub" / "new" / "deep"):
        run = upstream.run("--into", str(folder))
        assert run.returncode == 2
        assert f"{folder} lies in the git work tree {tree}" in run.stderr
        assert "--into" in run.stderr and "ignore" in run.stderr
    link = tmp_path / "link"
    link.symlink_to(tree / "sub")
    assert upstream.run("--into", str(link)).returncode == 2
    assert sorted(path.name for path in tree.iterdir()) == [".git", ".gitignore", "sub"]
    assert list((tree / "sub").iterdir()) == []
    assert upstream.run("--into", str(tree / "refs")).returncode == 0
    assert git(tree, "status", "--porcelain").splitlines() == ["?? .gitignore"]


def test_a_hook_s_environment_does_not_lead_astray(upstream: Upstream, tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    git(tree, "init", "--quiet")
    into = tmp_path / "into"
    run = upstream.run("--into", str(into), GIT_DIR=str(tree / ".git"), GIT_WORK_TREE=str(tree))
    assert run.returncode == 0, run.stderr
    assert sorted(path.name for path in tree.iterdir()) == [".git"]
    assert (into / "mamba" / "kernel.py").read_text() == "pinned"


def test_an_unknown_pack_names_the_known_ones(upstream: Upstream) -> None:
    run = upstream.run("--pack", "nobody")
    assert run.returncode == 2
    assert "there is no pack nobody" in run.stderr
    assert "choose one of: tri-dao, nvidia, triton, megakernel" in run.stderr


@pytest.mark.parametrize("arguments", [("--pack",), ("--into", ""), ("--force",), ("tri-dao",)])
def test_wrong_usage(upstream: Upstream, arguments: tuple[str, ...]) -> None:
    run = upstream.run(*arguments)
    assert (run.returncode, run.stdout) == (2, "")
    assert "--help" in run.stderr


def test_the_list_and_the_help_fetch_nothing(upstream: Upstream) -> None:
    listed = upstream.run("--list")
    assert listed.returncode == 0
    assert [pin["repository"] for pin in PIN.finditer(listed.stdout)] == [
        "Dao-AILab/flash-attention",
        "state-spaces/mamba",
        "Dao-AILab/quack",
        "Dao-AILab/sonic-moe",
        "NVIDIA/cutlass",
        "triton-lang/triton",
        "linkedin/Liger-Kernel",
        "HazyResearch/Megakernels",
    ]
    shown = upstream.run("--help")
    assert shown.returncode == 0
    assert all(
        word in shown.stdout for word in ("--pack", "--into", "--list", "tri-dao, nvidia, triton, megakernel")
    )
    assert list(upstream.home.iterdir()) == []


def test_the_pins_are_those_of_the_page() -> None:
    page = (SCRIPT.parents[1] / "docs" / "upstream_examples.md").read_text()
    pins = list(PIN.finditer(SCRIPT.read_text()))
    assert len(pins) == 8
    assert all(pin["repository"] in page and pin["commit"][:12] in page for pin in pins)


def test_a_folder_that_cannot_be_made_is_told(upstream: Upstream, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    run = upstream.run("--into", str(tmp_path / "file" / "into"))
    assert run.returncode == 3
    assert "could not be made" in run.stderr and "--into" in run.stderr


def test_a_folder_that_nothing_can_be_written_into_is_told(upstream: Upstream, tmp_path: Path) -> None:
    upstream.script.write_text(upstream.script.read_text().replace("mktemp -d", "false"))
    run = upstream.run("--into", str(tmp_path / "into"))
    assert run.returncode == 3
    assert len(run.stderr.splitlines()) == len(TRI_DAO)
    assert "quack: nothing can be written into" in run.stderr
    assert not (tmp_path / "into").exists()
