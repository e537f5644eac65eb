"""`hillclimb study` as a person or a program calls it, on a small study of the CPU."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.agent.commands.test_cli import hillclimb
from tests.harness.studies.small_study import WRONG, write_study


@pytest.fixture
def root(tmp_path: Path) -> Path:
    write_study(tmp_path, ("right", "wrong"))
    (tmp_path / "cases" / "small" / "wrong" / "workspace" / "optimized.py").write_text(WRONG)
    return tmp_path


def study(root: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return hillclimb("study", *arguments, cwd=root)


@pytest.mark.slow(10)
def test_all_are_tested_and_the_failures_listed_at_the_end(root: Path) -> None:
    done = study(root, "test")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split(":")[0] for line in lines[:3]] == ["passed"] * 3
    assert lines[3].startswith("failed: small/wrong/optimized: wrong_result")
    assert lines[4] == "3 of 4 kernels passed, in 2 cases"
    assert lines[5] == lines[3]


@pytest.mark.slow(6)
def test_programs_are_told_the_same(root: Path) -> None:
    done = study(root, "test", "--case", "right", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["passed"]
    assert [(one["case"], one["variant"]) for one in told["results"]] == [
        ("right", "baseline"),
        ("right", "optimized"),
    ]


@pytest.mark.slow(1, but=["arguments0"])
@pytest.mark.parametrize(
    "arguments", [("list",), ("list", "-l", "-s", "small"), ("test", "-l"), ("profile", "--list")]
)
def test_lists(root: Path, arguments: tuple[str, ...]) -> None:
    assert study(root, *arguments).stdout == "small (2 cases)\n  right\n  wrong\n"
    assert json.loads(study(root, *arguments, "--json").stdout) == {"small": ["right", "wrong"]}


@pytest.mark.slow(1, but=["list"])
@pytest.mark.parametrize("command", ["list", "test", "profile"])
def test_one_case_is_listed_alone(root: Path, command: str) -> None:
    assert study(root, command, "-l", "-c", "wrong").stdout == "small (1 case)\n  wrong\n"


@pytest.mark.slow(1, but=["arguments0-no study 'none'; there are: small"])
@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("list", "-s", "none"), "no study 'none'; there are: small"),
        (("list", "-c", "none"), "no case 'none' in any study; there are: small/right, small/wrong"),
        (("test", "-s", "none"), "no study 'none'; there are: small"),
        (("profile", "-c", "none"), "no case 'none' in any study; there are: small/right, small/wrong"),
        (("plot",), "measure first: hillclimb study profile"),
        (("report", "-s", "small"), "measure first: hillclimb study profile"),
    ],
)
def test_wrong_usage_names_the_choices(root: Path, arguments: tuple[str, ...], complaint: str) -> None:
    done = study(root, *arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_suite_that_is_not_there_is_told_of_its_case(root: Path) -> None:
    done = study(root, "profile", "--case", "right", "--suite", "none")
    assert done.returncode == 1
    assert "small/right has no suite 'none'; it has main, rest" in done.stdout


def test_without_a_gpu_nothing_is_begun_for_a_case_that_needs_one(root: Path) -> None:
    if Path("/dev/nvidiactl").exists():
        pytest.skip("there is an NVIDIA GPU here")
    settings = root / "cases" / "small" / "right" / "case.yaml"
    settings.write_text(settings.read_text() + "device: cuda\n")
    done = study(root, "profile")
    assert done.returncode == 2
    assert "small/right is for an NVIDIA GPU, and none is here" in done.stderr
