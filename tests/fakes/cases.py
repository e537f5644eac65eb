"""A real case, small enough that a judgement takes a second: y = 2 x + 1 over float32 vectors, in plain NumPy."""

from __future__ import annotations

import re
from pathlib import Path

CONTRACT = """
import torch
from hillclimb.harness.case.contract import Contract as Base, Spec, Work

class Contract(Base):
    problems = {"small": {"n": 37}, "odd": {"n": 1001}, "timed": {"n": 20_000}}
    distributions = ("normal", "offset", "tiny")

    def inputs(self, problem, distribution, generator):
        x = torch.randn(problem["n"], generator=generator)
        if distribution == "offset":
            x += 1000.0
        if distribution == "tiny":
            x *= 1e-6
        return {"x": x}

    def outputs(self, problem):
        return {"y": Spec((problem["n"],), torch.float32)}

    def reference(self, problem, inputs):
        return {"y": 2 * inputs["x"].double() + 1}

    def attainable(self, problem, inputs):
        return {"y": 2 * inputs["x"] + 1}

    def scale(self, problem, inputs, reference):
        return {"y": 2 * inputs["x"].double().abs() + 1}

    def work(self, problem):
        return Work(flops=2 * problem["n"], bytes=8 * problem["n"])

    domains = {"x": (-1e6, 1e6)}

    def vary(self, problem, secret):
        return [{"n": problem["n"] + 1}, {"n": problem["n"] - 1}]
"""

SETTINGS = """
schema: 1
summary: y = 2 x + 1
objective: {minimum_effect: 0.02}
budgets: {prepare_seconds: 10, call_seconds: 2, memory_mib: 512}
policy:
  imports: [numpy, os, os.*, sys, time, math, ctypes, threading, signal, socket, subprocess, json, mmap, yaml]
duel: {segment_ms: 4, screen_blocks: 10, pair_blocks: 2, max_pairs: 10, report_pairs: 3}
gate: {seeds: 1}
"""

QUICK = re.sub("imports: .*", "imports: [numpy, os, yaml]", SETTINGS).replace(
    "pair_blocks: 2", "pair_blocks: 1"
)
"""What a process imports is most of what it costs."""

SUITE = "problems: [timed]\ndistribution: normal\n"

HONEST = """
import numpy as np

def run(x, y):
    np.multiply(x, np.float32(2), out=y)
    np.add(y, np.float32(1), out=y)
"""


CUDA_SETTINGS = """
schema: 1
summary: y = 2 x + 1 on a GPU
device: cuda
objective: {minimum_effect: 0.02}
budgets: {prepare_seconds: 60, call_seconds: 20, memory_mib: 4096}
policy: {imports: [torch, triton]}
gate: {seeds: 1}
"""

CUDA_KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def affine(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, 2 * tl.load(x + at, mask=at < n) + 1, mask=at < n)

def run(x, y):
    affine[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
"""


def write_cuda_case(root: Path, kernel: str = CUDA_KERNEL) -> Path:
    """The same for a GPU; of its three problems two are small enough to be interpreted."""
    folder = write_case(root, kernel, CUDA_SETTINGS)
    contract = CONTRACT.replace('{"n": 20_000}', '{"n": 1_000_000}')
    contract = contract.replace("generator=generator)", "generator=generator, device=generator.device)")
    (folder / "contract.py").write_text(contract)
    return folder


def repeated(times: int) -> str:
    """An honest kernel that does its work `times` times, so that speedups between two of them are known."""
    return HONEST.replace(
        "def run(x, y):\n",
        f"def run(x, y):\n    for _ in range({times}):\n        once(x, y)\n\ndef once(x, y):\n",
    )


def write_case(root: Path, kernel: str = HONEST, settings: str = SETTINGS) -> Path:
    """The case folder below `root`, as cases/test/affine."""
    folder = root / "cases" / "test" / "affine"
    (folder / "benchmarks").mkdir(parents=True)
    (folder / "workspace").mkdir()
    (folder / "case.yaml").write_text(settings)
    (folder / "contract.py").write_text(CONTRACT)
    (folder / "program.md").write_text("Make y = 2 x + 1 fast.\n")
    (folder / "benchmarks" / "main.yaml").write_text(SUITE)
    (folder / "workspace" / "kernel.py").write_text(kernel)
    return folder


def write_workspace(folder: Path, kernel: str) -> Path:
    """A workspace of its own, beside the case's."""
    folder.mkdir(parents=True)
    (folder / "kernel.py").write_text(kernel)
    return folder
