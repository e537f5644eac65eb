"""What a person adds to every request: read, sent, and kept out of what a server echoes."""

from __future__ import annotations

import pytest

from hillclimb.agent.proposers.request_options import read_extra, read_headers
from hillclimb.harness.errors import UsageError
from tests.agent.llm.client.calling import HELLO, endpoint, fault_of
from tests.fakes.openai_server import answer, error, openai_server


def test_values_are_json() -> None:
    typed = [
        "top_k=20",
        "temperature=null",
        'chat_template_kwargs={"enable_thinking": false}',
        'user="me=you"',
    ]
    assert read_extra(typed) == {
        "top_k": 20,
        "temperature": None,
        "chat_template_kwargs": {"enable_thinking": False},
        "user": "me=you",
    }
    assert read_headers(["X-Title=a = b", "X-Empty="]) == {"X-Title": "a = b", "X-Empty": ""}


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("top_k", "write KEY=JSON"),
        ("=1", "write KEY=JSON"),
        ("effort=high", "a text stands in quotes, as 'effort=\"high\"'"),
        ('model="x"', "model is not for an option to change"),
        ("messages=[]", "messages is not for an option"),
    ],
)
def test_what_is_no_parameter_is_told(typed: str, said: str) -> None:
    with pytest.raises(UsageError) as told:
        read_extra([typed])
    assert said in str(told.value)


@pytest.mark.parametrize("typed", ["X-Title", "=v", "A B=c", "X=\n", "X=\u00e9"])
def test_what_is_no_header_is_told_without_its_value(typed: str) -> None:
    with pytest.raises(UsageError, match="--request-header") as told:
        read_headers([typed])
    assert "\n" not in str(told.value)


def test_they_are_sent_with_every_request() -> None:
    more = {
        "extra": {"top_k": 20, "temperature": None},
        "headers": {"X-Title": "hillclimb"},
        "temperature": 0.3,
    }
    with openai_server([answer("x")]) as server, endpoint(server.base_url, **more) as model:
        model.ask(HELLO)
        [asked] = server.requests
    assert asked.body["top_k"] == 20 and "temperature" not in asked.body
    assert asked.headers["x-title"] == "hillclimb"


def test_a_header_that_a_server_echoes_is_masked() -> None:
    secret = "token-of-a-gateway-1234"
    turn = error(400, f"bad gateway token {secret}")
    with openai_server([turn]) as server, endpoint(server.base_url, headers={"X-Gate": secret}) as model:
        assert secret not in fault_of(model).detail
