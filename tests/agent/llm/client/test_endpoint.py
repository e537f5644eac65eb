"""The endpoint: calls side by side, closing, what is sent, and what is remembered of a server's manners."""

from __future__ import annotations

import gzip
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
from pydantic import SecretStr

from hillclimb.agent.llm.client.faults import Fault, ModelFault
from hillclimb.agent.llm.client.messages import Message
from hillclimb.harness.case.settings import Prices
from hillclimb.harness.errors import UsageError
from tests.agent.llm.client.calling import CANARY, HELLO, PATIENT, SLACK, endpoint, fault_of, settings
from tests.fakes.openai_server import Asked, Turn, answer, fault, openai_server, picky

ROOT = Path(__file__).resolve().parents[4]


def test_a_reply_and_what_was_sent_for_it() -> None:
    with openai_server([answer("IDEA: hi", model="fake-1-2025")]) as server:
        with endpoint(server.base_url, temperature=0.2, reasoning_effort="low", reply_tokens=900) as model:
            reply = model.ask(HELLO)
        asked = server.requests[0]
    assert (reply.text, reply.model, reply.finish, reply.attempts) == ("IDEA: hi", "fake-1-2025", "stop", 1)
    assert (reply.usage.prompt, reply.usage.completion, reply.usage.estimated) == (120, 30, False)
    assert reply.cost is None and reply.adjusted == () and 0 < reply.seconds < PATIENT
    assert asked.headers["authorization"] == f"Bearer {CANARY}"
    assert asked.body == {
        "model": "fake-1",
        "messages": [{"role": m.role, "content": m.content} for m in HELLO],
        "temperature": 0.2,
        "reasoning_effort": "low",
        "max_completion_tokens": 900,
    }


def test_the_environment_does_not_replace_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-another")
    monkeypatch.setenv("OPENAI_ADMIN_KEY", "sk-admin")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "Authorization: Bearer sk-third")
    with openai_server([answer("hi")]) as server:
        with endpoint(server.base_url) as model:
            model.ask(HELLO)
        sent = server.requests[0].headers
    assert sent["authorization"] == f"Bearer {CANARY}"
    assert not {"sk-another", "sk-admin", "sk-third"} & set(" ".join(sent.values()).split())


