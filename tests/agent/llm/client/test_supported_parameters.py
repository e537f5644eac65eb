"""Which parameter a server complains about, and what it is sent from then on."""

from __future__ import annotations

from typing import Any

import pytest

from hillclimb.agent.llm.client.supported_parameters import SupportedParameters, refused_parameter
from tests.agent.llm.client.calling import settings

SENT = ("temperature", "reasoning_effort", "max_completion_tokens")


@pytest.mark.parametrize(
    ("said", "named", "name"),
    [
        ("Unsupported value: 'temperature' does not support 0.2 with this model", "", "temperature"),
        ('"qwen2:7b" does not support thinking', "", "reasoning_effort"),
        ("max_tokens is too large: 32000. This model supports at most 16384", "", "max_completion_tokens"),
        ("Unknown parameter: max_completion_tokens; temperature is fine", "", "max_completion_tokens"),
        ("the temperature in your prompt is nice", "", None),
        ("Unsupported parameter: top_p", "", None),
        ("Invalid 'messages': temperature unsupported", "messages", None),
    ],
)
def test_the_refused_parameter_is_found_in_the_words(said: str, named: str, name: str | None) -> None:
    assert refused_parameter(said, named, SENT) == name


def learnt(*complaints: str, **changes: Any) -> dict[str, Any] | None:
    """What is sent after these complaints; None where the last one taught nothing."""
    form, is_new = SupportedParameters(settings("http://127.0.0.1:1/v1", **changes)), False
    for said in complaints:
        is_new = form.learn(said, "", form.parameters())
    return form.parameters() if is_new else None


class TestValues:
    @pytest.mark.parametrize(
        ("said", "sent", "temperature"),
        [
            ("temperature must be 0.6", 0.2, 0.6),
            ("invalid temperature: only 1 is allowed for this model", 0.2, 1.0),
            ("temperature must be 0.6 for this model.", None, 0.6),
            ("temperature: 1.5 is invalid, it must be between 0 and 1", 1.5, 1.0),
            ("`temperature` must be in the range [0.01, 1.0]", 0.0, 0.01),
            ("temperature must be less than or equal to 1", 1.7, 1.0),
            (
                "Unsupported value: 'temperature' does not support 0.2 with this model. Only the default (1) value",
                0.2,
                None,
            ),
            ("temperature is not supported", 0.2, None),
        ],
    )
    def test_a_temperature_that_is_named_is_sent(
        self, said: str, sent: float | None, temperature: float | None
    ) -> None:
        found = learnt(said, temperature=sent)
        assert found is not None and found.get("temperature") == temperature

    def test_a_value_that_does_not_help_either_is_left_out(self) -> None:
        found = learnt("temperature must be 0.6", "temperature must be 0.6", temperature=0.2)
        assert found is not None and "temperature" not in found

    @pytest.mark.parametrize(
        ("said", "tokens"),
        [
            ("max_tokens is too large: 32000. This model supports at most 8,192 completion tokens", 8192),
            ("max_completion_tokens must be less than or equal to 16384, got 32000", 16384),
            (
                "This model's maximum context length is 16384 tokens. However, you requested 33000 tokens "
                "(1000 in the messages, 32000 in the completion). Please reduce the length",
                15384,
            ),
            (
                "'max_tokens' or 'max_completion_tokens' is too large: 32000. This model's maximum context length is "
                "8192 tokens and your request has 3000 input tokens (32000 > 8192 - 3000).",
                5192,
            ),
            (
                "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 1000 `inputs` "
                "tokens and 32000 `max_new_tokens`",
                3096,
            ),
        ],
    )
    def test_a_reply_limit_that_is_named_is_asked_for(self, said: str, tokens: int) -> None:
        found = learnt(said)
        assert found is not None and found["max_completion_tokens"] == tokens

    @pytest.mark.parametrize(
        "said",
        [
            "This model's maximum context length is 8192 tokens. However, you requested 40000 tokens (8000 in the "
            "messages, 32000 in the completion). Please reduce the length of the messages.",
            "max_tokens is too large: 32000. This model's maximum context length is 4096 tokens and your request has "
            "5000 input tokens",
        ],
    )
    def test_where_the_prompt_leaves_no_room_the_limit_is_not_to_blame(self, said: str) -> None:
        assert learnt(said) is None

    def test_a_limit_under_the_wrong_name_is_sent_under_the_other(self) -> None:
        found = learnt("Unsupported parameter: 'max_completion_tokens'; use 'max_tokens' instead")
        assert found is not None and found == {"max_tokens": 32_000}


class TestStreams:
    @pytest.mark.parametrize(
        "said",
        [
            "This model only support stream mode, please enable the stream parameter to access the model.",
            "stream must be true for this model",
            "Streaming is required for operations that may take longer than 10 minutes.",
            "parameter.enable_thinking must be set to false for non-streaming calls",
        ],
    )
    def test_a_server_that_only_streams_is_asked_for_a_stream(self, said: str) -> None:
        found = learnt(said)
        assert (
            found is not None
            and found["stream"] is True
            and found["stream_options"] == {"include_usage": True}
        )

    def test_options_of_a_stream_that_are_refused_are_left_out(self) -> None:
        found = learnt("stream must be true", "Unrecognized request argument supplied: stream_options")
        assert found is not None and found["stream"] is True and "stream_options" not in found

    def test_a_server_that_takes_no_stream_is_asked_for_none(self) -> None:
        form = SupportedParameters(settings("http://127.0.0.1:1/v1"))
        assert form.stream() and not form.stream()
        assert form.learn("Unsupported parameter: stream", "", form.parameters())
        assert not {"stream", "stream_options"} & form.parameters().keys()
        assert not form.stream()


class TestExtra:
    def test_what_a_person_gives_is_sent_as_it_is(self) -> None:
        form = SupportedParameters(
            settings("http://127.0.0.1:1/v1", temperature=0.2, extra={"top_k": 20, "temperature": None})
        )
        assert form.parameters() == {"max_completion_tokens": 32_000, "top_k": 20}
        assert not form.learn("Unsupported parameter: temperature", "", form.parameters())
