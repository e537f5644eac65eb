"""Builds: what decides one is compiled once, a failure costs its own source, and nothing half done is ever found."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hillclimb.harness.errors import MachineError
from hillclimb.harness.gemm.compiler.cutlass import Headers
from hillclimb.harness.gemm.compiler.parallel import CompileRun, default_jobs
from hillclimb.harness.gemm.compiler.store import DRAFTS, OUTPUT_OF, RECORD, BuildStore, CompileJob
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
    run = CompileRun(store, 2, watch=lambda build, done, total: seen.append((build.record.name, done, total)))
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
    keys.add(BuildStore(tmp_path, dataclasses.replace(toolkit, version="nvcc 13.1"), headers).key(base))
    assert len(keys) == len(others) + 3
    moved = Headers((Path("/elsewhere"),), "one")
    same = [dataclasses.replace(base, name="b"), base]
    assert {BuildStore(tmp_path, toolkit, moved).key(one) for one in same} == {store.key(base)}


def test_a_failure_is_kept_with_what_the_compiler_wrote(tmp_path: Path, toolkit: Toolkit) -> None:
    store = BuildStore(tmp_path / "store", toolkit)
    jobs = [job("wrong", "#error\n"), job("right"), job("silent", "// writes nothing\n")]
    builds = CompileRun(store, 1)(jobs)
    assert [build.record.outcome for build in builds] == ["failed", "built", "failed"]
    assert "error: #error directive" in builds[0].diagnostics
    assert CompileRun(store, 1)(jobs) == builds and len(asked(toolkit)) == 3


@pytest.mark.parametrize("source", ["// is killed\n", "// kills itself\n"])
def test_a_killed_compiler_says_nothing_of_its_source(tmp_path: Path, toolkit: Toolkit, source: str) -> None:
    store = BuildStore(tmp_path / "store", toolkit)
    with pytest.raises(MachineError, match=r"compiler of a was killed.*--jobs"):
        CompileRun(store, 1)([job("a", source)])
    assert store.find(job("a", source), 60) is None


def test_a_header_that_is_absent_says_nothing_of_a_source(tmp_path: Path, toolkit: Toolkit) -> None:
    store = BuildStore(tmp_path / "store", toolkit)
    with pytest.raises(MachineError, match=r"compiler of a finds no curand_kernel.h.*--nvcc"):
        CompileRun(store, 1)([job("a", "// lacks\n")])
    assert store.find(job("a", "// lacks\n"), 60) is None


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
from hillclimb.harness.gemm.compiler.parallel import CompileRun
from hillclimb.harness.gemm.compiler.store import BuildStore, CompileJob
from hillclimb.harness.gemm.compiler.toolkit import find_toolkit
store = BuildStore(Path({str(tmp_path / "store")!r}), find_toolkit(Path({str(toolkit.nvcc)!r})))
CompileRun(store, 1)([CompileJob("a", "// a\\n"), CompileJob("b", "// hangs\\n")])
"""
    with subprocess.Popen([sys.executable, "-c", code]) as process:
        _wait_for(lambda: list((tmp_path / "store" / DRAFTS).glob("*/half")))
        compiler = _children(process.pid)
        process.send_signal(signal.SIGKILL)
    _wait_for(lambda: not any(Path("/proc", pid).exists() for pid in compiler))
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


def test_several_jobs_fit_this_machine() -> None:
    assert 1 <= default_jobs() <= (os.cpu_count() or 1)


def _children(pid: int) -> list[str]:
    return Path(f"/proc/{pid}/task/{pid}/children").read_text().split()


def _wait_for(condition: object) -> None:
    assert callable(condition)
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)
