"""`hillclimb profile`: the table, the JSON, and what is told instead of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hillclimb.agent.evaluate.profiling import ProfileRequest, profile, show
from hillclimb.agent.machine.timing_device import NVIDIA_DRIVER
from hillclimb.harness.errors import UsageError
from hillclimb.harness.records import (
    Bucket,
    Ceilings,
    KernelCounters,
    KernelRuns,
    Lanes,
    ProblemTime,
    Profile,
)
from tests.agent.climb.climbed import git
from tests.agent.commands.test_cli import hillclimb
from tests.fakes.cases import HONEST, repeated, write_case

ROOT = Path(__file__).parents[3]

SEEN = Profile(
    problems=(
        ProblemTime(problem="square", seconds_per_call=2e-3, flops=2e8, bytes=1e6),
        ProblemTime(problem="row", seconds_per_call=5e-6, flops=1e3, bytes=1e5),
    ),
    buckets=(
        Bucket(name="kernel.py:multiply", share=0.9, seconds_per_call=1.8e-3, calls=1),
        Bucket(name="waiting for other threads", share=0.055, seconds_per_call=1.1e-4, calls=2.5),
    ),
    ceilings=Ceilings(flops=2e11, bytes=2e10, how="measured somehow"),
    seconds=1.25,
)

TABLE = """\
problem  time  GFLOP/s  GB/s              floor  above it
square   2 ms      100   0.5  1 ms (arithmetic)  2x
row      5 µs      0.2    20      5 µs (memory)  1x
floor: 200 GFLOP/s, 20 GB/s
  (measured somehow)

share  a call  entered  where
90.0%  1.8 ms        1  kernel.py:multiply
 5.5%  110 µs      2.5  waiting for other threads
own time, as the candidate's own process tells it; worker threads by their mean
took 1.2 s"""


@pytest.fixture
def affine(tmp_path: Path) -> Path:
    """A repository whose commit calls `once` 64 times, and whose working files do not."""
    folder = write_case(tmp_path, repeated(64))
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "start")
    (folder / "workspace" / "kernel.py").write_text(HONEST)
    return tmp_path


def test_the_table() -> None:
    assert show(SEEN) == TABLE


def test_what_the_hardware_counted_is_shown_kernel_by_kernel() -> None:
    kernel = KernelCounters(kernel="softmax", launches=1, occupancy=0.75, registers=40, local_memory=0)
    lines = show(SEEN.model_copy(update={"counters": (kernel,)})).splitlines()
    assert "softmax: 75% occupancy, 40 registers a thread, no spills" in lines


def test_masked_lanes_are_shown_problem_by_problem() -> None:
    kernel = KernelRuns(kernel="copy", place="kernel.py:3", launches=1, programs=8)
    lanes = Lanes(problem="odd", detail="not counted: raised"), Lanes(problem="even", kernels=(kernel,))
    lines = show(SEEN.model_copy(update={"lanes": lanes})).splitlines()
    assert "odd: not counted: raised" in lines
    assert lines[-2] == "as counted over one call, interpreted"


@pytest.mark.slow(8)
@pytest.mark.skipif(NVIDIA_DRIVER.exists(), reason="a GPU is here, and cases for it are timed")
def test_without_a_gpu_masked_lanes_are_all_there_is() -> None:
    pytest.importorskip("triton")
    done = hillclimb("profile", "demo/triton_softmax", "--json", cwd=ROOT)
    assert done.returncode == 0, done.stderr
    found = Profile.model_validate_json(done.stdout)
    assert (found.problems, found.buckets) == ((), ())
    assert found.detail.startswith("nothing was timed: demo/triton_softmax is for an NVIDIA GPU")
    assert [lanes.problem for lanes in found.lanes] == ["long_2x33333", "odd_67x129"]
    assert all(lanes.accesses for lanes in found.lanes)


def test_nothing_is_made_up_where_nothing_was_seen() -> None:
    detail = "stopped while it was timed, crashed: died of SIGSEGV"
    assert show(Profile(problems=(), detail=detail, seconds=2)) == f"{detail}\ntook 2.0 s"
    unknown = show(SEEN.model_copy(update={"ceilings": None, "buckets": ()}))
    assert unknown.splitlines()[1].split() == ["square", "2", "ms", "100", "0.5", "-", "-"]


@pytest.mark.slow(10)
def test_a_revision_and_the_working_files(affine: Path) -> None:
    committed = hillclimb("profile", "test/affine", "--from", "HEAD", "--json", cwd=affine)
    assert committed.returncode == 0, committed.stderr
    found = Profile.model_validate_json(committed.stdout)
    assert {b.name: b.calls for b in found.buckets}["kernel.py:once"] == 64
    assert found.problems[0].flops == 40_000
    working = hillclimb("profile", "test/affine", cwd=affine)
    assert working.returncode == 0, working.stderr
    assert working.stdout.startswith("problem ")
    assert "kernel.py:run" in working.stdout
    assert "kernel.py:once" not in working.stdout


@pytest.mark.slow(6)
def test_a_kernel_that_fails_is_told_in_a_sentence(affine: Path, tmp_path: Path) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "kernel.py").write_text("def run(x, y):\n    raise ValueError('bad tile')\n")
    done = hillclimb("profile", "test/affine", "--from", str(bad), "--json", cwd=affine)
    assert done.returncode == 0, done.stderr
    assert "raised: " in json.loads(done.stdout)["detail"]
    assert "ValueError: bad tile" in json.loads(done.stdout)["detail"]


@pytest.mark.slow(1, but=["options1-NAME=VALUE"])
@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--from", "nowhere"], "'nowhere' is neither a folder nor a revision"),
        (["--knob", "TIMES"], "NAME=VALUE"),
        (["--trust-workspace", "--from", "HEAD"], "--trust-workspace runs the working files only"),
    ],
)
def test_wrong_usage_is_told(affine: Path, options: list[str], told: str) -> None:
    done = hillclimb("profile", "test/affine", *options, cwd=affine)
    assert done.returncode == 2
    assert told in done.stderr


@pytest.mark.slow(4)
def test_a_link_is_not_followed(affine: Path) -> None:
    case = affine / "cases" / "test" / "affine"
    tree = shutil.copytree(case / "workspace", affine / "linked")
    (tree / "secret.py").symlink_to("/etc/passwd")
    with pytest.raises(UsageError, match="is a link"):
        profile(ProfileRequest(case, str(tree)), lambda progress: None)
