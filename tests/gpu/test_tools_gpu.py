"""NVIDIA's tools on a real GPU: planted bugs found inside the sandbox, honest kernels clean, profiles plausible.

Prints what was found and how long it took; run with `-s -n 0` to see it.
"""

from __future__ import annotations

import json
import os
import random
import stat
import sys
import time
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch

from hillclimb.agent.screen.counter_text import summary
from hillclimb.harness.candidate.gpu_profiler import GAPS
from hillclimb.harness.case.contract import Contract, Spec, Work
from hillclimb.harness.duel.inputs import InputSource
from hillclimb.harness.errors import CandidateFault, SandboxError
from hillclimb.harness.profile.counters import CounterReader, find_ncu
from hillclimb.harness.profile.rows import parse_rows
from hillclimb.harness.profile.sanitize import Sanitizer, SanitizerReport, find_sanitizer
from hillclimb.harness.profile.tool_run import ToolSandbox
from hillclimb.harness.records import Reason
from hillclimb.harness.sandbox.rungs.bubblewrap import BubblewrapRung
from hillclimb.harness.sandbox.rungs.choose import Confinement, bubblewrap_rung

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.timeout(400),
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device"),
]

MEMORY_BYTES = 64 << 30
SCRATCH_BYTES = 1 << 30

TRITON = """
import triton
import triton.language as tl

@triton.jit
def scale(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n), mask=STORED)

@triton.jit
def shift(y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(y + at, mask=at < n) + 1, mask=at < n)

def run(x, y):
    grid = (triton.cdiv(x.numel(), 1024),)
    scale[grid](x, y, x.numel(), BLOCK=1024)
    shift[grid](y, x.numel(), BLOCK=1024)
"""
HONEST = TRITON.replace("STORED", "at < n")
OUT_OF_BOUNDS = TRITON.replace("STORED", "at < n + 8")
"""Writes eight floats past the end: beside the array, and in nothing that the gate's reference would notice."""

PTX = """
import ctypes
import torch

CODE = b'''
.version 7.8
.target sm_80
.address_size 64

.visible .entry rotate(.param .u64 x, .param .u64 y)
{
    .reg .b32 %r<4>;
    .reg .f32 %f<3>;
    .reg .b64 %rd<8>;
    .shared .align 4 .b8 s[1024];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mov.u32 %r1, %tid.x;
    mul.wide.u32 %rd3, %r1, 4;
    add.s64 %rd4, %rd1, %rd3;
    ld.global.f32 %f1, [%rd4];
    mov.u64 %rd5, s;
    add.s64 %rd6, %rd5, %rd3;
    st.shared.f32 [%rd6], %f1;
    BARRIER
    add.s32 %r2, %r1, 32;
    and.b32 %r2, %r2, 255;
    mul.wide.u32 %rd7, %r2, 4;
    add.s64 %rd6, %rd5, %rd7;
    ld.shared.f32 %f2, [%rd6];
    add.s64 %rd4, %rd2, %rd3;
    st.global.f32 [%rd4], %f2;
    ret;
}
'''
cuda, function = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()

def check(code):
    assert code == 0, f"CUDA error {code}"

def load():
    torch.zeros(1, device="cuda")
    module = ctypes.c_void_p()
    check(cuda.cuModuleLoadData(ctypes.byref(module), ctypes.c_char_p(CODE)))
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"rotate"))

def run(x, y):
    if not function:
        load()
    values = (ctypes.c_uint64 * 2)(x.data_ptr(), y.data_ptr())
    places = (ctypes.c_void_p * 2)(*(ctypes.addressof(values) + 8 * i for i in range(2)))
    stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
    check(cuda.cuLaunchKernel(function, 1, 1, 1, 256, 1, 1, 0, stream, places, None))
"""
SYNCHRONISED = PTX.replace("BARRIER", "bar.sync 0;")
RACY = PTX.replace("BARRIER", "")

