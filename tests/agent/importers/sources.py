"""Small files of each format, written for these tests."""

from __future__ import annotations

KERNELBENCH = '''
import torch
import torch.nn as nn

class Model(nn.Module):
    """Scaled linear layer with a norm over the batch."""

    def __init__(self, width, height, slope):
        super().__init__()
        self.first = nn.Linear(width, height)
        self.norm = nn.BatchNorm1d(height)
        self.slope = slope

    def forward(self, x):
        return self.norm(torch.relu(self.first(x))) * self.slope

rows = 4096
width = 512
height = 256
slope = [0.5]

def get_inputs():
    return [torch.rand(rows, width)]

def get_init_inputs():
    return [width, height, slope[0]]
'''

TASK = """
files:
  - {"name": "submission.py", "source": "@SUBMISSION@"}
  - {"name": "reference.py", "source": "reference.py"}
  - {"name": "helpers.py", "source": "../helpers.py"}
description: |
  Add two half-precision vectors, then scale them.
tests:
  - {"size": 33, "seed": 1}
  - {"size": 33, "seed": 2}
  - {"size": 100, "seed": 3}
benchmarks:
  - {"size": 4194304, "seed": 4}
test_timeout: 9
"""

REFERENCE = """
import torch
from helpers import quietly, make_match_reference, input_t

def ref_kernel(data: input_t) -> torch.Tensor:
    with quietly():
        a, b, scale, result = data
        result[...] = (a + b) * scale
        return result

def generate_input(size: int, seed: int) -> input_t:
    generator = torch.Generator(device="cuda")
    generator.manual_seed(seed)
    a = torch.randn(size, device="cuda", dtype=torch.float16, generator=generator)
    b = torch.randn(size, device="cuda", dtype=torch.float16, generator=generator)
    return a, b, 0.5, torch.empty(size, device="cuda", dtype=torch.float16)

check_implementation = make_match_reference(ref_kernel, rtol=1e-2)
"""

HELPERS = """
from contextlib import contextmanager
input_t = tuple

@contextmanager
def quietly():
    yield

def make_match_reference(reference, rtol):
    return lambda data, output: (True, "")
"""

DEFINITION = {
    "name": "scaled_rows_w512",
    "op_type": "norm",
    "description": "Rows over their root mean square.",
    "axes": {"rows": {"type": "var"}, "width": {"type": "const", "value": 512}},
    "inputs": {
        "x": {"shape": ["rows", "width"], "dtype": "bfloat16"},
        "gain": {"shape": ["width"], "dtype": "bfloat16"},
        "eps": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"out": {"shape": ["rows", "width"], "dtype": "bfloat16"}},
    "reference": "import torch\n\n@torch.no_grad()\ndef run(x, gain, eps):\n    wide = x.to(torch.float32)\n"
    "    assert x.shape[1] == 512\n"
    "    size = torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + eps)\n"
    "    return (wide * size * gain.float()).to(x.dtype)\n",
}

NUMPY = '''
import numpy as np

def blend(image, mask, strength=0.5):
    """Fades an image where a mask is set."""
    weight = np.float32(strength) * mask
    faded = image * (np.float32(1) - weight[:, :, None])
    return faded.astype(np.float32), mask.sum(axis=1)

rows = 1024
columns = 768

def example_inputs():
    return np.random.rand(rows, columns, 3).astype("float32"), np.random.rand(rows, columns).astype("float32"), 0.25
'''

PLAIN = """
import numpy as np

def wave(x, y):
    return np.sin(x) * np.cos(y)

EXAMPLES = [
    (np.linspace(0, 1, 600, dtype=np.float32), np.ones(600, np.float32)),
    {"x": np.linspace(0, 3, 40_000, dtype=np.float32), "y": np.linspace(0, 1, 40_000, dtype=np.float32)},
]
"""

TORCH = '''
import torch
from torch import nn

class Gate(nn.Module):
    """One gated unit."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(24, 24)
        self.drop = nn.Dropout(0.5)

    def forward(self, x, carry):
        fresh = self.drop(torch.sigmoid(self.inner(x)))
        return {"kept": fresh * carry, "total": fresh.sum()}

batch = 64

def example_inputs():
    return torch.randn(batch, 24), torch.randn(batch, 24)
'''
