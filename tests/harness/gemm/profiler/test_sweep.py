"""A sweep: what every kernel is said to have done, whatever the others did, and what is left when it is killed.

cutlass_profiler needs a GPU; tests/fakes/cutlass_profiler.py stands in for it, as a process.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.errors import MachineError, UsageError
from hillclimb.harness.gemm.profiler.attempt import Blamed, ProcessEnd, settle
from hillclimb.harness.gemm.profiler.command import CutlassProfiler, problem_arguments
from hillclimb.harness.gemm.profiler.output import ProfilerRow
from hillclimb.harness.gemm.profiler.sweep import KERNELS_AT_ONCE, RESULTS, ProfilerSweep, ShapeState
from hillclimb.harness.gemm.results import GpuCard, read_results
from hillclimb.harness.gemm.shape import GemmShape
from tests import fakes

H200 = GpuCard(name="NVIDIA H200", driver="580.1")
SHAPE = GemmShape("mlp", 64, 1024, 2048, "bf16")
PREFIX = "cutlass3x_sm90_gemm_bf16_128x128x64_1x1x1_0_tnn_align8"

Behaviours = dict[str, str | float]


def profiler(folder: Path, kernels: Behaviours, *flags: str, silent_seconds: float = 60.0) -> CutlassProfiler:
    """Whose kernels behave so."""
    folder.mkdir(exist_ok=True)
    binary = folder / "cutlass_profiler"
    shutil.copy(Path(fakes.__file__).with_name("cutlass_profiler.py"), binary)
    binary.chmod(0o755)
    (folder / "kernels.json").write_text(json.dumps(kernels))
    return CutlassProfiler(binary, flags, silent_seconds)


def outcomes(state: ShapeState) -> dict[str, str]:
    """What each kernel is said to have done."""
    measured, failed = state.results(H200)
    told = [(one.kernel, "measured") for one in measured] + [(one.kernel, one.status) for one in failed]
    assert len(dict(told)) == len(told)
    return dict(told)


def test_every_kernel_is_measured_on_the_transposed_product(tmp_path: Path) -> None:
    kernels: Behaviours = {PREFIX: 0.02, f"{PREFIX}_pingpong": 0.01}
    sweep = ProfilerSweep(profiler(tmp_path / "bin", kernels, "--swizzle_size=2"), tmp_path / "out", H200)
    sweep.run(SHAPE, lambda state: None)
    written = sweep.write_results([SHAPE])
    assert written == read_results(tmp_path / "out" / RESULTS)
    assert {one.kernel: one.runtime_ms for one in written.results} == kernels
    assert written.failed == ()
    assert written.best()[SHAPE.named("")].kernel == f"{PREFIX}_pingpong"
    assert all(one.is_checked and one.shape == SHAPE.named("") for one in written.results)
    assert (written.provider, written.cache, written.gpu) == ("cutlass_profiler", "cold", H200)
    assert written.software == {"cutlass": "4.2.0"}
    assert problem_arguments(SHAPE) == {
        **{"m": "1024", "n": "64", "k": "2048"},
        **{"A": "bf16:row", "B": "bf16:column", "D": "bf16:column", "accum": "f32"},
    }
    asked = next((tmp_path / "out").glob("*/1.asked")).read_text().splitlines()
    assert asked[0].endswith(",accum,swizzle_size")
    assert asked[1].endswith(",f32,2")


BAD = {
    "aborts": "aborted",
    "hangs": "timed_out",
    "faults": "failed",
    "incorrect": "incorrect",
    "unsupported": "unsupported",
    "passed over": "unsupported",
}


@pytest.mark.parametrize("bad", BAD)
def test_what_a_kernel_does_costs_its_own_record_alone(tmp_path: Path, bad: str) -> None:
    """The fastest one that is wrong does not win, and those behind a crash are measured all the same."""
    kernels: Behaviours = {f"{PREFIX}_{at}": 0.01 + at / 100 for at in range(4)} | {f"{PREFIX}_bad": bad}
    made = profiler(tmp_path / "bin", kernels, silent_seconds=2.0 if bad == "hangs" else 60.0)
    state = ProfilerSweep(made, tmp_path / "out", H200).run(SHAPE, lambda state: None)
    assert outcomes(state) == dict.fromkeys(kernels, "measured") | {f"{PREFIX}_bad": BAD[bad]}
    _, (failed,) = state.results(H200)
    assert failed.reason


def test_a_sweep_goes_on_where_it_was_killed(tmp_path: Path) -> None:
    """What stood in files is not measured again, a torn row is; nobody is blamed for what no one saw."""
    kernels: Behaviours = {f"{PREFIX}_{at}": 0.01 for at in range(3)}
    made, out = profiler(tmp_path / "bin", kernels), tmp_path / "out"
    sweep = ProfilerSweep(made, out, H200)
    sweep.run(SHAPE, lambda state: None)
    folder = next(path for path in out.iterdir() if path.is_dir())
    table = folder / "1.gemm.csv"
    table.write_text(table.read_text().rstrip("\n")[:-40])
    (folder / "1.end").unlink()
    seen: list[int] = []
    again = ProfilerSweep(made, out, H200)
    state = again.run(SHAPE, lambda state: seen.append(len(state.left)))
    assert set(outcomes(state).values()) == {"measured"}
    assert len(outcomes(state)) == 3
    assert seen == [1, 0]
    assert len((folder / "2.asked").read_text().splitlines()) == 2
    again.run(SHAPE, lambda state: None)
    assert not (folder / "3.asked").exists()
    assert len(again.write_results([SHAPE, GemmShape("other", 1, 8, 8, "bf16")]).results) == 3


def test_times_of_unlike_sweeps_are_kept_apart(tmp_path: Path) -> None:
    made, out = profiler(tmp_path / "bin", {PREFIX: 0.1}), tmp_path / "out"
    ProfilerSweep(made, out, H200)
    for unlike, card in (
        (made, GpuCard(name="NVIDIA H100")),
        (CutlassProfiler(made.binary, ("--swizzle_size=4",)), H200),
    ):
        with pytest.raises(UsageError, match="has times of other settings"):
            ProfilerSweep(unlike, out, card)
    made.binary.write_text(made.binary.read_text() + "\n")
    with pytest.raises(UsageError, match="profiler_sha256"):
        ProfilerSweep(made, out, H200)
    (out / "sweep.json").write_text("{}")
    with pytest.raises(UsageError, match="is not of this kind"):
        ProfilerSweep(made, out, H200)


@pytest.mark.parametrize(
    ("flag", "why"),
    [
        ("swizzle_size=2", "write each as --name=value"),
        ("--swizzle_size", "write each as --name=value"),
        ("--m=7", "decides --m itself"),
        ("--output=x", "decides --output itself"),
        ("--swizzle_size=1,2", "give one value"),
        ("--enable-kernel-performance-search=true", "tries squares of its own"),
    ],
)
def test_flags_that_the_sweep_cannot_take_are_refused(flag: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        CutlassProfiler(Path("/bin/true"), (flag,))


def test_what_the_profiler_has_no_kernels_for_is_refused() -> None:
    with pytest.raises(UsageError, match="no scaled_fp8; take one of bf16, f16, fp8, int8"):
        CutlassProfiler(Path("/bin/true")).command(GemmShape("a", 16, 64, 64, "scaled_fp8"))


def test_what_is_no_profiler_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no program"):
        ProfilerSweep(CutlassProfiler(tmp_path / "none"), tmp_path / "out", H200)
    with pytest.raises(UsageError, match="lists no kernels for mlp"):
        ProfilerSweep(CutlassProfiler(Path("/bin/true")), tmp_path / "true", H200).run(
            SHAPE, lambda state: None
        )
    with pytest.raises(UsageError, match="has 8 groups"):
        problem_arguments(GemmShape("experts", 64, 1024, 2048, "bf16", 8))


def process(
    asked: list[str], does: dict[str, str], order: random.Random
) -> tuple[list[ProfilerRow], str, ProcessEnd]:
    """What one process over these kernels would leave."""
    rows, log, is_broken = list[ProfilerRow](), "", False
    for kernel in order.sample(asked, len(asked)):
        what = does[kernel]
        if what == "passed over":
            continue
        log += f"Profiling kernel for JUnit test : {kernel}\n"
        if is_broken and order.random() < 0.3:
            return rows, log, ProcessEnd(exit_code=-6)
        if what in ("aborts", "hangs") and not is_broken:
            return rows, log, ProcessEnd(exit_code=-6 if what == "aborts" else -9, is_silent=what == "hangs")
        outcome = {"fine": ("passed", "success"), "incorrect": ("incorrect", "success")}.get(what)
        outcome = ("not_run", "success") if what == "unsupported" else outcome
        if is_broken or outcome is None:
            outcome, is_broken = ("failed", "internal"), True
        rows.append(
            ProfilerRow(kernel, "gemm", *outcome, {"Runtime": "0.1" if outcome[1] == "success" else ""})
        )
    return rows, log, ProcessEnd(exit_code=int(is_broken))


@given(
    st.lists(st.sampled_from(["fine", *BAD]), min_size=1, max_size=8),
    st.integers(0, 1000),
)
def test_however_kernels_fail_each_is_told_by_its_own_name(kinds: list[str], seed: int) -> None:
    """Any kernels, in any order, a new one for each process: what faults breaks those behind it in its process."""
    does = {f"k{at}": kind for at, kind in enumerate(kinds)}
    order, left = random.Random(seed), list(does)
    told: dict[str, str] = {}
    for _ in range(len(does) + 1):
        if not left:
            break
        rows, log, end = process(left, does, order)
        found = settle(left, rows, log, end)
        told |= {row.operation: row.disposition for row in found.rows}
        told |= {one.kernel: one.status for one in found.blamed}
        assert found.kernels, "every process settles one at the least"
        left = [kernel for kernel in left if kernel not in found.kernels]
    wanted = {"fine": "passed", **BAD}
    assert {kernel: "unsupported" if what == "not_run" else what for kernel, what in told.items()} == {
        kernel: wanted[kind] for kernel, kind in does.items()
    }


def test_a_process_that_nobody_saw_end_blames_none() -> None:
    log = "Profiling kernel for JUnit test : a\n"
    assert settle(["a", "b"], [], log, None).kernels == set()
    seen = settle(["a", "b"], [], log + "boom\n", ProcessEnd(exit_code=-11))
    assert seen.blamed == (Blamed("a", "aborted", "the profiler's process: SIGSEGV; its last line: 'boom'"),)


def test_a_process_that_begins_no_kernel_says_nothing_of_any(tmp_path: Path) -> None:
    """The machine is to blame, and once it is mended the sweep goes on."""
    kernels: Behaviours = {f"{PREFIX}_{at}": 0.01 for at in range(3)}
    sweep = ProfilerSweep(profiler(tmp_path / "bin", kernels), tmp_path / "my times.csv", H200)
    (tmp_path / "bin" / "breaks").touch()
    with pytest.raises(MachineError, match=r"ends before it begins a kernel; read .*2\.log"):
        sweep.run(SHAPE, lambda state: None)
    (tmp_path / "bin" / "breaks").unlink()
    assert set(outcomes(sweep.run(SHAPE, lambda state: None)).values()) == {"measured"}


def test_a_shape_without_kernels_is_a_failure_without_a_name(tmp_path: Path) -> None:
    sweep = ProfilerSweep(profiler(tmp_path / "bin", {}), tmp_path / "out", H200)
    _, (failed,) = sweep.run(SHAPE, lambda state: None).results(H200)
    assert (failed.kernel, failed.status) == ("", "unsupported")


def test_many_kernels_run_in_several_processes(tmp_path: Path) -> None:
    kernels: Behaviours = {
        f"{PREFIX}_{at}": 0.01 if at % 9 else "passed over" for at in range(KERNELS_AT_ONCE + 9)
    }
    seen: list[int] = []
    sweep = ProfilerSweep(profiler(tmp_path / "bin", kernels), tmp_path / "out", H200)
    state = sweep.run(SHAPE, lambda state: seen.append(state.settled))
    assert seen == [0, KERNELS_AT_ONCE, len(kernels)]
    assert list(outcomes(state).values()).count("unsupported") == 9


def test_a_folder_is_swept_by_one(tmp_path: Path) -> None:
    made = profiler(tmp_path / "bin", {PREFIX: 0.1})
    one, other = (ProfilerSweep(made, tmp_path / "out", H200) for _ in range(2))

    def meanwhile(state: ShapeState) -> None:
        if state.left:
            with pytest.raises(UsageError, match="another process is at work"):
                other.run(SHAPE, lambda state: None)

    one.run(SHAPE, meanwhile)


def test_the_profiler_dies_with_its_sweep(tmp_path: Path) -> None:
    """Killed with SIGKILL, a sweep leaves nothing at work on the GPU."""
    made, out = profiler(tmp_path / "bin", {PREFIX: "hangs"}), tmp_path / "out"
    (tmp_path / "sweep.py").write_text(
        "from pathlib import Path\n"
        "from tests.harness.gemm.profiler.test_sweep import H200, SHAPE, CutlassProfiler, ProfilerSweep\n"
        f"ProfilerSweep(CutlassProfiler(Path({str(made.binary)!r})), Path({str(out)!r}), H200).run(SHAPE, print)\n"
    )
    root = Path(__file__).parents[4]
    sweep = subprocess.Popen(
        [sys.executable, tmp_path / "sweep.py"], env={**os.environ, "PYTHONPATH": str(root)}
    )
    log = out / "bf16_m64_n1024_k2048" / "1.log"
    eventually(lambda: log.exists() and "Profiling kernel" in log.read_text())
    (child,) = (int(pid) for pid in children_of(sweep.pid))
    sweep.kill()
    sweep.wait()
    eventually(lambda: not Path(f"/proc/{child}").exists())


def children_of(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def eventually(is_so: Callable[[], bool]) -> None:
    for _ in range(600):
        if is_so():
            return
        time.sleep(0.1)
    raise AssertionError("not within a minute")
