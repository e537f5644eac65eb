"""An open endpoint: calls to a model run in one background thread, any number of them at the same time."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from hillclimb.agent.llm.client.backoff import BackoffPolicy
from hillclimb.agent.llm.client.call import ModelCall
from hillclimb.agent.llm.client.faults import AttemptFailure, Fault
from hillclimb.agent.llm.client.messages import Message, Reply
from hillclimb.agent.llm.client.request_form import RequestForm
from hillclimb.agent.llm.client.scrubber import Scrubber
from hillclimb.agent.llm.client.settings import ModelSettings
from hillclimb.agent.record.entries import TokenUsage

if TYPE_CHECKING:
    from types import TracebackType

CLOSE_TIMEOUT_SECONDS = 5.0
"""The longest that closing waits for the thread."""


class Endpoint:
    """One model behind one server. `rng` jitters the pauses, and is the endpoint's own from here on.

    Raises UsageError where the environment's proxy or certificates cannot be used.
    """

    def __init__(
        self, settings: ModelSettings, rng: random.Random, pauses: BackoffPolicy | None = None
    ) -> None:
        from hillclimb.agent.llm.client.wire import (
            ChatClient,  # brings the openai package along, which takes its time to import
        )

        self._settings, self._rng, self._backoff = settings, rng, pauses or BackoffPolicy()
        self._client = ChatClient(settings)
        self._form = RequestForm(settings)
        self._scrubber = Scrubber(settings)
        self._calls: WeakKeyDictionary[Future[Reply], ModelCall] = WeakKeyDictionary()
        self.outage = ""
        """Why the server cannot be reached at the moment, with its address; empty while it can."""
        self._lock = threading.Lock()
        self._closed = False
        self._closing = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="model endpoint", daemon=True)
        self._thread.start()

    def submit(self, messages: Sequence[Message]) -> Future[Reply]:
        """Begin a call; its future ends by the deadline, in a Reply or a ModelFault. Cancelling it ends the call."""
        call = ModelCall(
            tuple(messages),
            self._settings,
            self._client,
            self._form,
            self._backoff,
            self._rng,
            self._note_attempt,
        )
        with self._lock:
            if self._closed:
                raise RuntimeError("the endpoint is closed; open another one")
            future = asyncio.run_coroutine_threadsafe(call.run(), self._loop)
            self._calls[future] = call
            return future

    def usage_so_far(self, future: Future[Reply]) -> tuple[TokenUsage, float | None]:
        """What a call of `submit` used if it is given up now."""
        return self._calls[future].usage_so_far()

    def ask(self, messages: Sequence[Message]) -> Reply:
        """Call and wait. Raises ModelFault; CancelledError where the endpoint is closed meanwhile."""
        future = self.submit(messages)
        with ExitStack() as stack:
            stack.callback(
                future.cancel
            )  # an interrupted wait leaves no call behind; an ended one is not touched
            return future.result()

    def close(self) -> None:
        """Cancel what is under way, close every connection, end the thread; more than once does no harm."""
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(CLOSE_TIMEOUT_SECONDS)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _note_attempt(self, failure: AttemptFailure | None) -> None:
        unreachable = failure is not None and failure.fault is Fault.UNREACHABLE
        self.outage = self._scrubber.scrub_line(failure.detail) if failure and unreachable else ""

    def _run(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
        finally:
            self._loop.close()  # does not wait for a name lookup that hangs

    async def _serve(self) -> None:
        await self._closing.wait()
        calls = asyncio.all_tasks() - {asyncio.current_task()}
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)
        await self._client.close()
