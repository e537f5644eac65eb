"""The thread that runs a backend: sequences come and go while others are decoded (continuous batching)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import torch

from hillclimb.harness.serving.backends.backend import Backend
from hillclimb.harness.serving.generation import AnswerEvent, Failure, Finish, Generation, Piece
from hillclimb.harness.serving.sampling import Sampler
from hillclimb.harness.serving.text_stream import TextStream

T = TypeVar("T")
CLOSED = Failure("the server ends")


@dataclass(eq=False)
class Answer:
    """One that is waited for, or made."""

    generation: Generation
    deliver: Callable[[AnswerEvent], None]
    """Called by the engine's thread, mostly; it neither waits nor raises."""
    is_cancelled: bool = False


class _Sequence:
    """An answer in a slot."""

    def __init__(self, answer: Answer, backend: Backend) -> None:
        self.answer, self._ends = answer, backend.end_tokens
        self._sampler = Sampler(answer.generation)
        self._stream = TextStream(backend.text, answer.generation.stop)
        self.last, self._count = 0, 0

    def take(self, logits: torch.Tensor) -> bool:
        """Choose a token and deliver it; whether the answer goes on."""
        asked = self.answer.generation
        barred = self._ends if self._count < asked.least_tokens else ()
        chosen, likeliest = self._sampler.choose(logits, barred)
        self.last, self._count = chosen.token, self._count + 1
        is_end = chosen.token in self._ends and not asked.ignores_end
        may_stop = self._count > asked.least_tokens
        text = "" if is_end else self._stream.add(chosen.token, may_stop=may_stop)
        is_last = is_end or self._stream.is_stopped or self._count >= asked.most_tokens
        rest = self._stream.end() if is_last else ""
        self.answer.deliver(Piece(chosen, likeliest, text))
        if is_last:
            self.answer.deliver(Finish("stop" if is_end or self._stream.is_stopped else "length", rest))
        return not is_last


class Engine:
    """Runs one backend until it is closed."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._waiting: deque[Answer] = deque()
        self._running: dict[int, _Sequence] = {}
        self._changed = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    @property
    def running(self) -> int:
        """Answers that are being made."""
        return len(self._running)

    @property
    def waiting(self) -> int:
        """Answers that no slot was free for."""
        return len(self._waiting)

    @property
    def is_open(self) -> bool:
        """Whether it takes answers: until it is closed, or its thread died."""
        return not self._is_closed

    def submit(self, generation: Generation, deliver: Callable[[AnswerEvent], None]) -> Answer:
        """Its events end with one Finish or one Failure, unless it is cancelled."""
        answer = Answer(generation, deliver)
        with self._changed:
            if is_open := self.is_open:
                self._waiting.append(answer)
                self._changed.notify()
        if not is_open:
            deliver(CLOSED)
        return answer

    def cancel(self, answer: Answer) -> None:
        """Nobody waits for it any longer: no token is made for it after those under way."""
        with self._changed:
            answer.is_cancelled = True
            if answer in self._waiting:
                self._waiting.remove(answer)

    def close(self) -> None:
        """Fail all answers. It returns when the backend is no longer called."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        try:
            while self._is_needed():
                self._admit()
                self._drop_cancelled()
                self._step()
        finally:
            with self._changed:
                self._is_closed = True
                left = [*(one.answer for one in self._running.values()), *self._waiting]
                self._running.clear()
                self._waiting.clear()
            for answer in left:
                answer.deliver(CLOSED)

    def _is_needed(self) -> bool:
        """Waits until there is something to do; False once it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._waiting or self._running)
            return not self._is_closed

    def _admit(self) -> None:
        """One answer, so that those under way wait for one prompt at the most."""
        free = next((slot for slot in range(self._backend.slots) if slot not in self._running), None)
        with self._changed:
            answer = self._waiting.popleft() if self._waiting and free is not None else None
        if answer is None or free is None:
            return
        self._running[free] = _Sequence(answer, self._backend)
        logits = self._attempt(free, partial(self._backend.prefill, free, answer.generation.prompt))
        if logits is not None:
            self._take(free, logits)

    def _drop_cancelled(self) -> None:
        for slot, sequence in list(self._running.items()):
            if sequence.answer.is_cancelled:
                self._leave(slot)

    def _step(self) -> None:
        """A token for each sequence; all of them fail where the backend does."""
        last = {slot: sequence.last for slot, sequence in self._running.items()}
        rows = self._attempt(None, partial(self._decode, last)) if last else None
        for slot, row in (rows or {}).items():
            self._take(slot, row)

    def _decode(self, last: Mapping[int, int]) -> dict[int, torch.Tensor]:
        return dict(zip(last, self._backend.decode(last), strict=True))

    def _take(self, slot: int, logits: torch.Tensor) -> None:
        if self._attempt(slot, partial(self._running[slot].take, logits)) is False:
            self._leave(slot)

    def _attempt(self, slot: int | None, call: Callable[[], T]) -> T | None:
        """What the call gives. None where it raises: then this slot's answer fails, or with None all of them."""
        try:
            return call()
        except Exception as error:  # noqa: BLE001 - a backend may raise anything; its clients are told
            for failed in [slot] if slot is not None else list(self._running):
                self._running[failed].answer.deliver(
                    Failure(f"the backend failed: {type(error).__name__}: {error}")
                )
                self._leave(failed)
            return None

    def _leave(self, slot: int) -> None:
        del self._running[slot]
        self._backend.reset(slot)
