"""Posts that go out together as one message: after an outage, a digest of what was missed."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace

from hillclimb.agent.notify.post import MAX_FIELDS, Post, PostKind
from hillclimb.agent.notify.sanitize import clip, units

_MAX_DIGEST_UNITS = 2800
"""UTF-16 units of lines in a digest; what is older is only counted."""
_MAX_FIELD_UNITS = 1000
_NOUNS: dict[PostKind, tuple[str, str]] = {
    "start": ("start", "starts"),
    "win": ("win", "wins"),
    "turn": ("plateau", "plateaus"),
    "trouble": ("failure", "failures"),
    "digest": ("digest", "digests"),
    "end": ("end", "ends"),
}


@dataclass
class DroppedPosts:
    """Posts of which only this is kept, because too many were held back."""

    kinds: Counter[PostKind] = field(default_factory=Counter)
    candidates: list[int] = field(default_factory=list)

    def add(self, post: Post) -> None:
        """Fold one post into it."""
        self.kinds[post.kind] += 1
        if post.n is not None:
            self.candidates.append(post.n)

    def merge(self, other: DroppedPosts) -> None:
        """Fold another tally into it."""
        self.kinds += other.kinds
        self.candidates += other.candidates


@dataclass(frozen=True)
class PostBatch:
    """What one request carries. At least one post is in it."""

    posts: tuple[Post, ...]
    dropped: DroppedPosts = field(default_factory=DroppedPosts)

    @property
    def candidates(self) -> list[int]:
        """Those whose posts are in it."""
        return [*self.dropped.candidates, *(post.n for post in self.posts if post.n is not None)]

    @property
    def is_single(self) -> bool:
        """Whether it is a post as it was meant."""
        return len(self.posts) == 1 and not self.dropped.kinds

    @property
    def has_end(self) -> bool:
        """Whether the morning digest is in it."""
        return any(post.kind == "end" for post in self.posts)

    def message(self) -> Post:
        """The one post that stands for all of them."""
        if self.is_single:
            return self.posts[0]
        end = next((post for post in reversed(self.posts) if post.kind == "end"), None)
        return self._with(end) if end else self._digest()

    def _with(self, end: Post) -> Post:
        """The morning digest, which says what was not posted before it."""
        others = [post for post in self.posts if post is not end]
        missed = (
            "Not posted before",
            f"{self._counts(others)}\n{self._lines(others, _MAX_FIELD_UNITS)}".strip(),
        )
        return replace(end, fields=(*end.fields[: MAX_FIELDS - 1], missed))

    def _digest(self) -> Post:
        pictures = [post.picture for post in self.posts if post.picture]
        title = f"While posts could not be sent: {self._counts(self.posts)}"
        return Post(
            kind="digest",
            time=self.posts[-1].time,
            title=title,
            line=title,
            text=self._lines(self.posts, _MAX_DIGEST_UNITS),
            picture=pictures[-1] if pictures else None,
        )

    def _counts(self, posts: tuple[Post, ...] | list[Post]) -> str:
        """`12 wins, 2 failures`"""
        kinds = Counter(post.kind for post in posts) + self.dropped.kinds
        return ", ".join(f"{kinds[kind]} {_NOUNS[kind][kinds[kind] > 1]}" for kind in _NOUNS if kinds[kind])

    def _lines(self, posts: tuple[Post, ...] | list[Post], left: int) -> str:
        """The posts' lines in order; where not all fit, the latest."""
        shown: list[str] = []
        for post in reversed(posts):
            line = f"- {clip(post.line, 300)}"
            left -= units(line) + 1
            if left < 0:
                break
            shown.append(line)
        hidden = sum(self.dropped.kinds.values()) + len(posts) - len(shown)
        return "\n".join(([f"- {hidden} before these"] if hidden else []) + shown[::-1])
