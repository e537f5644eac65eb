"""The engine's thread outlives what its backends, its answers and their clients do."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from queue import Queue
from typing import Any

import pytest
import torch

from hillclimb.harness.serving.backends.mock_backend import MockBackend
from hillclimb.harness.serving.engine import Engine
from hillclimb.harness.serving.generation import AnswerEvent, Failure, Finish, Generation, Piece

WAIT = 60.0


class Fragile(MockBackend):
    """Has impossible logits for one slot, once, or does not forget."""

    def __init__(self, *, spoilt: int = -1, forgets: bool = True, **more: Any) -> None:
        super().__init__(**more)
        self._spoilt, self._forgets = spoilt, forgets

    def decode(self, last: Mapping[int, int]) -> torch.Tensor:
        rows = super().decode(last)
        for row, slot in zip(rows, last, strict=True):
            if slot == self._spoilt:
                row.fill_(torch.nan)
                self._spoilt = -1
        return rows

    def reset(self, slot: int) -> None:
        super().reset(slot)
        if not self._forgets:
            raise RuntimeError("no such device")


def asked(tokens: int = 5, **more: Any) -> Generation:
    return Generation(prompt=(97,), most_tokens=tokens, **{"temperature": 1.0, **more})


def submitted(engine: Engine, *generations: Generation) -> list[Queue[AnswerEvent]]:
    queues: list[Queue[AnswerEvent]] = [Queue() for _ in generations]
    for queue, generation in zip(queues, generations, strict=True):
        engine.submit(generation, queue.put)
    return queues


def ended(queue: Queue[AnswerEvent]) -> tuple[int, AnswerEvent]:
    """How many tokens came, and the last event."""
    count = 0
    while isinstance(event := queue.get(timeout=WAIT), Piece):
        count += 1
    assert queue.empty()
    return count, event


def test_an_answer_that_cannot_be_drawn_fails_alone() -> None:
    engine = Engine(Fragile(spoilt=1, slots=3))
    try:
        first, second, third = map(ended, submitted(engine, asked(), asked(), asked()))
        assert first == third == (5, Finish("length", ""))
        assert isinstance(second[1], Failure) and "the backend failed" in second[1].reason
        assert ended(submitted(engine, asked())[0])[0] == 5
    finally:
        engine.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_thread_that_dies_tells_all_that_wait() -> None:
    engine = Engine(Fragile(forgets=False, slots=2))
    queues = submitted(engine, asked(3), asked(500), asked(500))
    events = [ended(queue)[1] for queue in queues]
    assert isinstance(events[0], Finish) and all(isinstance(one, Failure) for one in events[1:])
    assert not engine.is_open
    assert ended(submitted(engine, asked())[0]) == (0, Failure("the server ends"))
    engine.close()


def test_answers_under_way_fail_when_it_closes() -> None:
    engine = Engine(MockBackend(slots=1, decode_seconds=0.001))
    running, waiting = submitted(engine, asked(8000), asked())
    assert isinstance(running.get(timeout=WAIT), Piece)
    engine.close()
    assert ended(running)[1] == ended(waiting)[1] == Failure("the server ends")
    assert ended(submitted(engine, asked())[0])[1] == Failure("the server ends")


def test_answers_that_wait_are_gone_when_they_are_cancelled() -> None:
    engine = Engine(MockBackend(slots=1, decode_seconds=0.001))
    try:
        (running,) = submitted(engine, asked(8000))
        running.get(timeout=WAIT)
        answers = [engine.submit(asked(), lambda event: None) for _ in range(20)]
        assert engine.waiting == 20 and engine.running == 1
        for answer in answers:
            engine.cancel(answer)
        assert engine.waiting == 0
    finally:
        engine.close()


def test_prompts_are_taken_between_steps() -> None:
    """One after another, however many slots are free: answers under way do not wait for all of them."""

    class Ordered(MockBackend):
        def __init__(self) -> None:
            super().__init__(slots=4)
            self.calls: list[str] = []

        def prefill(self, slot: int, tokens: Any) -> torch.Tensor:
            self.calls.append("prefill")
            return super().prefill(slot, tokens)

        def decode(self, last: Mapping[int, int]) -> torch.Tensor:
            self.calls.append("decode")
            return super().decode(last)

    may_begin = threading.Event()
    backend = Ordered()
    engine = Engine(backend)
    try:
        engine.submit(asked(1), lambda event: may_begin.wait(WAIT) and None)
        queues = submitted(engine, *[asked(9)] * 3)
        may_begin.set()
        assert [ended(queue)[0] for queue in queues] == [9, 9, 9]
        assert "prefill prefill prefill" not in " ".join(backend.calls)
    finally:
        engine.close()
