"""What a session's contract says of right and wrong computations of a model, on torch's device:
`python -m scripts.experiments.session_parity CASE [--device cuda] [--seed 5] [--output PATH]`.

Every variant makes the tokens of every problem with one sequence by plain torch, with its own weights, in bfloat16 or
in float32. Printed is the largest share of what is allowed, of each output. All of it is one part.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from hillclimb.harness.case.case import Case, find_case
from hillclimb.harness.case.checked import CheckedContract, load_contract
from hillclimb.harness.case.contract import Tensors
from hillclimb.harness.case.contracts.llama.model import LINEARS, Llama
from hillclimb.harness.case.contracts.llama.session import LlamaSession
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from scripts.experiments import frame

ROWS = 16384
"""Of a matrix, that are rounded at a time."""

Change = Callable[[Tensors], None]


def in_parts(weight: torch.Tensor, round_rows: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    rows = weight.view(-1, weight.shape[-1])
    parts = [round_rows(part.float()).to(weight.dtype) for part in torch.split(rows, ROWS)]
    return torch.cat(parts).view(weight.shape)


def whole_multiples(weight: torch.Tensor, group: int) -> torch.Tensor:
    """Eight bits, with a unit of every row's own, or of every so many elements'."""

    def round_rows(rows: torch.Tensor) -> torch.Tensor:
        groups = rows.view(-1, group or rows.shape[1])
        unit = groups.abs().amax(1, keepdim=True) / 127
        return ((groups / unit).round() * unit).view(rows.shape)

    return in_parts(weight, round_rows)


def fp8(weight: torch.Tensor) -> torch.Tensor:
    def round_rows(rows: torch.Tensor) -> torch.Tensor:
        unit = rows.abs().amax(1, keepdim=True) / 448
        return (rows / unit).to(torch.float8_e4m3fn).float() * unit

    return in_parts(weight, round_rows)


def right(weights: Tensors) -> None:
    pass


def scaled(name: str, layer: int) -> Change:
    def change(weights: Tensors) -> None:
        weights[name] = weights[name].clone()
        weights[name][layer] *= 0.98

    return change


def layer_left_out(weights: Tensors) -> None:
    for name in ("o", "down"):
        weights[name] = weights[name].clone()
        weights[name][len(weights[name]) // 2] = 0


def layers_in_int8(group: int) -> Change:
    def change(weights: Tensors) -> None:
        weights.update({name: whole_multiples(weights[name], group) for name in LINEARS})

    return change


def head_as(rounded: Callable[[torch.Tensor], torch.Tensor]) -> Change:
    def change(weights: Tensors) -> None:
        weights["lm_head"] = rounded(weights.get("lm_head", weights["embedding"]))

    return change


VARIANTS: dict[str, tuple[Change, torch.dtype]] = {
    "right": (right, torch.bfloat16),
    "right, float32": (right, torch.float32),
    "o of layer 1 times 0.98": (scaled("o", 1), torch.bfloat16),
    "q of layer 1 times 0.98": (scaled("q", 1), torch.bfloat16),
    "down of layer 1 times 0.98": (scaled("down", 1), torch.bfloat16),
    "head in fp8": (head_as(fp8), torch.bfloat16),
    "head in int8, groups of 64": (head_as(lambda w: whole_multiples(w, 64)), torch.bfloat16),
    "layers in int8, rows": (layers_in_int8(0), torch.bfloat16),
    "layers in int8, groups of 64, float32": (layers_in_int8(64), torch.float32),
    "layers in int8, groups of 16, float32": (layers_in_int8(16), torch.float32),
    "a layer left out": (layer_left_out, torch.bfloat16),
}


def shares(
    contract: LlamaSession, name: str, variant: str, weights: Tensors, inputs: Tensors
) -> dict[str, Any]:
    """Of what is allowed, the largest of each output's, and seconds of the comparison."""
    change, dtype = VARIANTS[variant]
    problem, changed = contract.problems[name], dict(weights)
    change(changed)
    shape = replace(contract.shape, tied="lm_head" not in changed)
    made = contract._made(problem, inputs, Llama.of(shape, changed, dtype))
    outputs = {key: made[key].to(spec.dtype) for key, spec in contract.outputs(problem).items()}
    started = time.perf_counter()
    errors = contract.errors(problem, {**inputs, **weights}, outputs)
    found = {key: round(float(share.max()), 3) for key, share in errors.items()}
    return {**found, "seconds": round(time.perf_counter() - started, 2)}


def main() -> None:
    parser = frame.make_parser(__doc__)
    parser.add_argument("case", help="the case's folder, or its name")
    parser.add_argument("--device", default="cuda", help="torch's name of where it is computed")
    parser.add_argument("--seed", type=int, default=5, help="of weights and inputs")
    given = parser.parse_args()
    output = frame.Output(given.output, {"case": given.case, "device": given.device, "seed": given.seed})
    case = Case(find_case(given.case))
    checked = load_contract(case.contract_file, given.device, TORCH_DTYPES, model_path=case.session_model)
    contract = checked._inner if isinstance(checked, CheckedContract) else checked
    if not isinstance(contract, LlamaSession):
        parser.error(f"{case.name} is no session of a Llama")
    contract.audited_share = 1.0
    generator = torch.Generator(given.device).manual_seed(given.seed)
    with torch.no_grad():
        weights = contract.parameters(generator)
        for name in (name for name, problem in contract.problems.items() if problem["batch"] == 1):
            inputs = contract.inputs(contract.problems[name], "normal", generator)
            rows = {variant: shares(contract, name, variant, weights, inputs) for variant in VARIANTS}
            print(json.dumps({name: rows}, indent=1), flush=True)
            output.save(**{name: rows})


if __name__ == "__main__":
    main()
