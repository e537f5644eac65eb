"""The sanitizer tier without a GPU: logs as NVIDIA's manual shows them, and a stand-in for the tool in a real sandbox.

The stand-in is a shell script in the workspace: it runs the kernel's own command line and then writes a log given.
"""

from __future__ import annotations

import random
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.case.contract import Contract, Spec, Work
from hillclimb.harness.channel.problem_pack import ProblemPackReader
from hillclimb.harness.duel.inputs import InputSource
from hillclimb.harness.errors import CandidateFault, SandboxError
from hillclimb.harness.profile import sanitize
from hillclimb.harness.profile.problem_writer import ProblemDraft, write_problem_pack
from hillclimb.harness.profile.sanitize import (
    Sanitizer,
    SanitizerLog,
    SanitizerReport,
    find_sanitizer,
    parse_log,
    report_of_run,
    sanitizer_command,
)
from hillclimb.harness.profile.tool_run import (
    MAX_PROBLEM_BYTES,
    ToolOutput,
    ToolSandbox,
    draft_problems,
    find_program,
)
from hillclimb.harness.records import Reason
from hillclimb.harness.sandbox.rungs.choose import Confinement, ExitStatus, bubblewrap_rung

OUT_OF_BOUNDS = """\
========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 16 bytes
=========     at matmul_kernel+0xec0 in matmul.py:43
=========     by thread (18,0,0) in block (0,0,0)
=========     Access to 0x74505bcccca0 is out of bounds
=========     and is 161 bytes after the nearest allocation at 0x74505bccc800 of size 1,024 bytes
=========     Device Frame: matmul_kernel+0xec0 in matmul.py:43
=========
========= Invalid __global__ write of size 16 bytes
=========     at matmul_kernel+0xec0 in matmul.py:43
=========     by thread (19,0,0) in block (0,0,0)
=========     Access to 0x74505bccccb0 is out of bounds
=========
========= Program hit cudaErrorLaunchFailure (error 719) due to "unspecified launch failure" on CUDA API call to x.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: main [0xae66] in python3
=========
========= Target application returned an error
========= ERROR SUMMARY: 3 errors
"""
RACE = """\
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at sumKernel(int *, int *)+0x90 in block_error.cu:41
=========     and Read access at sumKernel(int *, int *)+0x100 in block_error.cu:51 [508 hazards]
=========
========= RACECHECK SUMMARY: 1 hazard displayed (1 error, 0 warnings)
"""
BUTTERFLY = """\
========= COMPUTE-SANITIZER
========= Error: Potential WAW hazard detected at __shared__ 0x404 in block (0,0,0) :
=========     Write Thread (23,0,0) at kernel+0x1a0 in kernel.ttgir:32
=========     Write Thread (24,0,0) at kernel+0x1a0 in kernel.ttgir:32
=========     Current Value : 2, Incoming Value : 3
=========
========= Error: Race reported between Write access at kernel+0x1a0 in kernel.ttgir:32
=========     and Write access at kernel+0x1a0 in kernel.ttgir:32 [8 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (2 errors, 0 warnings)
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
NO_CUDA = """\
========= COMPUTE-SANITIZER
========= Error: process didn't terminate successfully
=========     The application may have hit an error when dereferencing Unified Memory from the host.
========= Error: Target application terminated before first instrumented API call
"""
OF_ITS_KIND = {
    "========= Invalid __global__ read of size 4 bytes\n=========     at f+0x10\n": (
        "invalid global read",
        Reason.MEMORY_ERROR,
        "f",
    ),
    "========= Invalid __global__ atomic of size 4 bytes\n=========     at f+0x10\n": (
        "invalid global atomic",
        Reason.WROTE_OUT_OF_BOUNDS,
        "f",
    ),
    "========= Invalid __global__ write of size 4 bytes\n=========     at unaligned_kernel():0x160 in demo.cu:6\n"
    "=========     by thread (0,0,0) in block (0,0,0)\n=========     Address 0x7f6510c00001 is misaligned\n": (
        "invalid global write",
        Reason.MEMORY_ERROR,
        "unaligned_kernel():0x160",
    ),
    "========= Invalid __shared__ write of size 8 bytes\n=========     at 0xda0 in /a/fused_moe.py:175:moe_kernel\n": (
        "invalid shared write",
        Reason.WROTE_OUT_OF_BOUNDS,
        "moe_kernel",
    ),
    "========= Uninitialized __global__ memory read of size 4 bytes\n"
    "=========     at vectorAdd(int *)+0x70 in m.cu:41\n"
    "=========     by thread (31,0,0) in block (1,0,0)\n=========     Address 0x7f3c7ec000fc\n": (
        "uninitialised global read",
        Reason.MEMORY_ERROR,
        "vectorAdd(int *)",
    ),
    " ========= Barrier error detected. Divergent thread(s) in block.\n"
    " =========     at [clone myKernel(int *, int *)] outlineSync()+0x11f0 in test.cu:42\n": (
        "barrier error",
        Reason.DATA_RACE,
        "[clone myKernel(int *, int *)] outlineSync()",
    ),
    "========= Malloc/Free error encountered : Double free\n=========     at 0x79d8\n": (
        "device heap error",
        Reason.MEMORY_ERROR,
        "0x79d8",
    ),
    "========= Warning: Race reported between Write access at RAW()+0xf0 in raceGroupBasic.cu:40\n"
    "=========     and Read access at RAW()+0x280 in raceGroupBasic:46 [4 hazards]\n": (
        "warning",
        None,
        "RAW()",
    ),
    "========= Potential invalid __shared__ read of size 4 bytes\n=========     at g(int *, int)+0x170 in c.cu:10\n": (
        "perhaps invalid shared read",
        None,
        "g(int *, int)",
    ),
    "========= Leaked 64 bytes at 0x400200200\n": ("leak", None, ""),
    "========= A line of a version to come\n": ("something else", None, ""),
}

HONEST = """
import torch

