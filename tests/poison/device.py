"""Poisons of a GPU: what a kernel may do to its context, its device and whoever waits for them.

The CUDA C++ is compiled by NVRTC when the workspace is imported, through the demo's cuda_code.py. After an error that
stays with the context the process answers with CUDA's message, so most of these are `RAISED`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hillclimb.harness.records import Reason
from tests.poison.poison import Poison, When

CUDA_CODE = Path(__file__).resolve().parents[2] / "cases/demo/triton_softmax/workspace/cuda_code.py"

LAUNCH = """\
from pathlib import Path

from cuda_code import Kernel, compile_cuda

VENOM = Kernel(compile_cuda(Path(__file__).with_name("venom.cu")), "venom")
plain = honest


def honest(x, y):
    if x.is_cuda and VENOM._function is None:
        VENOM._load()
    plain(x, y)


def launch(*arguments, grid=(1, 1, 1), block=(32, 1, 1)):
    VENOM(grid, block, *arguments)
"""
"""Loaded in the first call: no module may be loaded while launches are captured."""

HEAD = 'extern "C" __global__ void venom(float* y) {\n'

SPIN = HEAD + "  while (*(volatile float*)y != 12345.0f) __nanosleep(1000);\n}\n"

OOM, RAISED, HUNG = Reason.OUT_OF_MEMORY, Reason.RAISED, Reason.HUNG
LATE: tuple[When, ...] = ("later", "timed")

Case = tuple[str, str, str, str, tuple[When, ...], tuple[Reason, ...]]
"""Kind, variant, CUDA C++, body, when, expected."""

NATIVE: tuple[Case, ...] = (
    (
        "device illegal address",
        "writes to address 8",
        HEAD + "  *(volatile float*)8 = 1;\n}\n",
        "launch(y)",
        LATE,
        (RAISED,),
    ),
    (
        "device illegal address",
        "reads a terabyte away",
        HEAD + "  y[0] = ((volatile float*)y)[1ll << 38];\n}\n",
        "launch(y)",
        ("first", "thread"),
        (RAISED,),
    ),
    (
        "device illegal address",
        "outside of shared memory",
        HEAD + "  __shared__ float tile[32];\n  tile[threadIdx.x] = y[0];\n"
        "  volatile float* far = tile; far[1 << 20] = 1;\n  y[1] = far[2];\n}\n",
        "launch(y)",
        ("later",),
        (RAISED,),
    ),
    (
        "device misaligned",
        "stores 8 bytes at an odd address",
        HEAD + "  *(volatile double*)((char*)y + 1) = 1;\n}\n",
        "launch(y)",
        LATE,
        (RAISED,),
    ),
    ("device assert", "assert(false)", HEAD + "  assert(y == nullptr);\n}\n", "launch(y)", LATE, (RAISED,)),
    ("device trap", "trap", HEAD + "  __trap();\n}\n", "launch(y)", LATE, (RAISED,)),
    ("endless kernel", "waited for", SPIN, "launch(y)", ("later",), (HUNG,)),
    (
        "endless kernel",
        "on a stream that nobody waits for",
        SPIN,
        "with torch.cuda.stream(torch.cuda.Stream()):\n    launch(y)",
        ("later",),
        (HUNG,),
    ),
    (
        "endless kernel",
        "on every multiprocessor",
        SPIN,
        "launch(y, grid=(4096, 1, 1), block=(1024, 1, 1))",
        ("later",),
        (HUNG,),
    ),
    (
        "leaves a kernel behind",
        "and exits",
        SPIN,
        "launch(y)\nos._exit(0)",
        ("later",),
        (Reason.EXITED,),
    ),
    (
        "leaves a kernel behind",
        "and kills itself",
        SPIN,
        "launch(y)\nos.kill(os.getpid(), 9)",
        ("later",),
        (OOM,),
    ),
    (
        "device deadlock",
        "blocks that wait for each other",
        HEAD + "  volatile int* turn = (volatile int*)y;\n  int own = blockIdx.x;\n"
        "  while (turn[1 - own] != 77) __nanosleep(1000);\n  turn[own] = 77;\n}\n",
        "launch(y, grid=(2, 1, 1))",
        ("later",),
        (HUNG,),
    ),
    (
        "device deadlock",
        "a barrier that half the threads never reach",
        HEAD + '  if (threadIdx.x < 32) asm volatile("bar.sync 1, 64;");\n  y[threadIdx.x] = 1;\n}\n',
        "launch(y)",
        ("later",),
        (HUNG,),
    ),
    (
        "device deadlock",
        "two streams",
        'extern "C" __global__ void venom(float* y, int opens) {\n'
        "  if (opens) *(volatile float*)y = 12345.0f;\n"
        "  else while (*(volatile float*)y != 12345.0f) __nanosleep(1000);\n}\n",
        "one, two = torch.cuda.Stream(), torch.cuda.Stream()\ny.fill_(0)\ntorch.cuda.synchronize()\n"
        "with torch.cuda.stream(one):\n    launch(y, 0)\n"
        "two.wait_stream(one)\nwith torch.cuda.stream(two):\n    launch(y, 1)\n",
        ("later",),
        (HUNG,),
    ),
    (
        "device stack overflow",
        "recursion without end",
        "__device__ __noinline__ float deeper(volatile float* y, int n) {\n"
        "  volatile float own[64];\n  for (int i = 0; i < 64; ++i) own[i] = y[i % 2] + n;\n"
        "  if (y[0] == 12345.0f) return own[n % 64];\n  return deeper(y, n + 1) + own[n % 64];\n}\n"
        + HEAD
        + "  y[0] = deeper(y, 0);\n}\n",
        "launch(y)",
        LATE,
        (RAISED,),
    ),
    (
        "launch failure",
        "2048 threads a block",
        HEAD + "  y[0] = 1;\n}\n",
        "launch(y, block=(2048, 1, 1))",
        LATE,
        (RAISED,),
    ),
    (
        "device printf flood",
        "a megabyte a launch, again and again",
        HEAD + '  for (int i = 0; i < 64; ++i) printf("%d ' + "x" * 900 + '\\n", i);\n}\n',
        "for _ in range(64):\n    launch(y)\n    torch.cuda.synchronize()",
        ("later",),
        (Reason.FLOODED_OUTPUT,),
    ),
    (
        "out of bounds on the device",
        "behind the output",
        'extern "C" __global__ void venom(float* y, int n) {\n  y[n + threadIdx.x] = 1;\n}\n',
        "launch(y, y.numel())",
        LATE,
        (Reason.WROTE_OUT_OF_BOUNDS,),
    ),
    (
        "out of bounds on the device",
        "into the input",
        'extern "C" __global__ void venom(float* x) {\n  x[threadIdx.x] += 1;\n}\n',
        "launch(x)",
        LATE,
        (Reason.INPUTS_CHANGED,),
    ),
    (
        "device not finite",
        "0 / 0 on the device",
        HEAD + "  y[3] = 0.0f * (1.0f / (y[4] - y[4]));\n}\n",
        "launch(y)",
        LATE,
        (Reason.NOT_FINITE,),
    ),
    (
        "swallowed error",
        "an illegal address, caught and forgotten",
        HEAD + "  *(volatile float*)8 = 1;\n}\n",
        "try:\n    launch(y)\n    torch.cuda.synchronize()\nexcept Exception:\n    pass",
        ("later",),
        (RAISED,),
    ),
)

TORCH: tuple[tuple[str, str, str, str, tuple[When, ...], tuple[Reason, ...]], ...] = (
    (
        "huge device allocation",
        "a terabyte at once",
        "",
        "torch.empty(1 << 40, dtype=torch.uint8, device='cuda')",
        ("later",),
        (OOM,),
    ),
    (
        "huge device allocation",
        "until there is none",
        "hoard = []\n",
        "while True:\n    hoard.append(torch.empty(1 << 30, dtype=torch.uint8, device='cuda'))",
        ("later",),
        (OOM,),
    ),
    (
        "device memory hoard",
        "until there is none, and the kernel goes on",
        "hoard = []\n",
        "try:\n    while True:\n        hoard.append(torch.empty(1 << 28, dtype=torch.uint8, device='cuda'))\n"
        "except torch.cuda.OutOfMemoryError:\n    pass",
        ("later",),
        (Reason.BROKE_JUDGE, OOM),
    ),
    (
        "device leak",
        "a megabyte a call",
        "kept = []\n",
        "kept.append(torch.empty(1 << 20, dtype=torch.uint8, device=x.device))",
        ("always",),
        (Reason.LEAKED,),
    ),
    (
        "device leak",
        "past torch",
        "from cuda.bindings import driver\n",
        "if x.is_cuda:\n    driver.cuMemAlloc(1 << 21)",
        ("always",),
        (Reason.LEAKED,),
    ),
    (
        "context destroyed",
        "the primary one, reset",
        "from cuda.bindings import driver\n",
        "driver.cuDevicePrimaryCtxReset(0)",
        ("later",),
        (RAISED, Reason.CRASHED),
    ),
    (
        "stays in capture",
        "a graph begun and never ended",
        "held = []\n",
        "torch.cuda.synchronize()\nheld.append(torch.cuda.CUDAGraph())\ntorch.cuda.set_stream(torch.cuda.Stream())\n"
        "held[0].capture_begin()",
        ("later",),
        (RAISED,),
    ),
)

ASSERTING = """\
import torch
import triton
import triton.language as tl


