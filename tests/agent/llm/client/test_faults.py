"""Every fault the fake server can play: named, survived, over by the deadline, and without the key in any text."""

from __future__ import annotations

import logging
import socket
import time
import traceback

import pytest

from hillclimb.agent.llm.client.faults import Fault, ModelFault
from hillclimb.agent.llm.client.messages import Message
from hillclimb.harness.case.settings import Prices
from tests.agent.llm.client.calling import CANARY, DEADLINE, HELLO, PATIENT, SLACK, endpoint, fault_of
from tests.fakes.openai_server import FAULTS, Asked, Turn, answer, fault, openai_server

NAMES = {
    "hang": Fault.HUNG,
    "slow_head": Fault.HUNG,
    "head_then_hang": Fault.DRIPPING,
    "drip": Fault.DRIPPING,
    "length_too_long": Fault.DRIPPING,
    "cut": Fault.CUT_OFF,
    "cut_chunked": Fault.CUT_OFF,
    "cut_at_once": Fault.CUT_OFF,
    "endless_head": Fault.BROKEN_HTTP,
    "garbage": Fault.BROKEN_HTTP,
    "gzip_bomb_twice": Fault.BROKEN_HTTP,
    "bad_gzip": Fault.BROKEN_HTTP,
    "endless": Fault.TOO_LARGE,
    "gzip_bomb": Fault.TOO_LARGE,
    "huge": Fault.TOO_LARGE,
    "r500_huge": Fault.TOO_LARGE,
    "redirect": Fault.REDIRECTED,
    "redirect_away": Fault.REDIRECTED,
    "bad_redirect": Fault.REDIRECTED,
    "empty": Fault.EMPTY_BODY,
    "no_content_204": Fault.EMPTY_BODY,
    "html200": Fault.NOT_JSON,
    "cut_stream": Fault.CUT_OFF,
    "badjson": Fault.BROKEN_JSON,
    "deep_json": Fault.BROKEN_JSON,
    "bad_utf8": Fault.BROKEN_JSON,
    "long_number": Fault.BROKEN_JSON,
    "length_too_short": Fault.BROKEN_JSON,
    "json_list": Fault.NO_CHOICES,
    "json_null": Fault.NO_CHOICES,
    "nochoices": Fault.NO_CHOICES,
    "nullchoices": Fault.NO_CHOICES,
    "odd_choices": Fault.NO_CHOICES,
    "nullcontent": Fault.NO_CONTENT,
    "blank": Fault.NO_CONTENT,
    "thoughts_only": Fault.NO_CONTENT,
    "tool_calls": Fault.NO_CONTENT,
    "refusal": Fault.REFUSED,
    "content_filter": Fault.REFUSED,
    "truncated": Fault.TRUNCATED,
    "truncated_in_thought": Fault.TRUNCATED,
    "unauthorised": Fault.UNAUTHORISED,
    "key_echo": Fault.UNAUTHORISED,
    "key_echo_html": Fault.SERVER_ERROR,
    "payment": Fault.QUOTA,
    "billing": Fault.QUOTA,
    "quota": Fault.QUOTA,
    "quota_text": Fault.QUOTA,
    "forbidden": Fault.FORBIDDEN,
    "no_model": Fault.NO_SUCH_MODEL,
    "html404": Fault.NO_SUCH_MODEL,
    "not_allowed": Fault.BAD_REQUEST,
    "bad_request": Fault.BAD_REQUEST,
    "context": Fault.CONTEXT_TOO_LONG,
    "context_413": Fault.CONTEXT_TOO_LONG,
    "rate_short": Fault.RATE_LIMITED,
    "rate_long": Fault.RATE_LIMITED,
    "rate_date": Fault.RATE_LIMITED,
    "rate_nonsense": Fault.RATE_LIMITED,
    "rate_text": Fault.RATE_LIMITED,
    "rate_google": Fault.RATE_LIMITED,
    "error_in_200": Fault.GATEWAY,
    "error_in_choice": Fault.SERVER_ERROR,
    "r500": Fault.SERVER_ERROR,
    "html502": Fault.GATEWAY,
    "r503": Fault.SERVER_ERROR,
    "r529": Fault.SERVER_ERROR,
}
TOLD = [name for name in NAMES if NAMES[name] in (Fault.NO_CONTENT, Fault.REFUSED, Fault.TRUNCATED)] + [
    "error_in_choice",
    "nochoices",
    "odd_choices",
]
"""Faults of a model that ran: their tokens count."""
RAN = [
    "html502",
    "error_in_200",
    "cut_at_once",
    "hang",
    "slow_head",
    "head_then_hang",
    "drip",
    "length_too_long",
    "cut",
    "cut_chunked",
    "endless",
    "gzip_bomb",
    "gzip_bomb_twice",
    "bad_gzip",
    "huge",
    "empty",
    "no_content_204",
    "cut_stream",
    "badjson",
    "deep_json",
    "bad_utf8",
    "long_number",
    "length_too_short",
]
"""Of a model that probably ran: the most they may have used counts."""
PRICES = Prices(prompt=1.0, completion=1.0)
PROMPT = 5
"""Tokens of HELLO, by estimate."""
REPLY = 900
"""The limit of a reply."""
BY_DEADLINE = (Fault.HUNG, Fault.DRIPPING)
FINAL = (Fault.QUOTA, Fault.UNAUTHORISED, Fault.FORBIDDEN, Fault.NO_SUCH_MODEL)


