"""What a reply used and cost: as the provider says where that can be true, counted from the texts otherwise.

The texts are estimated at four bytes a token, and what the provider says of them is believed from a quarter of the
estimate (no tokenizer packs a text tighter) to four times of it (a token is at least one byte), plus SLACK; a reply
may have the reply limit of hidden thoughts besides. An answer that could not be read counts as a whole reply. So a
server can neither switch a budget off nor use it up in one answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from hillclimb.agent.llm.client.messages import Message
from hillclimb.agent.llm.client.settings import ModelSettings
from hillclimb.agent.record.entries import TokenUsage
from hillclimb.harness.case.settings import Prices

BYTES_PER_TOKEN = 4
MAX_ESTIMATE_FACTOR = 4
"""How many times too high or too low an estimate may be."""
SLACK_TOKENS = 2_000
"""Tokens that a provider may add of its own: hidden instructions, templates."""
MAX_COST_DOLLARS = 100.0
"""A provider's own figure for the cost of one answer is believed up to here."""


def read_usage(document: dict[str, Any], prompt: str, reply: str, reply_tokens: int) -> TokenUsage:
    """Tokens of one answer; a figure that is missing or cannot be true is replaced by an estimate, and marked."""
    told = _dict(document.get("usage"))
    prompted = _plausible_count(told.get("prompt_tokens"), prompt, SLACK_TOKENS)
    completed = _plausible_count(told.get("completion_tokens"), reply, SLACK_TOKENS + reply_tokens)
    cached = _dict(told.get("prompt_tokens_details")).get(
        "cached_tokens", told.get("prompt_cache_hit_tokens")
    )
    reasoned = _dict(told.get("completion_tokens_details")).get("reasoning_tokens")
    in_all = estimate_text_tokens(prompt) if prompted is None else prompted
    out_all = estimate_text_tokens(reply) if completed is None else completed
    return TokenUsage(
        prompt=in_all,
        cached=_count(cached, in_all) or 0,
        completion=out_all,
        reasoning=_count(reasoned, out_all) or 0,
        estimated=prompted is None or completed is None,
    )


def read_cost(document: dict[str, Any], usage: TokenUsage, prices: Prices | None) -> float | None:
    """US dollars of one answer: by the prices, else what the provider says; None where neither is known."""
    if prices is not None:
        return _priced(usage, prices)
    told = _dict(document.get("usage")).get("cost")
    if not isinstance(told, int | float) or isinstance(told, bool):
        return None
    return float(told) if 0 <= told <= MAX_COST_DOLLARS else None


def estimate_usage(messages: Sequence[Message], settings: ModelSettings) -> tuple[TokenUsage, float | None]:
    """The most that a call may use whose answer was not read: its prompt, and a reply up to the limit; and its cost."""
    prompt = estimate_text_tokens("".join(message.content for message in messages))
    usage = TokenUsage(prompt=prompt, completion=settings.reply_tokens, estimated=True)
    return usage, None if settings.prices is None else _priced(usage, settings.prices)


def estimate_text_tokens(text: str) -> int:
    """About how many tokens a text is; at least 1 for any text at all."""
    return -(-len(text.encode(errors="replace")) // BYTES_PER_TOKEN)


def total(usages: Iterable[TokenUsage]) -> TokenUsage:
    """The sum; estimated as soon as one part is."""
    parts = list(usages)
    return TokenUsage(
        prompt=sum(part.prompt for part in parts),
        cached=sum(part.cached for part in parts),
        completion=sum(part.completion for part in parts),
        reasoning=sum(part.reasoning for part in parts),
        estimated=any(part.estimated for part in parts),
    )


def _priced(usage: TokenUsage, prices: Prices) -> float:
    cached = prices.prompt if prices.cached is None else prices.cached
    fresh = usage.prompt - usage.cached
    return (fresh * prices.prompt + usage.cached * cached + usage.completion * prices.completion) / 1e6


def _plausible_count(value: Any, text: str, hidden: int) -> int | None:
    """The figure told for a text; None where the text, and that much which is not seen, rule it out."""
    estimate = estimate_text_tokens(text)
    found = _count(value, MAX_ESTIMATE_FACTOR * estimate + hidden)
    return found if found is not None and MAX_ESTIMATE_FACTOR * found >= estimate else None


def _count(value: Any, most: int) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= most else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
