"""Source that breaks a case's policy is named with file and line; honest kernels pass."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.settings import Policy
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.policy.policy import MAX_SOURCE_BYTES, check_policy
from hillclimb.harness.records import Reason
from tests.cases.workspace import CASES

HONEST = """
import os
import numpy as np
from numba import njit, prange
import tiles

@njit(parallel=True)
def run(a, b, c):
    for i in prange(a.shape[0]):
        c[i] = a[i] * getattr(b, "T")[i]
"""


def _write(folder: Path, source: str) -> Path:
    (folder / "kernel.py").write_text(source)
    (folder / "tiles.py").write_text("SIZE = 4\n")
    return folder


def test_an_honest_kernel_passes(tmp_path: Path) -> None:
    check_policy(_write(tmp_path, HONEST), Policy())


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import torch\n", "imports 'torch'"),
        ("import ctypes\n", "imports 'ctypes'"),
        ("from scipy.linalg import blas\n", "imports 'scipy'"),
        ("import numpy as np\nf = np.dot\n", "finished operator (dot)"),
        ("from numpy import matmul as m\n", "finished operator (matmul)"),
        ("def run(a, b, c):\n    c[:] = a @ b\n", "finished operator (@)"),
        ("def run(a, b, c):\n    c @= b\n", "finished operator (@)"),
        ("m = __import__('torch')\n", "hides what the code does"),
        ("eval('1')\n", "hides what the code does"),
        ("import numpy as np\nf = getattr(np, 'd' + 'ot')\n", "computed name"),
        ("from tests import secret\n", "imports 'tests'"),
        ("import numpy as np\nf = getattr(np, 'dot')\n", "finished operator (dot)"),
        ("import numpy as np\nf = getattr(np, '__dict__')['d' + 'ot']\n", "uses '__dict__'"),
        ("import numpy as np\nf = np.__dict__['d' + 'ot']\n", "uses '__dict__'"),
        ("import numpy as np\nf = vars(np)['d' + 'ot']\n", "uses 'vars'"),
        ("from numpy import *\nf = globals()['d' + 'ot']\n", "imports * from 'numpy'"),
        ("f = globals()['d' + 'ot']\n", "uses 'globals'"),
        ("f = locals()['d' + 'ot']\n", "uses 'locals'"),
        ("import numpy as np\ng = getattr\nf = g(np, 'd' + 'ot')\n", "without calling it"),
        ("import numpy.linalg\n", "finished operator (linalg)"),
        ("from numpy.linalg import norm\n", "finished operator (linalg)"),
        ("import tiles, numpy.linalg\n", "finished operator (linalg)"),
    ],
)
def test_each_offence_is_named(tmp_path: Path, source: str, says: str) -> None:
    with pytest.raises(CandidateFault) as fault:
        check_policy(_write(tmp_path, source), Policy())
    assert fault.value.reason is Reason.POLICY
    assert says in fault.value.detail
    assert "kernel.py:" in fault.value.detail


OWN_WORDS = """
from tiles import outer, dot
import tiles

def run(a, b, c):
    inner = b[0]
    for outer in a:
        inner = inner + outer
    dot(inner, c)
