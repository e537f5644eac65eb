"""scripts/setup against a fake uv: what it does the first time, the second time, and when something is wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.scripts.scripts_repo import ROOT, UV, ScriptsRepo, make_repo


@pytest.fixture
def repo(tmp_path: Path) -> ScriptsRepo:
    made = make_repo(tmp_path)
    made.on_path("uv", UV)
    return made


def calls(repo: ScriptsRepo) -> list[str]:
    log = repo.programs / "calls"
    lines = log.read_text().splitlines() if log.exists() else []
    log.unlink(missing_ok=True)
    return [line for line in lines if line != "uv --version"]


def test_first_run_makes_the_environment_from_hashes(repo: ScriptsRepo) -> None:
    done = repo.run("scripts/setup")
    assert done.returncode == 0, done.stderr
    venv, sync, install = calls(repo)
    assert venv.startswith("uv venv ")
    assert "--require-hashes --compile-bytecode" in sync
    assert sync.endswith(f"{repo.root}/requirements/runtime.txt")
    assert install.endswith(f"--no-build-isolation --no-deps --editable {repo.root}")


def test_second_run_touches_nothing_and_is_quick(repo: ScriptsRepo) -> None:
    repo.run("scripts/setup", "dev")
    calls(repo)
    start = time.monotonic()
    for kind in ("dev", "runtime"):
        assert "up to date" in repo.run("scripts/setup", kind).stdout
    assert calls(repo) == []
    assert time.monotonic() - start < 30


def test_a_runtime_environment_is_not_enough_for_the_tests(repo: ScriptsRepo) -> None:
    repo.run("scripts/setup")
    calls(repo)
    repo.run("scripts/setup", "dev")
    _, with_cutlass, _ = made = calls(repo)
    assert made[0].endswith("dev.txt")
    assert "--require-hashes --no-deps" in with_cutlass and with_cutlass.endswith("cutlass.txt")


def test_changed_pins_are_installed(repo: ScriptsRepo) -> None:
    repo.run("scripts/setup")
    calls(repo)
    with (repo.root / "requirements" / "runtime.txt").open("a") as file:
        file.write("# changed\n")
    repo.run("scripts/setup")
    assert [call.split()[1] for call in calls(repo)] == ["pip", "pip"]


def test_a_moved_repository_gets_a_new_environment(repo: ScriptsRepo) -> None:
    repo.run("scripts/setup")
    calls(repo)
    moved = ScriptsRepo(repo.root.rename(repo.root.with_name("elsewhere")), repo.programs)
    assert moved.run("scripts/setup").returncode == 0
    assert len(calls(moved)) >= 2


def test_a_broken_environment_is_made_again(repo: ScriptsRepo) -> None:
    repo.run("scripts/setup")
    calls(repo)
    python = repo.root / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to("/nowhere/python3")
    assert repo.run("scripts/setup").returncode == 0
    assert calls(repo)[0].startswith("uv venv ")


def test_failed_installation_is_named_and_leaves_no_stamp(repo: ScriptsRepo) -> None:
    repo.on_path("uv", UV.replace("esac\nexit 0", 'esac\n[ "$2" != sync ]'))
    done = repo.run("scripts/setup")
    assert done.returncode == 3
    assert "packages could not be installed" in done.stderr
    assert repo.run("scripts/setup").returncode == 3


def test_unfit_python_is_named(repo: ScriptsRepo) -> None:
    old = repo.on_path("old-python", "exit 1")
    done = repo.run("scripts/setup", HILLCLIMB_PYTHON=str(old))
    assert done.returncode == 3
    assert f"HILLCLIMB_PYTHON={old} is not a Python from 3.11" in done.stderr


def bare_path(repo: ScriptsRepo, *more: str) -> str:
    """A PATH of the programs that setup needs, `more` and the repository's fakes, and nothing else."""
    tools = repo.programs.parent / "tools"
    tools.mkdir()
    for name in (
        "bash",
        "env",
        "git",
        "sha256sum",
        "cut",
        "cat",
        "dirname",
        "rm",
        "mkdir",
        "ln",
        "flock",
        *more,
    ):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    return f"{repo.programs}{os.pathsep}{tools}"