PROBE = """
import json, sys, time
sys.path.insert(0, "/workspace")
import torch, kernel
from functools import partial
from hillclimb.harness.candidate import gpu_profiler
from hillclimb.harness.sandbox.kernel.seccomp import forbid_processes

slots = [(torch.rand(1 << 24, device="cuda"), torch.empty(1 << 24, device="cuda")) for _ in range(8)]
kernel.run(*slots[0])
torch.cuda.synchronize()

def work():
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for x, y in slots:
        kernel.run(x, y)
    last.record()
    torch.cuda.synchronize()
    return round(first.elapsed_time(last) * 1e6)

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for x, y in slots:
        kernel.run(x, y)
torch.cuda.synchronize()

def replay():
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    graph.replay()
    last.record()
    torch.cuda.synchronize()
    return round(first.elapsed_time(last) * 1e6)

way, launch = sys.argv[1:]
if way == "torch":
    forbid_processes()
else:
    gpu_profiler.trace_with_torch = lambda work: []
plain = min(work() for _ in range(3)) / len(slots) / 1e9
start = time.perf_counter()
rows = gpu_profiler.measure(work if launch == "eager" else replay, len(slots))
print("ROWS", json.dumps({"rows": rows, "plain": plain, "took": time.perf_counter() - start}))
"""