def test_user_and_password_of_the_url_are_sent_but_not_shown(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")
    with openai_server([fault("r500")]) as server:
        url = server.base_url.replace("http://", "http://ada:lovelace%21@")
        with endpoint(url) as model, pytest.raises(ModelFault) as caught:
            model.ask(HELLO)
        assert server.requests[0].headers["authorization"] == "Basic YWRhOmxvdmVsYWNlIQ=="
    assert "lovelace" not in caplog.text + repr(settings(url)) + repr(vars(caught.value))


def test_a_server_without_a_key() -> None:
    with openai_server([answer("hi")]) as server, endpoint(server.base_url, api_key=SecretStr("")) as model:
        assert model.ask(HELLO).text == "hi"


def test_calls_run_side_by_side() -> None:
    def script(asked: Asked) -> Turn:
        return answer(asked.messages[-1]["content"], delay=1.0)

    with openai_server(script) as server, endpoint(server.base_url) as model:
        begun = time.monotonic()
        futures = [model.submit([Message(role="user", content=f"call {k}")]) for k in range(8)]
        assert [future.result().text for future in futures] == [f"call {k}" for k in range(8)]
        assert time.monotonic() - begun < 6


def test_a_hanging_call_keeps_no_other_waiting() -> None:
    def script(asked: Asked) -> Turn:
        return fault("hang") if "hang" in asked.prompt else answer("hi")

    with openai_server(script) as server, endpoint(server.base_url, deadline_seconds=1.5) as model:
        hanging = model.submit([Message(role="user", content="hang")])
        assert model.ask(HELLO).text == "hi" and not hanging.done()
        with pytest.raises(ModelFault, match="hung"):
            hanging.result()


def test_closing_ends_calls_under_way() -> None:
    with openai_server([fault("hang")]) as server:
        model = endpoint(server.base_url, deadline_seconds=600)
        futures = [model.submit(HELLO) for _ in range(3)]
        _wait_for(lambda: len(server.requests) == 3)
        begun = time.monotonic()
        model.close()
        model.close()
        assert time.monotonic() - begun < SLACK
        assert all(future.cancelled() for future in futures)
        assert "model endpoint" not in {thread.name for thread in threading.enumerate()}
        with pytest.raises(RuntimeError, match="closed"):
            model.submit(HELLO)


def test_closing_in_a_pause_and_before_anything_ran() -> None:
    with openai_server([fault("r503")]) as server:
        model = endpoint(server.base_url, deadline_seconds=600)
        future = model.submit(HELLO)
        model.close()
        assert future.cancelled() or isinstance(future.exception(), ModelFault)


def test_closing_wakes_who_waits() -> None:
    with openai_server([fault("hang")]) as server:
        model = endpoint(server.base_url, deadline_seconds=600)
        closer = threading.Timer(0.2, model.close)
        closer.start()
        with pytest.raises(CancelledError):
            model.ask(HELLO)
        closer.join()


def test_a_cancelled_call_ends_at_the_server_too() -> None:
    gone = threading.Event()

    def watch(stage: object, asked: Asked) -> None:
        if stage.connection.recv(1) == b"":  # type: ignore[attr-defined]
            gone.set()

    with (
        openai_server([Turn(play=watch)]) as server,
        endpoint(server.base_url, deadline_seconds=600) as model,
    ):
        future = model.submit(HELLO)
        _wait_for(lambda: bool(server.requests))
        future.cancel()
        assert gone.wait(2)


PRICES = Prices(prompt=1.0, completion=2.0)
REFUSED = {
    "temperature": ("temperature left out: refused by the server",),
    "reasoning_effort": ("reasoning_effort left out: refused by the server",),
    "max_completion_tokens": ("max_tokens sent in place of max_completion_tokens, which the server refused",),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_refused_parameter_is_left_out_from_then_on(name: str) -> None:
    with openai_server(picky({name})) as server:
        with endpoint(server.base_url, temperature=0.2, reasoning_effort="low") as model:
            first, second = model.ask(HELLO), model.ask(HELLO)
        sent = [name in asked.body for asked in server.requests]
    assert (first.attempts, second.attempts) == (2, 1)
    assert sent == [True, False, False]
    assert first.adjusted == second.adjusted == REFUSED[name]


def test_a_server_that_takes_no_parameter_at_all() -> None:
    everything = {"temperature", "reasoning_effort", "max_completion_tokens", "max_tokens"}
    with openai_server(picky(everything)) as server:
        with endpoint(server.base_url, temperature=0.2, reasoning_effort="low") as model:
            reply = model.ask(HELLO)
        assert set(server.requests[-1].body) == {"model", "messages"}
    assert reply.attempts == 5 and len(reply.adjusted) == 3


def test_attempts_that_ran_are_paid_for() -> None:
    half = answer(None, finish="error", usage={"prompt_tokens": 100, "completion_tokens": 10})
    half.body["choices"][0]["error"] = {"message": "midway"}
    with openai_server([half, answer("hi")]) as server, endpoint(server.base_url, prices=PRICES) as model:
        reply = model.ask(HELLO)
    assert (reply.usage.prompt, reply.usage.completion) == (220, 40)
    assert reply.cost == pytest.approx((220 * 1 + 40 * 2) / 1e6)


def test_a_truncated_reply_is_paid_for() -> None:
    with openai_server([fault("truncated")]) as server, endpoint(server.base_url, prices=PRICES) as model:
        assert fault_of(model).cost == pytest.approx(180e-6)


def test_the_key_is_masked_in_a_reply_too() -> None:
    echo = answer("the key is {key}", model="{key}")
    with openai_server([Turn(body=echo.body, echo=True)]) as server, endpoint(server.base_url) as model:
        reply = model.ask(HELLO)
    assert reply.text == "the key is Bearer [secret]" and CANARY not in reply.model_dump_json()


def test_compressed_answers_are_read_though_none_was_asked_for() -> None:
    body = gzip.compress(json.dumps(answer("hi " * 1000).body).encode())
    turn = Turn(body=body, headers={"content-encoding": "gzip"})
    with openai_server([turn]) as server, endpoint(server.base_url) as model:
        assert model.ask(HELLO).text == "hi " * 1000
        assert server.requests[0].headers["accept-encoding"] == "identity"


def test_text_that_no_file_could_hold() -> None:
    with openai_server([answer("a\ud800b\0c")]) as server, endpoint(server.base_url) as model:
        assert model.ask([Message(role="user", content="\udfff")]).text == "a?b?c"
        assert server.requests[0].prompt == "?"


def test_loopback_is_reached_without_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "socks9://user:proxysecret@127.0.0.1:9")
    with openai_server([answer("hi")]) as server, endpoint(server.base_url) as model:
        assert model.ask(HELLO).text == "hi"


def test_the_proxy_is_used_for_other_hosts(monkeypatch: pytest.MonkeyPatch) -> None:
    with openai_server([answer("by proxy")]) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.base_url.removesuffix("/v1"))
        with endpoint("http://model.invalid/v1") as model:
            assert model.ask(HELLO).text == "by proxy"
        assert proxy.requests[0].path == "http://model.invalid/v1/chat/completions"


