"""How often, how long and how much: every figure of the notifier."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NotifyLimits:
    """Seconds, where nothing else is said."""

    request_timeout_seconds: float = 20.0
    """All of one request, a dripping reply included."""
    first_retry_seconds: float = 1.0
    """After the first failure; doubled after every further one."""
    max_retry_seconds: float = 300.0
    max_rate_limit_seconds: float = 3600.0
    """What a rate limit may ask for; more is taken as this much."""
    outage_seconds: float = 180.0
    """When posts have been held back for so long, they become one digest."""
    max_held_posts: int = 3
    """More posts than this held back become one digest, too."""
    max_queued_posts: int = 64
    """Posts kept at the most; of those beyond it, the number and the candidates are kept."""
    min_turn_interval_seconds: float = 1800.0
    """At most one post so often about the rhythm moving on."""
    min_trouble_interval_seconds: float = 600.0
    """At most one so often about trouble; what comes in between is told together."""
    picture_wait_seconds: float = 10.0
    """What a win waits for a picture that shows it."""
    picture_poll_seconds: float = 0.5
    """Between two looks for it."""
