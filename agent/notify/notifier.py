"""Who is told of a climb while nobody watches the screen: the interface, and nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from hillclimb.agent.record.entries import WebhookState
from hillclimb.agent.screen.events import Event

CLOSE_SECONDS = 5.0
"""What the end of a run waits for its last posts."""


class Notifier(Protocol):
    """Anything that takes events and posts about some of them. It never delays and never ends a climb."""

    def notify(self, event: Event) -> None:
        """Take one event in; returns at once and raises nothing."""

    def webhook(self, n: int, kept: bool) -> WebhookState:
        """How it stands with the post about candidate n right now."""

    def outcomes(self) -> list[tuple[int, WebhookState]]:
        """What became of posts about candidates since this was last asked, each final and given once."""

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Send what is still due, for so long at the most; whatever is told afterwards is ignored."""


@dataclass(frozen=True)
class SilentNotifier:
    """Nobody is told."""

    configured: bool = False
    switched_off: bool = False

    def notify(self, event: Event) -> None:
        """Nothing comes of it."""

    def webhook(self, n: int, kept: bool) -> WebhookState:
        """Not configured, or switched off."""
        return WebhookState(
            webhook_enabled_by_config=self.configured,
            webhook_disabled_by_flag=self.switched_off,
            webhook_status="switched off" if self.configured else "not configured",
        )

    def outcomes(self) -> list[tuple[int, WebhookState]]:
        """None, ever."""
        return []

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Nothing is under way."""
