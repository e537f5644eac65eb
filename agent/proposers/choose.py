"""Who has the ideas of a climb: the sweep, a language model, or both in the rhythm."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from hillclimb.agent.proposer import Proposer, ProposerContext
from hillclimb.agent.proposers.request_options import read_extra, read_headers
from hillclimb.agent.sweep.sweep import SweepProposer
from hillclimb.agent.sweep.warm_start import load_earlier_results
from hillclimb.harness.case.settings import Llm as LlmRules
from hillclimb.harness.case.settings import Settings as CaseSettings
from hillclimb.harness.errors import UsageError

if TYPE_CHECKING:
    from hillclimb.agent.llm.client.settings import ModelSettings
    from hillclimb.agent.llm.llm import LlmProposer
    from hillclimb.agent.machine.config import Config


class ProposerKind(StrEnum):
    """What --proposer takes."""

    AUTO = "auto"
    SWEEP = "sweep"
    LLM = "llm"
    MIXED = "mixed"


@dataclass(frozen=True)
class ProposerOptions:
    """What the command line says about the model; None leaves it to case.yaml, then to the machine's configuration."""

    kind: ProposerKind = ProposerKind.AUTO
    model: str | None = None
    base_url: str | None = None
    temperature: float | None = None
    reasoning_effort: str | None = None
    cost: float | None = None
    """The budget, in US dollars; None leaves it to case.yaml."""
    tokens: int | None = None
    """The budget; None leaves it to case.yaml."""
    extra: Sequence[str] = ()
    """Parameters of every request, `KEY=JSON` as typed."""
    headers: Sequence[str] = field(default=(), repr=False)
    """Headers of every request, `NAME=VALUE` as typed."""

    @property
    def budget_option(self) -> str:
        """The budget of model calls that was asked for, as it was typed; empty without one."""
        if self.cost is not None:
            return f"--budget-cost {self.cost:g}"
        return f"--budget-tokens {self.tokens}" if self.tokens is not None else ""


def choose_proposer(
    options: ProposerOptions,
    config: Config,
    case: CaseSettings,
    at_end: Callable[[Callable[[], None]], object],
) -> Callable[[ProposerContext], Proposer]:
    """How to make the proposer of a climb; `at_end` is given what must be closed when the command ends.

    Mixed where a model that can be asked is configured and nothing else is wished for, else the sweep. Raises
    UsageError where what a model needs is not configured: before anything is measured.
    """
    kind = _kind(options, config, case.llm)
    asked = None if kind == ProposerKind.SWEEP else model_settings(options, config, case)
    if asked is None and options.budget_option:
        raise UsageError(
            f"{options.budget_option}: no model is asked, so it limits nothing; configure one (see "
            f".env.example) or drop it"
        )

    def make(background: ProposerContext) -> Proposer:
        sweep = SweepProposer(
            background.case.knobs,
            background.seed,
            background.lookahead_count,
            load_earlier_results(background),
            background.case.first_to_sweep(),
        )
        if asked is None:
            return sweep
        llm = _llm(asked, background, at_end)
        return llm if kind == ProposerKind.LLM else _mixed(background, sweep, llm)

    return make


def describe(options: ProposerOptions, config: Config, rules: LlmRules) -> str:
    """`ideas come from the sweep and from gpt-5 at api.openai.com`, or what a model lacks to be asked, too."""
    kind = _kind(options, config, rules)
    if kind == ProposerKind.SWEEP:
        why = (
            "as asked for"
            if options.kind == ProposerKind.SWEEP
            else f"for {_missing_setting(options, config, rules)}"
        )
        return f"ideas come from the sweep alone, {why}"
    model, server = _model_and_server(options, config, rules)
    sweep = "the sweep and from " if kind == ProposerKind.MIXED else ""
    return f"ideas come from {sweep}{model or 'a model'} at {urlsplit(server).hostname}"


def _kind(options: ProposerOptions, config: Config, rules: LlmRules) -> ProposerKind:
    if options.kind != ProposerKind.AUTO:
        return options.kind
    return ProposerKind.SWEEP if _missing_setting(options, config, rules) else ProposerKind.MIXED


def _model_and_server(options: ProposerOptions, config: Config, rules: LlmRules) -> tuple[str, str]:
    """The model's name, empty where none is given, and its server."""
    return options.model or rules.model or config.model or "", options.base_url or config.base_url


def _missing_setting(options: ProposerOptions, config: Config, rules: LlmRules) -> str:
    """What is missing before a model can be asked; empty where nothing is. Only OpenAI itself surely needs a key."""
    from hillclimb.agent.machine.config import OPENAI

    model, server = _model_and_server(options, config, rules)
    if not model:
        return "no model is named (--model, llm.model in case.yaml, or HILLCLIMB_MODEL in .env)"
    if config.api_key is None and server == OPENAI:
        return "there is no key (OPENAI_API_KEY in .env), nor a server that needs none (OPENAI_BASE_URL)"
    return ""


def _mixed(background: ProposerContext, sweep: SweepProposer, llm: LlmProposer) -> Proposer:
    from hillclimb.agent.proposers.ablation import AblationProposer
    from hillclimb.agent.proposers.mixed import MixedProposer

    return MixedProposer(background, sweep, llm, AblationProposer(background))


def _llm(
    settings: ModelSettings, background: ProposerContext, at_end: Callable[[Callable[[], None]], object]
) -> LlmProposer:
    from hillclimb.agent.llm.client.endpoint import Endpoint
    from hillclimb.agent.llm.llm import LlmProposer

    endpoint = Endpoint(settings, random.Random(background.seed))
    at_end(endpoint.close)
    return LlmProposer(background, endpoint, settings)


def model_settings(options: ProposerOptions, config: Config, case: CaseSettings) -> ModelSettings:
    """The endpoint that is asked. Raises UsageError where no model, no key or no price is known."""
    from pydantic import SecretStr

    from hillclimb.agent.llm.client.settings import ModelSettings

    rules, cost = case.llm, case.budgets.cost if options.cost is None else options.cost
    model, base_url = _model_and_server(options, config, rules)
    lacking = _missing_setting(options, config, rules)
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
        temperature=rules.temperature if options.temperature is None else options.temperature,
        reasoning_effort=options.reasoning_effort or rules.reasoning_effort,
        deadline_seconds=rules.deadline_seconds,
        reply_tokens=rules.reply_tokens,
        prices=prices,
        extra=read_extra(options.extra),
        headers=read_headers(options.headers),
    )
