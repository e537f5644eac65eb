"""Which parameter a server complains about."""

from __future__ import annotations

import pytest

from hillclimb.agent.llm.client.supported_parameters import refused_parameter
from tests.agent.llm.client.calling import reply_of

SENT = ("temperature", "reasoning_effort", "max_completion_tokens")


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("Unsupported value: 'temperature' does not support 0.2 with this model", "temperature"),
        ('"qwen2:7b" does not support thinking', "reasoning_effort"),
        ("max_tokens is too large: 32000. This model supports at most 16384", "max_completion_tokens"),
        ("Unknown parameter: max_completion_tokens; temperature is fine", "max_completion_tokens"),
        ("the temperature in your prompt is nice", None),
        ("Unsupported parameter: top_p", None),
    ],
)
def test_the_refused_parameter_is_found_in_the_words(said: str, name: str | None) -> None:
    assert refused_parameter(reply_of({"error": {"message": said}}, 400), SENT) == name


def test_a_complaint_about_something_else_is_left_alone() -> None:
    body = {"error": {"message": "Invalid 'messages': temperature unsupported", "param": "messages"}}
    assert refused_parameter(reply_of(body, 400), SENT) is None
    assert refused_parameter(reply_of({"error": {"message": "temperature unsupported"}}, 500), SENT) is None
