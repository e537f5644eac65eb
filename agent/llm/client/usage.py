"""What a reply used and cost: as the provider says where that can be true, counted from the texts otherwise.

Of several figures the largest counts: thoughts may be told within the completion, beside it, or in the total alone.
The texts are estimated at four bytes a token, and what the provider says of them is believed from a quarter of the
estimate (no tokenizer packs a text tighter) to four times of it (a token is at least one byte), plus SLACK_TOKENS. A
reply may have the reply limit of hidden thoughts besides, or MAX_THOUGHT_TOKENS where the total agrees with its parts:
not every server keeps to the limit. An answer that could not be read counts as a whole reply. So a server can neither
switch a budget off nor use it up in one answer.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from hillclimb.agent.llm.client.messages import Message
from hillclimb.agent.llm.client.settings import ModelSettings
from hillclimb.agent.record.entries import TokenUsage
from hillclimb.harness.case.settings import Prices

_PROMPT = ("prompt_tokens", "input_tokens", "promptTokenCount")
_COMPLETION = ("completion_tokens", "output_tokens", "candidatesTokenCount")
_REASONING = ("reasoning_tokens", "thinking_tokens", "thoughts_token_count", "thoughtsTokenCount")
_TOTAL = ("total_tokens", "totalTokenCount")

_CACHED = (
    "cached_tokens",
    "prompt_cache_hit_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
_BESIDE_INPUT = ("cache_read_input_tokens", "cache_creation_input_tokens")
_HITS = ("cached_tokens", "prompt_cache_hit_tokens", "cache_read_input_tokens")

BYTES_PER_TOKEN = 4
MIN_CONTEXT_TOKENS = 1000
"""No server is run with a context below."""
MAX_ESTIMATE_FACTOR = 4
"""How many times too high or too low an estimate may be."""
SLACK_TOKENS = 2_000
"""Tokens that a provider may add of its own: hidden instructions, templates."""
MAX_THOUGHT_TOKENS = 200_000
"""No model is offered that says more in one answer."""
MAX_COST_DOLLARS = 100.0
"""A provider's own figure for the cost of one answer is believed up to here."""
_COSTS = {"cost": 1.0, "total_cost": 1.0, "estimated_cost": 1.0, "cost_in_usd_ticks": 1e-10}
"""Names of that figure, and its unit in dollars."""


def read_usage(document: dict[str, Any], prompt: str, reply: str, reply_tokens: int) -> TokenUsage:
    """Tokens of one answer: of several figures the largest. What is missing or cannot be true is marked an estimate."""
    told = _told_figures(document)
    in_all, is_prompt_told = _believed(_prompt_tokens(told), prompt, SLACK_TOKENS)
    reasoned = _reasoning_tokens(told)
    figures = _completion_figures(told, in_all, reasoned)
    hidden = max(reply_tokens, MAX_THOUGHT_TOKENS) if _is_consistent(told, reasoned) else reply_tokens
    out_all, is_reply_told = _believed(max(figures, default=None), reply, SLACK_TOKENS + hidden)
    return TokenUsage(
        prompt=in_all,
        cached=_cached_tokens(told, in_all),
        completion=out_all,
        reasoning=min(reasoned, out_all),
        estimated=not (is_prompt_told and is_reply_told),
        assumed=(0 if is_prompt_told else in_all) + (0 if is_reply_told else out_all),
    )


def tells_usage(document: dict[str, Any]) -> bool:
    """Whether an answer says that tokens were used, of which an error may speak too."""
    told = _told_figures(document)
    return any(_largest(told, names) for names in (_PROMPT, _COMPLETION, _TOTAL, _REASONING))


def _told_figures(document: dict[str, Any]) -> dict[str, Any]:
    """What an answer says of its tokens, wherever it stands: `usage`, Groq's in a stream, Gemini's own."""
    groq = _dict(document.get("x_groq")).get("usage")
    return {**_dict(document.get("usageMetadata")), **_dict(groq), **_dict(document.get("usage"))}


def _prompt_tokens(told: dict[str, Any]) -> int | None:
    """Anthropic's `input_tokens` leave out what was read from a cache or written to one."""
    fresh = _count(told.get("input_tokens"))
    beside = sum(_count(told.get(name)) or 0 for name in _BESIDE_INPUT)
    figures = [_largest(told, _PROMPT), None if fresh is None else fresh + beside]
    return max((figure for figure in figures if figure is not None), default=None)


def _cached_tokens(told: dict[str, Any], most: int) -> int:
    places = (told, *(_dict(told.get(f"{name}_details")) for name in _PROMPT))
    return max(
        (found for place in places for name in _HITS if (found := _count(place.get(name), most))), default=0
    )


