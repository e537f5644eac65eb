"""Who has the ideas of a climb: the sweep, a language model, or both in the rhythm."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

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

    Mixed where a key and a model are configured and nothing else is asked for, else the sweep. Raises UsageError where
    what a model needs is not configured: before anything is measured.
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


def _kind(wishes: Wishes, config: Config, rules: LlmRules) -> Kind:
    if wishes.kind != Kind.AUTO:
        return wishes.kind
    has_model = bool(wishes.model or rules.model or config.model)
    return Kind.MIXED if config.api_key is not None and has_model else Kind.SWEEP


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

    from agent.config import OPENAI
    from agent.model.settings import ModelSettings

    rules, cost = case.llm, case.budgets.cost if wishes.cost is None else wishes.cost
    model = wishes.model or rules.model or config.model
    base_url = wishes.base_url or config.base_url
    if not model:
        raise UsageError(
            "no model: name one with --model, llm.model in case.yaml, or HILLCLIMB_MODEL in .env"
        )
    if config.api_key is None and base_url == OPENAI:
        raise UsageError(
            "no key for the model: put OPENAI_API_KEY into .env or the environment, or name a server that needs "
            "none with OPENAI_BASE_URL"
        )
    if cost is not None and rules.prices is None:
        raise UsageError(
            f"a budget of {cost:g} dollars needs prices: give llm.prices in case.yaml, or --budget-tokens instead"
        )
    return ModelSettings(
        model=model,
        base_url=base_url,
        api_key=config.api_key or SecretStr(""),
        temperature=rules.temperature if wishes.temperature is None else wishes.temperature,
        reasoning_effort=wishes.reasoning_effort or rules.reasoning_effort,
        deadline_seconds=rules.deadline_seconds,
        reply_tokens=rules.reply_tokens,
        prices=rules.prices,
    )
