"""What is posted next and when: a queue with its limits, pauses and second thoughts. No thread and no network.

Normally posts go out one by one. After a failure or a rate limit they are held back; when too many have gathered, or
the outage has lasted, they become one digest. After a reply that no webhook is there nothing is ever sent again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import replace

from agent.entries import Webhook
from agent.notify.answer import Answer
from agent.notify.batch import Batch, Tally
from agent.notify.pace import Pace
from agent.notify.post import Post

NEVER = float("inf")
_DUE = Webhook(webhook_enabled_by_config=True, webhook_expected=True, webhook_status="queued")


class Postman:
    """The posts of one climb. Times are seconds on any clock that never goes back."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._pending: deque[tuple[Post, float]] = deque()
        """Each with when it came in."""
        self._tally = Tally()
        self._under_way: tuple[tuple[Post, float], ...] = ()
        self._batch: Batch | None = None
        """What was taken and is not noted yet."""
        self._allowed_at = self._retry_at = -NEVER
        self._failures = 0
        self._held_since: float | None = None
        self._dead = self._trouble = ""
        self._is_patient = True
        self._states: dict[int, Webhook] = {}
        self._outcomes: list[tuple[int, Webhook]] = []

    def add(self, posts: Iterable[Post], now: float) -> None:
        """Queue posts."""
        for post in posts:
            self._pending.append((post, now))
            if post.n is not None:
                self._states[post.n] = _DUE
        self._fold()
        if self._dead:
            self.give_up(self._dead)

    def webhook(self, n: int, kept: bool) -> Webhook:
        """How it stands with the post about a candidate."""
        if n in self._states:
            return self._states[n]
        if not kept:
            return Webhook(webhook_enabled_by_config=True, webhook_status="not due")
        return _DUE.model_copy(update={"webhook_status": self._dead}) if self._dead else _DUE

    def outcomes(self) -> list[tuple[int, Webhook]]:
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

    def wait(self, now: float) -> float:
        """Seconds until something may be sent; NEVER where nothing waits."""
        if not self._pending:
            return NEVER
        wait = max(self._allowed_at, self._retry_at) - now
        return wait if wait > 0 else self._wait_for_picture(now)

    def take(self, now: float, *, hurried: bool = False) -> Batch:
        """What goes out now, in one request; `note` must follow. Hurried: everything at once."""
        if hurried or self._is_crowded(now):
            self._under_way, tally = tuple(self._pending), self._tally
            self._pending.clear()
            self._tally = Tally()
        else:
            self._under_way, tally = (self._pending.popleft(),), Tally()
        self._batch = batch = Batch(tuple(post for post, _ in self._under_way), tally)
        self._mark(batch.candidates, webhook_attempted=True, webhook_status="being sent")
        return batch

    def note(self, batch: Batch, answer: Answer, now: float) -> None:
        """What came of it."""
        under_way, self._under_way, self._batch = self._under_way, (), None
        match answer.kind:
            case "sent":
                self._note_sent(batch, answer, now)
            case "limited" | "failed":
                self._put_back(under_way, batch.tally)
                self._hold(answer, now)
                self._trouble = answer.why
                self._mark(batch.candidates, webhook_status=f"{answer.why}; it is tried again")
            case "refused" if any(post.picture for post in batch.posts):
                bare = ((replace(post, picture=None), came) for post, came in under_way)
                self._put_back(tuple(bare), batch.tally)
            case "refused":
                self._end(batch.candidates, answer.why)
            case "gone":
                self._dead = f"{answer.why}; nothing more is sent"
                self._end(batch.candidates, self._dead)
                self.give_up(self._dead)

    def hurry(self, now: float) -> None:
        """The end is near: try at once, whatever failed before, and wait for no picture. A rate limit still holds."""
        self._retry_at, self._failures, self._is_patient = now, 0, False

    def lose(self, n: int, why: str) -> None:
        """There is no post about this candidate, though one was due."""
        self._states[n] = _DUE
        self._end([n], why)

    def give_up(self, why: str) -> None:
        """Nothing that waits will be sent; of what is under way nobody will know."""
        last = f"; last: {self._trouble}" if self._trouble and not self._dead else ""
        waiting = Batch(tuple(post for post, _ in self._pending), self._tally)
        under_way = self._batch.candidates if self._batch else []
        self._pending.clear()
        self._under_way, self._batch, self._tally = (), None, Tally()
        self._end(under_way, f"no reply to the request: {why}")
        self._end(waiting.candidates, why if self._dead else f"not sent: {why}{last}")

    def _is_crowded(self, now: float) -> bool:
        if self._held_since is None:
            return bool(self._tally.kinds)
        is_outage = now - self._held_since > self._pace.outage
        return len(self._pending) > self._pace.crowd or is_outage or bool(self._tally.kinds)

    def _wait_for_picture(self, now: float) -> float:
        """A win's picture is drawn just after the verdict: give it a moment, but hold nothing else up for it."""
        post, came = self._pending[0]
        is_patient = self._is_patient and post.kind == "win" and self._held_since is None
        left = came + self._pace.picture - now
        if not is_patient or len(self._pending) > 1 or post.picture is None or left <= 0:
            return 0.0
        try:
            is_fresh = post.picture.stat().st_mtime >= post.time
        except OSError:
            is_fresh = False
        return 0.0 if is_fresh else min(left, self._pace.peek)

    def _note_sent(self, batch: Batch, answer: Answer, now: float) -> None:
        self._failures, self._held_since, self._trouble = 0, None, ""
        self._retry_at = -NEVER
        self._allowed_at = now + min(answer.pause or 0.0, self._pace.longest_obedience)
        status = "sent" if batch.is_single else "sent in a digest"
        self._end(batch.candidates, status, webhook_sent=True)

    def _hold(self, answer: Answer, now: float) -> None:
        self._held_since = now if self._held_since is None else self._held_since
        if answer.pause is not None:
            self._allowed_at = now + min(answer.pause, self._pace.longest_obedience)
        if answer.kind == "failed" or answer.pause is None:
            doubled = self._pace.first_pause * 2.0 ** min(self._failures, 30)
            self._retry_at = now + min(doubled, self._pace.longest_pause)
            self._failures += 1

    def _put_back(self, posts: tuple[tuple[Post, float], ...], tally: Tally) -> None:
        self._pending.extendleft(reversed(posts))
        tally.merge(self._tally)
        self._tally = tally
        self._fold()

    def _fold(self) -> None:
        """Keep the queue within its size: of the oldest posts only a tally stays, but the end stays whole."""
        while len(self._pending) > self._pace.queue:
            oldest = next(i for i, (post, _) in enumerate(self._pending) if post.kind != "end")
            self._tally.add(self._pending[oldest][0])
            del self._pending[oldest]

    def _mark(self, candidates: Iterable[int], **changes: object) -> None:
        for n in candidates:
            self._states[n] = self._states[n].model_copy(update=changes)

    def _end(self, candidates: list[int], status: str, **changes: object) -> None:
        """These states are final."""
        self._mark(candidates, webhook_status=status, **changes)
        self._outcomes += [(n, self._states[n]) for n in candidates]
