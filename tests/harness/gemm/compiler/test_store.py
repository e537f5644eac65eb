"""Builds: what decides one is compiled once, a failure costs its own source, and nothing half done is ever found."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, ClassVar

import pytest

from hillclimb.harness.errors import MachineError, UsageError
from hillclimb.harness.gemm.compiler import parallel
from hillclimb.harness.gemm.compiler.cutlass import Headers
from hillclimb.harness.gemm.compiler.drafts import DRAFTS
from hillclimb.harness.gemm.compiler.parallel import CompileRun, _Compiler
from hillclimb.harness.gemm.compiler.store import OUTPUT_OF, RECORD, BuildOutcome, BuildStore, CompileJob
from hillclimb.harness.gemm.compiler.toolkit import Toolkit


def asked(toolkit: Toolkit) -> list[str]:
    """Command lines of all compilers so far."""
    log = toolkit.nvcc.with_name("log")
    return log.read_text().splitlines() if log.exists() else []


def job(name: str, source: str | None = None, *flags: str) -> CompileJob:
    return CompileJob(name, source or f"// {name}\n", flags)


def test_builds_come_back_in_the_order_asked_and_are_compiled_once(tmp_path: Path, toolkit: Toolkit) -> None:
    store = BuildStore(tmp_path / "store", toolkit)
    jobs = [job(name) for name in ("b", "a", "c")]
    seen: list[tuple[str, int, int]] = []
    run = CompileRun(store, 2, watch=lambda end, done, total: seen.append((end.job.name, done, total)))
    first = run([*jobs, jobs[0]])
    assert [build.record.name for build in first] == ["b", "a", "c", "b"]
    assert [build.output.read_text() for build in first[:2]] == ["// compiled\n// b\n", "// compiled\n// a\n"]
    assert sorted(name for name, _, _ in seen) == ["a", "b", "c"] and [done for _, done, _ in seen] == [
        1,
        2,
        3,
    ]
    seen.clear()
    assert CompileRun(store, 2)(jobs) == first[:3] and len(asked(toolkit)) == 3 and not seen


def test_everything_that_decides_an_output_compiles_it_again(tmp_path: Path, toolkit: Toolkit) -> None:
    headers = Headers((Path("/include"),), "one")
    base = CompileJob("a", "// a\n", ("-O2",))
    others = [
        dataclasses.replace(base, source="// a \n"),
        dataclasses.replace(base, flags=("-O3",)),
        dataclasses.replace(base, flags=("-O2", "")),
        dataclasses.replace(base, output="cubin"),
    ]
    store = BuildStore(tmp_path, toolkit, headers)
    keys = {store.key(one) for one in (base, *others)}
    keys.add(BuildStore(tmp_path, toolkit, Headers((Path("/include"),), "two")).key(base))
    keys.add(BuildStore(tmp_path, dataclasses.replace(toolkit, digest="other"), headers).key(base))
    assert len(keys) == len(others) + 3
    moved = Headers((Path("/elsewhere"),), "one")
    same = [dataclasses.replace(base, name="b"), base]
    assert {BuildStore(tmp_path, toolkit, moved).key(one) for one in same} == {store.key(base)}


def test_a_failure_is_kept_with_what_the_compiler_wrote(tmp_path: Path, toolkit: Toolkit) -> None:
    store = BuildStore(tmp_path / "store", toolkit)
    crash = "// says nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)\n"
    jobs = [job("wrong", "#error\n"), job("right"), job("crash", crash)]
    builds = CompileRun(store, 1)(jobs)
    assert [build.record.outcome for build in builds] == ["failed", "built", "failed"]
    assert "error: #error directive" in builds[0].diagnostics
    assert CompileRun(store, 1)(jobs) == builds and len(asked(toolkit)) == 3


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("// says nvcc error   : 'cicc' died due to signal 9 (Kill signal)\n", r"was stopped \(.*--jobs"),
        (
            "// says a.cu:1:10: fatal error: curand.h: No such file or directory\n",
            r"finds no curand.h.*--nvcc",
        ),
        ("// kills itself\n", r"ended with status -9 and names no error in the source \(it wrote nothing\)"),
        ("// writes nothing\n", r"ended with status 0"),
    ],
)
def test_the_machines_fault_says_nothing_of_a_source(
    tmp_path: Path, toolkit: Toolkit, source: str, told: str
) -> None:
    store = BuildStore(tmp_path / "store", toolkit)
    with pytest.raises(MachineError, match=f"compiler of a {told}"):
        CompileRun(store, 1)([job("a", source)])
    assert store.find(job("a", source), 60) is None and not list((store.folder / DRAFTS).iterdir())


def test_a_job_that_the_machine_ends_does_not_stop_the_others(tmp_path: Path, toolkit: Toolkit) -> None:
    """It comes first, and ends at once."""
    store = BuildStore(tmp_path / "store", toolkit)
    jobs = [job("bad", "// kills itself\n"), job("worse", "// says Killed\n"), *(job(name) for name in "abc")]
    with pytest.raises(MachineError, match=r"compiler of bad ended.*\. 1 other compiler likewise"):
        CompileRun(store, 1)(jobs)
    assert [store.find(one, 60) is not None for one in jobs] == [False, False, True, True, True]


def test_a_build_is_read_by_whoever_the_umask_lets(tmp_path: Path, toolkit: Toolkit) -> None:
    (build,) = CompileRun(BuildStore(tmp_path / "store", toolkit), 1)([job("a")])
    mask = os.umask(0)
    os.umask(mask)
    assert build.folder.stat().st_mode & 0o777 == 0o777 & ~mask


def test_what_ended_beside_it_is_kept(
    tmp_path: Path, toolkit: Toolkit, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them end between two looks."""
    store = BuildStore(tmp_path / "store", toolkit)
    monkeypatch.setattr(parallel, "_Compiler", Together)
    Together.begun.clear()
    jobs = [job("a"), job("bad", "// kills itself\n"), job("c")]
    with pytest.raises(MachineError, match="compiler of bad"):
        CompileRun(store, 3)(jobs)
    assert [store.find(one, 60) is not None for one in jobs] == [True, False, True]


