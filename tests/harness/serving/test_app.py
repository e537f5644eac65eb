"""OpenAI's API over the mock backend, asked by OpenAI's own SDK."""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2 as httpx
import pytest
import torch
from openai import APIError, BadRequestError, InternalServerError, NotFoundError, OpenAI

from hillclimb.harness.serving.backends.mock_backend import END, MockBackend
from hillclimb.harness.serving.forms import StreamPart, TextForm
from hillclimb.harness.serving.generation import Likelihood, Piece
from hillclimb.harness.serving.requests import UNIMPLEMENTED
from tests.harness.serving.conftest import served

HELLO: list[Any] = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def client() -> Iterator[OpenAI]:
    with served(MockBackend(answer_tokens=40)) as found:
        yield found


def ask(client: OpenAI, **more: Any) -> Any:
    return client.chat.completions.create(model="mock", messages=HELLO, **{"temperature": 0, **more})


def test_an_answer_is_whole_or_streamed_and_the_same(client: OpenAI) -> None:
    whole = ask(client)
    choice = whole.choices[0]
    assert (choice.finish_reason, choice.message.role, len(choice.message.content)) == (
        "stop",
        "assistant",
        40,
    )
    assert (whole.usage.prompt_tokens, whole.usage.completion_tokens) == (len("<user>hello\n<assistant>"), 41)
    chunks = list(ask(client, stream=True, stream_options={"include_usage": True}))
    assert "".join(one.choices[0].delta.content or "" for one in chunks[:-1]) == choice.message.content
    assert [one.choices[0].finish_reason for one in chunks[-3:-1]] == [None, "stop"]
    assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert len({one.id for one in chunks}) == 1 and chunks[0].choices[0].delta.role == "assistant"


def test_counts_of_tokens_come_with_every_chunk(client: OpenAI) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(ask(client, stream=True, stream_options=options, max_tokens=5))
    assert [one.usage.completion_tokens for one in chunks if one.usage] == [1, 2, 3, 4, 5, 5, 5]


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
def test_an_answer_ends_at_the_limit_by_either_name(client: OpenAI, limit: str) -> None:
    found = ask(client, **{limit: 7})
    assert (found.choices[0].finish_reason, found.usage.completion_tokens) == ("length", 7)


def test_an_answer_goes_on_behind_its_end_where_that_is_asked_for(client: OpenAI) -> None:
    found = ask(client, max_tokens=60, extra_body={"ignore_eos": True})
    assert (found.choices[0].finish_reason, found.usage.completion_tokens) == ("length", 60)
    found = ask(client, max_tokens=60, extra_body={"min_tokens": 50})
    assert (found.choices[0].finish_reason, found.usage.completion_tokens) == ("stop", 51)
    assert len(found.choices[0].message.content) == 50
    text = ask(client, max_tokens=30).choices[0].message.content
    late = ask(client, max_tokens=30, stop=text[3], extra_body={"min_tokens": 20}).choices[0].message.content
    assert text.startswith(late) and 20 <= len(late) == text.find(text[3], 20)


def test_an_answer_ends_before_a_stop(client: OpenAI) -> None:
    text = ask(client).choices[0].message.content
    stop = text[11:17]
    found = ask(client, stop=["not there", stop])
    assert (found.choices[0].message.content, found.choices[0].finish_reason) == (
        text[: text.find(stop)],
        "stop",
    )
    parts = [one.choices[0].delta.content or "" for one in ask(client, stop=stop, stream=True)]
    assert "".join(parts) == text[: text.find(stop)]
    begun = ask(client, stop=text[30:] + "and never this").choices[0].message.content
    assert begun == text


def test_seeds_give_the_same_draws_and_each_answer_its_own() -> None:
    with served(Flat(answer_tokens=40)) as client:
        first, second = (ask(client, seed=3, temperature=2.0, n=3) for _ in range(2))
        texts = [one.message.content for one in first.choices]
        assert texts == [one.message.content for one in second.choices] and len(set(texts)) == 3
        assert first.usage.completion_tokens > 3 and [one.index for one in first.choices] == [0, 1, 2]
        narrow = ask(client, seed=3, temperature=2.0, top_p=1e-6).choices[0].message.content
        assert narrow == ask(client).choices[0].message.content


