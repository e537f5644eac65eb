"""Who has the ideas: what is configured decides, and a climb says so."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from hillclimb.agent.machine.config import Config
from hillclimb.agent.proposers.choose import ProposerKind, ProposerOptions, describe, model_settings
from hillclimb.harness.case.settings import Llm, Prices, Settings
from hillclimb.harness.errors import UsageError

KEY = SecretStr("sk-canary")
LOCAL = "http://127.0.0.1:8000/v1"
CASE = Settings(schema=1, summary="a case")


@pytest.mark.parametrize(
    ("wishes", "config", "told"),
    [
        (ProposerOptions(), Config(api_key=KEY, model="m"), "from the sweep and from m at api.openai.com"),
        (ProposerOptions(), Config(base_url=LOCAL, model="m"), "from the sweep and from m at 127.0.0.1"),
        (ProposerOptions(model="m", base_url=LOCAL), Config(), "from the sweep and from m at 127.0.0.1"),
        (ProposerOptions(ProposerKind.LLM), Config(api_key=KEY, model="m"), "from m at api.openai.com"),
        (ProposerOptions(), Config(api_key=KEY), "from the sweep alone, for no model is named"),
        (ProposerOptions(), Config(model="m"), "from the sweep alone, for there is no key"),
        (
            ProposerOptions(ProposerKind.SWEEP),
            Config(api_key=KEY, model="m"),
            "from the sweep alone, as asked for",
        ),
    ],
    ids=lambda value: "" if isinstance(value, Config | ProposerOptions) else value,
)
def test_a_model_is_asked_where_it_can_be(wishes: ProposerOptions, config: Config, told: str) -> None:
    assert describe(wishes, config, CASE.llm).startswith(f"ideas come {told}")


def test_the_case_names_the_model_before_the_machine_does() -> None:
    config = Config(base_url=LOCAL, model="m")
    assert "from n at" in describe(ProposerOptions(), config, Llm(model="n"))


@pytest.mark.parametrize("config", [Config(), Config(model="m")], ids=["no model", "no key"])
def test_what_is_missing_is_named_where_a_model_is_asked_for(config: Config) -> None:
    with pytest.raises(UsageError, match=r"no model can be asked: .*\.env"):
        model_settings(ProposerOptions(ProposerKind.MIXED), config, CASE)


def test_neither_key_nor_password_of_an_address_is_told() -> None:
    config = Config(api_key=KEY, base_url="http://me:canary@127.0.0.1:8000/v1", model="m")
    assert "canary" not in describe(ProposerOptions(), config, CASE.llm)


PRICES = Prices(prompt=1.0, completion=2.0)
HERE = Config(base_url=LOCAL, model="m")


@pytest.mark.parametrize(
    ("named", "asked", "apply"), [("", None, True), ("", "n", True), ("n", "n", True), ("n", "big", False)]
)
def test_the_prices_of_the_case_are_those_of_the_model_it_names(
    named: str, asked: str | None, apply: bool
) -> None:
    case = CASE.model_copy(update={"llm": Llm(model=named, prices=PRICES)})
    found = model_settings(ProposerOptions(model=asked), HERE, case)
    assert found.prices == (PRICES if apply else None)


def test_a_budget_of_dollars_is_not_reckoned_at_the_prices_of_another_model() -> None:
    case = CASE.model_copy(update={"llm": Llm(model="n", prices=PRICES)})
    assert model_settings(ProposerOptions(cost=5.0), HERE, case).prices == PRICES
    with pytest.raises(UsageError, match=r"the prices of big: .*the prices of n\).*--budget-tokens"):
        model_settings(ProposerOptions(model="big", cost=5.0), HERE, case)


def test_a_budget_of_dollars_needs_prices() -> None:
    with pytest.raises(
        UsageError, match=r"5 dollars needs the prices of m: .*case\.yaml, or .*--budget-tokens"
    ):
        model_settings(ProposerOptions(cost=5.0), HERE, CASE)