"""


def test_own_names_may_be_words_that_libraries_use(tmp_path: Path) -> None:
    check_policy(_write(tmp_path, OWN_WORDS), Policy())


def test_allowed_library_calls_pass(tmp_path: Path) -> None:
    folder = _write(tmp_path, "def run(a, b, c):\n    c[:] = a @ b\n")
    check_policy(folder, Policy(library_calls=True))


def test_a_file_that_does_not_parse_does_not_load(tmp_path: Path) -> None:
    with pytest.raises(CandidateFault) as fault:
        check_policy(_write(tmp_path, "def run(:\n"), Policy())
    assert fault.value.reason is Reason.DOES_NOT_LOAD


@pytest.mark.parametrize(
    "source",
    [
        "-" * 100_000 + "1",
        "lambda:" * 100_000 + "1",
        "not " * 60_000 + "1",
        "a" + ".b" * 100_000,
        "1" + "+1" * 100_000,
        "if 1: pass\n" + "elif 1: pass\n" * 50_000,
        "(" * 1000,
        "x = " + "9" * 5000,
        "a\0b",
        "# coding: no-such-encoding\n",
        "#" * (MAX_SOURCE_BYTES + 1),
    ],
    ids=lambda source: source[:8],
)
def test_source_that_no_parser_can_bear_does_not_load(tmp_path: Path, source: str) -> None:
    with pytest.raises(CandidateFault) as fault:
        check_policy(_write(tmp_path, source), Policy())
    assert fault.value.reason is Reason.DOES_NOT_LOAD
    assert fault.value.detail.startswith("kernel.py: ")
    assert len(fault.value.detail) < 500


def test_only_plain_files_are_source(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "broken.py").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "pipe.py")
    check_policy(_write(tmp_path, HONEST), Policy())


def test_a_file_that_cannot_be_read_does_not_load(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").symlink_to("/proc/self/mem")
    with pytest.raises(CandidateFault, match=r"kernel\.py: OSError") as fault:
        check_policy(tmp_path, Policy())
    assert fault.value.reason is Reason.DOES_NOT_LOAD


@given(source=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_no_source_gets_anything_but_a_pass_or_a_fault(tmp_path: Path, source: bytes) -> None:
    (tmp_path / "kernel.py").write_bytes(source)
    with contextlib.suppress(CandidateFault):
        check_policy(tmp_path, Policy())


def test_workspace_tests_may_use_what_kernels_may_not(tmp_path: Path) -> None:
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_kernel.py").write_text("import pytest\nx = a @ b\n")
    check_policy(_write(tmp_path, HONEST), Policy())


GPU = Policy(
    imports=(
        "__future__",
        "functools",
        "math",
        "os",
        "pathlib",
        "torch",
        "triton",
        "cuda",
        "cutlass",
        "numpy",
    )
)
"""As the Triton demos have it."""

TRITON = """
from __future__ import annotations
import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice
from triton.tools.tensor_descriptor import TensorDescriptor
"""

HONEST_ON_A_GPU = {
    "a matrix product": TRITON
    + """
@triton.autotune(configs=[triton.Config({"BM": 64}, num_warps=4)], key=["m"])
@triton.heuristics({"EVEN": lambda a: a["m"] % a["BM"] == 0})
@triton.jit
def product(a, b, c, m, n, k, BM: tl.constexpr, EVEN: tl.constexpr):
    x, y = tl.load(a + tl.arange(0, BM)), tl.load(b + tl.arange(0, BM))
    total = tl.dot(x, y, out_dtype=tl.float32)
    total += tl.sum(x * y, axis=0) + x.sum(axis=0) + tl.softmax(total).max() + libdevice.rsqrt(x)
    tl.store(c + tl.arange(0, BM), total.to(tl.bfloat16))

def run(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor | None) -> None:
    m, k = a.shape
    product[lambda meta: (triton.cdiv(m, meta["BM"]),)](a, b, c, m, b.shape[1], k)
""",
    "other names for the language": """
from triton import jit, language as L
from triton.language import dot, softmax as s

@jit
def kernel(a, b, c):
    L.store(c, dot(L.load(a), L.load(b)) + s(L.load(a)) + L.math.exp(L.load(a)))
""",
    "workspace memory": TRITON
    + """
def run(x, y):
    partial = torch.empty((x.size(0), 8), dtype=torch.float32, device=x.device)
    counters = torch.zeros(x.shape[0], dtype=torch.int32, device=x.device)
    other = torch.empty_like(x).view(-1).T
    strided = torch.empty_strided((4, 4), (1, 4), dtype=torch.float32, device="cuda")
    counters.zero_()
    partial.fill_(torch.finfo(torch.float32).min)
