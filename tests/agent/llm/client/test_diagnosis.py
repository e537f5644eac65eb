"""What an answer with an error status stands for."""

from __future__ import annotations

from typing import Any

import pytest

from hillclimb.agent.llm.client.diagnosis import diagnose
from hillclimb.agent.llm.client.faults import Fault
from tests.agent.llm.client.calling import reply_of


@pytest.mark.parametrize(
    ("status", "body", "fault"),
    [
        (429, {"error": {"message": "slow", "type": "insufficient_quota"}}, Fault.QUOTA),
        (429, {"error": "You exceeded your current quota, please check your plan"}, Fault.QUOTA),
        (429, {"message": "Rate limit reached for gpt in organization"}, Fault.RATE_LIMITED),
        (403, {"error": {"message": "Your billing hard limit has been reached"}}, Fault.QUOTA),
        (
            429,
            {
                "error": {
                    "message": "Limit 3 / min. Add a payment method at https://x.example/account/billing"
                }
            },
            Fault.RATE_LIMITED,
        ),
        (403, {"detail": "no access to model"}, Fault.FORBIDDEN),
        (
            400,
            {"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}},
            Fault.CONTEXT_TOO_LONG,
        ),
        (500, {"error": {"type": "exceed_context_size_error", "message": "x"}}, Fault.CONTEXT_TOO_LONG),
        (
            400,
            {"message": "max_tokens is too large: 9000. This model's maximum context length is 8192 tokens"},
            Fault.BAD_REQUEST,
        ),
        (418, b"", Fault.BAD_REQUEST),
        (408, b"timeout", Fault.GATEWAY),
        (499, b"closed", Fault.GATEWAY),
        (500, {"error": {"message": "Request timed out after 600 seconds"}}, Fault.GATEWAY),
        (429, {"message": "Too many tokens in request, please shorten your prompt"}, Fault.CONTEXT_TOO_LONG),
        (429, {"message": "Too many tokens per minute: limit 30000, used 29000"}, Fault.RATE_LIMITED),
        (429, {"message": "the prompt is too long for this tier"}, Fault.CONTEXT_TOO_LONG),
        (403, {"message": "Request body exceeds limit"}, Fault.CONTEXT_TOO_LONG),
        (404, {"message": "input is too long"}, Fault.CONTEXT_TOO_LONG),
        (422, {"detail": [{"msg": "field required"}]}, Fault.BAD_REQUEST),
        (503, b"<html><head><title>Busy</title></head>", Fault.SERVER_ERROR),
    ],
)
def test_diagnosis(status: int, body: Any, fault: Fault) -> None:
    assert diagnose(reply_of(body, status)).fault is fault


def test_a_quota_that_comes_back_by_itself_is_a_rate() -> None:
    body = {
        "error": {"message": "You exceeded your current quota, please check your plan and billing details"}
    }
    assert diagnose(reply_of(body, 429, retry_after="20")).fault is Fault.RATE_LIMITED
