"""Posts about a climb in a Discord channel, from one daemon thread behind a bounded queue.

The climb only ever puts events in and takes states out, each under a lock that is held for microseconds; requests are
made outside of it. However Discord behaves, telling returns at once, and closing after its seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from pydantic import SecretStr

from agent.entries import Webhook
from agent.events import Event, JudgedEvent, ProgressEvent
from agent.notify.batch import Batch
from agent.notify.notifier import CLOSE_SECONDS
from agent.notify.pace import Pace
from agent.notify.post import Post
from agent.notify.postman import NEVER, Postman
from agent.notify.story import Story

_LONGEST_SLEEP = 3600.0


class Discord:
    """One webhook, for one climb."""

    def __init__(
        self,
        url: SecretStr,
        *,
        pace: Pace | None = None,
        secrets: Sequence[SecretStr] = (),
        story: type[Story] = Story,
    ) -> None:
        from agent.notify.courier import Courier  # takes a moment: here, and not while something is measured

        self._pace = pace or Pace()
        self._courier = Courier(url)
        self._story = story(self._pace, (url, *secrets))
        self._postman = Postman(self._pace)
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None
        self._halftime = self._deadline = NEVER
        self._is_over = False

    def tell(self, event: Event) -> None:
        """See Notifier."""
        if isinstance(event, ProgressEvent):
            return
        try:
            with self._changed:
                if self._deadline == NEVER:
                    now = time.monotonic()
                    self._queue(self._story.take(event, now), now)
        except Exception as error:  # noqa: BLE001 - the border: a post that cannot be worded ends no climb
            self._lose(event, f"no post could be made of it: {type(error).__name__}")

    def webhook(self, n: int, kept: bool) -> Webhook:
        """See Notifier."""
        with self._changed:
            return self._postman.webhook(n, kept)

    def outcomes(self) -> list[tuple[int, Webhook]]:
        """See Notifier."""
        with self._changed:
            return self._postman.outcomes()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """See Notifier. In the first half posts go out as ever; then all that waits goes into the last digest."""
        with self._changed:
            if self._deadline != NEVER:
                return
            now = time.monotonic()
            self._queue(self._story.rest(), now)
            self._halftime, self._deadline = now + seconds / 2, now + seconds
            self._postman.hurry(now)
            self._changed.notify_all()
            if not self._await_silence(seconds / 2) and self._postman.has_end:
                self._courier.cut()
            self._await_silence(self._deadline - time.monotonic())
            self._is_over = True
            self._courier.cut()
            self._changed.notify_all()
            self._postman.give_up("the climb ended first")
        if self._thread is not None:
            self._thread.join(timeout=0.5)

    def _await_silence(self, seconds: float) -> bool:
        """Whether all is sent, or will not be, within so many seconds."""
        return self._changed.wait_for(lambda: self._is_over or self._postman.is_idle, max(0.0, seconds))

    def _queue(self, posts: list[Post], now: float) -> None:
        self._postman.add(posts, now)
        if posts and self._thread is None:
            thread = threading.Thread(target=self._work, name="discord", daemon=True)
            with suppress(RuntimeError):  # no thread to be had now: the next post tries again
                thread.start()
                self._thread = thread
        self._changed.notify_all()

    def _lose(self, event: Event, why: str) -> None:
        if isinstance(event, JudgedEvent) and event.kept:
            with self._changed:
                self._postman.lose(event.n, why)

    def _work(self) -> None:
        try:
            while self._round():
                pass
        except Exception as error:  # noqa: BLE001 - the border: a traceback could hold the URL, so only the type is told
            with self._changed:
                self._postman.give_up(f"the notifier failed: {type(error).__name__}")
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    def _round(self) -> bool:
        """Send what is due, or wait for it; False when it is over."""
        with self._changed:
            batch = self._next()
        if batch is None:
            return not self._is_over
        answer = self._courier.deliver(batch.message(), self._allowance(batch))
        with self._changed:
            if not self._is_over:
                now = time.monotonic()
                self._postman.note(batch, answer, now)
                if now > self._halftime and not batch.has_end:
                    self._postman.hurry(now)  # what failed now made way for the digest
            self._changed.notify_all()
        return not self._is_over

    def _next(self) -> Batch | None:
        """What goes out now; None after a wait, or where it is over."""
        now = time.monotonic()
        self._postman.add(self._story.ripe(now), now)
        wait = self._postman.wait(now)
        if now + wait > self._deadline or self._is_over:
            self._is_over = True  # nothing more can be sent in time
            return None
        if wait > 0:
            self._changed.wait(min(wait, max(0.0, self._story.next_ripe() - now), _LONGEST_SLEEP))
            return None
        return self._postman.take(now, hurried=now > self._halftime)

    def _allowance(self, batch: Batch) -> float:
        """What the request may take; while closing, the digest that comes after it keeps its share."""
        left = self._deadline - time.monotonic()
        share = left if batch.has_end else left / 2
        return max(0.05, min(self._pace.request, share))