def run(table, at, out):
    torch.index_select(table, 0, at, out=out)
"""


class Gather(Contract):
    """out = table[at]: with indices drawn at random, instead of the contract's, it reads out of bounds."""

    problems = MappingProxyType(
        {"large": {"n": 4000}, "small": {"n": 5}, "huge": {"n": MAX_PROBLEM_BYTES}, "empty": {"n": 0}}
    )
    distributions = ("uniform",)

    def inputs(self, problem: Any, distribution: str, generator: torch.Generator) -> dict[str, torch.Tensor]:
        n = min(problem["n"], 1 << 20)
        table = torch.rand(max(n, 1), generator=generator, device=generator.device)
        return {
            "table": table,
            "at": torch.randint(max(n, 1), (n,), generator=generator, device=generator.device),
        }

    def outputs(self, problem: Any) -> dict[str, Spec]:
        return {"out": Spec((problem["n"],), torch.float32)}

    def reference(self, problem: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        raise NotImplementedError

    attainable = reference

    def work(self, problem: Any) -> Work:
        return Work(flops=0, bytes=16 * problem["n"])


def sources(*problems: str) -> list[InputSource]:
    return [InputSource(Gather(), name, "uniform", random.Random(1), "cpu") for name in problems]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    made = tmp_path / "workspace"
    made.mkdir()
    (made / "kernel.py").write_text(HONEST)
    (made / "log.txt").write_text(CLEAN)
    (made / "sanitizer").write_text(
        '#!/bin/sh\nwhile [ "${1#--}" != "$1" ]; do [ "$1" = --log-file ] && log=$2; shift 2; done\n'
        '"$@"; status=$?\ncat /workspace/log.txt > "$log"\nexit $status\n'
    )
    (made / "sanitizer").chmod(0o755)
    return made


@pytest.fixture
def stage(workspace: Path) -> Iterator[ToolSandbox]:
    try:
        rung = bubblewrap_rung()
    except SandboxError as error:
        pytest.skip(str(error))
    environment = {"OMP_NUM_THREADS": "1", "TRITON_INTERPRET": "1"}
    yield ToolSandbox(rung, Confinement(workspace, 4 << 30, 64 << 20, environment), "kernel.py:run", "cpu")


def look(stage: ToolSandbox, *problems: str, seconds: float = 60) -> SanitizerReport:
    sanitizer = Sanitizer(Path("/workspace/sanitizer"), stage, seconds)
    (found,) = sanitizer.check(sources(*problems), ["memcheck"], lambda _: None)
    return found


def test_an_access_out_of_bounds_is_told_with_its_place_and_held_against_the_kernel() -> None:
    log = parse_log(OUT_OF_BOUNDS)
    assert (log.errors, log.failure) == (3, "Target application returned an error")
    first, call = log.findings
    assert (first.kind, first.reason, first.kernel) == (
        "invalid global write",
        Reason.WROTE_OUT_OF_BOUNDS,
        "matmul_kernel",
    )
    assert first.count == 2
    assert "in matmul.py:43 by thread (18,0,0)" in first.text
    assert "161 bytes after the nearest allocation" in first.text
    assert "Frame" not in first.text
    assert (call.kind, call.reason) == ("failing CUDA call", None)
    with pytest.raises(CandidateFault, match=r"wrote_out_of_bounds: under memcheck: Invalid .* \(2 times\)"):
        SanitizerReport("memcheck", log.findings, ("small",)).require_clean()


def test_a_race_of_a_read_with_a_write_is_held_and_one_of_two_writes_is_told() -> None:
    (race,) = parse_log(RACE).findings
    assert (race.kind, race.reason, race.kernel) == (
        "shared memory race",
        Reason.DATA_RACE,
        "sumKernel(int *, int *)",
    )
    assert parse_log(RACE).errors == 1
    butterfly = parse_log(BUTTERFLY).findings
    assert {finding.kind for finding in butterfly} == {"waw hazard", "shared memory race"}
    SanitizerReport("racecheck", butterfly, ("small",)).require_clean()
    assert "waw hazard" in SanitizerReport("racecheck", butterfly, ("small",)).note()


@pytest.mark.parametrize("text", OF_ITS_KIND)
def test_every_kind_of_record_has_its_name(text: str) -> None:
    (finding,) = parse_log(text).findings
    assert (finding.kind, finding.reason, finding.kernel) == OF_ITS_KIND[text]


def test_what_is_held_comes_first_however_late_it_was_found() -> None:
    leaks = "".join(f"========= Leaked {i} bytes at 0x{i:x}\n=========     at f{i}+0x1\n" for i in range(50))
    findings = parse_log(leaks + OUT_OF_BOUNDS).findings
    assert len(findings) == sanitize.MAX_FINDINGS
    assert findings[0].reason is Reason.WROTE_OUT_OF_BOUNDS


def test_a_clean_log_is_clean_and_a_torn_one_is_not() -> None:
    assert parse_log(CLEAN) == SanitizerLog((), "", 0)
    assert parse_log("========= COMPUTE-SANITIZER\n") == SanitizerLog((), "", None)
    ran = ToolOutput(ExitStatus(0, None), CLEAN, "", ("small",), 1.0)
    assert report_of_run("memcheck", ["small"], ran) == SanitizerReport("memcheck", (), ("small",))
    assert report_of_run("memcheck", ["small"], ran).note() == "memcheck found nothing in small"
    torn = report_of_run(
        "memcheck", ["small"], ToolOutput(ExitStatus(None, 9), "========= COMPUTE-SAN", "Killed", (), 1.0)
    )
    assert torn.note() == "memcheck came to nothing: its log has no end (SIGKILL); printed: Killed"
    unheard = report_of_run(
        "memcheck", ["small"], ToolOutput(ExitStatus(1, None), CLEAN, "ImportError", (), 1.0)
    )
    assert unheard.failure == "the kernel was not called (exit status 1); printed: ImportError"
    refused = report_of_run("memcheck", ["small"], ToolOutput(ExitStatus(255, None), NO_CUDA, "", (), 1.0))
    assert refused.note().startswith("memcheck came to nothing: it says: Error: process didn't terminate")


LINES = st.one_of(
    st.text(max_size=80),
    st.sampled_from(
        [
            line
            for text in (OUT_OF_BOUNDS, RACE, BUTTERFLY, NO_CUDA, *OF_ITS_KIND)
            for line in text.split("\n")
        ]
    ),
    st.builds("========= {}".format, st.text(max_size=80)),
    st.builds("=========     at {}".format, st.text(max_size=80)),
)


def expect_printable(log: SanitizerLog) -> None:
    assert len(log.findings) <= sanitize.MAX_FINDINGS
    for finding in log.findings:
        assert finding.count >= 1
        for text in (finding.kind, finding.kernel, str(finding)):
            assert len(text) <= sanitize.MAX_TEXT_CHARS + 40
            assert all(c.isprintable() or c == "\n" for c in text)
    SanitizerReport("memcheck", log.findings, ("a",)).note()


@given(st.lists(LINES, max_size=30), st.integers(0, 2000))
def test_whatever_a_log_holds_is_read(lines: list[str], length: int) -> None:
    expect_printable(parse_log("\n".join(lines)[:length]))


@given(st.binary(max_size=400), st.integers(0, len(OUT_OF_BOUNDS)))
def test_a_log_with_bytes_thrown_in_is_read(thrown: bytes, at: int) -> None:
    raw = OUT_OF_BOUNDS.encode()
    expect_printable(parse_log((raw[:at] + thrown + raw[at:]).decode(errors="replace")))
    expect_printable(parse_log(raw[:at].decode()))


@pytest.mark.parametrize("tool", ["memcheck", "racecheck", "initcheck", "synccheck"])
def test_the_command_names_tool_and_log_and_the_option_of_a_tool_only_for_it(tool: str) -> None:
    words = sanitizer_command("/usr/local/cuda/bin/compute-sanitizer", tool, "/proc/self/fd/9")
    assert words[1:5] == ["--tool", tool, "--log-file", "/proc/self/fd/9"]
    assert ("--padding" in words) == (tool == "memcheck")
    assert ("--racecheck-report" in words) == (tool == "racecheck")
    if program := find_sanitizer():
        done = subprocess.run(
            [str(program), *words[1:3], *words[5:], "/bin/true"], capture_output=True, text=True
        )
        assert "COMPUTE-SANITIZER" in done.stdout, "an option it does not know ends it before its first line"


def test_a_program_is_found_on_the_path_or_in_its_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for version in ("12.9", "13.0"):
        folder = tmp_path / f"cuda-{version}"
        folder.mkdir()
        (folder / "tool").touch()
    assert (
        find_program("tool", [f"{tmp_path}/none/tool", f"{tmp_path}/cuda-*/tool"])
        == tmp_path / "cuda-13.0/tool"
    )
    assert find_program("tool", [f"{tmp_path}/none/tool"]) is None
    (tmp_path / "tool").touch(mode=0o755)
    assert find_program("tool", []) == tmp_path / "tool"


def test_problems_go_lightest_first_and_without_the_huge() -> None:
    fitting, large = draft_problems(sources("large", "huge", "small", "empty"))
    assert [one.problem for one in fitting] == ["empty", "small", "large"]
    assert large == ["huge"]


DTYPES = [torch.float32, torch.bfloat16, torch.int64, torch.bool, torch.float8_e4m3fn, torch.uint8]


@given(st.lists(st.tuples(st.sampled_from(DTYPES), st.lists(st.integers(0, 4), max_size=3)), max_size=5))
def test_a_sheet_brings_every_value_across(shapes: list[tuple[torch.dtype, list[int]]]) -> None:
    tensors = {str(i): torch.randint(2, s).to(d) for i, (d, s) in enumerate(shapes)}
    outputs = {f"o{i}": Spec(tuple(s), d) for i, (d, s) in enumerate(shapes)}
    with write_problem_pack([ProblemDraft("p", 2.0, tensors, outputs, {})], "cpu", 3.0) as descriptor:
        reader = ProblemPackReader(descriptor)
        (packed,) = reader.pack.problems
        assert (packed.problem, packed.weight, reader.pack.seconds) == ("p", 2.0, 3.0)
        got = reader.tensors(packed)
    for tensor, there, back in zip(tensors.values(), got[: len(tensors)], got[len(tensors) :], strict=True):
        assert there.dtype == back.dtype == tensor.dtype
        assert torch.equal(there.view(tensor.shape).double(), tensor.double())
        assert back.shape == tensor.shape


def test_parameters_come_across() -> None:
    given = {"gain": torch.arange(24.0).reshape(4, 6).T, "offset": torch.tensor([3, 4], dtype=torch.int8)}
    drafts = [ProblemDraft(name, 2.0, {"x": torch.full((3,), 7.0)}, {}, {}) for name in "ab"]
    with write_problem_pack(drafts, "cpu", 3.0, given) as descriptor:
        reader = ProblemPackReader(descriptor)
        got, first = reader.parameters(), reader.tensors(reader.pack.problems[0])
    assert list(got) == ["gain", "offset"]
    assert all(torch.equal(got[name], given[name]) and got[name].dtype == given[name].dtype for name in given)
    assert got["gain"].stride() == (1, 6)
    assert torch.equal(first[0], torch.full((3,), 7.0))


def test_strides_and_what_is_changed_in_place_come_across() -> None:
    wide = torch.arange(24.0).reshape(4, 6)
    tensors = {"w": wide.T, "acc": wide[:, 1:3], "s": torch.tensor(3)}
    outputs = {
        "y": Spec((2, 3), torch.float32, strides=(1, 2)),
        "acc": Spec((4, 2), torch.float32, strides=(6, 1)),
    }
    with write_problem_pack([ProblemDraft("p", 2.0, tensors, outputs, {})], "cpu", 3.0) as descriptor:
        reader = ProblemPackReader(descriptor)
        (packed,) = reader.pack.problems
        got = reader.tensors(packed)
        assert [tensor.stride() for tensor in got] == [(1, 6), (6, 1), (), (1, 2)]
        assert all(torch.equal(one, other) for one, other in zip(tensors.values(), got, strict=False))
        got[0].add_(1)
        got[1].add_(1)
        reader.restore_changed(packed, got)
    assert torch.equal(got[0], tensors["w"] + 1), "only what is changed in place"
    assert torch.equal(got[1], tensors["acc"])


@pytest.mark.slow(5)
def test_a_clean_kernel_is_called_on_every_problem_with_the_contracts_own_inputs(stage: ToolSandbox) -> None:
    found = look(stage, "large", "small", "empty")
    assert found == SanitizerReport("memcheck", (), ("empty", "small", "large"))


@pytest.mark.slow(3)
def test_a_finding_in_the_log_becomes_the_candidates_fault(stage: ToolSandbox, workspace: Path) -> None:
    (workspace / "log.txt").write_text(OUT_OF_BOUNDS)
    found = look(stage, "small", "huge")
    assert (found.problems_run, found.left_out) == (("small",), ("huge",))
    with pytest.raises(CandidateFault) as raised:
        found.require_clean()
    assert raised.value.reason is Reason.WROTE_OUT_OF_BOUNDS


@pytest.mark.slow(3)
def test_a_kernel_that_raises_is_told_of(stage: ToolSandbox, workspace: Path) -> None:
    (workspace / "kernel.py").write_text("def run(*tensors):\n    raise ValueError('not today')\n")
    found = look(stage, "small")
    found.require_clean()
    assert "memcheck came to nothing: the kernel was not called (exit status 1)" in found.note()
    assert "ValueError: not today" in found.note()


@pytest.mark.slow(5)
def test_a_kernel_that_hangs_is_ended_in_time(stage: ToolSandbox, workspace: Path) -> None:
    (workspace / "kernel.py").write_text("import time\n\ndef run(*tensors):\n    time.sleep(60)\n")
    found = look(stage, "small", seconds=12)
    assert found.left_out == ("small",)
    assert found.note() == "memcheck came to nothing: its time was up after 12 s"


@pytest.mark.slow(3)
def test_what_would_take_too_long_is_left_out(stage: ToolSandbox, workspace: Path) -> None:
    (workspace / "kernel.py").write_text("import time\n\ndef run(*tensors):\n    time.sleep(0.5)\n")
    found = look(stage, "small", "large")
    assert (found.problems_run, found.left_out, found.failure) == (("small",), ("large",), "")
    assert found.note() == "memcheck found nothing in small; not looked at: large"


@pytest.mark.slow(3)
def test_a_triton_kernel_can_be_rehearsed_interpreted(stage: ToolSandbox, workspace: Path) -> None:
    (workspace / "kernel.py").write_text(TRITON)
    assert look(stage, "small", "large").problems_run == ("small", "large")


def test_a_missing_tool_is_told_and_held_against_nobody(stage: ToolSandbox) -> None:
    (found,) = Sanitizer(None, stage).check(sources("small", "huge"), ["memcheck"], lambda _: None)
    found.require_clean()
    assert found.note() == "memcheck came to nothing: compute-sanitizer is not installed"
    assert found.left_out == ("small", "huge")


@pytest.mark.skipif(shutil.which("compute-sanitizer") is None, reason="compute-sanitizer is not on the PATH")
@pytest.mark.skipif(torch.cuda.is_available(), reason="tests/gpu has the real thing")
def test_the_real_tool_without_a_device_says_that_it_could_not_look(stage: ToolSandbox) -> None:
    program = find_sanitizer()
    assert program is not None
    (found,) = Sanitizer(program, stage, 60).check(sources("small"), ["memcheck"], lambda _: None)
    assert "memcheck came to nothing" in found.note()


TRITON = """
import triton
import triton.language as tl

@triton.jit
def gather(table, at, out, n, BLOCK: tl.constexpr):
    lanes = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    rows = tl.load(at + lanes, mask=lanes < n, other=0)
    tl.store(out + lanes, tl.load(table + rows, mask=lanes < n), mask=lanes < n)

def run(table, at, out):
    gather[(triton.cdiv(out.numel(), 1024),)](table, at, out, out.numel(), BLOCK=1024)
"""
