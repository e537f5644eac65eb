"""What a language model is told before it proposes: four messages, the unchanging first, cut to a token budget.

    system     the rules of the game and the reply format            never changes in a run
    case       program.md, what is timed, the contract               hardly ever
    files      the incumbent's files                                 with every win
    progress   profile, knobs, history, candidate set, the task      with every candidate

Providers cache a prompt by its prefix, so nothing that changes stands before something that does not.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from string import ascii_letters, digits, punctuation

from hillclimb.agent.llm.briefing.facts import CaseTexts, Facts, read_texts
from hillclimb.agent.llm.briefing.opening_messages import case, system
from hillclimb.agent.llm.briefing.progress_messages import files, other_files, progress
from hillclimb.agent.llm.briefing.prompts import render
from hillclimb.agent.llm.briefing.quoting import clean, clip_middle, fenced
from hillclimb.agent.llm.briefing.truncation import BriefingPart, Extent, shrink
from hillclimb.agent.llm.client.messages import Message
from hillclimb.harness.errors import UsageError

__all__ = ["Briefing", "CaseTexts", "Facts", "brief", "estimate_tokens", "read_texts", "repair"]

MAX_LISTED_LINES = 400
"""Lines of one kind that a briefing has, however large its budget."""
MAX_DETAILED_REJECTIONS = 3
MAX_ERROR_CHARS = 6_000
"""Characters of the error in a repair turn."""
MAX_REPLY_CHARS = 40_000
"""Characters of the reply in a repair turn."""
TOKENS_PER_MESSAGE = 8
"""What a message costs besides its content."""


@dataclass(frozen=True)
class Briefing:
    """Ready to be sent."""

    messages: tuple[Message, ...]
    cuts: tuple[str, ...]
    """What was left out, in the order in which the text says so."""
    tokens: int
    """By `estimate_tokens`."""


def brief(facts: Facts, budget_tokens: int) -> Briefing:
    """The briefing, cut to the budget in the order of hillclimb.agent.llm.briefing.truncation.STEPS.

    Raises UsageError where what is never cut does not fit.
    """
    rules = system(facts)
    made: dict[Extent, Briefing] = {}

    def make(extent: Extent) -> Briefing:
        if extent not in made:
            told = case(facts, extent), files(facts, extent), progress(facts, extent)
            made[extent] = _compose(rules, told)
        return made[extent]

    briefing = make(shrink(_whole(facts), lambda extent: make(extent).tokens <= budget_tokens))
    if briefing.tokens > budget_tokens:
        raise UsageError(_too_large(briefing, budget_tokens))
    return briefing


def repair(conversation: Sequence[Message], reply: str, error: str) -> tuple[Message, ...]:
    """The turn that gives a reply back to its author with the exact error."""
    said, _ = clip_middle(error, MAX_ERROR_CHARS)
    told, _ = clip_middle(reply, MAX_REPLY_CHARS)
    asked = Message(role="user", content=render("repair", error=fenced(said)))
    return (*conversation, Message(role="assistant", content=clean(told) or "(empty)"), asked)


def estimate_tokens(messages: Sequence[Message]) -> int:
    """About as many tokens as the messages have, rather too many than too few; no tokenizer is asked.

    3.2 letters a token, a digit one each, four fifths of one for any other ASCII character but a space and for every
    byte beyond ASCII. On 175 files of kernels, prose and figures, by the tokenizers of two model families, that is
    0.92 to 1.60 of the true count, in the median 1.26.
    """
    return sum(TOKENS_PER_MESSAGE + _count(message.content) for message in messages)


def _count(text: str) -> int:
    raw = text.encode(errors="replace")
    plain = len(raw) - len(raw.translate(None, ascii_letters.encode()))
    numerals = len(raw) - len(raw.translate(None, digits.encode()))
    marks = len(raw) - len(raw.translate(None, (punctuation + "\t\n").encode()))
    beyond = len(raw.translate(None, bytes(range(128))))
    return int(plain / 3.2 + numerals + 0.8 * (marks + beyond)) + 1


def _whole(facts: Facts) -> Extent:
    """Nothing cut, but for what is far too old."""
    past = facts.past
    others = len(other_files(facts))
    return Extent(
        rejected=min(MAX_LISTED_LINES, len(past.rejected)),
        detailed=MAX_DETAILED_REJECTIONS,
        notes=min(MAX_LISTED_LINES, len(past.notes)),
        ideas=min(MAX_LISTED_LINES, len(past.ideas)),
        troubled=min(3, len(past.troubled)),
        observations=1,
        contract=2,
        buckets=len(facts.profile.profile.buckets) if facts.profile else 0,
        lanes=len(facts.lane_lines),
        wins=min(MAX_LISTED_LINES, len(past.wins)),
        ablations=min(MAX_LISTED_LINES, len(past.ablations)),
        whole=others,
        people=1,
        named=others,
        program=1,
    )


def _compose(rules: str, told: tuple[BriefingPart, ...]) -> Briefing:
    messages = (
        Message(role="system", content=clean(rules)),
        *(Message(role="user", content=clean(part.text)) for part in told),
    )
    return Briefing(messages, tuple(cut for part in told for cut in part.cuts), estimate_tokens(messages))


def _too_large(briefing: Briefing, budget: int) -> str:
    names = ("rules", "case", "files", "history and task")
    sizes = [estimate_tokens([message]) for message in briefing.messages]
    told = ", ".join(f"{name} {size}" for name, size in zip(names, sizes, strict=True))
    return (
        f"the briefing takes {briefing.tokens} tokens at its shortest ({told}) and may take {budget}; raise "
        f"llm.briefing_tokens in case.yaml above {briefing.tokens}, or shorten the entry file, knobs.yaml or the "
        "beginning of program.md, which are never cut"
    )
