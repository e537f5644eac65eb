"""Calls a fixed file of a case's, trusted as its contract is, on each of some problems, without a sandbox.

`python -m hillclimb.harness.studies.compile_reference CASE_FOLDER WORKSPACE PROBLEM ...`: what torch.compile
makes of it stays in its cache.
A line `seconds: S` tells what one call of each takes together: a figure to choose by, of one set of inputs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import torch

from hillclimb.harness.candidate.runner import import_kernel, made_of
from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.case.contract import Contract, Problem
from hillclimb.harness.case.operands import empty_like
from hillclimb.harness.device.device import Device
from hillclimb.harness.judge.open_device import open_device

CALLS, ROUNDS = 10, 5
"""Calls that are timed at once, and how often."""


def main() -> None:
    folder, workspace, *names = sys.argv[1:]
    torch._dynamo.config.recompile_limit = max(
        8, len(names)
    )  # a graph each; those beyond it would stay uncompiled
    case = Case(Path(folder))
    with closing(open_device(case.settings.device)) as device:
        place = device.torch_device
        contract = load_contract(case.contract_file, place, device.dtypes, model_path=case.session_model)
        run = import_kernel(workspace, case.settings.entry)
        if parameters := contract.parameters(torch.Generator(place).manual_seed(0)):
            run = made_of(run, parameters)
        distribution = case.suites[case.settings.objective.suite].distribution
        seconds = 0.0
        for name in names:
            problem, generator = contract.problems[name], torch.Generator(place).manual_seed(0)
            arrays = arrays_of_call(contract, problem, distribution, generator)
            seconds += _seconds(partial(run, *arrays, **contract.attributes(problem)), device)
    print(f"\nseconds: {seconds}", flush=True)


def _seconds(call: Callable[[], object], device: Device) -> float:
    """Of a call, at best, once it has been made."""
    call()
    taken = []
    for _ in range(ROUNDS):
        device.synchronize()
        began = time.perf_counter()
        for _ in range(CALLS):
            call()
        device.synchronize()
        taken.append((time.perf_counter() - began) / CALLS)
    return min(taken)


def arrays_of_call(
    contract: Contract, problem: Problem, distribution: str, generator: torch.Generator
) -> tuple[torch.Tensor, ...]:
    """One call's inputs, drawn, and its other outputs, not written yet, on the generator's device."""
    inputs, specs = contract.inputs(problem, distribution, generator), contract.outputs(problem)
    outputs = [empty_like(spec, generator.device) for name, spec in specs.items() if name not in inputs]
    return (*inputs.values(), *outputs)


if __name__ == "__main__":
    main()
