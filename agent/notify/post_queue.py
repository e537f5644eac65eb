"""What is posted next and when: a queue with its limits, pauses and second thoughts. No thread and no network.

Normally posts go out one by one. After a failure or a rate limit they are held back; when too many have gathered, or
the outage has lasted, they become one digest. After a reply that no webhook is there nothing is ever sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from hillclimb.agent.notify.batch import DroppedPosts, PostBatch
from hillclimb.agent.notify.limits import NotifyLimits
from hillclimb.agent.notify.post import Post
from hillclimb.agent.notify.response import WebhookResponse
from hillclimb.agent.record.entries import WebhookState

NEVER = float("inf")
_QUEUED = WebhookState(webhook_enabled_by_config=True, webhook_expected=True, webhook_status="queued")


class PostQueue:
    """The posts of one climb. Times are seconds on any clock that never goes back."""

    def __init__(self, limits: NotifyLimits) -> None:
        self._limits = limits
        self._pending: deque[tuple[Post, float]] = deque()
        """Each with when it came in."""
        self._dropped = DroppedPosts()
        self._in_flight: tuple[tuple[Post, float], ...] = ()
        self._batch: PostBatch | None = None
        """What was taken and is not noted yet."""
        self._allowed_at = self._retry_at = -NEVER
        self._failures = 0
        self._held_since: float | None = None
        self._dead_reason = self._last_failure = ""
        self._waits_for_picture = True
        self._states: dict[int, WebhookState] = {}
        self._outcomes: list[tuple[int, WebhookState]] = []

    def add(self, posts: Iterable[Post], now: float) -> None:
        """Queue posts."""
        for post in posts:
            self._pending.append((post, now))
            if post.n is not None:
                self._states[post.n] = _QUEUED
        self._trim()
        if self._dead_reason:
            self.drop_all(self._dead_reason)

    def webhook(self, n: int, kept: bool) -> WebhookState:
        """How it stands with the post about a candidate."""
        if n in self._states:
            return self._states[n]
        if not kept:
            return WebhookState(webhook_enabled_by_config=True, webhook_status="not due")
        return (
            _QUEUED.model_copy(update={"webhook_status": self._dead_reason}) if self._dead_reason else _QUEUED
        )

    def outcomes(self) -> list[tuple[int, WebhookState]]:
        """Final states since this was last asked."""
        outcomes, self._outcomes = self._outcomes, []
        return outcomes

    @property
    def is_idle(self) -> bool:
        """Whether nothing waits and nothing is under way."""
        return not self._pending and self._batch is None

    @property
    def has_end(self) -> bool:
        """Whether the morning digest waits."""
        return any(post.kind == "end" for post, _ in self._pending)

    def wait_seconds(self, now: float) -> float:
        """Seconds until something may be sent; NEVER where nothing waits."""
        if not self._pending:
            return NEVER
        wait = max(self._allowed_at, self._retry_at) - now
        return wait if wait > 0 else self._wait_for_picture(now)

    def take(self, now: float, *, hurried: bool = False) -> PostBatch:
        """What goes out now, in one request; `record_response` must follow. Hurried: everything at once."""
        if hurried or self._needs_digest(now):
            self._in_flight, tally = tuple(self._pending), self._dropped
            self._pending.clear()
            self._dropped = DroppedPosts()
        else:
            self._in_flight, tally = (self._pending.popleft(),), DroppedPosts()
        self._batch = batch = PostBatch(tuple(post for post, _ in self._in_flight), tally)
        self._update_states(batch.candidates, webhook_attempted=True, webhook_status="being sent")
        return batch

    def record_response(self, batch: PostBatch, answer: WebhookResponse, now: float) -> None:
        """What came of it."""
        under_way, self._in_flight, self._batch = self._in_flight, (), None
        match answer.kind:
            case "sent":
                self._note_sent(batch, answer, now)
            case "limited" | "failed":
                self._requeue(under_way, batch.dropped)
                self._back_off(answer, now)
                self._last_failure = answer.reason
                self._update_states(batch.candidates, webhook_status=f"{answer.reason}; it is tried again")
            case "refused" if any(post.picture for post in batch.posts):
                bare = ((replace(post, picture=None), came) for post, came in under_way)
                self._requeue(tuple(bare), batch.dropped)
            case "refused":
                self._finalise(batch.candidates, answer.reason)
            case "gone":
                self._dead_reason = f"{answer.reason}; nothing more is sent"
                self._finalise(batch.candidates, self._dead_reason)
                self.drop_all(self._dead_reason)

    def retry_now(self, now: float) -> None:
        """The end is near: try at once, whatever failed before, and wait for no picture. A rate limit still holds."""
        self._retry_at, self._failures, self._waits_for_picture = now, 0, False

    def mark_lost(self, n: int, why: str) -> None:
        """There is no post about this candidate, though one was due."""
        self._states[n] = _QUEUED
        self._finalise([n], why)

    def drop_all(self, why: str) -> None:
        """Nothing that waits will be sent; of what is under way nobody will know."""
        last = f"; last: {self._last_failure}" if self._last_failure and not self._dead_reason else ""
        waiting = PostBatch(tuple(post for post, _ in self._pending), self._dropped)
        under_way = self._batch.candidates if self._batch else []
        self._pending.clear()
        self._in_flight, self._batch, self._dropped = (), None, DroppedPosts()
        self._finalise(under_way, f"no reply to the request: {why}")
        self._finalise(waiting.candidates, why if self._dead_reason else f"not sent: {why}{last}")

    def _needs_digest(self, now: float) -> bool:
        if self._held_since is None:
            return bool(self._dropped.kinds)
        is_outage = now - self._held_since > self._limits.outage_seconds
        return len(self._pending) > self._limits.max_held_posts or is_outage or bool(self._dropped.kinds)

    def _wait_for_picture(self, now: float) -> float:
        """A win's picture is drawn just after the verdict: give it a moment, but hold nothing else up for it."""
        post, came = self._pending[0]
        is_patient = self._waits_for_picture and post.kind == "win" and self._held_since is None
        left = came + self._limits.picture_wait_seconds - now
        if not is_patient or len(self._pending) > 1 or post.picture is None or left <= 0:
            return 0.0
        try:
            is_fresh = post.picture.stat().st_mtime >= post.time
        except OSError:
            is_fresh = False
        return 0.0 if is_fresh else min(left, self._limits.picture_poll_seconds)

    def _note_sent(self, batch: PostBatch, answer: WebhookResponse, now: float) -> None:
        self._failures, self._held_since, self._last_failure = 0, None, ""
        self._retry_at = -NEVER
        self._allowed_at = now + min(answer.pause_seconds or 0.0, self._limits.max_rate_limit_seconds)
        status = "sent" if batch.is_single else "sent in a digest"
        self._finalise(batch.candidates, status, webhook_sent=True)

    def _back_off(self, answer: WebhookResponse, now: float) -> None:
        self._held_since = now if self._held_since is None else self._held_since
        if answer.pause_seconds is not None:
            self._allowed_at = now + min(answer.pause_seconds, self._limits.max_rate_limit_seconds)
        if answer.kind == "failed" or answer.pause_seconds is None:
            doubled = self._limits.first_retry_seconds * 2.0 ** min(self._failures, 30)
            self._retry_at = now + min(doubled, self._limits.max_retry_seconds)
            self._failures += 1

    def _requeue(self, posts: tuple[tuple[Post, float], ...], tally: DroppedPosts) -> None:
        self._pending.extendleft(reversed(posts))
        tally.merge(self._dropped)
        self._dropped = tally
        self._trim()

    def _trim(self) -> None:
        """Keep the queue within its size: of the oldest posts only a tally stays, but the end stays whole."""
        while len(self._pending) > self._limits.max_queued_posts:
            oldest = next(i for i, (post, _) in enumerate(self._pending) if post.kind != "end")
            self._dropped.add(self._pending[oldest][0])
            del self._pending[oldest]

    def _update_states(self, candidates: Iterable[int], **changes: object) -> None:
        for n in candidates:
            self._states[n] = self._states[n].model_copy(update=changes)

    def _finalise(self, candidates: list[int], status: str, **changes: object) -> None:
        """These states are final."""
        self._update_states(candidates, webhook_status=status, **changes)
        self._outcomes += [(n, self._states[n]) for n in candidates]
