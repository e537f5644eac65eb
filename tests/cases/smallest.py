"""A program: one variant of every case study on a small problem, through Triton's interpreter.

With the optimized variant come the Triton demos.

It imports torch and Triton once and forks for each kernel, since the workspaces' modules share their names. It prints
a line of JSON for each: "kernel", and "worst", its error as a share of the budget, or "error".
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from pathlib import Path

import torch
import triton

from hillclimb.harness.candidate.interpreter_fixes import apply_fixes
from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.duel.parity import expected_outputs, worst_error
from hillclimb.harness.studies.study import StudyCase, choose_cases
from hillclimb.harness.studies.variants import list_variants

SMALL_BYTES = 32 << 10
"""What a problem may move at the most: enough for tiles that are full and one that is ragged."""


def worst_share(case: Case, variant: str) -> float:
    """On the largest small problem, under the first distribution; outputs' bits start set."""
    _, function = case.settings.entry.split(":")
    contract = load_contract(case.contract_file, dtypes=TORCH_DTYPES)
    sys.path.insert(0, str(case.workspace))
    run = getattr(importlib.import_module(variant), function)
    problems = sorted(contract.problems.values(), key=lambda problem: contract.work(problem).bytes)
    small = [problem for problem in problems if contract.work(problem).bytes <= SMALL_BYTES]
    problem = small[-1] if small else problems[0]
    inputs = contract.inputs(problem, contract.distributions[0], torch.Generator().manual_seed(7))
    outputs = {k: torch.empty(s.shape, dtype=s.dtype) for k, s in contract.outputs(problem).items()}
    for tensor in outputs.values():
        tensor.view(torch.uint8).fill_(255)
    run(*inputs.values(), *outputs.values(), **contract.attributes(problem))
    expected = expected_outputs(contract, problem, inputs, case.settings.gate.error_budget)
    return worst_error(outputs, expected)


def tell(case: Case, variant: str, name: str) -> None:
    try:
        found: dict[str, object] = {"worst": worst_share(case, variant)}
    except Exception as error:  # noqa: BLE001 - whatever a kernel raises is its line
        found = {"error": f"{type(error).__name__}: {error}"}
    print(json.dumps({"kernel": f"{name}/{variant}", **found}), flush=True)


def main(cases: Path, wanted: str) -> None:
    assert os.environ["TRITON_INTERPRET"] == "1" and triton.knobs.runtime.interpret
    torch.set_num_threads(1)
    apply_fixes()
    demos = [StudyCase("demo", folder.name, folder) for folder in sorted((cases / "demo").glob("triton_*"))]
    for study in (*demos, *choose_cases(cases)):
        case = Case(study.folder)
        if study in demos:
            variants = ["kernel"] if wanted == "optimized" else []
        else:
            variants = [variant for variant in list_variants(case) if variant == wanted]
        for variant in variants:
            child = os.fork()
            if child == 0:
                tell(case, variant, str(study))
                os._exit(0)
            os.waitpid(child, 0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
