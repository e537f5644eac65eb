"""What the tests of the client share: a key to look for, settings, an open endpoint."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from pydantic import SecretStr

from hillclimb.agent.llm.client.backoff import BackoffPolicy
from hillclimb.agent.llm.client.endpoint import Endpoint
from hillclimb.agent.llm.client.faults import ModelFault
from hillclimb.agent.llm.client.http_response import HttpResponse
from hillclimb.agent.llm.client.messages import Message
from hillclimb.agent.llm.client.settings import ModelSettings

CANARY = "sk-canary/9f+8e7d6c5b4a3"
"""Looks different once it is quoted for a URL or for JSON."""
PATIENT = 10.0
"""Deadline of calls that end by themselves, however busy the machine is."""
DEADLINE = 0.6
"""Of calls that end by it."""
SLACK = 10.0
"""What a busy machine may add to a deadline."""
HELLO = (Message(role="system", content="You are terse."), Message(role="user", content="hello"))


def settings(base_url: str, **changes: Any) -> ModelSettings:
    values: dict[str, Any] = {"model": "fake-1", "api_key": SecretStr(CANARY), "deadline_seconds": PATIENT}
    return ModelSettings(base_url=base_url, **(values | changes))


def endpoint(base_url: str, **changes: Any) -> Endpoint:
    return Endpoint(settings(base_url, **changes), random.Random(7), BackoffPolicy(first_seconds=0.002))


def fault_of(model: Endpoint) -> ModelFault:
    """What a call of this endpoint ends with; it must be a fault."""
    with pytest.raises(ModelFault) as caught:
        model.ask(HELLO)
    return caught.value


def reply_of(body: Any, status: int = 200, **headers: str) -> HttpResponse:
    """A whole answer; further keywords become headers."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpResponse(status, {name.replace("_", "-"): value for name, value in headers.items()}, data)
