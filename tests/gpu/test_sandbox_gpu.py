"""The border with a GPU granted: CUDA, Triton and compilers work inside, the canary stays inside, the seal holds."""

from __future__ import annotations

import shutil
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import SandboxError
from harness.sandbox import canary
from harness.sandbox.prefork import Forked
from harness.sandbox.rungs import (
    Confinement,
    Exit,
    Forkable,
    Prefork,
    Rung,
    bubblewrap_rung,
    landlock_rung,
    prefork,
)
from tests.harness.sandbox.inside import Start

MEMORY_BYTES = 32 << 30
SCRATCH_BYTES = 1 << 30
MODULES = ("torch", "triton", "triton.language")


def nodes() -> tuple[str, ...]:
    """Every device node of the first GPU."""
    names = ("nvidia0", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
    shared = sorted(Path("/dev/nvidia-caps").glob("nvidia-cap*"))
    return tuple(str(path) for path in (*(Path("/dev") / name for name in names), *shared) if path.exists())


class WithGpu(Start):
    """Starts Python with the device nodes."""

    tools = False

    def confine(self, memory: int) -> Confinement:
        return Confinement(self.workspace, MEMORY_BYTES, SCRATCH_BYTES, devices=nodes(), tools=self.tools)


@pytest.fixture(scope="module", params=["bubblewrap", "landlock"])
def plain(request: pytest.FixtureRequest) -> Forkable:
    try:
        return {"bubblewrap": bubblewrap_rung, "landlock": landlock_rung}[request.param]()
    except SandboxError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def forking(plain: Forkable) -> Iterator[Prefork]:
    """A zygote with torch and triton, canary-checked with the device nodes granted."""
    with prefork(plain, MODULES, {}, nodes()) as made:
        yield made


@pytest.fixture(params=["fresh", "forked"])
def rung(request: pytest.FixtureRequest, plain: Forkable, forking: Prefork) -> Rung:
    return forking if request.param == "forked" else plain


@pytest.fixture
def start(rung: Rung, tmp_path: Path) -> Iterator[WithGpu]:
    (tmp_path / "workspace").mkdir()
    starter = WithGpu(rung, tmp_path / "workspace")
    yield starter
    starter.end_all()


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
from harness.sandbox.seccomp import forbid_processes
forbid_processes()
y.zero_(); graph.replay(); torch.cuda.synchronize()
assert bool((y == x + 1).all())
z = torch.empty(1 << 28, device="cuda"); del z  # memory is had and given back behind the seal as well
print(*(line.strip() for line in open("/proc/self/status") if line.startswith(("VmData", "Threads", "Seccomp"))))
print("sealed", flush=True)
time.sleep(60)
"""


def test_cuda_and_triton_work_inside_and_behind_the_seal(start: WithGpu) -> None:
    running = start(COMPUTE, str(time.monotonic()))
    deadline = time.monotonic() + 120
    while b"sealed" not in b"".join(running.pieces) and running.confined.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    said = b"".join(running.pieces).decode()
    print(f"\n{start.rung.name} {type(running.confined).__name__}: {said}")
    assert "sealed" in said, said
    assert isinstance(running.confined, Forked) == isinstance(start.rung, Prefork)
    assert (running.confined.filters(), running.confined.others()) == (2, [])
    running.confined.freeze()
    time.sleep(0.2)
    assert not running.confined.ran_while_frozen()
    running.confined.thaw()
    running.confined.kill()


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
    assert (ending, said) == (Exit(0, None), "compiled and ran\n"), said


TOOL = """
import os, subprocess, sys
code = "import torch; x = torch.ones(1000, device='cuda'); print(float(x.sum()))"
done = subprocess.run([*sys.argv[1:], sys.executable, "-c", code], capture_output=True, text=True)
print(done.returncode, done.stdout[-3000:], done.stderr[-3000:])
"""


@pytest.mark.parametrize(
    "tool",
    [
        ("/usr/local/cuda/bin/compute-sanitizer", "--tool", "memcheck"),
        ("/usr/local/cuda/bin/ncu", "--set", "basic", "--launch-count", "1"),
    ],
    ids=["compute-sanitizer", "ncu"],
)
def test_the_vendors_tools_run_where_they_are_allowed_to_talk(tool: tuple[str, ...], tmp_path: Path) -> None:
    if not Path(tool[0]).exists() or shutil.which("bwrap") is None:
        pytest.skip(f"{tool[0]} or bwrap is missing")
    (tmp_path / "workspace").mkdir()
    start = WithGpu(bubblewrap_rung(), tmp_path / "workspace")
    start.tools = True
    ending, said = start(textwrap.dedent(TOOL), *tool).finish(200)
    print(said)
    assert ending == Exit(0, None)
    assert said.startswith("0 ") or "ERR_NVGPUCTRPERM" in said, said
    assert "1000.0" in said or "ERR_NVGPUCTRPERM" in said, said