def test_logarithms_of_probabilities_are_told(client: OpenAI) -> None:
    told = ask(client, logprobs=True, top_logprobs=2, max_tokens=3).choices[0].logprobs.content
    assert len(told) == 3
    for one in told:
        assert one.token == one.top_logprobs[0].token and one.bytes == list(one.token.encode())
        assert one.logprob == one.top_logprobs[0].logprob > one.top_logprobs[1].logprob
    chunks = list(ask(client, logprobs=True, max_tokens=3, stream=True))
    streamed = [two for one in chunks if one.choices[0].logprobs for two in one.choices[0].logprobs.content]
    assert [one.logprob for one in streamed] == [one.logprob for one in told]
    text = client.completions.create(model="mock", prompt="a", logprobs=1, max_tokens=4, temperature=0)
    words = text.choices[0].logprobs
    assert "".join(words.tokens) == text.choices[0].text and words.text_offset == [0, 1, 2, 3]
    assert [max(one.values()) for one in words.top_logprobs] == words.token_logprobs


def test_text_completions_take_texts_and_tokens(client: OpenAI) -> None:
    whole = client.completions.create(model="mock", prompt="ab", temperature=0, max_tokens=9)
    tokens = client.completions.create(model="mock", prompt=[97, 98], temperature=0, max_tokens=9)
    assert whole.choices[0].text == tokens.choices[0].text and whole.usage.prompt_tokens == 2
    many = client.completions.create(model="mock", prompt=["ab", "c"], n=2, temperature=0, max_tokens=9)
    texts = [one.text for one in many.choices]
    assert texts[0] == texts[1] == whole.choices[0].text != texts[2] == texts[3]
    assert (many.usage.prompt_tokens, many.usage.completion_tokens) == (3, 36)
    both = client.completions.create(model="mock", prompt=[[97, 98], [99]], temperature=0, max_tokens=9)
    assert [one.text for one in both.choices] == texts[::2]
    parts = client.completions.create(model="mock", prompt="ab", temperature=0, max_tokens=9, stream=True)
    assert "".join(one.choices[0].text for one in parts) == texts[0]
    assert client.completions.create(model="mock", prompt="ab").usage.completion_tokens == 16


@pytest.mark.parametrize("field", sorted(UNIMPLEMENTED))
def test_what_is_not_implemented_is_refused_by_name(client: OpenAI, field: str) -> None:
    with pytest.raises(BadRequestError, match=f"{field} is not implemented here") as caught:
        ask(client, extra_body={field: {"type": "something"}})
    assert (caught.value.param, caught.value.type) == (field, "invalid_request_error")
    for nothing in (None, *UNIMPLEMENTED[field]):
        assert ask(client, extra_body={field: nothing}, max_tokens=1).choices


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"temprature": 1}, "temprature is no field of this request; is it temperature?"),
        ({"temperature": 3}, "temperature: .* not 3"),
        ({"temperature": "hot"}, "temperature: .* not 'hot'"),
        ({"max_tokens": 0}, "max_tokens: .* not 0"),
        ({"max_tokens": 4, "max_completion_tokens": 5}, "two names of one limit"),
        ({"n": 0}, "n: .* not 0"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop: 4 are the most, not 5"),
        ({"stop": ""}, "stop"),
        ({"top_logprobs": 2}, "top_logprobs is for logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options is for a stream"),
        ({"min_tokens": 9, "max_tokens": 3}, "min_tokens: 9 is more than the limit of 3"),
        ({"max_tokens": 9000}, "the context has 8192 tokens"),
        ({"messages": []}, "messages"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}]},
            "messages.0",
        ),
        ({"messages": [{"role": "user", "content": 3}]}, r"messages.0.content: Give a text, .* not 3"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages.0.role"),
        ({"messages": [{"role": "user", "content": "x", "tool_calls": []}]}, "messages.0.tool_calls"),
        ({"temperature": True}, "temperature: .* not True"),
        ({"stop": [3]}, "stop"),
    ],
)
def test_a_wrong_request_is_told_what_is_wrong(client: OpenAI, fields: dict[str, Any], told: str) -> None:
    with pytest.raises(BadRequestError, match=told):
        ask(client, extra_body=fields)


