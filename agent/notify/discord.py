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

from hillclimb.agent.notify.batch import PostBatch
from hillclimb.agent.notify.composer import PostComposer
from hillclimb.agent.notify.limits import NotifyLimits
from hillclimb.agent.notify.notifier import CLOSE_SECONDS
from hillclimb.agent.notify.post import Post
from hillclimb.agent.notify.post_queue import NEVER, PostQueue
from hillclimb.agent.record.entries import WebhookState
from hillclimb.agent.screen.events import Event, JudgedEvent, ProgressEvent

_MAX_SLEEP_SECONDS = 3600.0


class DiscordNotifier:
    """One webhook, for one climb."""

    def __init__(
        self,
        url: SecretStr,
        *,
        limits: NotifyLimits | None = None,
        secrets: Sequence[SecretStr] = (),
        composer_class: type[PostComposer] = PostComposer,
    ) -> None:
        from hillclimb.agent.notify.webhook import (
            WebhookClient,  # takes a moment: here, and not while something is measured
        )

        self._limits = limits or NotifyLimits()
        self._client = WebhookClient(url)
        self._composer = composer_class(self._limits, (url, *secrets))
        self._post_queue = PostQueue(self._limits)
        self._condition = threading.Condition()
        self._thread: threading.Thread | None = None
        self._digest_deadline = self._deadline = NEVER
        self._is_over = False

    def notify(self, event: Event) -> None:
        """See Notifier."""
        if isinstance(event, ProgressEvent):
            return
        try:
            with self._condition:
                if self._deadline == NEVER:
                    now = time.monotonic()
                    self._queue(self._composer.take_event(event, now), now)
        except Exception as error:  # noqa: BLE001 - the border: a post that cannot be worded ends no climb
            self._mark_lost(event, f"no post could be made of it: {type(error).__name__}")

    def webhook(self, n: int, kept: bool) -> WebhookState:
        """See Notifier."""
        with self._condition:
            return self._post_queue.webhook(n, kept)

    def outcomes(self) -> list[tuple[int, WebhookState]]:
        """See Notifier."""
        with self._condition:
            return self._post_queue.outcomes()

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """See Notifier. In the first half posts go out as ever; then all that waits goes into the last digest."""
        with self._condition:
            if self._deadline != NEVER:
                return
            now = time.monotonic()
            self._queue(self._composer.remaining_posts(), now)
            self._digest_deadline, self._deadline = now + seconds / 2, now + seconds
            self._post_queue.retry_now(now)
            self._condition.notify_all()
            if not self._wait_until_idle(seconds / 2) and self._post_queue.has_end:
                self._client.abort()
            self._wait_until_idle(self._deadline - time.monotonic())
            self._is_over = True
            self._client.abort()
            self._condition.notify_all()
            self._post_queue.drop_all("the climb ended first")
        if self._thread is not None:
            self._thread.join(timeout=0.5)

    def _wait_until_idle(self, seconds: float) -> bool:
        """Whether all is sent, or will not be, within so many seconds."""
        return self._condition.wait_for(lambda: self._is_over or self._post_queue.is_idle, max(0.0, seconds))

    def _queue(self, posts: list[Post], now: float) -> None:
        self._post_queue.add(posts, now)
        if posts and self._thread is None:
            thread = threading.Thread(target=self._work, name="discord", daemon=True)
            with suppress(RuntimeError):  # no thread to be had now: the next post tries again
                thread.start()
                self._thread = thread
        self._condition.notify_all()

    def _mark_lost(self, event: Event, why: str) -> None:
        if isinstance(event, JudgedEvent) and event.kept:
            with self._condition:
                self._post_queue.mark_lost(event.n, why)

    def _work(self) -> None:
        try:
            while self._send_next():
                pass
        except Exception as error:  # noqa: BLE001 - the border: a post that cannot be worded ends no climb
            with self._condition:
                self._post_queue.drop_all(f"the notifier failed: {type(error).__name__}")
        finally:
            with self._condition:
                self._is_over = True
                self._condition.notify_all()

    def _send_next(self) -> bool:
        """Send what is due, or wait for it; False when it is over."""
        with self._condition:
            batch = self._next()
        if batch is None:
            return not self._is_over
        answer = self._client.deliver(batch.message(), self._request_timeout_seconds(batch))
        with self._condition:
            if not self._is_over:
                now = time.monotonic()
                self._post_queue.record_response(batch, answer, now)
                if now > self._digest_deadline and not batch.has_end:
                    self._post_queue.retry_now(now)  # what failed now made way for the digest
            self._condition.notify_all()
        return not self._is_over

    def _next(self) -> PostBatch | None:
        """What goes out now; None after a wait, or where it is over."""
        now = time.monotonic()
        self._post_queue.add(self._composer.due_posts(now), now)
        wait = self._post_queue.wait_seconds(now)
        if now + wait > self._deadline or self._is_over:
            self._is_over = True  # nothing more can be sent in time
            return None
        if wait > 0:
            self._condition.wait(min(wait, max(0.0, self._composer.next_due_at() - now), _MAX_SLEEP_SECONDS))
            return None
        return self._post_queue.take(now, hurried=now > self._digest_deadline)

    def _request_timeout_seconds(self, batch: PostBatch) -> float:
        """What the request may take; while closing, the digest that comes after it keeps its share."""
        left = self._deadline - time.monotonic()
        share = left if batch.has_end else left / 2
        return max(0.05, min(self._limits.request_timeout_seconds, share))
