#!/usr/bin/env python3
"""Would a judge draw a segment's inputs sooner from a CUDA graph than call by call?  And would it draw the same?

For each kernel of gpu_cases the slots of a segment are filled as the judge fills them, and by the replay of a graph
that captured just that, with the generator's state registered. Milliseconds, the median of some fillings; `same` says
that from one seed both wrote the same bits everywhere, `fresh` that another seed changed every slot.

    scripts/experiments/gpu_drawing.py --output docs/evidence/gpu_drawing.json
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu_cases
import torch

from harness.candidate.arena import Arena
from harness.case.case import Case
from harness.case.contract import Contract, Problem, load_contract
from harness.dtypes import TORCH_DTYPES
from harness.judge.fresh import Source
from harness.judge.secret import SecretRandom

PLACE = "cuda:0"
SLOTS = {"softmax": 450, "small": 3072, "gemm": 40}
TIMES = 9


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=Path, required=True)
    output: Path = parser.parse_args().output
    rows = []
    for kind, slots in SLOTS.items():
        rows.append(measure(kind, slots))
        print(json.dumps(rows[-1]), flush=True)
        output.write_text(json.dumps(rows, indent=1) + "\n")


def measure(kind: str, slots: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="hillclimb-drawing-") as name:
        case = Case(gpu_cases.write_case(Path(name), kind, 0.0025))
        contract = load_contract(case.contract_file, PLACE, TORCH_DTYPES)
        source = Source(contract, "main", "normal", SecretRandom(b"drawing"), PLACE)
        with source.arena(slots) as arena:
            return {"kind": kind, "slots": slots, **compare(contract, arena, slots)}


def compare(contract: Contract, arena: Arena, slots: int) -> dict[str, Any]:
    problem, generator = contract.problems["main"], torch.Generator(PLACE)
    fill = filler(contract, problem, generator, arena, slots)
    eager = timed(generator, fill)
    generator.manual_seed(5)
    fill()
    expected, graph = sums(arena, slots), torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)
    start = time.perf_counter()
    with torch.cuda.graph(graph):
        fill()
    captured_in = time.perf_counter() - start
    replayed = timed(generator, graph.replay)
    generator.manual_seed(5)
    graph.replay()
    same = torch.equal(sums(arena, slots), expected)
    generator.manual_seed(6)
    graph.replay()
    fresh = bool((sums(arena, slots) != expected).all())
    row = {"eager_ms": 1e3 * eager, "replayed_ms": 1e3 * replayed, "capture_ms": 1e3 * captured_in}
    return {**{key: round(value, 2) for key, value in row.items()}, "same": same, "fresh": fresh}


def filler(
    contract: Contract, problem: Problem, generator: torch.Generator, arena: Arena, slots: int
) -> Callable[[], None]:
    def fill() -> None:
        for slot in range(slots):
            arena.fill(slot, contract.more_inputs(problem, "normal", generator))
        arena.poison(range(slots))

    return fill


def timed(generator: torch.Generator, fill: Callable[[], None]) -> float:
    """Seconds until all is drawn, from a new seed each time."""
    taken = []
    for seed in range(TIMES):
        generator.manual_seed(seed)
        torch.cuda.synchronize()
        start = time.perf_counter()
        fill()
        torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def sums(arena: Arena, slots: int) -> torch.Tensor:
    """A word for each slot that tells its inputs' bits."""
    found = []
    for slot in range(slots):
        words = torch.cat([array.reshape(-1).view(torch.int32) for array in arena.inputs(slot).values()])
        weights = torch.arange(1, words.numel() + 1, device=words.device)
        found.append((words * weights).sum())
    return torch.stack(found)


if __name__ == "__main__":
    main()
