"""Who has the ideas of a climb: the sweep, a language model, or both in the rhythm."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from agent.background import Background
from agent.proposal import Proposer
from agent.proposers.earlier import recall
from agent.proposers.sweep import Sweep
from harness.case.case import Llm as LlmRules
from harness.case.case import Settings as CaseSettings
from harness.errors import UsageError

if TYPE_CHECKING:
    from agent.config import Config
    from agent.model.settings import ModelSettings
    from agent.proposers.llm import Llm


class Kind(StrEnum):
    """What --proposer takes."""

    AUTO = "auto"
    SWEEP = "sweep"
    LLM = "llm"
    MIXED = "mixed"


@dataclass(frozen=True)
class Wishes:
    """What the command line says about the model; None leaves it to case.yaml, then to the machine's configuration."""

    kind: Kind = Kind.AUTO
    model: str | None = None
    base_url: str | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    cost: float | None = None
    """The budget, in US dollars; None leaves it to case.yaml."""
    tokens: int | None = None
    """The budget; None leaves it to case.yaml."""

    @property
    def spends(self) -> str:
        """The budget of model calls that was asked for, as it was typed; empty without one."""
        if self.cost is not None:
            return f"--budget-cost {self.cost:g}"
        return f"--budget-tokens {self.tokens}" if self.tokens is not None else ""


def choose(
    wishes: Wishes, config: Config, case: CaseSettings, at_end: Callable[[Callable[[], None]], object]
) -> Callable[[Background], Proposer]:
    """How to make the proposer of a climb; `at_end` is given what must be closed when the command ends.

    Mixed where a model that can be asked is configured and nothing else is wished for, else the sweep. Raises
    UsageError where what a model needs is not configured: before anything is measured.
    """
    kind = _kind(wishes, config, case.llm)
    asked = None if kind == Kind.SWEEP else model_settings(wishes, config, case)
    if asked is None and wishes.spends:
        raise UsageError(
            f"{wishes.spends}: no model is asked, so it limits nothing; configure one (see .env.example) or drop it"
        )

    def make(background: Background) -> Proposer:
        sweep = Sweep(background.case.knobs, background.seed, background.ahead, recall(background))
        if asked is None:
            return sweep
        llm = _llm(asked, background, at_end)
        return llm if kind == Kind.LLM else _mixed(background, sweep, llm)

    return make


def describe(wishes: Wishes, config: Config, rules: LlmRules) -> str:
    """`ideas come from the sweep and from gpt-5 at api.openai.com`, or what a model lacks to be asked, too."""
    kind = _kind(wishes, config, rules)
    if kind == Kind.SWEEP:
        why = "as asked for" if wishes.kind == Kind.SWEEP else f"for {_lacking(wishes, config, rules)}"
        return f"ideas come from the sweep alone, {why}"
    model, server = _asked(wishes, config, rules)
    sweep = "the sweep and from " if kind == Kind.MIXED else ""
    return f"ideas come from {sweep}{model or 'a model'} at {urlsplit(server).hostname}"


def _kind(wishes: Wishes, config: Config, rules: LlmRules) -> Kind:
    if wishes.kind != Kind.AUTO:
        return wishes.kind
    return Kind.SWEEP if _lacking(wishes, config, rules) else Kind.MIXED


def _asked(wishes: Wishes, config: Config, rules: LlmRules) -> tuple[str, str]:
    """The model's name, empty where none is given, and its server."""
    return wishes.model or rules.model or config.model or "", wishes.base_url or config.base_url


def _lacking(wishes: Wishes, config: Config, rules: LlmRules) -> str:
    """What is missing before a model can be asked; empty where nothing is. Only OpenAI itself surely needs a key."""
    from agent.config import OPENAI

    model, server = _asked(wishes, config, rules)
    if not model:
        return "no model is named (--model, llm.model in case.yaml, or HILLCLIMB_MODEL in .env)"
    if config.api_key is None and server == OPENAI:
        return "there is no key (OPENAI_API_KEY in .env), nor a server that needs none (OPENAI_BASE_URL)"
    return ""


def _mixed(background: Background, sweep: Sweep, llm: Llm) -> Proposer:
    from agent.proposers.ablation import Ablation
    from agent.proposers.mixed import Mixed

    return Mixed(background, sweep, llm, Ablation(background))


def _llm(
    settings: ModelSettings, background: Background, at_end: Callable[[Callable[[], None]], object]
) -> Llm:
    from agent.model.endpoint import Endpoint
    from agent.proposers.llm import Llm

    endpoint = Endpoint(settings, random.Random(background.seed))
    at_end(endpoint.close)
    return Llm(background, endpoint, settings)


def model_settings(wishes: Wishes, config: Config, case: CaseSettings) -> ModelSettings:
    """The endpoint that is asked. Raises UsageError where no model, no key or no price is known."""
    from pydantic import SecretStr

    from agent.model.settings import ModelSettings

    rules, cost = case.llm, case.budgets.cost if wishes.cost is None else wishes.cost
    model, base_url = _asked(wishes, config, rules)
    lacking = _lacking(wishes, config, rules)
    if lacking:
        raise UsageError(f"no model can be asked: {lacking}")
    prices = rules.prices if rules.model in ("", model) else None
    if cost is not None and prices is None:
        found = f" (those in it are the prices of {rules.model})" if rules.prices else ""
        raise UsageError(
            f"a budget of {cost:g} dollars needs the prices of {model}: give llm.model and llm.prices in case.yaml"
            f"{found}, or put a budget of tokens in its place (--budget-tokens)"
        )
    return ModelSettings(
        model=model,
        base_url=base_url,
        api_key=config.api_key or SecretStr(""),
        temperature=rules.temperature if wishes.temperature is None else wishes.temperature,
        reasoning_effort=wishes.reasoning_effort or rules.reasoning_effort,
        deadline_seconds=rules.deadline_seconds,
        reply_tokens=rules.reply_tokens,
        prices=prices,
    )
