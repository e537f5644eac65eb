"""An open endpoint: calls to a model run in one background thread, any number of them at the same time."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING

from agent.model.call import Call
from agent.model.dialect import Dialect
from agent.model.messages import Message, Reply
from agent.model.pauses import Pauses
from agent.model.settings import ModelSettings

if TYPE_CHECKING:
    from types import TracebackType

CLOSE_SECONDS = 5.0
"""The longest that closing waits for the thread."""


class Endpoint:
    """One model behind one server. `rng` jitters the pauses, and is the endpoint's own from here on.

    Raises UsageError where the environment's proxy or certificates cannot be used.
    """

    def __init__(self, settings: ModelSettings, rng: random.Random, pauses: Pauses | None = None) -> None:
        from agent.model.wire import Wire  # brings the openai package along, which takes its time to import

        self._settings, self._rng, self._pauses = settings, rng, pauses or Pauses()
        self._wire = Wire(settings)
        self._dialect = Dialect(settings)
        self._lock = threading.Lock()
        self._closed = False
        self._closing = asyncio.Event()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="model endpoint", daemon=True)
        self._thread.start()

    def submit(self, messages: Sequence[Message]) -> Future[Reply]:
        """Begin a call; its future ends by the deadline, in a Reply or a ModelFault. Cancelling it ends the call."""
        call = Call(tuple(messages), self._settings, self._wire, self._dialect, self._pauses, self._rng)
        with self._lock:
            if self._closed:
                raise RuntimeError("the endpoint is closed; open another one")
            return asyncio.run_coroutine_threadsafe(call.run(), self._loop)

    def ask(self, messages: Sequence[Message]) -> Reply:
        """Call and wait. Raises ModelFault; CancelledError where the endpoint is closed meanwhile."""
        future = self.submit(messages)
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupted wait leaves no call behind
            raise

    def close(self) -> None:
        """Cancel what is under way, close every connection, end the thread; more than once does no harm."""
        with self._lock:
            first, self._closed = not self._closed, True
        if first:
            self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join(CLOSE_SECONDS)

    def __enter__(self) -> Endpoint:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

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
        await self._wire.close()
