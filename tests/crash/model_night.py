"""A climb of the toy with a model, as a process to kill: `python -m tests.crash.model_night ROOT URL CANDIDATES`."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from pydantic import SecretStr

from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.llm.client.endpoint import Endpoint
from hillclimb.agent.llm.client.settings import ModelSettings
from hillclimb.agent.llm.llm import LlmProposer
from hillclimb.agent.machine.clock import SystemClock
from hillclimb.agent.proposer import ProposerContext
from tests.fakes.night import Night


def main() -> None:
    root, url, candidates = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    settings = ModelSettings(
        model="fake-1", base_url=url, api_key=SecretStr("sk-crash"), deadline_seconds=5.0
    )
    with Endpoint(settings, random.Random(0)) as endpoint:

        def make(background: ProposerContext) -> LlmProposer:
            return LlmProposer(background, endpoint, settings)

        budgets = BudgetOverrides(candidates=candidates)
        Night(root, make_proposer=make, budgets=budgets, clock=SystemClock()).climb()


if __name__ == "__main__":
    main()
