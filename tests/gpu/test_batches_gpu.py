"""The inputs of many calls drawn by a graph: the very bits that calls draw one by one, or not by a graph at all.

In a process of its own: a context, once made, stays as long as its process, and a judge wants the GPU to itself.
"""

from __future__ import annotations

import multiprocessing
import random
from collections.abc import Iterator
from concurrent.futures import Executor, ProcessPoolExecutor

import pytest
import torch

from hillclimb.harness.case.contract import Tensors
from hillclimb.harness.duel import batches
from hillclimb.harness.duel.batches import DrawInputs, InputBatches, capture_batch, draw_singly

PLACE = "cuda:0"


@pytest.fixture(scope="module")
def apart() -> Iterator[Executor]:
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        yield pool


def honest(generator: torch.Generator) -> Tensors:
    x = torch.randn(4, 130, generator=generator, device=PLACE)
    return {
        "x": (3 * x).bfloat16(),
        "half": x.half(),
        "at": torch.randint(0, 10**12, (7,), generator=generator, device=PLACE),
        "mask": torch.rand(5, generator=generator, device=PLACE) < 0.5,
    }


def by_the_host(generator: torch.Generator) -> Tensors:
    return {"x": random.random() * torch.randn(8, generator=generator, device=PLACE)}


def waiting(generator: torch.Generator) -> Tensors:
    x = torch.randn(8, generator=generator, device=PLACE)
    return {"x": x * float(x.sum().item())}


def turned(generator: torch.Generator) -> Tensors:
    return {"x": torch.randn(4, 130, generator=generator, device=PLACE).T}


def large(generator: torch.Generator) -> Tensors:
    return {"x": torch.empty(batches.MAX_SAMPLE_BYTES + 1, dtype=torch.uint8, device=PLACE)}


def test_a_graph_draws_what_calls_draw(apart: Executor) -> None:
    apart.submit(_expect_the_same).result()


@pytest.mark.parametrize("draw", [by_the_host, waiting, turned, large])
def test_what_no_graph_can_stand_for_is_drawn_call_by_call(apart: Executor, draw: DrawInputs) -> None:
    apart.submit(_expect_none, draw).result()


def _expect_the_same() -> None:
    batch = capture_batch(honest, PLACE)
    assert batch is not None
    for seed in (3, 2**61, 3):
        expected = draw_singly(honest, torch.Generator(PLACE).manual_seed(seed))
        found = batch.draw(seed)
        assert all(torch.equal(found[name], expected[name]) for name in expected)
        assert len({row.cpu().float().numpy().tobytes() for row in found["x"]}) == batches.CALLS_PER_BATCH


def _expect_none(draw: DrawInputs) -> None:
    made = InputBatches()
    assert made.get("main", "normal", draw, PLACE) is None
    assert float(torch.ones(3, device=PLACE).sum()) == 3, "and the device works on"
    assert made.get("main", "uniform", honest, PLACE) is not None
