"""What is installed from the wheel does all that the repository does: nothing it needs stays behind.

The wheel is installed into an environment of its own, with the pinned packages and none of the repository's folders
but the tests and the cases that they judge.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.agent.climb.climbed import git
from tests.api.real_case import make_real_repository

ROOT = Path(__file__).parents[1]
LINKED = {
    "agent": "agent",
    "harness": "harness",
    "prompts": "prompts",
    "cases/_template": "cases/_template",
    "cases/_template_cuda": "cases/_template_cuda",
    "cases/_template_gemm": "cases/_template_gemm",
    "cases/_template_serving": "cases/_template_serving",
    "cases/_template_serving_cuda": "cases/_template_serving_cuda",
    "cases/demo": "cases/demo",
    "hillclimb": "",
}
"""Folder of the repository -> where the package has it."""
CORE = [
    "tests/agent/test_stamp.py",
    "tests/agent/climb/test_climb.py",
    "tests/api",
    "tests/harness/duel/test_gated_problems.py",
    "tests/harness/sandbox/test_grants.py",
]
BUILD = "from setuptools import build_meta; print(build_meta.build_wheel({folder!r}))"


def tracked(*folders: str) -> list[str]:
    """The files that git tracks below these folders of the repository; links are left out."""
    listing = subprocess.run(
        ["git", "ls-files", "-s", *folders], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    return [line.partition("\t")[2] for line in listing.splitlines() if not line.startswith("120000")]


def copy_tracked(target: Path, *folders: str) -> None:
    """Copies what git tracks below these folders, as it lies there now."""
    for name in tracked(*folders):
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, target / name)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT, source, symlinks=True, dirs_exist_ok=True, ignore=untracked)
    folder = tmp_path_factory.mktemp("wheel")
    done = subprocess.run(
        [sys.executable, "-c", BUILD.format(folder=str(folder))], cwd=source, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def untracked(folder: str, names: list[str]) -> list[str]:
    """What no build reads: the environment, git's own folder, what runs and tools left."""
    left = {".git", ".venv", ".uv", "runs", "build", "__pycache__", "node_modules"}
    return [name for name in names if name in left or (name.startswith(".") and Path(folder) == ROOT)]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` folder of an environment with the pinned packages and the wheel in it."""
    uv = shutil.which("uv", path=f"{ROOT / '.uv' / 'bin'}{os.pathsep}{os.environ['PATH']}")
    if uv is None:
        pytest.skip("uv is not here; ./scripts/setup brings it")
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, str(environment)], check=True)
    install = [uv, "pip", "install", "--quiet", "--python", str(environment / "bin" / "python")]
    pinned = ROOT / "requirements" / "dev.txt"
    subprocess.run([*install, "--require-hashes", "--requirement", str(pinned)], check=True)
    subprocess.run([*install, "--no-deps", str(wheel)], check=True)
    return environment / "bin"


def run(
    installed: Path, folder: Path, *command: str, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    path = f"{installed}{os.pathsep}{os.environ['PATH']}"
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "PYTHON"))}
    return subprocess.run(
        [str(installed / command[0]), *command[1:]],
        cwd=folder,
        env={**kept, "PATH": path, **(environment or {})},
        capture_output=True,
        text=True,
    )


def test_the_wheel_has_every_file_of_the_package(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    for folder, place in LINKED.items():
        inside = f"hillclimb/{place}/" if place else "hillclimb/"
        expected = {re.sub(rf"^{folder}/", inside, name) for name in tracked(folder)}
        assert expected, folder
        assert expected <= names


def test_nothing_but_the_package_is_at_the_top(wheel: Path) -> None:
    tops = {name.partition("/")[0] for name in zipfile.ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"hillclimb"}


@pytest.mark.slow(25)
def test_a_repository_of_ones_own_needs_nothing_but_the_wheel(installed: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    stamped = run(
        installed,
        tmp_path,
        "hillclimb",
        "new-case",
        "--family",
        "own",
        "--case",
        "rowsum",
        "--hardware",
        "any CPU",
    )
    assert stamped.returncode == 0, stamped.stderr
    checked = run(installed, tmp_path, "hillclimb", "check", "own/rowsum")
    assert checked.returncode == 0, checked.stderr
    assert "own/rowsum: sound" in checked.stdout
    found = run(installed, tmp_path, "python", "-c", "import hillclimb; print(hillclimb.__file__)").stdout
    assert Path(found.strip()).is_relative_to(installed.parent)
    assert run(installed, tmp_path, "python", "-m", "hillclimb", "--help").returncode == 0


@pytest.mark.clock
@pytest.mark.slow(40)
def test_a_case_of_ones_own_is_climbed_with_nothing_but_the_wheel(installed: Path, tmp_path: Path) -> None:
    make_real_repository(tmp_path)
    case = ["test/affine", "--tag", "t"]
    climbed = run(installed, tmp_path, "hillclimb", "climb", *case, "--budget-candidates", "2")
    assert climbed.returncode == 0, climbed.stderr
    assert run(installed, tmp_path, "hillclimb", "history", *case).returncode == 0
    shown = run(installed, tmp_path, "hillclimb", "show", "test/affine", "2", "--tag", "t")
    assert shown.returncode == 0, shown.stderr


@pytest.mark.slow(60)
@pytest.mark.timeout(600)
def test_the_core_of_the_suite_passes_with_the_wheel(installed: Path, tmp_path: Path) -> None:
    copy_tracked(tmp_path, "tests", "cases", "pyproject.toml")
    options = ["-q", "-n0", "-p", "no:cacheprovider", "-m", "not slow and not clock and not gpu"]
    done = run(installed, tmp_path, "python", "-m", "pytest", *options, *CORE)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert re.search(r"\d\d passed", done.stdout)
