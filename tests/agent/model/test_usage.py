"""Tokens and cost: as told where that can be true, estimated otherwise."""

from __future__ import annotations

from typing import Any

import pytest

from agent.entries import Usage
from agent.model.usage import read_cost, read_usage, total
from harness.case.case import Prices

TOLD = {
    "prompt_tokens": 100,
    "completion_tokens": 40,
    "prompt_tokens_details": {"cached_tokens": 60},
    "completion_tokens_details": {"reasoning_tokens": 25},
}


def test_usage_as_told() -> None:
    found = read_usage({"usage": TOLD}, "p" * 400, "r" * 80, 1000)
    assert found == Usage(prompt=100, cached=60, completion=40, reasoning=25)


def test_usage_in_another_providers_words() -> None:
    told = {"prompt_tokens": 100.0, "completion_tokens": 40, "prompt_cache_hit_tokens": 30}
    assert read_usage({"usage": told}, "", "", 1000) == Usage(prompt=100, cached=30, completion=40)


@pytest.mark.parametrize("nonsense", [-1, 10**12, "100", None, True, 1.5, float("nan"), float("inf"), [], {}])
def test_usage_that_cannot_be_true_is_estimated(nonsense: Any) -> None:
    found = read_usage({"usage": {**TOLD, "prompt_tokens": nonsense}}, "p" * 401, "", 1000)
    assert found == Usage(prompt=101, cached=60, completion=40, reasoning=25, estimated=True)
    found = read_usage({"usage": {**TOLD, "completion_tokens": nonsense}}, "", "r" * 401, 1000)
    assert found == Usage(prompt=100, cached=60, completion=101, reasoning=25, estimated=True)


@pytest.mark.parametrize("document", [{}, {"usage": None}, {"usage": "lots"}, {"usage": []}])
def test_usage_that_is_missing_is_estimated(document: dict[str, Any]) -> None:
    found = read_usage(document, "p" * 8, "r" * 4, 1000)
    assert found == Usage(prompt=2, completion=1, estimated=True)


def test_parts_never_exceed_the_whole() -> None:
    told = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 11},
        "completion_tokens_details": {"reasoning_tokens": -1},
    }
    assert read_usage({"usage": told}, "", "", 1000) == Usage(prompt=10, completion=5)


def test_the_providers_cost_goes_before_the_prices() -> None:
    usage = Usage(prompt=100, cached=60, completion=40)
    prices = Prices(prompt=10.0, completion=20.0, cached=1.0)
    assert read_cost({"usage": {"cost": 0.5}}, usage, prices) == 0.5
    by_prices = (40 * 10 + 60 * 1 + 40 * 20) / 1e6
    for nonsense in (-1, float("nan"), float("inf"), "0.5", True, None):
        assert read_cost({"usage": {"cost": nonsense}}, usage, prices) == pytest.approx(by_prices)
    assert read_cost({}, usage, Prices(prompt=10.0, completion=0)) == pytest.approx(1000e-6)
    assert read_cost({}, usage, None) is None


def test_one_estimate_makes_the_sum_one() -> None:
    parts = [Usage(prompt=1, completion=2), Usage(prompt=3, cached=1, estimated=True)]
    assert total(parts) == Usage(prompt=4, cached=1, completion=2, estimated=True)