class Together(_Compiler):
    """Has ended when all have."""

    begun: ClassVar[list[Together]] = []

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.begun.append(self)

    def has_ended(self, seconds: float) -> bool:
        return len(self.begun) == 3 and all(_Compiler.has_ended(one, seconds) for one in self.begun)


@pytest.mark.parametrize(
    ("before", "after", "stays"),
    [
        ("built", "built", True),
        ("built", "failed", True),
        ("built", "timed_out", True),
        ("failed", "timed_out", True),
        ("failed", "built", False),
        ("timed_out", "failed", False),
        ("timed_out", "built", False),
    ],
)
def test_two_processes_keep_what_says_most(
    tmp_path: Path, toolkit: Toolkit, before: BuildOutcome, after: BuildOutcome, stays: bool
) -> None:
    store = BuildStore(tmp_path / "store", toolkit)
    drafts = []
    for outcome in (before, after):
        draft = store.draft(job("a"))
        drafts.append(draft)
        (draft.folder / "diagnostics").write_text(outcome)
        (draft.folder / OUTPUT_OF["object"]).write_text(outcome)
    first = store.keep(job("a"), drafts[0].folder, before, 1.0)
    second = store.keep(job("a"), drafts[1].folder, after, 1.0)
    kept = store.find(job("a"), 1.0)
    assert kept == second and (second == first) == stays
    assert kept and kept.diagnostics == (before if stays else after)
    assert not (kept.folder / "replaced").exists()
    for draft in drafts:
        draft.remove()


def test_the_longer_try_is_kept(tmp_path: Path, toolkit: Toolkit) -> None:
    store = BuildStore(tmp_path / "store", toolkit)
    for seconds, expected in [(2.0, 2.0), (1.0, 2.0), (3.0, 3.0)]:
        draft = store.draft(job("a"))
        (draft.folder / "diagnostics").write_text("")
        assert store.keep(job("a"), draft.folder, "timed_out", seconds).record.seconds == expected
        draft.remove()


