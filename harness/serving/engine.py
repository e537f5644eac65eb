"""The thread that runs a backend: sequences come and go while others are decoded (continuous batching)."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import torch

from hillclimb.harness.serving.backend import Backend
from hillclimb.harness.serving.generation import AnswerEvent, Failure, Finish, Generation, Piece
from hillclimb.harness.serving.sampling import Sampler
from hillclimb.harness.serving.text_stream import TextStream


@dataclass(eq=False)
class Answer:
    """One that is waited for, or made."""

    generation: Generation
    deliver: Callable[[AnswerEvent], None]
    """Called by the engine's thread; it must not wait."""
    is_cancelled: threading.Event = field(default_factory=threading.Event)

    def cancel(self) -> None:
        """Nobody waits for it any longer: no token is made for it after those under way."""
        self.is_cancelled.set()


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
        text = "" if is_end else self._stream.add(chosen.token)
        self.answer.deliver(Piece(chosen, likeliest, text))
        if is_end or self._stream.is_stopped:
            self.answer.deliver(Finish("stop", self._stream.end()))
        elif self._count >= asked.most_tokens:
            self.answer.deliver(Finish("length", self._stream.end()))
        else:
            return True
        return False


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

    def submit(self, generation: Generation, deliver: Callable[[AnswerEvent], None]) -> Answer:
        """Its events end with a Finish or a Failure, unless it is cancelled."""
        answer = Answer(generation, deliver)
        with self._changed:
            self._waiting.append(answer)
            self._changed.notify()
        return answer

    def close(self) -> None:
        """Give up all answers. It returns when the backend is no longer called."""
        with self._changed:
            self._is_closed = True
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while self._is_needed():
            self._admit()
            self._drop_cancelled()
            self._step()

    def _is_needed(self) -> bool:
        """Waits until there is something to do; False once it is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._waiting or self._running)
            return not self._is_closed

    def _admit(self) -> None:
        free = [slot for slot in range(self._backend.slots) if slot not in self._running]
        for slot in free:
            answer = self._next()
            if answer is None:
                return
            sequence = _Sequence(answer, self._backend)
            self._running[slot] = sequence
            self._advance({slot: sequence}, partial(self._prefill, slot, answer.generation))

    def _prefill(self, slot: int, generation: Generation) -> Sequence[torch.Tensor]:
        return [self._backend.prefill(slot, generation.prompt)]

    def _next(self) -> Answer | None:
        """The first that somebody waits for."""
        with self._changed:
            while self._waiting:
                answer = self._waiting.popleft()
                if not answer.is_cancelled.is_set():
                    return answer
        return None

    def _drop_cancelled(self) -> None:
        for slot, sequence in list(self._running.items()):
            if sequence.answer.is_cancelled.is_set():
                self._leave(slot)

    def _step(self) -> None:
        if batch := dict(self._running):
            last = {slot: sequence.last for slot, sequence in batch.items()}
            self._advance(batch, lambda: self._backend.decode(last))

    def _advance(self, batch: Mapping[int, _Sequence], logits: Callable[[], Iterable[torch.Tensor]]) -> None:
        """A token for each sequence; those that end leave, and all of them where the backend fails."""
        try:
            pairs = zip(batch.items(), logits(), strict=True)
            ended = [slot for (slot, sequence), row in pairs if not sequence.take(row)]
        except Exception as error:  # noqa: BLE001 - a backend may raise anything; its clients are told
            ended = list(batch)
            for sequence in batch.values():
                sequence.answer.deliver(Failure(f"{type(error).__name__}: {error}"))
        for slot in ended:
            self._leave(slot)

    def _leave(self, slot: int) -> None:
        del self._running[slot]
        self._backend.reset(slot)