def test_every_fault_of_the_server_is_expected_here() -> None:
    assert set(NAMES) == set(FAULTS)


def test_every_named_fault_is_played() -> None:
    """But for the three that no answer brings about."""
    assert set(Fault) - set(NAMES.values()) == {Fault.UNREACHABLE, Fault.NO_TLS, Fault.UNEXPECTED}


@pytest.mark.parametrize("name", FAULTS)
def test_fault(name: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    # at DEBUG the HTTP library logs the headers that came, and this fault echoes the key in one
    caplog.set_level(logging.INFO if name == "redirect_away" else logging.DEBUG)
    deadline = DEADLINE if NAMES[name] in BY_DEADLINE else PATIENT
    with (
        openai_server([fault(name)]) as server,
        endpoint(server.base_url, deadline_seconds=deadline, prices=PRICES, reply_tokens=REPLY) as model,
    ):
        begun = time.monotonic()
        found = fault_of(model)
        took = time.monotonic() - begun
        asked = len(server.requests)
        server.script = [answer("still there")]
        assert model.ask(HELLO).text == "still there"
    assert found.fault is NAMES[name]
    assert took < deadline + SLACK and found.seconds <= took
    assert found.is_final == (found.fault in FINAL)
    assert found.attempts == asked <= found.fault.max_attempts
    assert found.usage.total == asked * (150 if name in TOLD else PROMPT + REPLY if name in RAN else 0)
    assert found.usage.estimated == (name in RAN)
    assert found.cost == (pytest.approx(found.usage.total * 1e-6) if name in TOLD + RAN else None)
    assert found.detail and len(found.detail) <= 500 and found.detail.isprintable()
    _assert_hidden(found, caplog, capfd)


def _assert_hidden(
    found: ModelFault, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    told = capfd.readouterr()
    texts = (found.detail, str(found), repr(found), repr(vars(found)), caplog.text, told.out, told.err)
    for text in (*texts, "".join(traceback.format_exception(found))):
        assert CANARY not in text and "canary" not in text
    assert found.__cause__ is None and found.__context__ is None  # nothing that a deeper look could print


@pytest.mark.slow(3)
def test_all_of_them_at_once() -> None:
    """Side by side on one endpoint, no call takes another one's fault."""

    def script(asked: Asked) -> Turn:
        return fault(asked.prompt)

    expected = {name: found for name, found in NAMES.items() if found not in BY_DEADLINE}
    with openai_server(script) as server, endpoint(server.base_url, deadline_seconds=30) as model:
        calls = {name: model.submit([Message(role="user", content=name)]) for name in NAMES}
        found = {name: calls[name].exception() for name in expected}
        assert not any(calls[name].done() for name in set(NAMES) - set(expected) - {"slow_head", "drip"})
    assert {name: getattr(error, "fault", error) for name, error in found.items()} == expected


@pytest.mark.parametrize("name", ["quota", "payment", "billing", "unauthorised", "forbidden", "no_model"])
def test_what_is_final_is_asked_once(name: str) -> None:
    with openai_server([fault(name), answer("too late")]) as server, endpoint(server.base_url) as model:
        assert fault_of(model).is_final
        assert len(server.requests) == 1


@pytest.mark.parametrize("name", ["rate_short", "r503", "garbage", "badjson", "html200", "empty"])
def test_what_passes_is_tried_again(name: str) -> None:
    turns = [fault(name), fault(name), answer("at last")]
    with openai_server(turns) as server, endpoint(server.base_url) as model:
        reply = model.ask(HELLO)
    assert (reply.text, reply.attempts) == ("at last", 3)


@pytest.mark.parametrize("name", ["html502", "cut", "cut_at_once"])
def test_what_may_have_been_paid_for_is_tried_once_more(name: str) -> None:
    with (
        openai_server([fault(name), answer("at last")]) as server,
        endpoint(server.base_url, reply_tokens=REPLY) as model,
    ):
        reply = model.ask(HELLO)
    assert (reply.text, reply.attempts) == ("at last", 2)
    assert (reply.usage.completion - REPLY, reply.usage.estimated) == (30, True)


@pytest.mark.parametrize("status", [502, 504, 520, 524])
def test_a_gateway_that_gave_up_counts_at_the_most_it_may_have_cost(status: int) -> None:
    turn = Turn(status, b"<html>gateway</html>", "text/html")
    with (
        openai_server([turn]) as server,
        endpoint(server.base_url, prices=PRICES, reply_tokens=REPLY) as model,
    ):
        found = fault_of(model)
        asked = len(server.requests)
    assert (found.fault, found.attempts, asked) == (Fault.GATEWAY, 2, 2)
    assert (found.usage.prompt, found.usage.completion) == (2 * PROMPT, 2 * REPLY)
    assert found.cost == pytest.approx(2e-6 * (PROMPT + REPLY))


def test_attempts_that_probably_ran_add_up() -> None:
    turns = [fault("cut"), fault("r503"), fault("hang")]
    with (
        openai_server(turns) as server,
        endpoint(server.base_url, deadline_seconds=DEADLINE, prices=PRICES, reply_tokens=REPLY) as model,
    ):
        found = fault_of(model)
    assert (found.fault, found.attempts) == (Fault.HUNG, 3)
    assert (found.usage.prompt, found.usage.completion) == (2 * PROMPT, 2 * REPLY)
    assert found.cost == pytest.approx(2e-6 * (PROMPT + REPLY))


def test_a_reply_after_an_attempt_that_probably_ran() -> None:
    with openai_server([fault("cut"), answer("hi")]) as server, endpoint(server.base_url) as model:
        reply = model.ask(HELLO)
    assert (reply.usage.prompt, reply.usage.estimated, reply.cost) == (PROMPT + 120, True, None)


def test_an_error_that_drips_in_is_free() -> None:
    turn = Turn(503, b"overloaded", "text/plain", pace=0.1)
    with openai_server([turn]) as server, endpoint(server.base_url, deadline_seconds=DEADLINE) as model:
        found = fault_of(model)
    assert (found.fault, found.usage.total) == (Fault.DRIPPING, 0)


def test_a_request_that_was_not_sent_whole_is_free() -> None:
    """Nobody reads it, and it is more than the sockets on the way hold; a busy machine may not even begin in time."""
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/v1"
        with endpoint(url, deadline_seconds=DEADLINE) as model, pytest.raises(ModelFault) as caught:
            model.ask([Message(role="user", content="x" * 32 * 2**20)])
    assert caught.value.fault in (Fault.HUNG, Fault.UNREACHABLE)
    assert caught.value.usage.total == 0


def test_a_stream_that_is_cut_is_paid_for_and_tried_once_more() -> None:
    with openai_server([fault("cut_stream")]) as server, endpoint(server.base_url) as model:
        found = fault_of(model)
        assert (found.fault, len(server.requests)) == (Fault.CUT_OFF, 2)
    assert found.usage.estimated and found.usage.completion == 2 * 32_000


@pytest.mark.parametrize("refusal", ["No.", " \n", "\u200b", True, [{"text": " "}]])
@pytest.mark.parametrize("text", ["", " ", "\u200b"])
def test_every_fault_says_something(refusal: object, text: str) -> None:
    turn = answer(text, finish="content_filter", refusal=refusal)
    with openai_server([turn]) as server, endpoint(server.base_url) as model:
        found = fault_of(model)
    assert found.fault is Fault.REFUSED and found.detail.strip() and str(found) == f"refused: {found.detail}"


def test_a_fault_made_of_nothing_says_something() -> None:
    assert ModelFault(Fault.REFUSED, " ").detail.strip()


def test_a_wait_beyond_the_deadline_ends_the_call_at_once() -> None:
    with openai_server([fault("rate_long")]) as server, endpoint(server.base_url) as model:
        found = fault_of(model)
    assert found.seconds < PATIENT / 2 and found.attempts == 1
    assert found.retry_after_seconds == 3600 and "3600 s" in found.detail


def test_what_came_before_a_hang_is_told() -> None:
    turns = [fault("r503"), fault("hang")]
    with openai_server(turns) as server, endpoint(server.base_url, deadline_seconds=DEADLINE) as model:
        found = fault_of(model)
    assert found.fault is Fault.HUNG and found.attempts == 2
    assert "before that, server_error: HTTP 503" in found.detail


def test_nobody_listens() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        with endpoint(f"http://127.0.0.1:{taken.getsockname()[1]}/v1") as model:
            found = fault_of(model)
    assert found.fault is Fault.UNREACHABLE and "ConnectError" in found.detail
    assert found.attempts == 8


@pytest.mark.clock
def test_a_name_lookup_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: time.sleep(1.2))
    with endpoint("http://nowhere.invalid/v1", deadline_seconds=DEADLINE) as model:
        found = fault_of(model)
        begun = time.monotonic()
    assert time.monotonic() - begun < 0.5  # closing does not wait for it
    assert found.fault is Fault.UNREACHABLE and found.seconds < DEADLINE + 0.5


def test_no_such_host() -> None:
    with endpoint("http://nowhere.invalid/v1") as model:
        assert fault_of(model).fault is Fault.UNREACHABLE


def test_tls_to_a_server_without_it() -> None:
    with openai_server([answer("hi")]) as server:
        with endpoint(server.base_url.replace("http:", "https:")) as model:
            assert fault_of(model).fault is Fault.NO_TLS
        assert not server.requests


def test_the_key_does_not_follow_a_redirect() -> None:
    with openai_server([answer("stolen")]) as thief:
        away = Turn(307, headers={"location": thief.base_url + "/chat/completions"})
        with openai_server([away]) as server, endpoint(server.base_url) as model:
            assert fault_of(model).fault is Fault.REDIRECTED
        assert not thief.requests and not thief.others