def test_a_draft_is_safe_from_others_while_its_process_lives(tmp_path: Path, toolkit: Toolkit) -> None:
    store = BuildStore(tmp_path / "store", toolkit)
    mine = store.draft(job("a"))
    code = f"""
from pathlib import Path
from typing import Any, ClassVar
from hillclimb.harness.gemm.compiler.drafts import Draft
Draft(Path({str(tmp_path / "store")!r}))
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert mine.folder.exists() and len(list(mine.folder.parent.iterdir())) == 2
    other = store.draft(job("a"))
    assert sorted(mine.folder.parent.iterdir()) == sorted([mine.folder, other.folder])
    mine.remove()
    other.remove()


def test_a_folder_whose_name_nvcc_would_split_is_refused(tmp_path: Path, toolkit: Toolkit) -> None:
    for folder, headers in [(tmp_path / "a,b", Headers()), (tmp_path, Headers((Path("/x,y"),), ""))]:
        with pytest.raises(UsageError, match="without a comma"):
            BuildStore(folder, toolkit, headers)


def test_one_that_was_given_up_counts_for_no_more_seconds(tmp_path: Path, toolkit: Toolkit) -> None:
    store = BuildStore(tmp_path / "store", toolkit)
    slow = job("slow", "// hangs\n")
    (build,) = CompileRun(store, 1, seconds=0.5)([slow])
    assert build.record.outcome == "timed_out"
    assert store.find(slow, 0.4) == build and store.find(slow, 60.0) is None


@pytest.mark.parametrize("name", [OUTPUT_OF["object"], RECORD])
@pytest.mark.parametrize("content", [None, "", "{"])
def test_what_was_damaged_is_compiled_again(
    tmp_path: Path, toolkit: Toolkit, name: str, content: str | None
) -> None:
    store = BuildStore(tmp_path / "store", toolkit)
    (build,) = CompileRun(store, 1)([job("a")])
    (build.folder / name).unlink()
    if content is not None:
        (build.folder / name).write_text(content)
    (again,) = CompileRun(store, 1)([job("a")])
    assert again.output.read_text() == "// compiled\n// a\n" and len(asked(toolkit)) == 2


def test_kill_9_loses_what_was_being_compiled(tmp_path: Path, toolkit: Toolkit) -> None:
    store = BuildStore(tmp_path / "store", toolkit)
    code = f"""
from pathlib import Path
from typing import Any, ClassVar
from hillclimb.harness.gemm.compiler.parallel import CompileRun, _Compiler
from hillclimb.harness.gemm.compiler.store import BuildStore, CompileJob
from hillclimb.harness.gemm.compiler.toolkit import find_toolkit
store = BuildStore(Path({str(tmp_path / "store")!r}), find_toolkit(Path({str(toolkit.nvcc)!r})))
CompileRun(store, 1)([CompileJob("a", "// a\\n"), CompileJob("b", "// starts another\\n// hangs\\n")])
"""
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        _wait_for(lambda: list((tmp_path / "store" / DRAFTS).glob("*/half")))
        compiler = [*_children(process.pid), toolkit.nvcc.with_name("child").read_text()]
        process.send_signal(signal.SIGKILL)
    _wait_for(lambda: not any(_is_running(pid) for pid in compiler))
    (build,) = CompileRun(store, 1)([job("a")])
    assert build.is_built and len(asked(toolkit)) == 2
    CompileRun(store, 1)([job("c")])
    assert not list((tmp_path / "store" / DRAFTS).iterdir())


def test_an_interrupt_ends_the_compilers(tmp_path: Path, toolkit: Toolkit) -> None:
    store = BuildStore(tmp_path / "store", toolkit)

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        CompileRun(store, 2, watch=interrupt)([job("slow", "// hangs\n"), job("quick")])
    assert not [
        pid for pid in _children(os.getpid()) if b"nvcc" in Path("/proc", pid, "cmdline").read_bytes()
    ]


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _is_running(pid: str) -> bool:
    try:
        return Path("/proc", pid, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def _wait_for(condition: object) -> None:
    assert callable(condition)
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
