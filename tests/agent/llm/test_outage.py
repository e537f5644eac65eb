"""A model server that is not there, or refuses: said at once, with its address, and nothing is counted as used."""

from __future__ import annotations

import random
import socket
import time
from pathlib import Path

import pytest
from pydantic import SecretStr

from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.llm.client.endpoint import Endpoint
from hillclimb.agent.llm.client.messages import Message
from hillclimb.agent.llm.client.settings import ModelSettings
from hillclimb.agent.llm.llm import LlmProposer
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.proposer import NotReady, ProposerContext
from hillclimb.agent.record.ledger import Ledger
from hillclimb.harness.errors import Plateau
from tests.agent.llm.test_llm import KEY, night
from tests.fakes.clock import SkippingClock
from tests.fakes.night import Night, make_repository
from tests.fakes.openai_server import openai_server
from tests.fakes.openai_turns import error


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository")


@pytest.fixture
def nowhere() -> str:
    """An address on this machine where nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{taken.getsockname()[1]}/v1"


def test_a_server_that_is_not_there_is_said_at_once_and_costs_nothing(root: Path, nowhere: str) -> None:
    settings = ModelSettings(model="m", base_url=nowhere, api_key=SecretStr(KEY), deadline_seconds=600)
    opened: list[Endpoint] = []

    class Impatient(LlmProposer):
        """Ends as soon as the outage was told."""

        def propose(self, ledger: Ledger, family: str = "", reason: str = "") -> Proposal | NotReady | None:
            found = super().propose(ledger, family, reason)
            if self._is_outage_told:
                raise Plateau("enough")
            return found

    def make(background: ProposerContext) -> LlmProposer:
        opened.append(Endpoint(settings, random.Random(0)))
        return Impatient(background, opened[-1], settings)

    climb = Night(root, make_proposer=make, clock=SkippingClock(), budgets=BudgetOverrides(seconds=100))
    assert climb.climb().reason == "enough"
    [trouble] = climb.troubles
    assert trouble.startswith(f"the model server cannot be reached: {nowhere}: ")
    assert KEY not in trouble
    assert climb.ledger.calls and {call.fault for call in climb.ledger.calls} == {"given_up"}
    assert (climb.ledger.tokens, climb.ledger.cost) == (0, 0)


def test_an_outage_is_over_once_an_answer_comes(nowhere: str) -> None:
    settings = ModelSettings(model="m", base_url=nowhere, api_key=SecretStr(KEY))
    with Endpoint(settings, random.Random(0)) as endpoint:
        endpoint.submit([Message(role="user", content="hello")])
        deadline = time.monotonic() + 20
        while not endpoint.outage and time.monotonic() < deadline:
            time.sleep(0.01)
        assert nowhere in endpoint.outage
        endpoint._note_attempt(None)
        assert endpoint.outage == ""


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_server_that_refuses_is_named_and_costs_nothing(root: Path, status: int) -> None:
    with openai_server(lambda asked: error(status, f"no, {KEY}")) as server, night(root, server) as climb:
        climb.climb()
        [trouble] = climb.troubles
        assert trouble.startswith(f"no further model calls: {server.base_url}: ")
        assert KEY not in trouble
    assert climb.ledger.tokens == 0
