"""Tokens and cost: as told where that can be true, estimated otherwise."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hillclimb.agent.llm.client.messages import Message
from hillclimb.agent.llm.client.usage import cut_prompt_tokens, estimate_usage, read_cost, read_usage, total
from hillclimb.agent.record.entries import TokenUsage
from hillclimb.harness.case.settings import Prices
from tests.agent.llm.client.calling import settings

TOLD = {
    "prompt_tokens": 100,
    "completion_tokens": 40,
    "prompt_tokens_details": {"cached_tokens": 60},
    "completion_tokens_details": {"reasoning_tokens": 25},
}


def test_usage_as_told() -> None:
    found = read_usage({"usage": TOLD}, "p" * 400, "r" * 80, 1000)
    assert found == TokenUsage(prompt=100, cached=60, completion=40, reasoning=25)


def test_usage_in_another_providers_words() -> None:
    told = {"prompt_tokens": 100.0, "completion_tokens": 40, "prompt_cache_hit_tokens": 30}
    assert read_usage({"usage": told}, "", "", 1000) == TokenUsage(prompt=100, cached=30, completion=40)


@pytest.mark.parametrize("nonsense", [-1, "a lot", None, True, 1.5, float("nan"), float("inf"), [], {}])
def test_usage_that_cannot_be_true_is_estimated(nonsense: Any) -> None:
    found = read_usage({"usage": {**TOLD, "prompt_tokens": nonsense}}, "p" * 401, "", 1000)
    assert found == TokenUsage(
        prompt=101, cached=60, completion=40, reasoning=25, estimated=True, assumed=101
    )
    found = read_usage({"usage": {**TOLD, "completion_tokens": nonsense}}, "", "r" * 401, 1000)
    assert found == TokenUsage(
        prompt=100, cached=60, completion=101, reasoning=25, estimated=True, assumed=101
    )


def test_more_than_can_be_true_counts_as_the_most_that_can() -> None:
    found = read_usage({"usage": {**TOLD, "prompt_tokens": 10**12}}, "p" * 400, "", 1000)
    assert (found.prompt, found.estimated) == (2400, True)
    found = read_usage({"usage": {**TOLD, "completion_tokens": 10**12}}, "p" * 400, "r" * 400, 1000)
    assert (found.completion, found.estimated) == (3400, True)


@pytest.mark.parametrize(
    ("told", "completion", "reasoning"),
    [
        ({"completion_tokens": 200, "completion_tokens_details": {"reasoning_tokens": 5000}}, 5200, 5000),
        ({"completion_tokens": 200, "reasoning_tokens": 5000}, 5200, 5000),
        ({"output_tokens": 200, "output_tokens_details": {"reasoning_tokens": 5000}}, 5200, 5000),
        ({"completion_tokens": 200, "thoughts_token_count": 5000}, 5200, 5000),
        ({"completion_tokens": 200, "total_tokens": 5300}, 5200, 0),
        ({"completion_tokens": 200, "reasoning_tokens": 150, "total_tokens": 450}, 350, 150),
        ({"completion_tokens": 5200, "reasoning_tokens": 5000, "total_tokens": 5300}, 5200, 5000),
        ({"completion_tokens": 5200, "completion_tokens_details": {"reasoning_tokens": 5000}}, 5200, 5000),
        ({"total_tokens": 5300}, 5200, 0),
        ({"completion_tokens": "200", "reasoning_tokens": "5000"}, 5200, 5000),
        ({"completion_tokens": 200, "total_tokens": 50}, 200, 0),
    ],
)
def test_of_several_figures_the_largest_counts_and_nothing_twice(
    told: dict[str, Any], completion: int, reasoning: int
) -> None:
    found = read_usage({"usage": {"prompt_tokens": 100, **told}}, "p" * 400, "r" * 400, 10_000)
    assert found == TokenUsage(prompt=100, completion=completion, reasoning=reasoning)


@pytest.mark.parametrize("document", [{}, {"usage": None}, {"usage": "lots"}, {"usage": []}])
def test_usage_that_is_missing_is_estimated(document: dict[str, Any]) -> None:
    found = read_usage(document, "p" * 8, "r" * 4, 1000)
    assert found == TokenUsage(prompt=2, completion=1, estimated=True, assumed=3)


@pytest.mark.parametrize(
    ("told", "believed"), [(0, False), (24, False), (25, True), (2400, True), (2401, False)]
)
def test_a_prompt_is_believed_near_its_size(told: int, believed: bool) -> None:
    """About 100 tokens: at least a quarter of them, at most four times as many and 2000 hidden ones."""
    found = read_usage({"usage": {"prompt_tokens": told, "completion_tokens": 0}}, "p" * 400, "", 1000)
    assert (found.prompt, found.estimated) == (
        (told, False) if believed else (100 if told < 100 else 2400, True)
    )


@pytest.mark.parametrize(
    ("told", "believed"), [(0, False), (24, False), (25, True), (3400, True), (3401, False)]
)
def test_a_reply_is_believed_near_its_size_with_hidden_thoughts(told: int, believed: bool) -> None:
    found = read_usage({"usage": {"prompt_tokens": 0, "completion_tokens": told}}, "", "r" * 400, 1000)
    other = 100 if told < 100 else 3400
    assert (found.completion, found.estimated) == ((told, False) if believed else (other, True))


def test_nothing_used_for_texts_is_not_believed() -> None:
    told = {"prompt_tokens": 0, "completion_tokens": 0}
    assert read_usage({"usage": told}, "p", "r", 1000) == TokenUsage(
        prompt=1, completion=1, estimated=True, assumed=2
    )
    assert read_usage({"usage": told}, "", "", 1000) == TokenUsage()


@pytest.mark.parametrize("letter", ["a", "é", "語", "😀", "\ud800"])
def test_any_tokenizer_is_believed(letter: str) -> None:
    """From one token a byte to one for sixteen bytes."""
    size = len((letter * 800).encode(errors="replace"))
    for told in (size, size // 16):
        usage = {"prompt_tokens": told, "completion_tokens": told}
        assert not read_usage({"usage": usage}, letter * 800, letter * 800, 1).estimated


def test_parts_never_exceed_the_whole() -> None:
    told = {
        "prompt_tokens": 10,
        "completion_tokens": 5,
        "prompt_tokens_details": {"cached_tokens": 11},
        "completion_tokens_details": {"reasoning_tokens": -1},
    }
    assert read_usage({"usage": told}, "", "", 1000) == TokenUsage(prompt=10, completion=5)


@pytest.mark.parametrize("told", [0, 1e-4, 1e9, -1, float("nan"), "half a dollar", None])
def test_prices_decide_unless_the_provider_says_more(told: Any) -> None:
    usage = TokenUsage(prompt=100, cached=60, completion=40)
    prices = Prices(prompt=10.0, completion=20.0, cached=1.0)
    found = read_cost({"usage": {"cost": told}}, usage, prices)
    assert found == pytest.approx((40 * 10 + 60 * 1 + 40 * 20) / 1e6)
    assert read_cost({}, usage, Prices(prompt=10.0, completion=0)) == pytest.approx(1000e-6)
    assert read_cost({"usage": {"cost": 0.5}}, usage, prices) == 0.5


@pytest.mark.parametrize(
    ("document", "prompt", "completion"),
    [
        ({"x_groq": {"usage": {"prompt_tokens": 100, "completion_tokens": 90}}}, 100, 90),
        (
            {
                "usageMetadata": {
                    "promptTokenCount": 100,
                    "candidatesTokenCount": 50,
                    "thoughtsTokenCount": 60,
                }
            },
            100,
            110,
        ),
        (
            {"usageMetadata": {"promptTokenCount": 100, "candidatesTokenCount": 50, "totalTokenCount": 190}},
            100,
            90,
        ),
        ({"usage": {"prompt_tokens": 100, "completion_tokens": 30, "output_tokens": 90}}, 100, 90),
        ({"usage": {"input_tokens": 20, "cache_read_input_tokens": 80, "output_tokens": 90}}, 100, 90),
        ({"usage": {"prompt_tokens": 100, "cache_read_input_tokens": 80, "completion_tokens": 90}}, 100, 90),
    ],
)
def test_figures_count_wherever_they_stand(document: Any, prompt: int, completion: int) -> None:
    found = read_usage(document, "p" * 400, "r" * 80, 1000)
    assert (found.prompt, found.completion, found.estimated) == (prompt, completion, False)


def test_thoughts_beyond_the_limit_count_where_the_total_agrees() -> None:
    told = {"prompt_tokens": 100, "completion_tokens": 60_000, "total_tokens": 60_100}
    assert read_usage({"usage": told}, "p" * 400, "r", 8000).completion == 60_000
    assert read_usage({"usage": {**told, "total_tokens": 100}}, "p" * 400, "r", 8000).completion < 11_000
    endless = {"prompt_tokens": 100, "completion_tokens": 10**12, "total_tokens": 10**12 + 100}
    assert read_usage({"usage": endless}, "p" * 400, "r", 8000).completion < 203_000


@pytest.mark.parametrize(
    "document",
    [
        {"usage": {"cost": "0.5"}},
        {"usage": {"total_cost": 0.5}},
        {"usage": {"estimated_cost": 0.5, "cost": 0.1}},
        {"usage": {"cost_in_usd_ticks": 5_000_000_000}},
        {"cost": 0.5},
    ],
)
def test_the_cost_is_read_by_its_names(document: Any) -> None:
    assert read_cost(document, TokenUsage(), None) == pytest.approx(0.5)


@pytest.mark.parametrize("told", [0, 0.5, 100])
def test_without_prices_the_provider_is_believed(told: float) -> None:
    assert read_cost({"usage": {"cost": told}}, TokenUsage(), None) == told


@pytest.mark.parametrize(
    "nonsense", [-1, 100.5, 10**400, float("nan"), float("inf"), "half a dollar", True, None, [], {"usd": 1}]
)
def test_a_cost_that_cannot_be_true_is_none(nonsense: Any) -> None:
    assert read_cost({"usage": {"cost": nonsense}}, TokenUsage(), None) is None


def test_a_call_without_an_answer_may_have_used_its_prompt_and_a_whole_reply() -> None:
    said = [Message(role="system", content="s" * 100), Message(role="user", content="u" * 301)]
    usage = TokenUsage(prompt=101, completion=500, estimated=True, assumed=601)
    limited = settings("http://127.0.0.1/v1", reply_tokens=500)
    assert estimate_usage(said, limited) == (usage, None)
    priced = replace(limited, prices=Prices(prompt=10.0, completion=20.0, cached=1.0))
    assert estimate_usage(said, priced) == (usage, pytest.approx(11_010e-6))


def test_one_estimate_makes_the_sum_one() -> None:
    parts = [TokenUsage(prompt=1, completion=2), TokenUsage(prompt=3, cached=1, estimated=True, assumed=3)]
    assert total(parts) == TokenUsage(prompt=4, cached=1, completion=2, estimated=True, assumed=3)


@pytest.mark.parametrize(
    ("usage", "letters", "cut"),
    [
        ({"prompt_tokens": 2048}, 40_000, 2048),
        ({"input_tokens": "2048"}, 40_000, 2048),
        ({"prompt_tokens": 8000}, 40_000, 0),
        ({"prompt_tokens": 120}, 40_000, 0),
        ({"prompt_tokens": 2048, "prompt_tokens_details": {"cached_tokens": 7000}}, 40_000, 0),
        ({"prompt_tokens": 2048, "cache_read_input_tokens": 7000}, 40_000, 0),
        ({"prompt_tokens": 2048}, 9_000, 0),
        ({}, 40_000, 0),
        (None, 40_000, 0),
    ],
)
def test_a_prompt_that_was_cut_is_told_by_its_figure_alone(usage: Any, letters: int, cut: int) -> None:
    assert cut_prompt_tokens({"usage": usage}, "x" * letters) == cut
