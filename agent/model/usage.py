"""What a reply used and cost: as the provider says where that can be true, counted from the texts otherwise."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from agent.entries import Usage
from harness.case.case import Prices

CHARACTERS_PER_TOKEN = 4
SLACK = 20_000
"""Tokens that a provider may add of its own: hidden instructions, templates."""


def read_usage(document: dict[str, Any], prompt: str, reply: str, reply_tokens: int) -> Usage:
    """Tokens of one answer; a figure that is missing or cannot be true is replaced by an estimate, and marked.

    A token is at least one byte, so the texts bound what can be true.
    """
    told = _dict(document.get("usage"))
    prompted = _count(told.get("prompt_tokens"), len(prompt.encode(errors="replace")) + SLACK)
    completed = _count(
        told.get("completion_tokens"), 10 * reply_tokens + len(reply.encode(errors="replace")) + SLACK
    )
    cached = _dict(told.get("prompt_tokens_details")).get(
        "cached_tokens", told.get("prompt_cache_hit_tokens")
    )
    reasoned = _dict(told.get("completion_tokens_details")).get("reasoning_tokens")
    in_all = estimate_tokens(prompt) if prompted is None else prompted
    out_all = estimate_tokens(reply) if completed is None else completed
    return Usage(
        prompt=in_all,
        cached=_count(cached, in_all) or 0,
        completion=out_all,
        reasoning=_count(reasoned, out_all) or 0,
        estimated=prompted is None or completed is None,
    )


def read_cost(document: dict[str, Any], usage: Usage, prices: Prices | None) -> float | None:
    """US dollars of one answer: what the provider says, else by the prices; None where neither is known."""
    told = _dict(document.get("usage")).get("cost")
    if isinstance(told, int | float) and not isinstance(told, bool) and math.isfinite(told) and told >= 0:
        return float(told)
    if prices is None:
        return None
    cached = prices.prompt if prices.cached is None else prices.cached
    fresh = usage.prompt - usage.cached
    return (fresh * prices.prompt + usage.cached * cached + usage.completion * prices.completion) / 1e6


def estimate_tokens(text: str) -> int:
    """About how many tokens a text is; at least 1 for any text at all."""
    return -(-len(text) // CHARACTERS_PER_TOKEN)


def total(usages: Iterable[Usage]) -> Usage:
    """The sum; estimated as soon as one part is."""
    parts = list(usages)
    return Usage(
        prompt=sum(part.prompt for part in parts),
        cached=sum(part.cached for part in parts),
        completion=sum(part.completion for part in parts),
        reasoning=sum(part.reasoning for part in parts),
        estimated=any(part.estimated for part in parts),
    )


def _count(value: Any, most: int) -> int | None:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= most else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