""",
    "a stream of its own": TRITON
    + """
SIDE = None

def run(x, y):
    global SIDE
    SIDE = SIDE or torch.cuda.Stream()
    main = torch.cuda.current_stream()
    SIDE.wait_stream(main)
    with torch.cuda.stream(SIDE):
        event = torch.cuda.Event()
        event.record()
    main.wait_event(event)
    y.record_stream(SIDE)
""",
    "the device asked": TRITON
    + """
def run(x, y):
    properties = torch.cuda.get_device_properties(x.device)
    capability = torch.cuda.get_device_capability(torch.cuda.current_device())
    programs = min(properties.multi_processor_count, x.numel() // x.stride(0), x.data_ptr() % 16)
    descriptor = TensorDescriptor(x, shape=x.shape, strides=[x.stride(0), 1], block_shape=[64, 64])
""",
    "plain Python": TRITON
    + """
import math
import os

TABLE = {torch.bfloat16: 2, torch.float32: 4}
NAMES = sorted(name.split("_")[0] for name in TABLE.values())

class Plan:
    def sum(self):
        return self.max()

    def max(self):
        return math.exp(max(1, sum([1, 2]), abs(-1), round(2.5)))

def run(x, y):
    i = 0
    i += 1
    sizes = list(x.shape)
    sizes[0] = int(os.environ.get("SIZE", "1"))
    cache: dict[int, Plan] = {}
    cache[x.dtype.itemsize] = Plan()
    with torch.no_grad():
        pass
""",
    "CUDA C++ through the driver": """
from cuda.bindings import driver, nvrtc
from cuda.bindings import driver as cu
import torch

def run(x, y):
    error, program = nvrtc.nvrtcCreateProgram(b"", b"kernel.cu", 0, [], [])
    error, module = driver.cuModuleLoadData(b"")
    error, function = driver.cuModuleGetFunction(module, b"kernel")
    cu.cuFuncSetAttribute(function, cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 65536)
    stream = torch.cuda.current_stream().cuda_stream
    cu.cuLaunchKernel(function, 1, 1, 1, 128, 1, 1, 0, stream, 0, 0)
    if error != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(driver.cuGetErrorString(error))
""",
    "CuTe DSL": """
import cutlass
import cutlass.cute as cute
from cutlass.cute.runtime import from_dlpack

@cute.kernel
def device(x: cute.Tensor, y: cute.Tensor):
    fragment = x.load()
    y.store(fragment.to(cutlass.Float32).sum())

@cute.jit
def host(x: cute.Tensor, y: cute.Tensor):
    device(x, y).launch(grid=[1, 1, 1], block=[32, 1, 1])

def run(x, y):
    compiled = cute.compile(host, from_dlpack(x), from_dlpack(y))
    compiled(from_dlpack(x), from_dlpack(y))
""",
    "own modules with libraries' words": """
import tiles
from tiles import softmax, matmul

def run(x, y):
    softmax(x, y)
    tiles.dot(x, y)
""",
}


@pytest.mark.parametrize("name", HONEST_ON_A_GPU)
def test_honest_gpu_kernels_pass(tmp_path: Path, name: str) -> None:
    check_policy(_write(tmp_path, HONEST_ON_A_GPU[name]), GPU)


@pytest.mark.parametrize("case", ["triton_softmax", "triton_rmsnorm"])
def test_the_demos_pass_their_own_policy(case: str) -> None:
    found = Case(CASES / "demo" / case)
    check_policy(found.workspace, found.settings.policy)


FINISHED = [
    ("y = torch.matmul(a, b)", "finished operator (torch.matmul)"),
    ("torch.softmax(a, 1, out=b)", "finished operator (torch.softmax)"),
    ("torch.linalg.norm(a)", "finished operator (torch.linalg.norm)"),
    ("torch._scaled_mm(a, b)", "finished operator (torch._scaled_mm)"),
    ("torch._C._nn.gelu(a)", "finished operator (torch._C._nn.gelu)"),
    ("torch.ops.aten.mm(a, b)", "finished operator (torch.ops.aten.mm)"),
    ("f = torch.compile(lambda x: x)", "finished operator (torch.compile)"),
    ("torch.Tensor.softmax(a, 1)", "finished operator (torch.Tensor.softmax)"),
    ("torch.cuda.synchronize()", "finished operator (torch.cuda.synchronize)"),
    ("torch.cuda.is_current_stream_capturing()", "(torch.cuda.is_current_stream_capturing)"),
    ("torch.multiprocessing.spawn(run)", "finished operator (torch.multiprocessing.spawn)"),
    ("torch.utils.cpp_extension.load('x', [])", "finished operator (torch.utils.cpp_extension.load)"),
    ("torch.backends.cuda.matmul.allow_tf32 = True", "changes torch.backends.cuda.matmul.allow_tf32"),
    ("torch.cuda.Event.elapsed_time = None", "changes torch.cuda.Event.elapsed_time"),
    ("import torch.nn.functional as F\nF.softmax(a)", "finished operator (torch.nn.functional)"),
    ("from torch.nn import functional", "finished operator (torch.nn.functional)"),
    ("from torch import softmax as exp", "finished operator (torch.softmax)"),
    ("from torch import nn", "finished operator (torch.nn)"),
    ("from torch import *", "imports * from 'torch'"),
    ("t = torch\nt.bmm(a, b)", "finished operator (torch.bmm)"),
    ("t: object = torch.cuda\nt.synchronize()", "hands the module torch.cuda on"),
    ("(t := torch).bmm(a, b)", "finished operator (.bmm())"),
    ("f(torch)", "hands the module torch on"),
    ("getattr(torch, 'softmax')(a)", "finished operator (torch.softmax)"),
    ("from tiles import library\nlibrary.softmax(a)", "finished operator (torch.nn.functional.softmax)"),
    ("import tiles\ntiles.library.softmax(a)", "finished operator (torch.nn.functional.softmax)"),
    ("y = x.softmax(1)", "finished operator (.softmax())"),
    ("y.copy_(x.sum(1))", "finished operator (.copy_())"),
    ("y = x.float().sum()", "finished operator (.sum())"),
    ("y = torch.finfo(torch.float32).min.max(x)", "finished operator (.max())"),
    ("x.T.contiguous()", "finished operator (.contiguous())"),
    ("f = x.softmax\nf(1)", "finished operator (.softmax())"),
    ("getattr(x, 'softmax')(1)", "finished operator (.softmax())"),
    ("int(x.max())", "finished operator (.max())"),
    ("y[:] = x * 2", "assignment to a slice"),
    ("y[...] = x", "assignment to a slice"),
    ("y[0, :] += x", "assignment to a slice"),
    ("y = a @ b", "finished operator (@)"),
    ("class Lazy(torch.Tensor):\n    pass", "derives a class from torch"),
    ("kernel.fn(a, b)", "takes the Python function out of a kernel"),
    ("y = a.__matmul__(b)", "finished operator (__matmul__)"),
    ("a.mm(b)", "finished operator (.mm())"),
    ("@mine\n@triton.jit\ndef f(x):\n    return x.softmax(1)", "finished operator (.softmax())"),
    ("with torch.cuda.graph(g):\n    pass", "uses torch.cuda.graph, which captures launches"),
    ("g = torch.cuda.CUDAGraph()", "uses torch.cuda.CUDAGraph, which captures launches"),
    ("from torch.cuda import CUDAGraph", "uses torch.cuda.CUDAGraph, which captures launches"),
    (
        "from cuda.bindings import driver\ndriver.cuGraphLaunch(1, 2)",
        "uses cuda.bindings.driver.cuGraphLaunch, which captures",
    ),
    (
        "from cuda.bindings import driver as d\nd.cuCtxSetLimit(1, 2)",
        "uses cuda.bindings.driver.cuCtxSetLimit; of the driver",
    ),
    (
        "from cuda.bindings import runtime\nruntime.cudaMemcpy(1)",
        "uses cuda.bindings.runtime.cudaMemcpy; of cuda",
    ),
    ("import ctypes", "imports 'ctypes'"),
    ("import cffi", "imports 'cffi'"),
    ("import subprocess", "imports 'subprocess'"),
    ("import socket", "imports 'socket'"),
    ("import sys", "imports 'sys'"),
    ("import inspect", "imports 'inspect'"),
    ("import gc", "imports 'gc'"),
    ("import os\nos.sys.modules", "uses '.sys', which leads out"),
    ("(lambda: 0).__globals__", "uses '__globals__', which hides"),
    ("def f():\n    yield\nf().gi_frame.f_back", "which leads out of the kernel"),
    ("setattr(torch, 'empty', None)", "uses 'setattr', which hides"),
    ("triton.runtime.driver.active.utils = None", "changes triton.runtime.driver.active.utils"),
    ("import numpy\nnumpy.dot(a, b)", "finished operator (dot)"),
]


@pytest.mark.parametrize(("source", "says"), FINISHED)
def test_each_offence_of_a_gpu_kernel_is_named(tmp_path: Path, source: str, says: str) -> None:
    _write(tmp_path, TRITON + source + "\n")
    (tmp_path / "tiles.py").write_text("import torch.nn.functional as library\n")
    with pytest.raises(CandidateFault) as fault:
        check_policy(tmp_path, GPU)
    assert fault.value.reason is Reason.POLICY
    assert fault.value.detail.startswith("kernel.py:")
    assert says in fault.value.detail


@pytest.mark.parametrize("depth", [50, 900, 3000])
def test_long_chains_are_read_in_time(tmp_path: Path, depth: int) -> None:
    with contextlib.suppress(CandidateFault):
        check_policy(_write(tmp_path, "import torch\nx = torch" + ".b" * depth + "\n"), GPU)


def test_names_are_followed_through_own_modules(tmp_path: Path) -> None:
    """Also where the own module says no more than what is allowed: the chain is what counts."""
    (tmp_path / "tiles.py").write_text("import torch\nmine = torch.cuda\n")
    (tmp_path / "kernel.py").write_text("import tiles\ntiles.torch.softmax(1)\n")
    with pytest.raises(CandidateFault, match=r"kernel\.py:2: calls a finished operator \(torch\.softmax\)"):
        check_policy(tmp_path, GPU)


def test_modules_that_import_each_other_end_somewhere(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("from b import thing\n")
    (tmp_path / "b.py").write_text("from a import thing\nthing.other()\n")
    with pytest.raises(CandidateFault, match="too many steps to be followed"):
        check_policy(tmp_path, GPU)


def test_a_module_that_imports_from_itself_is_read_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "gate.py").write_text(
        "def later():\n    from gate import lane\n\n\nlane = open\nlane.start()\n"
    )
    check_policy(tmp_path, GPU)
    (tmp_path / "gate.py").write_text("import torch\nfrom gate import lane\nlane = torch\nlane.softmax(1)\n")
    with pytest.raises(CandidateFault, match="lane"):
        check_policy(tmp_path, GPU)


def test_what_the_policy_allows_passes(tmp_path: Path) -> None:
    source = "import torch\nimport numpy\ng = torch.cuda.CUDAGraph()\ny = torch.softmax(x.float(), 1)\ny[:] = a @ b\n"
    check_policy(_write(tmp_path, source), GPU.model_copy(update={"library_calls": True, "graphs": True}))
    with pytest.raises(CandidateFault, match="captures launches"):
        check_policy(_write(tmp_path, source), GPU.model_copy(update={"library_calls": True}))
    with pytest.raises(CandidateFault, match=r"\(torch\.cuda\.CUDAGraph\)"):
        check_policy(_write(tmp_path, source), GPU.model_copy(update={"graphs": True}))
