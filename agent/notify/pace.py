"""How often, how long and how much: every figure of the notifier."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Pace:
    """Seconds, where nothing else is said."""

    request: float = 20.0
    """All of one request, a dripping reply included."""
    first_pause: float = 1.0
    """After the first failure; doubled after every further one."""
    longest_pause: float = 300.0
    longest_obedience: float = 3600.0
    """What a rate limit may ask for; more is taken as this much."""
    outage: float = 180.0
    """When posts have been held back for so long, they become one digest."""
    crowd: int = 3
    """More posts than this held back become one digest, too."""
    queue: int = 64
    """Posts kept at the most; of those beyond it, the number and the candidates are kept."""
    between_turns: float = 1800.0
    """At most one post so often about the rhythm moving on."""
    between_troubles: float = 600.0
    """At most one so often about trouble; what comes in between is told together."""
    picture: float = 10.0
    """What a win waits for a picture that shows it."""
    peek: float = 0.5
    """Between two looks for it."""
