"""The border with a GPU granted: CUDA, Triton and compilers work inside, the canary stays inside, the seal holds."""

from __future__ import annotations

import re
import shutil
import signal
import textwrap
import time
from pathlib import Path

import pytest

from hillclimb.harness.sandbox.canary import canary
from hillclimb.harness.sandbox.fork.prefork import ForkedProcess
from hillclimb.harness.sandbox.rungs.choose import ExitStatus, PreforkRung, bubblewrap_rung
from tests.gpu.inside import WithGpu, await_word, nodes

KERNEL = """
import triton, triton.language as tl
@triton.jit
def add(x, y, n, B: tl.constexpr):
    i = tl.program_id(0) * B + tl.arange(0, B)
    tl.store(y + i, tl.load(x + i, i < n) + 1, i < n)
"""

COMPUTE = f"""
import time; begun = time.monotonic()
import os, pathlib, sys
print("main", begun - float(sys.argv[1]))
import torch, triton, triton.language as tl
print("import", time.monotonic() - begun)
x = torch.randn(1024, 1024, device="cuda"); torch.cuda.synchronize()
print("cuda", time.monotonic() - begun)
pathlib.Path("added.py").write_text({KERNEL!r})
sys.path.insert(0, os.getcwd())
from added import add
y = torch.empty_like(x)
add[(1024,)](x, y, x.numel(), 1024); torch.cuda.synchronize()
assert bool((y == x + 1).all())
print("triton", time.monotonic() - begun)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph): add[(1024,)](x, y, x.numel(), 1024)
assert bool(((x @ x).isfinite()).all())
from hillclimb.harness.sandbox.kernel.seccomp import forbid_processes
forbid_processes()
y.zero_(); graph.replay(); torch.cuda.synchronize()
assert bool((y == x + 1).all())
z = torch.empty(1 << 28, device="cuda"); del z  # memory is had and given back behind the seal as well
print(*(line.strip() for line in open("/proc/self/status") if line.startswith(("VmData", "Threads", "Seccomp"))))
print("sealed", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
y.zero_(); graph.replay(); torch.cuda.synchronize()
assert bool((y == x + 1).all())
z = torch.empty(1 << 28, device="cuda"); del z
print("computed", flush=True)
os.fork()  # stage two, or the seal from outside: either ends it with SIGSYS
time.sleep(60)
"""

AWAKE = """
import sys, time, torch
torch.zeros(1 << 20, device="cuda"); torch.cuda.synchronize()
print("up", flush=True)
time.sleep(60)
"""

UNSEALED = """
import os, subprocess, torch
x = torch.ones(1000, device="cuda"); torch.cuda.synchronize()
assert subprocess.run(["/bin/true"]).returncode == 0
import time
print("up", flush=True)
while not os.path.exists("go"): time.sleep(0.01)
print(float((x + 1).sum()), flush=True)
subprocess.run(["/bin/true"])
print("LEFT", flush=True)
"""


def test_cuda_and_triton_work_inside_and_behind_both_seals(start: WithGpu) -> None:
    running = start(COMPUTE, str(time.monotonic()))
    said = await_word(running, b"sealed")
    print(f"\n{start.rung.name} {type(running.confined).__name__}: {said}")
    assert "sealed" in said, said
    assert isinstance(running.confined, ForkedProcess) == isinstance(start.rung, PreforkRung)
    begun = time.perf_counter()
    running.confined.freeze()
    frozen = time.perf_counter()
    assert (running.confined.seccomp_filter_count(), running.confined.other_pids()) == (2, [])
    looked = time.perf_counter()
    assert running.confined.seal() == isinstance(start.rung, PreforkRung)
    print(f"freeze {frozen - begun:.5f} s, filters and others {looked - frozen:.5f} s, ", end="")
    print(f"seal {time.perf_counter() - looked:.5f} s")
    time.sleep(0.2)
    assert not running.confined.ran_while_frozen()
    (running.confined.scratch() / "go").touch()
    running.confined.thaw()
    ending, said = running.finish(20)
    assert "computed" in said, said
    assert ending == ExitStatus(None, signal.SIGSYS), said