def test_a_proxy_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "socks9://user:proxysecret@127.0.0.1:9")
    with pytest.raises(UsageError, match="HTTP_PROXY") as caught:
        endpoint("http://model.invalid/v1")
    assert "proxysecret" not in str(caught.value)


def test_connections_that_the_server_dropped_are_no_fault() -> None:
    hangs_up = Turn(body=answer("hi").body, headers={"connection": "close"})
    with openai_server([hangs_up]) as server, endpoint(server.base_url) as model:
        assert [model.ask(HELLO).attempts for _ in range(3)] == [1, 1, 1]


def test_a_defect_of_the_client_is_a_fault_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: object) -> None:
        raise ZeroDivisionError(CANARY)

    monkeypatch.setattr("hillclimb.agent.llm.client.call.read_completion", break_down)
    with openai_server([answer("hi")]) as server, endpoint(server.base_url) as model:
        found = fault_of(model)
    assert (found.fault, found.detail) == (Fault.UNEXPECTED, "ZeroDivisionError: [secret]")


PROGRAM = """
import random, sys
from hillclimb.agent.llm.client.endpoint import Endpoint
from hillclimb.agent.llm.client.messages import Message
from hillclimb.agent.llm.client.settings import ModelSettings
assert not {"openai", "httpx2"} & set(sys.modules), "imported before they are needed"
model = Endpoint(ModelSettings("fake-1", sys.argv[1], deadline_seconds=600), random.Random(1))
call = model.submit([Message(role="user", content="hello")])
"""


def _begin(program: str, url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM + program, url],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow(3)
def test_a_program_that_forgets_to_close_ends_quietly() -> None:
    with openai_server([fault("hang")]) as server:
        program = _begin("import time; time.sleep(0.3)", server.base_url)
        _, told = program.communicate(timeout=20)
    assert (program.returncode, told) == (0, "")


@pytest.mark.slow(3)
def test_an_interrupt_ends_the_wait_at_once() -> None:
    with openai_server([fault("hang")]) as server:
        program = _begin("model.ask([Message(role='user', content='hello')])", server.base_url)
        _wait_for(lambda: len(server.requests) == 2)
        program.send_signal(signal.SIGINT)
        _, told = program.communicate(timeout=5)
    assert told.rstrip().endswith("KeyboardInterrupt") and "Warning" not in told


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)
