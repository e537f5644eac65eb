"""The demo case: every knob setting is right for every problem, and some settings are much faster than others."""

from __future__ import annotations

import random
import time

import pytest
import torch

from hillclimb.harness.case.contract import Contract
from hillclimb.harness.knobs.knobs import KnobValue, load_knobs
from hillclimb.harness.policy.policy import check_policy
from tests.cases.workspace import CASES, Check, call, checks, kernel, load_case

FOLDER = CASES / "demo" / "cpu_matmul"
FAST: dict[str, KnobValue] = {"MM_ORDER": "ikj", "MM_UNROLL": 8}


@pytest.fixture(scope="module")
def every_check() -> list[Check]:
    return checks(load_case(FOLDER)[1], seed=11)


@pytest.fixture(scope="module")
def contract() -> Contract:
    return load_case(FOLDER)[1]


def samples(count: int) -> list[dict[str, KnobValue]]:
    """The defaults, then settings drawn at random in which each value of each knob has its turn."""
    draw, knobs = random.Random(5), load_knobs(FOLDER / "workspace" / "knobs.yaml")
    columns = {}
    for name, knob in knobs.items():
        values = list(knob.values() or ())
        columns[name] = [values[i % len(values)] for i in range(count)]
        draw.shuffle(columns[name])
    return [{}, *({name: column[i] for name, column in columns.items()} for i in range(count))]


@pytest.mark.slow(2, but=["jik-32-256-1024-2-4-False-False-4"])
@pytest.mark.parametrize("values", samples(8), ids=lambda v: "-".join(map(str, v.values())) or "defaults")
def test_every_setting_is_right_for_every_problem(
    values: dict[str, KnobValue], every_check: list[Check]
) -> None:
    case, _ = load_case(FOLDER)
    with kernel(case, values) as run:
        worst = max((check.error(call(run, check)), check.name) for check in every_check)
    assert worst[0] < 2, (
        f"error {worst[0]:.2f} at {worst[1]}: too near the budget of {case.settings.gate.error_budget}"
    )


def test_policy_admits_the_start() -> None:
    case, _ = load_case(FOLDER)
    check_policy(case.workspace, case.settings.policy)


def test_every_knob_has_a_doc_and_the_suites_name_problems(contract: Contract) -> None:
    case, _ = load_case(FOLDER)
    assert all(knob.doc for knob in case.knobs.values())
    assert {name for suite in case.suites.values() for name in suite.problems} <= set(contract.problems)
    assert {suite.distribution for suite in case.suites.values()} <= set(contract.distributions)


@pytest.mark.slow(5)
@pytest.mark.clock
def test_loop_order_decides_the_speed() -> None:
    """A measurement, so with a wide margin: 16 times faster where it was written."""
    case, contract = load_case(FOLDER)
    check = next(c for c in checks(_only(contract, "square_256"), seed=3) if c.name.endswith("normal"))
    with kernel(case, {}) as run:
        slow = _fastest(run, check)
    with kernel(case, FAST) as run:
        fast = _fastest(run, check)
    assert slow > 4 * fast


def test_half_precision_is_far_outside_the_budget(every_check: list[Check]) -> None:
    for check in every_check:
        a, b = (check.inputs[name].bfloat16().double() for name in "ab")
        error = check.error({"c": (a @ b).float()})
        assert error > 20 or check.unit == 0, check.name


def test_a_skipped_product_is_outside_the_budget(every_check: list[Check]) -> None:
    check = next(c for c in every_check if c.name == "odd_201x263x181/normal")
    a, b = check.inputs["a"], check.inputs["b"]
    for wrong in (torch.zeros_like(check.outputs["c"]), a[:, 1:] @ b[1:, :]):
        assert check.error({"c": wrong}) > 1000


@pytest.mark.parametrize("distribution", ["normal", "offset", "wide", "sparse"])
def test_inputs_are_a_function_of_the_seed(contract: Contract, distribution: str) -> None:
    def draw(seed: int) -> torch.Tensor:
        problem = contract.problems["odd_201x263x181"]
        return contract.inputs(problem, distribution, torch.Generator().manual_seed(seed))["a"]

    assert torch.equal(draw(1), draw(1))
    assert not torch.equal(draw(1), draw(2))
    assert draw(1).dtype == torch.float32
    assert draw(1).is_contiguous()


def test_knobs_read_the_environment_over_the_defaults() -> None:
    case, _ = load_case(FOLDER)
    with kernel(case, {"MM_ORDER": "kij", "MM_PACK": True, "MM_TILE_K": 64}) as run:
        seen = run.__globals__
    assert (seen["ORDER"], seen["PACK"], int(seen["TILE_K"]), int(seen["ROWS"])) == ("kij", True, 64, 1)


def _only(contract: Contract, name: str) -> Contract:
    contract.problems = {name: contract.problems[name]}
    return contract


def _fastest(run: object, check: Check) -> float:
    call(run, check)  # type: ignore[arg-type]
    times = []
    for _ in range(5):
        start = time.perf_counter()
        call(run, check)  # type: ignore[arg-type]
        times.append(time.perf_counter() - start)
    return min(times)
