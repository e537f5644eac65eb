"""Briefings that a server finds too long, in whatever words, or cuts without a word: shorter ones, and none twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.agent.llm.briefing_limit import READ_SHARE, SHRINK_FACTOR, BriefingLimit
from tests.agent.llm.test_llm import climbing, night, set_rules
from tests.fakes.night import make_repository
from tests.fakes.openai_server import Asked, Turn, answer, error, openai_server

CONTEXT = 4200
INPUTS = (
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 4000 `inputs` tokens"
)
WORDS = [
    pytest.param(422, INPUTS, marks=pytest.mark.slow(2)),
    pytest.param(
        400,
        "The input token count (4100) exceeds the maximum number of tokens allowed (3000).",
        marks=pytest.mark.slow(2),
    ),
    pytest.param(
        400, "Invalid request: Your request exceeded model token limit: 3000", marks=pytest.mark.slow(2)
    ),
    (400, "please make that smaller"),
    pytest.param(413, "payload", marks=pytest.mark.slow(2)),
    (429, "Request too large for gpt-x on tokens per min (TPM): Limit 3000, Requested 42000"),
]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A case whose briefing is long."""
    made = make_repository(tmp_path / "repository")
    (made / "cases/demo/toy/workspace/long.py").write_text(lines(500))
    set_rules(made, in_flight=1)
    return made


def lines(count: int) -> str:
    return "".join(f"value_{i} = {i} * {i}\n" for i in range(count))


def size(asked: Asked) -> int:
    return sum(len(message["content"]) for message in asked.body["messages"]) // 4


def sizes(server: object) -> list[int]:
    return [size(asked) for asked in server.requests]  # type: ignore[attr-defined]


@pytest.mark.parametrize(("status", "said"), WORDS)
def test_a_briefing_that_is_too_long_is_made_shorter_whatever_the_words(
    root: Path, status: int, said: str
) -> None:
    def play(asked: Asked) -> Turn:
        return error(status, said) if asked.count == 1 else climbing(asked)

    with openai_server(play) as server, night(root, server, 1) as climb:
        assert climb.climb().wins == 1
        first, second = sizes(server)
    assert second < first
    assert [call.outcome for call in climb.ledger.calls] == ["fault", "proposal"]


def test_a_request_that_is_bad_however_short_ends_the_asking(root: Path) -> None:
    with openai_server([error(400, "no")]) as server, night(root, server, 5) as climb:
        finished = climb.climb()
        asked = sizes(server)
    assert len(asked) == 2 and asked[1] < asked[0]
    assert "no further model calls" in finished.reason and "bad request: HTTP 400: no" in finished.reason


def test_a_server_that_cuts_the_briefing_is_told_of_once_and_gets_shorter_ones(root: Path) -> None:
    (root / "cases/demo/toy/workspace/long.py").write_text(lines(1600))

    def play(asked: Asked) -> Turn:
        read = min(size(asked), CONTEXT)
        usage = {"prompt_tokens": read, "completion_tokens": 30, "total_tokens": read + 30}
        if size(asked) > CONTEXT:
            return answer("What would you like me to do with this code?", usage=usage)
        return climbing(asked)

    with openai_server(play) as server, night(root, server, 2) as climb:
        finished = climb.climb()
        asked = sizes(server)
    assert finished.wins == 2, finished.reason
    assert asked[0] > 2 * CONTEXT and all(one <= CONTEXT for one in asked[1:])
    assert len(set(asked)) == len(asked)  # nothing was sent as it was, the cut reply's repair neither
    told = [trouble for trouble in climb.troubles if "dropped the rest" in trouble]
    assert len(told) == 1 and f"read {CONTEXT} tokens" in told[0] and "num_ctx" in told[0]


def test_a_repair_that_is_too_long_is_not_sent_again(root: Path) -> None:
    def play(asked: Asked) -> Turn:
        if asked.count == 1:
            return answer("no change in it", usage={})
        return error(400, "prompt is too long") if len(asked.body["messages"]) > 4 else climbing(asked)

    with openai_server(play) as server, night(root, server, 1) as climb:
        assert climb.climb().wins == 1
        repairs = [asked for asked in server.requests if len(asked.body["messages"]) > 4]
    assert len(repairs) == 1


def test_the_limit_shrinks_once_for_each_length() -> None:
    limit = BriefingLimit(10_000)
    limit.refused(10_000, 9_000)
    limit.refused(10_000, 9_000)
    assert limit.tokens == int(9_000 * SHRINK_FACTOR) and "9000 tokens too long" in limit.trouble
    assert limit.try_shorter(limit.tokens, 6_000) and not limit.try_shorter(limit.tokens, 4_000)
    assert limit.cut(2048) and limit.tokens == int(2048 * READ_SHARE)
    assert limit.cut(2048) == ""