def test_missing_python_is_named(repo: ScriptsRepo) -> None:
    done = repo.run("scripts/setup", PATH=bare_path(repo))
    assert done.returncode == 3
    assert "no Python from 3.11 to 3.14 on PATH" in done.stderr


def test_root_gets_bubblewrap_installed(repo: ScriptsRepo) -> None:
    (repo.programs / "bwrap").unlink()
    repo.on_path("id", "echo 0")
    repo.on_path("apt-get", f'echo "$*" >>"{repo.programs}/apt"')
    path = bare_path(repo)
    for _ in range(2):  # and tries once only, though the fake installs nothing
        done = repo.run("scripts/setup", PATH=path, HILLCLIMB_PYTHON=sys.executable)
        assert done.returncode == 0, done.stderr
    assert (repo.programs / "apt").read_text() == "install -y -qq bubblewrap\n"


def test_others_are_told_how_to_get_bubblewrap(repo: ScriptsRepo) -> None:
    (repo.programs / "bwrap").unlink()
    repo.on_path("id", "echo 1000")
    repo.on_path("sudo", "exit 1")
    done = repo.run("scripts/setup", PATH=bare_path(repo), HILLCLIMB_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert "install the package 'bubblewrap'" in done.stdout


def test_the_tests_get_a_browser_and_a_running_lab_none(repo: ScriptsRepo) -> None:
    (repo.programs / "chromium").unlink()
    repo.on_path("id", "echo 0")
    repo.on_path("apt-get", f'echo "$*" >>"{repo.programs}/apt"')
    path = bare_path(repo)
    assert repo.run("scripts/setup", PATH=path, HILLCLIMB_PYTHON=sys.executable).returncode == 0
    assert not (repo.programs / "apt").exists()
    for _ in range(2):  # and tries once only, though the fake installs nothing
        done = repo.run("scripts/setup", "dev", PATH=path, HILLCLIMB_PYTHON=sys.executable)
        assert done.returncode == 0, done.stderr
    assert (repo.programs / "apt").read_text() == "install -y -qq chromium\n"


def test_others_are_told_how_to_get_a_browser(repo: ScriptsRepo) -> None:
    (repo.programs / "chromium").unlink()
    repo.on_path("id", "echo 1000")
    repo.on_path("sudo", "exit 1")
    done = repo.run("scripts/setup", "dev", PATH=bare_path(repo), HILLCLIMB_PYTHON=sys.executable)
    assert done.returncode == 0, done.stderr
    assert "install the package 'chromium'" in done.stdout


def test_unknown_kind_is_a_clear_error(repo: ScriptsRepo) -> None:
    done = repo.run("scripts/setup", "everything")
    assert done.returncode == 3
    assert "say 'setup' or 'setup dev'" in done.stderr


@pytest.mark.parametrize("kind", ["runtime", "dev", "cutlass", "uv"])
def test_pins_have_hashes_and_name_no_registry(kind: str) -> None:
    text = (ROOT / "requirements" / f"{kind}.txt").read_text()
    pins = [line for line in text.splitlines() if line and line[0].isalnum()]
    assert pins
    assert all("==" in pin and pin.endswith("\\") for pin in pins)
    assert "://" not in text
    assert "--index" not in text


@pytest.mark.parametrize("kind", ["runtime", "dev"])
def test_everything_asked_for_is_pinned(kind: str) -> None:
    wanted = [
        re.split("[<>=]", line)[0].strip().lower().replace("_", "-")
        for name in {"runtime", "build", kind}
        for line in (ROOT / "requirements" / f"{name}.in").read_text().splitlines()
        if line and not line.startswith(("-r", "#"))
    ]
    text = (ROOT / "requirements" / f"{kind}.txt").read_text().lower()
    assert [name for name in wanted if f"\n{name}==" not in f"\n{text}"] == []


@pytest.mark.skipif(not shutil.which("shellcheck"), reason="shellcheck is not installed")
def test_shell_scripts_pass_shellcheck() -> None:
    candidates = [ROOT / ".ci" / "run", *(ROOT / "scripts").iterdir()]
    scripts = [p for p in candidates if p.is_file() and _is_shell(p)]
    done = subprocess.run(["shellcheck", "-x", *scripts], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def _is_shell(path: Path) -> bool:
    first = path.read_text().splitlines()[0]
    return "bash" in first
