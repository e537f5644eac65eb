"""A stream comes to the document that a server sends where it does not stream."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.llm.client.completion import Completion, read_completion
from hillclimb.agent.llm.client.faults import AttemptFailure, Fault
from hillclimb.agent.llm.client.http_response import CutStream, read_stream
from tests.agent.llm.client.calling import HELLO, endpoint, reply_of, settings
from tests.fakes.openai_server import Turn, answer, error, openai_server

HELLO_TEXT = "IDEA: smaller blocks\nKNOB: RS_BLOCK=2048\n"


def events(*chunks: object, done: bool = True, end: str = "\n\n", head: str = "data: ") -> bytes:
    told = [chunk if isinstance(chunk, str) else json.dumps(chunk) for chunk in chunks]
    return "".join(f"{head}{one}{end}" for one in [*told, *(["[DONE]"] if done else [])]).encode()


def delta(text: str, **more: object) -> dict[str, object]:
    return {"model": "m", "choices": [{"index": 0, "delta": {"content": text}, **more}]}


USAGE = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}


@given(st.lists(st.text(max_size=5), min_size=1, max_size=8), st.sampled_from(["\n\n", "\r\n\r\n"]))
def test_the_parts_make_the_text(parts: list[str], end: str) -> None:
    chunks = [delta(part) for part in parts]
    document = read_stream(events(*chunks, delta("", finish_reason="stop"), USAGE, end=end))
    assert document["choices"][0]["message"]["content"] == "".join(parts)
    assert (document["choices"][0]["finish_reason"], document["usage"]["total_tokens"]) == ("stop", 10)


def test_thoughts_usage_and_comments() -> None:
    thought = {
        "choices": [{"delta": {"role": "assistant", "reasoning_content": "hm"}, "finish_reason": None}]
    }
    body = b": keep-alive\n\nevent: message\n" + events(
        thought, thought, delta("x", finish_reason="stop"), head="data:"
    )
    document = read_stream(body)
    assert document["choices"][0]["message"] == {
        "role": "assistant",
        "reasoning_content": "hmhm",
        "content": "x",
    }
    assert reply_of(body).is_stream
    assert not reply_of({"choices": []}, content_type="text/event-stream").is_stream


def test_an_end_without_a_mark_is_an_end_where_the_reply_has_one() -> None:
    assert read_stream(events(delta("x", finish_reason="stop"), done=False))["choices"]
    with pytest.raises(CutStream):
        read_stream(events(delta("x"), done=False))


@pytest.mark.parametrize(
    ("body", "fault"),
    [
        (events(delta("x"), done=False), Fault.CUT_OFF),
        (events('{"choices": ['), Fault.BROKEN_JSON),
        (events({"error": {"message": "no money", "code": "insufficient_quota"}}), Fault.QUOTA),
        (events({"error": {"message": "it broke", "code": 502}}), Fault.GATEWAY),
        (events(USAGE), Fault.NO_CHOICES),
        (events(delta(""), delta("", finish_reason="stop")), Fault.NO_CONTENT),
        (events(delta("x", finish_reason="length")), Fault.TRUNCATED),
    ],
)
def test_what_is_no_reply_is_a_fault_by_name(body: bytes, fault: Fault) -> None:
    found = read_completion(reply_of(body, content_type="text/event-stream"), "hi", settings("http://h/v1"))
    assert isinstance(found, AttemptFailure) and found.fault is fault


def test_a_stream_that_nobody_asked_for_is_read() -> None:
    body = events(delta(HELLO_TEXT, finish_reason="stop"), USAGE)
    found = read_completion(reply_of(body), "hi there you all", settings("http://h/v1"))
    assert isinstance(found, Completion) and found.text == HELLO_TEXT and found.usage.completion >= 3


def test_a_server_that_only_streams_is_learnt_after_one_refusal() -> None:
    stream = Turn(body=events(delta(HELLO_TEXT, finish_reason="stop"), USAGE), kind="text/event-stream")

    def play(asked: object) -> Turn:
        wanted = asked.body.get("stream")  # type: ignore[attr-defined]
        return (
            stream
            if wanted
            else error(400, "This model only support stream mode, please enable the stream parameter")
        )

    with openai_server(play) as server, endpoint(server.base_url) as model:
        first, second = model.ask(HELLO), model.ask(HELLO)
        assert (first.text, first.attempts, second.attempts) == (HELLO_TEXT, 2, 1)
        assert "replies come as streams" in second.adjusted


def test_after_a_gateway_gave_up_a_stream_is_asked_for() -> None:
    stream = Turn(body=events(delta(HELLO_TEXT, finish_reason="stop"), USAGE), kind="text/event-stream")
    with (
        openai_server([error(524, "A timeout occurred"), stream]) as server,
        endpoint(server.base_url) as model,
    ):
        reply = model.ask(HELLO)
        assert (reply.text, [asked.body.get("stream") for asked in server.requests]) == (
            HELLO_TEXT,
            [None, True],
        )
    assert reply.usage.completion > 32_000  # the first attempt counts at the most


def test_an_answer_that_is_no_stream_after_all_is_read() -> None:
    with (
        openai_server([error(504, "gave up"), answer(HELLO_TEXT)]) as server,
        endpoint(server.base_url) as model,
    ):
        assert model.ask(HELLO).text == HELLO_TEXT