@triton.jit{jit}
def affine(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
{venom}
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n) + 1, mask=at < n)


def run(x, y):
    affine[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024{launch})
"""

TRITON: tuple[tuple[str, str, dict[str, str], tuple[Reason, ...]], ...] = (
    (
        "device assert",
        "tl.device_assert",
        {"jit": "(debug=True)", "venom": '    tl.device_assert(at < 0, "tile")'},
        (RAISED,),
    ),
    (
        "device illegal address",
        "a mask forgotten, a stride too many",
        {"venom": "    tl.store(y + at.to(tl.int64) * 100000000, 1.0)"},
        (RAISED,),
    ),
    (
        "endless kernel",
        "a loop in Triton",
        {
            "venom": "    s = tl.load(x, volatile=True)\n    while s == s:\n        s += tl.load(x, volatile=True) * 0"
        },
        (HUNG,),
    ),
    (
        "endless compile",
        "a loop unrolled a million times",
        {"venom": "    for i in tl.static_range(1000000):\n        at = at + i * tl.program_id(0)"},
        (HUNG, OOM),
    ),
    (
        "does not compile",
        "a name that is not there",
        {"venom": "    at = tl.nothing(at)"},
        (Reason.DOES_NOT_COMPILE,),
    ),
    ("launch failure", "64 warps", {"launch": ", num_warps=64"}, (RAISED, Reason.DOES_NOT_COMPILE)),
    ("device not finite", "0 / 0 in Triton", {"venom": "    n = n + 0\n    y += 0"}, (Reason.NOT_FINITE,)),
)


def device_poisons() -> Iterator[Poison]:
    """Every one that needs a GPU."""
    for kind, variant, cuda, body, whens, expected in NATIVE:
        for when in whens:
            files = {"cuda_code.py": CUDA_CODE.read_text(), "venom.cu": cuda}
            setup = "import os\n" + LAUNCH
            yield Poison(kind, variant, when, frozenset(expected), setup, body, "gpu", files)
    for kind, variant, setup, body, whens, expected in TORCH:
        for when in whens:
            yield Poison(kind, variant, when, frozenset(expected), setup, body, "gpu")
    for kind, variant, holes, reasons in TRITON:
        source = ASSERTING.format(**{"jit": "", "venom": "    pass", "launch": ""} | holes)
        if kind == "device not finite":
            source = source.replace(
                "2 * tl.load(x + at, mask=at < n) + 1", "tl.load(x + at, mask=at < n) * 0 / 0"
            )
        yield Poison(kind, variant, "first", frozenset(reasons), "", "", "gpu", {}, source)