@pytest.mark.parametrize(
    ("prompt", "told"),
    [
        ("", "prompt: a prompt has no tokens"),
        ([], "prompt is an empty list"),
        ([[]], "prompt: Give a text, a list of texts"),
        ([-1], "prompt: Give a text, a list of texts"),
        ([1, "a"], "prompt: Give a text, a list of texts"),
        ([300], "prompt: the model has 257 tokens, and none is 300"),
        (["a", ""], "prompt: a prompt has no tokens"),
        (["a"] * 3000, "2048 answers are the most, not 3000 prompts times n = 1"),
    ],
)
def test_a_wrong_prompt_is_told(client: OpenAI, prompt: Any, told: str) -> None:
    with pytest.raises(BadRequestError, match=told):
        client.completions.create(model="mock", prompt=prompt)


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        (r'"prompt": "\ud800"', "prompt: This is no Unicode text: half of a surrogate pair is in it"),
        (r'"prompt": ["a", "\ud800"]', "half of a surrogate pair"),
        (r'"prompt": "a", "stop": "\ud800"', "half of a surrogate pair"),
        (r'"prompt": "a", "b\ud800": 1', r"b\ud800 is no field of this request"),
    ],
)
def test_halves_of_characters_are_told(client: OpenAI, fields: str, told: str) -> None:
    headers = {"Content-Type": "application/json"}
    body = f'{{"model": "mock", {fields}}}'.encode()
    answer = httpx.post(f"{client.base_url}completions", content=body, headers=headers)
    assert answer.status_code == 400 and told in answer.json()["error"]["message"]


def test_what_clients_send_beside_is_taken(client: OpenAI) -> None:
    """Names, what an answer of before had empty, and hints for caches."""
    before = {"role": "assistant", "content": "hi", "refusal": None, "tool_calls": None, "audio": None}
    named = {"role": "user", "content": [{"type": "text", "text": "hello"}], "name": "bob"}
    more = {
        "min_tokens": None,
        "ignore_eos": None,
        "prompt_cache_key": "a",
        "safety_identifier": "b",
        "user": "c",
    }
    body = {"messages": [named, before, *HELLO], "top_logprobs": 0, **more}
    assert ask(client, extra_body=body, max_tokens=2).usage.completion_tokens == 2


@pytest.mark.parametrize(
    "fields", [{"temperature": 1e-38}, {"temperature": 1e-320}, {"temperature": 1, "top_p": 1e-320}]
)
def test_the_smallest_numbers_choose_the_likeliest(client: OpenAI, fields: dict[str, Any]) -> None:
    assert ask(client, **fields).choices[0].message.content == ask(client).choices[0].message.content


def test_a_stream_begins_when_something_is_there() -> None:
    with served(MockBackend(prefill_seconds=0.3)) as client:
        begun = time.monotonic()
        next(iter(ask(client, stream=True, max_tokens=2)))
        assert time.monotonic() - begun >= 0.3


def test_of_tokens_with_one_text_the_likeliest_is_told() -> None:
    form = TextForm("m", lambda tokens: "\ufffd" if tokens[0] else "a", has_logprobs=True)
    piece = Piece(Likelihood(0, -7.0), (Likelihood(1, -0.1), Likelihood(2, -5.0)), "")
    told = json.loads(form.part(StreamPart(0, "", [piece], None, None)))["choices"][0]["logprobs"]
    assert told["top_logprobs"] == [{"\ufffd": -0.1, "a": -7.0}]


def test_models_and_errors_of_other_paths(client: OpenAI) -> None:
    assert [one.id for one in client.models.list()] == ["mock"] == [client.models.retrieve("mock").id]
    with pytest.raises(NotFoundError, match="'other' is not served here"):
        client.models.retrieve("other")
    with pytest.raises(NotFoundError, match="'other' is not served here; ask for 'mock'"):
        client.chat.completions.create(model="other", messages=HELLO)
    address = str(client.base_url).removesuffix("/v1/")
    for path in ("/v1/embeddings", "/"):
        answer = httpx.post(f"{address}{path}")
        assert answer.status_code == 404 and path in answer.json()["error"]["message"]
    for kind, body, told in (
        ("json", b"{", "no JSON"),
        ("json", b"[]", "not []"),
        ("x", b"{}", "Content-Type"),
    ):
        headers = {"Content-Type": f"application/{kind}"}
        answer = httpx.post(f"{address}/v1/completions", content=body, headers=headers)
        assert answer.status_code == 400 and told in answer.json()["error"]["message"]


