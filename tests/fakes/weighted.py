"""A case with parameters: y = gain x + offset over rows, whose gain and offset are the same for all calls."""

from __future__ import annotations

from pathlib import Path

from tests.fakes.cases import CUDA_SETTINGS, SETTINGS, write_case

CONTRACT = """
import torch
from hillclimb.harness.case.contract import Contract as Base, Spec, Work

WIDTH = 64

class Contract(Base):
    problems = {"small": {"rows": 7}, "timed": {"rows": 500}}
    distributions = ("normal", "large")
    domains = {"x": (-1e4, 1e4)}

    def parameters(self, generator):
        made = {"generator": generator, "device": generator.device}
        return {"gain": 1 + torch.rand(WIDTH, **made), "offset": torch.randn(WIDTH, **made)}

    def inputs(self, problem, distribution, generator):
        x = torch.randn(problem["rows"], WIDTH, generator=generator, device=generator.device)
        return {"x": 100 * x if distribution == "large" else x}

    def outputs(self, problem):
        return {"y": Spec((problem["rows"], WIDTH), torch.float32)}

    def reference(self, problem, inputs):
        return {"y": inputs["gain"].double() * inputs["x"].double() + inputs["offset"].double()}

    def attainable(self, problem, inputs):
        return {"y": inputs["gain"] * inputs["x"] + inputs["offset"]}

    def scale(self, problem, inputs, reference):
        return {"y": (inputs["gain"] * inputs["x"]).double().abs() + inputs["offset"].double().abs()}

    def work(self, problem):
        return Work(flops=2 * problem["rows"] * WIDTH, bytes=8 * problem["rows"] * WIDTH)

    def vary(self, problem, secret):
        return [{"rows": problem["rows"] + 1}]
"""

HONEST = """
import numpy as np

def run(gain, offset):
    rows, more = gain.copy(), offset.copy()

    def call(x, y):
        for _ in range(TIMES):
            np.multiply(x, rows, out=y)
            np.add(y, more, out=y)
    return call
"""

TRITON = """
import torch
import triton
import triton.language as tl

@triton.jit
def affine(gain, offset, x, y, WIDTH: tl.constexpr):
    at = tl.arange(0, WIDTH)
    row = tl.program_id(0) * WIDTH
    tl.store(y + row + at, tl.load(gain + at) * tl.load(x + row + at) + tl.load(offset + at))

class Layer:
    def __init__(self, gain, offset):
        self.gain, self.offset = gain, offset

    def __call__(self, x, y):
        affine[(x.shape[0],)](self.gain, self.offset, x, y, WIDTH=64)
"""


def honest(times: int = 1) -> str:
    """Does its work so many times."""
    return HONEST.replace("TIMES", str(times))


def write_weighted(root: Path, kernel: str = honest()) -> Path:
    """The case folder, for a CPU."""
    return _write(root, kernel, SETTINGS)


def write_weighted_for_gpu(root: Path, kernel: str = TRITON) -> Path:
    """The same for a GPU, whose entry is a class."""
    return _write(root, kernel, CUDA_SETTINGS + 'entry: "kernel.py:Layer"\n')


def _write(root: Path, kernel: str, settings: str) -> Path:
    folder = write_case(root, kernel, settings)
    (folder / "contract.py").write_text(CONTRACT)
    return folder
