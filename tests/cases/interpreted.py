"""Walks a Triton case's small problems through Triton's interpreter on the CPU: no GPU is needed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from hillclimb.harness.case.contract import Contract, Problem
from hillclimb.harness.device.cpu.cpu import MAX_INTERPRETED_BYTES

ROOT = Path(__file__).parents[2]

WALK = """
import json, sys, warnings
warnings.simplefilter("error")
for harmless in sys.argv[3:]:
    warnings.filterwarnings("ignore", harmless)
from pathlib import Path
import torch
from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.duel.parity import expected_outputs, worst_error

INTEGERS = (torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8)

def poison(dtype):
    return torch.iinfo(dtype).min if dtype in INTEGERS else float("nan")

case = Case(Path(sys.argv[1]))
contract = load_contract(case.contract_file, dtypes=TORCH_DTYPES)
sys.path.insert(0, str(case.workspace))
from kernel import run

shares = {}
for name, problem in contract.problems.items():
    if contract.work(problem).bytes > int(sys.argv[2]):
        continue
    for distribution in contract.distributions:
        inputs = contract.inputs(problem, distribution, torch.Generator().manual_seed(7))
        specs = contract.outputs(problem)
        outputs = {k: torch.full(s.shape, poison(s.dtype), dtype=s.dtype) for k, s in specs.items()}
        before = {k: v.clone() for k, v in inputs.items()}
        run(*inputs.values(), *outputs.values())
        assert all(torch.equal(before[k], v) for k, v in inputs.items())
        expected = expected_outputs(contract, problem, inputs, case.settings.gate.error_budget)
        shares[f"{name}/{distribution}"] = worst_error(outputs, expected)
print("SHARES" + json.dumps(shares))
"""


def walk(
    folder: Path, limit: int, environment: Mapping[str, str], harmless: Sequence[str] = ()
) -> dict[str, float]:
    """Errors of the kernel as shares of the budget, on each problem of up to `limit` bytes and each distribution.

    In a process of its own: Triton decides when it is imported whether it interprets. Warnings are errors, but
    for those that begin with what is `harmless`.
    """
    done = subprocess.run(
        [sys.executable, "-c", WALK, str(folder), str(limit), *harmless],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1", **environment},
    )
    assert done.returncode == 0, done.stderr
    shares: dict[str, float] = json.loads(done.stdout.split("SHARES")[1])
    return shares


def small(contract: Contract, most: int = MAX_INTERPRETED_BYTES) -> dict[str, Problem]:
    """The problems that move so few bytes."""
    return {name: p for name, p in contract.problems.items() if contract.work(p).bytes <= most}
