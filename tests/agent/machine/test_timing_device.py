"""A case for a GPU on a machine without one: checked as far as that goes, never climbed, and nothing left behind."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from hillclimb.agent.machine import timing_device
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import UsageError
from hillclimb.harness.judge.__main__ import DRIVER
from tests.agent.climb.climbed import git
from tests.fakes.cases import CUDA_KERNEL, write_case, write_cuda_case
from tests.fakes.night import Night, make_repository

pytestmark = pytest.mark.skipif(DRIVER.exists(), reason="there is an NVIDIA driver here")


def hillclimb(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from hillclimb.agent.cli import main; main()", *arguments],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.fixture
def affine(tmp_path: Path) -> Path:
    write_cuda_case(tmp_path)
    (tmp_path / ".gitignore").write_text("/runs/\n")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "start")
    return tmp_path


def test_it_goes_by_what_the_judge_goes_by() -> None:
    assert timing_device.NVIDIA_DRIVER == DRIVER


def test_a_case_for_a_cpu_can_be_timed_anywhere(tmp_path: Path) -> None:
    timing_device.require_timing_device(Case(write_case(tmp_path)))


@pytest.mark.slow(1, but=["evaluate test/affine --commit --tag t"])
@pytest.mark.parametrize(
    "command",
    [
        ["climb", "test/affine", "--tag", "t", "--proposer", "sweep"],
        ["evaluate", "test/affine"],
        ["evaluate", "test/affine", "--commit", "--tag", "t"],
        ["review", "HEAD", "--case", "test/affine", "--against", "HEAD"],
    ],
    ids=" ".join,
)
def test_what_needs_a_clock_is_refused_at_once_and_leaves_nothing(affine: Path, command: list[str]) -> None:
    done = hillclimb(*command, cwd=affine)
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1
    assert "test/affine is for an NVIDIA GPU, and none is here" in done.stderr
    assert "use 'hillclimb check test/affine'" in done.stderr
    assert not (affine / "runs").exists()
    assert git(affine, "for-each-ref", "refs/heads/hillclimb", "refs/hillclimb") == ""


def test_a_run_taken_up_where_the_gpu_is_gone_is_refused_and_kept(tmp_path: Path) -> None:
    night = Night(make_repository(tmp_path / "repo"))
    settings = night.case / "case.yaml"
    settings.write_text(settings.read_text() + "device: cuda\n")
    git(night.root, "commit", "-qam", "for a GPU")
    with pytest.MonkeyPatch.context() as here:
        here.setattr(timing_device, "NVIDIA_DRIVER", Path("/"))
        night.climb()
    before = (night.folder / "ledger.jsonl").read_bytes()
    with pytest.raises(UsageError, match="none is here"):
        night.climb()
    assert (night.folder / "ledger.jsonl").read_bytes() == before


@pytest.mark.slow(6)
def test_check_compiles_for_it_interprets_the_small_problems_and_says_so(affine: Path) -> None:
    done = hillclimb("check", "test/affine", cwd=affine)
    assert done.returncode == 0, done.stdout + done.stderr
    sound, oracle, place_told = done.stdout.splitlines()
    assert "sound; the gate passed" in sound
    assert re.fullmatch(r"the contract noticed all \d+ results that were wrong on purpose", oracle)
    assert place_told == (
        "no NVIDIA GPU here: every problem was compiled for sm_90; the gate interpreted 4 small ones on the CPU, "
        "the others were only compiled, and nothing was timed"
    )


@pytest.mark.slow(10)
def test_check_says_what_was_not_done_of_one_that_does_not_compile(affine: Path) -> None:
    kernel = affine / "cases/test/affine/workspace/kernel.py"
    kernel.write_text(CUDA_KERNEL.replace("2 * tl.load", "tl.no_such_thing(2) * tl.load"))
    done = hillclimb("check", "test/affine", "--json", cwd=affine)
    assert done.returncode == 1, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert (found["gate"]["passed"], found["interpreted"], found["oracle"]) == (False, 0, None)
    plain = hillclimb("check", "test/affine", cwd=affine).stdout
    assert "the gate rejects the baseline" in plain and "nothing was run or timed" in plain