def test_probes_answer_and_count(client: OpenAI) -> None:
    address = str(client.base_url).removesuffix("/v1/")
    ask(client, max_tokens=4)
    for path in ("/health", "/metrics"):
        assert httpx.get(f"{address}{path}").status_code == httpx.head(f"{address}{path}").status_code == 200
    text = httpx.get(f"{address}/metrics").text
    assert re.search(r'hillclimb_requests_total\{endpoint="/v1/chat/completions",status="200"\} \d', text)
    prompts = re.search(r"^hillclimb_prompt_tokens_total (\S+)$", text, re.MULTILINE)
    client.completions.create(model="mock", prompt="abc", n=4, max_tokens=1)
    more = re.search(
        r"^hillclimb_prompt_tokens_total (\S+)$", httpx.get(f"{address}/metrics").text, re.MULTILINE
    )
    assert prompts and more and float(more[1]) - float(prompts[1]) == 3
    made = re.search(r"^hillclimb_generation_tokens_total (\S+)$", text, re.MULTILINE)
    firsts = re.search(r"^hillclimb_time_to_first_token_seconds_count (\S+)$", text, re.MULTILINE)
    assert made and firsts and float(made[1]) >= 4 and float(firsts[1]) >= 1
    until(lambda: "hillclimb_requests_running 0.0" in httpx.get(f"{address}/metrics").text)
    assert "hillclimb_requests_waiting 0.0" in text


class Flat(MockBackend):
    """Other tokens are likely, too."""

    def prefill(self, slot: int, tokens: Sequence[int]) -> torch.Tensor:
        return super().prefill(slot, tokens) / 4

    def decode(self, last: Mapping[int, int]) -> torch.Tensor:
        return super().decode(last) / 4


class Watched(MockBackend):
    """Tells how many steps were made, and fails where it is told to."""

    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.steps, self.most, self.resets, self.fails_at = 0, 0, 0, -1

    def decode(self, last: Mapping[int, int]) -> torch.Tensor:
        self.steps, self.most = self.steps + 1, max(self.most, len(last))
        if self.steps == self.fails_at:
            raise RuntimeError("out of memory")
        return super().decode(last)

    def reset(self, slot: int) -> None:
        self.resets += 1
        super().reset(slot)


def until(is_so: Callable[[], bool]) -> None:
    """Waits for what must come."""
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, "it did not come in a minute"
        time.sleep(0.01)


@pytest.mark.parametrize("is_streamed", [True, False])
def test_a_client_that_hangs_up_stops_its_answers(is_streamed: bool) -> None:
    backend = Watched(decode_seconds=0.005, context=100_000)
    with served(backend) as client:
        port = client.base_url.port
        asked = {"model": "mock", "messages": HELLO, "stream": is_streamed, "ignore_eos": True, "n": 2}
        body = json.dumps(asked).encode()
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        with socket.create_connection(("127.0.0.1", port or 0)) as connection:
            connection.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
            until(lambda: backend.steps >= 5)
        until(lambda: backend.resets == 2)
        assert backend.steps < 5000
        assert ask(client, max_tokens=3).usage.completion_tokens == 3


def test_answers_share_steps_and_wait_for_a_slot() -> None:
    backend = Watched(decode_seconds=0.02, slots=3)
    with served(backend) as client, ThreadPoolExecutor(7) as pool:
        alone = ask(client).choices[0].message.content
        found = list(pool.map(lambda _: ask(client), range(7)))
    assert {one.choices[0].message.content for one in found} == {alone}
    assert backend.most == 3 and backend.resets == 8


def test_a_backend_that_fails_is_told_and_asked_again() -> None:
    backend = Watched()
    with served(backend) as client:
        backend.fails_at = 3
        with pytest.raises(InternalServerError, match="RuntimeError: out of memory"):
            ask(client)
        assert ask(client, max_tokens=3).usage.completion_tokens == 3
        backend.fails_at = backend.steps + 3
        with pytest.raises(APIError, match="out of memory"):
            list(ask(client, stream=True))
        assert ask(client, max_tokens=3).usage.completion_tokens == 3


def test_the_end_is_no_text() -> None:
    assert MockBackend().text([104, END, 105]) == "hi"
    sent: Sequence[int] = MockBackend().encode("é")
    assert MockBackend().text(sent[:1]) == "\ufffd"