class Vector(Contract):
    """y = 2 x + 1; for the PTX kernels, whose sums nobody checks here, just a vector in and one out."""

    problems = MappingProxyType({"block": {"n": 256}, "odd": {"n": 100_003}, "large": {"n": 1 << 24}})
    distributions = ("normal",)

    def inputs(self, problem: Any, distribution: str, generator: torch.Generator) -> dict[str, torch.Tensor]:
        return {"x": torch.randn(problem["n"], generator=generator, device=generator.device)}

    def outputs(self, problem: Any) -> dict[str, Spec]:
        return {"y": Spec((problem["n"],), torch.float32)}

    def reference(self, problem: Any, inputs: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        raise NotImplementedError

    attainable = reference

    def work(self, problem: Any) -> Work:
        return Work(flops=2 * problem["n"], bytes=8 * problem["n"])


def source(problem: str) -> InputSource:
    return InputSource(Vector(), problem, "normal", random.Random(3), "cuda")


def nodes() -> tuple[str, ...]:
    found = [*Path("/dev").glob("nvidia*"), *Path("/dev/nvidia-caps").glob("*")]
    return tuple(sorted(str(path) for path in found if stat.S_ISCHR(path.stat().st_mode)))


@pytest.fixture
def rung() -> BubblewrapRung:
    try:
        return bubblewrap_rung()
    except SandboxError as error:
        pytest.skip(str(error))


def confine(folder: Path, kernel: str) -> Confinement:
    (folder / "kernel.py").write_text(kernel)
    return Confinement(folder, MEMORY_BYTES, SCRATCH_BYTES, devices=nodes())


def sanitize(rung: BubblewrapRung, folder: Path, kernel: str, tool: str, *problems: str) -> SanitizerReport:
    program = find_sanitizer()
    if program is None:
        pytest.skip("compute-sanitizer is not installed")
    stage = ToolSandbox(rung, confine(folder, kernel), "kernel.py:run", "cuda")
    start = time.perf_counter()
    sources = [source(problem) for problem in problems]
    (found,) = Sanitizer(program, stage, 180).check(sources, [tool], lambda _: None)
    print(f"\n{tool} over {', '.join(problems)}: {time.perf_counter() - start:.1f} s: {found.note()}")
    for finding in found.findings:
        print(f"  {finding.reason}: {finding}")
    return found


def test_memcheck_finds_a_write_past_the_end(rung: BubblewrapRung, tmp_path: Path) -> None:
    found = sanitize(rung, tmp_path, OUT_OF_BOUNDS, "memcheck", "odd")
    with pytest.raises(CandidateFault) as raised:
        found.require_clean()
    assert raised.value.reason is Reason.WROTE_OUT_OF_BOUNDS
    assert "scale" in raised.value.detail


def test_racecheck_finds_a_missing_barrier(rung: BubblewrapRung, tmp_path: Path) -> None:
    found = sanitize(rung, tmp_path, RACY, "racecheck", "block")
    with pytest.raises(CandidateFault) as raised:
        found.require_clean()
    assert raised.value.reason is Reason.DATA_RACE
    assert "rotate" in raised.value.detail


@pytest.mark.parametrize(
    ("kernel", "tool"),
    [(HONEST, "memcheck"), (HONEST, "initcheck"), (SYNCHRONISED, "racecheck"), (SYNCHRONISED, "synccheck")],
    ids=["memcheck", "initcheck", "racecheck", "synccheck"],
)
def test_an_honest_kernel_is_clean(rung: BubblewrapRung, tmp_path: Path, kernel: str, tool: str) -> None:
    problems = ("odd", "large") if kernel is HONEST else ("block",)
    found = sanitize(rung, tmp_path, kernel, tool, *problems)
    found.require_clean()
    assert found == SanitizerReport(tool, (), problems)


@pytest.mark.parametrize("launch", ["eager", "graph"])
@pytest.mark.parametrize("way", ["torch", "proton"])
def test_a_kernel_of_two_launches_has_two_rows(
    rung: BubblewrapRung, tmp_path: Path, way: str, launch: str
) -> None:
    confinement = confine(tmp_path, HONEST)
    (tmp_path / "probe.py").write_text(PROBE)
    told = _run_probe(rung, confinement, way, launch)
    rows = {bucket.name: bucket for bucket in parse_rows(told["rows"])}
    print(
        f"\n{way}, {launch}: profiling took {told['took']:.2f} s; a call takes {told['plain'] * 1e6:.1f} us"
    )
    for bucket in rows.values():
        print(
            f"  {bucket.share:6.1%} {bucket.seconds_per_call * 1e6:9.2f} us {bucket.calls:4.1f}x {bucket.name}"
        )
    assert {"scale", "shift"} <= set(rows)
    assert rows["scale"].calls == rows["shift"].calls == 1
    busy = rows["scale"].seconds_per_call + rows["shift"].seconds_per_call
    assert 0.5 * told["plain"] < busy < 1.3 * told["plain"]
    gaps = rows[GAPS].share if GAPS in rows else 0.0
    assert rows["scale"].share + rows["shift"].share + gaps == pytest.approx(1, abs=0.02)


def _run_probe(rung: BubblewrapRung, confinement: Confinement, way: str, launch: str) -> Any:
    printed = os.memfd_create("printed")
    command = [sys.executable, "/workspace/probe.py", way, launch]
    inside = Confinement(
        confinement.workspace, MEMORY_BYTES, SCRATCH_BYTES, devices=confinement.devices, output=printed
    )
    confined = rung.spawn(command, inside)
    try:
        ending = confined.wait(120)
    finally:
        confined.kill()
    text = os.pread(printed, 1 << 20, 0).decode(errors="replace")
    os.close(printed)
    lines = [line for line in text.splitlines() if line.startswith("ROWS ")]
    assert lines, f"{ending}: {text[-3000:]}"
    return json.loads(lines[-1].removeprefix("ROWS "))


def test_ncu_counts_about_the_bytes_that_a_kernel_must_move(rung: BubblewrapRung, tmp_path: Path) -> None:
    stage = ToolSandbox(rung, confine(tmp_path, HONEST), "kernel.py:run", "cuda")
    start = time.perf_counter()
    counted = CounterReader(find_ncu(), stage, 180).read(source("large"))
    print(f"\nncu: {time.perf_counter() - start:.1f} s {counted.failure}")
    for kernel in counted.kernels:
        print(f"  {kernel.kernel}: {kernel.launches} launches, {summary(kernel)}\n    {kernel}")
    if counted.failure:
        pytest.skip(counted.failure)
    kernels = {kernel.kernel: kernel for kernel in counted.kernels}
    size = 4 << 24
    assert set(kernels) == {"scale", "shift"}
    for kernel in kernels.values():
        assert kernel.launches == 1
        assert kernel.dram_read is not None
        assert kernel.registers is not None
        assert kernel.bytes_per_second is not None
        assert 0.8 * size < kernel.dram_read < 1.5 * size
        assert 8 <= kernel.registers <= 255
        assert 5e11 < kernel.bytes_per_second < 6e12
        assert kernel.occupancy is None or 0 < kernel.occupancy <= 1
        assert kernel.local_memory in (None, 0)
