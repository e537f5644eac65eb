"""Calls a fixed file of a case's, trusted as its contract is, once on each of some problems, without a sandbox.

`python -m harness.judge.fixed CASE_FOLDER WORKSPACE PROBLEM ...`: what torch.compile makes of it stays in its cache.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path

import torch

from harness.candidate.runner import import_kernel
from harness.case.case import Case
from harness.case.contract import Contract, Problem, load_contract
from harness.device.device import open_device


def main() -> None:
    folder, workspace, *names = sys.argv[1:]
    torch._dynamo.config.recompile_limit = max(
        8, len(names)
    )  # a graph each; those beyond it would stay uncompiled
    case = Case(Path(folder))
    with closing(open_device(case.settings.device)) as device:
        place = device.torch_device
        contract = load_contract(case.contract_file, place, device.dtypes)
        run = import_kernel(workspace, case.settings.entry)
        distribution = case.suites[case.settings.objective.suite].distribution
        for name in names:
            problem, generator = contract.problems[name], torch.Generator(place).manual_seed(0)
            arrays = arrays_of_call(contract, problem, distribution, generator)
            run(*arrays, **contract.attributes(problem))
            device.synchronize()


def arrays_of_call(
    contract: Contract, problem: Problem, distribution: str, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """One call's inputs, drawn, and its outputs, not written yet, on the generator's device."""
    inputs, specs = contract.inputs(problem, distribution, generator), contract.outputs(problem).values()
    outputs = [torch.empty(spec.shape, dtype=spec.dtype, device=generator.device) for spec in specs]
    return (*inputs.values(), *outputs)


if __name__ == "__main__":
    main()
