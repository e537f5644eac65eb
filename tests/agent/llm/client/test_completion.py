"""What is read out of an answer, whatever is in it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.llm.client.completion import Completion, read_completion, strip_thinking
from hillclimb.agent.llm.client.faults import AttemptFailure
from hillclimb.agent.llm.client.scrubber import Scrubber
from tests.agent.llm.client.calling import reply_of, settings
from tests.fakes.openai_server import answer

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["choices", "message", "content", "usage", "error", "code", "finish_reason", "text"]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=25,
)
HERE = settings("http://127.0.0.1/v1")


@given(JSON, st.integers(200, 599))
def test_whatever_the_document_it_is_a_completion_or_a_named_fault(document: Any, status: int) -> None:
    outcome = read_completion(reply_of(document, status), "prompt", HERE)
    assert isinstance(outcome, Completion | AttemptFailure)
    Scrubber(HERE).scrub_line(outcome.detail if isinstance(outcome, AttemptFailure) else outcome.text)


@given(JSON)
def test_whatever_is_in_a_choice(inner: Any) -> None:
    for document in ({"choices": [{"message": inner}]}, {"choices": [{"message": {"content": inner}}]}):
        outcome = read_completion(reply_of(document), "prompt", HERE)
        assert isinstance(outcome, Completion | AttemptFailure)


@given(st.binary(max_size=200), st.integers(200, 599))
def test_whatever_the_bytes(body: bytes, status: int) -> None:
    assert isinstance(read_completion(reply_of(body, status), "prompt", HERE), AttemptFailure)


def _failed(document: Any, status: int = 200, **headers: str) -> AttemptFailure:
    outcome = read_completion(reply_of(document, status, **headers), "p" * 400, HERE)
    assert isinstance(outcome, AttemptFailure)
    return outcome


@pytest.mark.parametrize("status", [200, 400, 500, 504])
@pytest.mark.parametrize("told", [{"prompt_tokens": 100, "completion_tokens": 700}, {"total_tokens": 800}])
def test_an_error_that_tells_of_tokens_is_paid_for(status: int, told: dict[str, int]) -> None:
    usage = _failed({"error": {"message": "it failed", "code": 504}, "usage": told}, status).usage
    assert usage is not None
    assert (usage.prompt, usage.completion) == (100, 700)


@pytest.mark.parametrize("told", [None, {}, {"prompt_tokens": 0, "completion_tokens": 0}, "nothing", [7]])
def test_an_error_that_tells_of_none_is_not(told: Any) -> None:
    assert _failed({"error": {"message": "overloaded"}, "usage": told}, 500).usage is None


def test_what_came_before_an_error_ended_a_stream_is_paid_for() -> None:
    said = json.dumps({"choices": [{"delta": {"content": "x" * 4000}}]})
    error = json.dumps({"error": {"message": "upstream failed", "code": 500}})
    usage = _failed(f"data: {said}\n\ndata: {error}\n\n".encode()).usage
    assert usage is not None
    assert (usage.prompt, usage.completion, usage.estimated) == (100, 1000, True)
    assert _failed(f"data: {error}\n\n".encode()).usage is None


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<think>a\nb</think>\n\nIDEA: x", "IDEA: x"),
        ("\n<thinking>a</thinking><think></think>IDEA", "IDEA"),
        ("<think>never closed", ""),
        ('<THINK time="3">a</THINK>IDEA', "IDEA"),
        ("IDEA: x\n```\n</think>\n```\n", "IDEA: x\n```\n</think>\n```\n"),
        ("IDEA: mention </think> in passing", "IDEA: mention </think> in passing"),
        ("IDEA: x <think>y</think>", "IDEA: x <think>y</think>"),
    ],
)
def test_thoughts_are_stripped(text: str, rest: str) -> None:
    assert strip_thinking(text) == rest


@pytest.mark.parametrize("blank", ["", " \n"])
def test_a_blank_refusal_is_none(blank: str) -> None:
    outcome = read_completion(reply_of(answer("IDEA: x", refusal=blank).body), "prompt", HERE)  # type: ignore[arg-type]
    assert isinstance(outcome, Completion) and outcome.text == "IDEA: x"


def test_content_in_parts_is_joined() -> None:
    parts = [{"type": "text", "text": "IDEA"}, {"type": "image"}, None, ": x", {"text": 3}]
    outcome = read_completion(reply_of(answer(parts).body), "prompt", HERE)  # type: ignore[arg-type]
    assert isinstance(outcome, Completion) and outcome.text == "IDEA: x"


def test_the_cost_is_the_providers_own_where_no_prices_apply() -> None:
    told = answer("IDEA: x", usage={"prompt_tokens": 120, "completion_tokens": 30, "cost": 0.5})
    outcome = read_completion(reply_of(told.body), "prompt", HERE)
    assert isinstance(outcome, Completion) and outcome.cost == 0.5
