"""Three cases of known speed for experiments on a GPU, with a dial that adds work: written where a script wants them.

    softmax   4096 x 4096 bfloat16, memory-bound, about 18 us on an H200
    small     256 x 1024 bfloat16, about 2 us
    gemm      4096^3 bfloat16 with float32 accumulation, compute-bound, about 250 us

`EXTRA` is the number of steps of a dependent chain that a second kernel of one warp walks after the first one. It
costs the same time whatever the first does, so the planted effect is linear in it and can be measured apart. It touches
no memory: a word of a process's own lies nearer to or farther from the multiprocessor that reads it, and that alone
made processes of identical code differ by 1 % for their whole life.
"""

from __future__ import annotations

from pathlib import Path

KINDS = ("softmax", "small", "gemm")

CASE = """\
schema: 1
summary: experiment
device: cuda
entry: kernel.py:run
objective: {{metric: time, minimum_effect: {minimum_effect}, suite: main}}
budgets: {{prepare_seconds: 120, call_seconds: 10, memory_mib: 16384}}
policy: {{imports: [os, torch, triton]}}
gate: {{seeds: 1, error_budget: 4.0}}
duel: {duel}
cuda: {{sanitizers: []}}
"""

SUITE = "problems: [main]\ndistribution: normal\n"

ROWS = """\
import torch
from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Spec, Work


class Contract(contract.Contract):
    problems = {{"main": {{"rows": {rows}, "columns": {columns}}}}}
    distributions = ("normal",)

    def inputs(self, problem, distribution, generator):
        shape = problem["rows"], problem["columns"]
        return {{"x": torch.randn(shape, generator=generator, dtype=torch.bfloat16, device=generator.device)}}

    def outputs(self, problem):
        return {{"y": Spec((problem["rows"], problem["columns"]), torch.bfloat16)}}

    def reference(self, problem, inputs):
        return {{"y": torch.softmax(inputs["x"].double(), 1)}}

    def attainable(self, problem, inputs):
        return {{"y": torch.softmax(inputs["x"].float(), 1).bfloat16()}}

    def scale(self, problem, inputs, reference):
        return {{"y": reference["y"]}}

    def work(self, problem):
        size = problem["rows"] * problem["columns"]
        return Work(flops=5 * size, bytes=4 * size)
"""

PRODUCT = """\
import torch
from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Spec, Work


class Contract(contract.Contract):
    problems = {"main": {"n": 4096}}
    distributions = ("normal",)

    def inputs(self, problem, distribution, generator):
        n = problem["n"]
        draw = lambda: torch.randn((n, n), generator=generator, dtype=torch.bfloat16, device=generator.device)
        return {"a": draw(), "b": draw()}

    def outputs(self, problem):
        return {"c": Spec((problem["n"], problem["n"]), torch.bfloat16)}

    def reference(self, problem, inputs):
        return {"c": inputs["a"].double() @ inputs["b"].double()}

    def attainable(self, problem, inputs):
        return {"c": (inputs["a"].float() @ inputs["b"].float()).bfloat16()}

    def scale(self, problem, inputs, reference):
        return {"c": inputs["a"].double().abs() @ inputs["b"].double().abs()}

    def work(self, problem):
        n = problem["n"]
        return Work(flops=2 * n**3, bytes=6 * n * n)
"""

TAIL = """\
import os

import torch
import triton
import triton.language as tl

EXTRA = int(os.environ.get("EXTRA", "{extra}"))  # below 0: no second kernel


@triton.jit
def chain(out, steps):
    value = steps * 1.0
    for _ in range(steps):
        value = value * 0.5 + 1.0
    tl.store(out, value.to(tl.bfloat16), mask=value < -1.0)


def walk(out):
    if EXTRA >= 0:
        chain[(1,)](out, EXTRA, num_warps=1)


"""

SOFTMAX = """\
@triton.jit
def softmax(x, y, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    inside = i < columns
    v = tl.load(x + row * columns + i, mask=inside, other=-float("inf")).to(tl.float32)
    e = tl.exp(v - tl.max(v, 0))
    tl.store(y + row * columns + i, (e / tl.sum(e, 0)).to(tl.bfloat16), mask=inside)


def run(x, y):
    rows, columns = x.shape
    softmax[(rows,)](x, y, columns, BLOCK=columns, num_warps=8 if columns > 2048 else 4)
    walk(y)
"""

GEMM = """\
@triton.jit
def gemm(a, b, c, n, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr):
    tile = tl.program_id(0)
    across = n // BN
    group = tile // (GROUP * across)
    row = group * GROUP + (tile % (GROUP * across)) % GROUP
    column = (tile % (GROUP * across)) // GROUP
    i = row * BM + tl.arange(0, BM)
    j = column * BN + tl.arange(0, BN)
    k = tl.arange(0, BK)
    left = a + i[:, None] * n + k[None, :]
    right = b + k[:, None] * n + j[None, :]
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for _ in range(0, n, BK):
        total = tl.dot(tl.load(left), tl.load(right), total)
        left += BK
        right += BK * n
    tl.store(c + i[:, None] * n + j[None, :], total.to(tl.bfloat16))


def run(a, b, c):
    n = a.shape[0]
    gemm[((n // 128) * (n // 256),)](a, b, c, n, BM=128, BN=256, BK=64, GROUP=8, num_warps=8, num_stages=3)
    walk(c)
"""

NO_TAIL = -1
"""Steps of a kernel that is alone."""

SHORT_TAIL = 16
"""Steps of the faster side where steps are planted: entering the loop at all costs 2 % of the small kernel."""

SIZES = {"softmax": (4096, 4096), "small": (256, 1024)}

SEGMENT_MS = 8.0


def write_case(folder: Path, kind: str, minimum_effect: float, **duel: float) -> Path:
    """`folder`/experiments/`kind`, ready for a judge."""
    case = folder / "experiments" / kind
    (case / "benchmarks").mkdir(parents=True)
    settings = {"segment_ms": SEGMENT_MS, **duel}
    flow = "{" + ", ".join(f"{key}: {value}" for key, value in settings.items()) + "}"
    (case / "case.yaml").write_text(CASE.format(minimum_effect=minimum_effect, duel=flow))
    (case / "benchmarks" / "main.yaml").write_text(SUITE)
    (case / "program.md").write_text("An experiment's case.\n")
    rows, columns = SIZES.get(kind, (0, 0))
    (case / "contract.py").write_text(PRODUCT if kind == "gemm" else ROWS.format(rows=rows, columns=columns))
    write_workspace(case / "workspace", kind, NO_TAIL, "")
    return case


def write_workspace(folder: Path, kind: str, extra: int, comment: str) -> Path:
    """The kernel with `extra` planted steps, and a comment that makes its source another."""
    folder.mkdir(parents=True)
    body = GEMM if kind == "gemm" else SOFTMAX
    (folder / "kernel.py").write_text(TAIL.format(extra=extra) + body + f"\n# {comment}\n")
    (folder / "knobs.yaml").write_text("{}\n")
    return folder