def test_the_seal_from_outside_needs_nothing_inside(forking: PreforkRung, tmp_path: Path) -> None:
    """CUDA goes on, a process that it starts afterwards ends the candidate; before it, processes are let through."""
    (tmp_path / "workspace").mkdir()
    running = WithGpu(forking, tmp_path / "workspace")(UNSEALED)
    said = await_word(running, b"up")
    running.confined.freeze()
    assert running.confined.seal(), f"this kernel gives no seal from outside; it said {said}"
    assert (running.confined.seccomp_filter_count(), running.confined.other_pids()) == (1, [])
    (running.confined.scratch() / "go").touch()
    running.confined.thaw()
    ending, said = running.finish(20)
    assert (ending, said) == (ExitStatus(None, signal.SIGSYS), "up\n2000.0\n"), said


def test_a_pair_is_born_and_ended_together(forking: PreforkRung, tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    start = WithGpu(forking, tmp_path / "workspace")
    for together in (False, True, False, True):
        begun = time.perf_counter()
        pair = [start(AWAKE) for _ in range(2)]
        spawned = time.perf_counter()
        assert len({running.confined.pid for running in pair}) == 2
        born = time.perf_counter()
        for running in pair:
            assert "up" in await_word(running, b"up")
        up = time.perf_counter()
        for running in pair if together else ():
            running.confined.send_sigkill()
        for running in pair:
            running.confined.kill()
        print(
            f"\npair spawned {spawned - begun:.4f} s, born {born - spawned:.4f}, up {up - born:.4f}, "
            f"killed {'together' if together else 'one by one'} in {time.perf_counter() - up:.4f}"
        )


def test_the_canary_stays_inside_with_a_gpu(rung: canary.Testable) -> None:
    assert canary.escapes_from(rung, nodes()) == []


COMPILE = """
import ctypes, pathlib, subprocess
pathlib.Path("a.cu").write_text(
    '__global__ void f(){}\\n'
    'extern "C" int g(){ f<<<1,32>>>(); return cudaDeviceSynchronize(); }'
)
done = subprocess.run(
    ["nvcc", "-arch=sm_90", "-shared", "-Xcompiler", "-fPIC", "a.cu", "-o", "a.so"],
    capture_output=True, text=True,
)
assert done.returncode == 0, done.stderr
assert ctypes.CDLL("./a.so").g() == 0
print("compiled and ran")
"""


def test_nvcc_works_inside(start: WithGpu) -> None:
    if not Path("/usr/local/cuda/bin/nvcc").exists():
        pytest.skip("no CUDA toolkit under /usr/local/cuda")
    ending, said = start(COMPILE).finish(120)
    assert (ending, said) == (ExitStatus(0, None), "compiled and ran\n"), said


TOOL = """
import os, subprocess, sys
code = "import torch; x = torch.ones(1000, device='cuda'); print(float(x.sum()))"
done = subprocess.run([*sys.argv[1:], sys.executable, "-c", code], capture_output=True, text=True)
print(done.returncode, done.stdout[:20000], done.stderr[-3000:])
"""


COUNTED = re.compile(r"^\s+.*Cycles\s+cycle\s+([\d,.]+)\s*$", re.MULTILINE)
"""A row of ncu's tables that only a counter can fill, like `Elapsed Cycles  cycle  3,412`."""


@pytest.mark.parametrize(
    ("tool", "proof"),
    [
        (
            ("/usr/local/cuda/bin/compute-sanitizer", "--tool", "memcheck"),
            re.compile(r"^(?:0 )?(1000\.0)$", re.M),
        ),
        (("/usr/local/cuda/bin/ncu", "--set", "basic", "--launch-count", "1"), COUNTED),
    ],
    ids=["compute-sanitizer", "ncu"],
)
def test_the_vendors_tools_run_where_they_are_allowed_to_talk(
    tool: tuple[str, ...], proof: re.Pattern[str], tmp_path: Path
) -> None:
    if not Path(tool[0]).exists() or shutil.which("bwrap") is None:
        pytest.skip(f"{tool[0]} or bwrap is missing")
    (tmp_path / "workspace").mkdir()
    start = WithGpu(bubblewrap_rung(), tmp_path / "workspace")
    start.tools = True
    ending, said = start(textwrap.dedent(TOOL), *tool).finish(200)
    print(said)
    assert ending == ExitStatus(0, None)
    if "ERR_NVGPUCTRPERM" in said:
        pytest.skip("this machine's driver lets nobody but its administrator read counters")
    assert said.startswith("0 "), said
    found = [float(number.replace(",", "")) for number in proof.findall(said)]
    assert any(number > 0 for number in found), said
