"""A case's baseline before its contract in this process: what the gate asks, without the sandbox and its seconds."""

from __future__ import annotations

import random
import runpy
import sys
from pathlib import Path

import pytest
import torch

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import check_contract, load_contract
from hillclimb.harness.case.contract import Spec
from hillclimb.harness.channel.dtypes import NUMPY_DTYPES, TORCH_DTYPES
from hillclimb.harness.duel.gated_problems import neighbours_of
from hillclimb.harness.duel.parity import expected_outputs, worst_error
from hillclimb.harness.policy.policy import check_policy

SMALL_BYTES = 1 << 20


def gate(folder: Path, patch: pytest.MonkeyPatch) -> int:
    """Calls that passed, on every small problem, its neighbours and every distribution."""
    case = Case(folder)
    check_policy(case.workspace, case.settings.policy)
    is_cpu = case.settings.device == "cpu"
    contract = load_contract(case.contract_file, "cpu", NUMPY_DTYPES if is_cpu else TORCH_DTYPES)
    small = [n for n, p in contract.problems.items() if contract.work(p).bytes <= SMALL_BYTES]
    check_contract(contract, case.contract_file, small)
    near = neighbours_of(contract, list(contract.problems), random.Random(1))
    wider, calls = contract.extended(near), 0
    patch.syspath_prepend(str(case.workspace))
    for name in ("original", "knobs"):
        patch.delitem(sys.modules, name, raising=False)
    run = runpy.run_path(str(case.workspace / "kernel.py"))["run"]
    for name in (*small, *near):
        problem = wider.problems[name]
        for distribution in wider.distributions:
            inputs = wider.inputs(problem, distribution, torch.Generator().manual_seed(3))
            outputs = {key: poisoned(spec) for key, spec in wider.outputs(problem).items()}
            before = [tensor.clone() for tensor in inputs.values()]
            tensors = [*inputs.values(), *outputs.values()]
            with torch.no_grad():
                run(*([t.numpy() for t in tensors] if is_cpu else tensors), **wider.attributes(problem))
            assert all(torch.equal(a, b) for a, b in zip(before, inputs.values(), strict=True))
            assert worst_error(outputs, expected_outputs(wider, problem, inputs, 4.0)) <= 1
            calls += 1
    return calls


def poisoned(spec: Spec) -> torch.Tensor:
    return torch.full(spec.shape, float("nan") if spec.dtype.is_floating_point else 1, dtype=spec.dtype)