def _is_consistent(told: dict[str, Any], reasoned: int) -> bool:
    """Whether the total is what the parts come to."""
    in_total, completed = _largest(told, _TOTAL), _largest(told, _COMPLETION)
    if in_total is None or completed is None:
        return False
    return in_total - (_prompt_tokens(told) or 0) in (completed, completed + reasoned)


def _completion_figures(told: dict[str, Any], prompted: int, reasoned: int) -> Iterator[int]:
    """Everything that an answer's figures may say of the tokens produced.

    Most servers count thoughts within the completion. More thoughts than completion, or a total above the sum, say that
    they were counted beside it.
    """
    completed = _largest(told, _COMPLETION)
    if completed is not None:
        yield completed
    if reasoned > (completed or 0):
        yield reasoned + (completed or 0)
    if (in_total := _largest(told, _TOTAL)) is not None:
        yield max(0, in_total - prompted)


def _reasoning_tokens(told: dict[str, Any]) -> int:
    """The largest figure of thoughts, wherever it stands; 0 where there is none."""
    places = [told, *(_dict(told.get(f"{name}_details")) for name in _COMPLETION)]
    return max((found for place in places if (found := _largest(place, _REASONING)) is not None), default=0)


def cut_prompt_tokens(document: dict[str, Any], prompt: str) -> int:
    """The tokens that a server read of a prompt that it cut without a word; 0 where nothing says that it did.

    Servers with a short context drop the front of what does not fit, and only their figure tells. Below half of the
    estimate no tokenizer explains it; a tiny figure is bad bookkeeping, and one beside a cache may lack a part.
    """
    told = _told_figures(document)
    read = _largest(told, _PROMPT)
    if read is None or any(
        _largest(place, _CACHED) for place in (told, _dict(told.get("prompt_tokens_details")))
    ):
        return 0
    return read if MIN_CONTEXT_TOKENS <= read < estimate_text_tokens(prompt) / 2 else 0


def read_cost(document: dict[str, Any], usage: TokenUsage, prices: Prices | None) -> float | None:
    """US dollars of one answer: by the prices or as the provider says, whichever is more; None if nothing is."""
    known = [] if prices is None else [_priced(usage, prices)]
    places = (document, _told_figures(document))
    told = (_dollars(place.get(name)) * unit for place in places for name, unit in _COSTS.items())
    return max([*known, *(cost for cost in told if 0 <= cost <= MAX_COST_DOLLARS)], default=None)


def _dollars(value: Any) -> float:
    """A number, which some servers write as text; NaN for anything else."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{0,9}(\.[0-9]{1,18})?", value) and value:
        return float(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return float(min(value, 10**15))
    return value if isinstance(value, float) else math.nan


def estimate_usage(messages: Sequence[Message], settings: ModelSettings) -> tuple[TokenUsage, float | None]:
    """The most that a call may use whose answer was not read: its prompt, and a reply up to the limit; and its cost."""
    prompt = estimate_text_tokens("".join(message.content for message in messages))
    reply = settings.reply_tokens
    usage = TokenUsage(prompt=prompt, completion=reply, estimated=True, assumed=prompt + reply)
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
        assumed=sum(part.assumed for part in parts),
    )


def _priced(usage: TokenUsage, prices: Prices) -> float:
    cached = prices.prompt if prices.cached is None else prices.cached
    fresh = usage.prompt - usage.cached
    return (fresh * prices.prompt + usage.cached * cached + usage.completion * prices.completion) / 1e6


def _believed(told: int | None, text: str, hidden: int) -> tuple[int, bool]:
    """The tokens of a text and whether that is the figure told, given how many may be hidden behind the text.

    Too small a figure is replaced by an estimate, too large a one by the most that can be true.
    """
    estimate = estimate_text_tokens(text)
    if told is None or MAX_ESTIMATE_FACTOR * told < estimate:
        return estimate, False
    most = MAX_ESTIMATE_FACTOR * estimate + hidden
    return (told, True) if told <= most else (most, False)


def _largest(told: dict[str, Any], names: Sequence[str]) -> int | None:
    """The largest of the figures that are there."""
    return max((found for name in names if (found := _count(told.get(name))) is not None), default=None)


def _count(value: Any, most: float = math.inf) -> int | None:
    """A number of tokens, which some servers write as text; None for anything else."""
    if isinstance(value, str) and re.fullmatch(r"[0-9]{1,15}", value):
        value = int(value)
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        return None
    return value if 0 <= value <= most else None


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
