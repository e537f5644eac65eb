"""Who is told of a climb while nobody watches the screen: the interface, and nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from pydantic import SecretStr

from agent.entries import Webhook
from agent.events import Event

CLOSE_SECONDS = 5.0
"""What the end of a run waits for its last posts."""


class Notifier(Protocol):
    """Anything that takes events and posts about some of them. It never delays and never ends a climb."""

    def tell(self, event: Event) -> None:
        """Take one event in; returns at once and raises nothing."""

    def webhook(self, n: int, kept: bool) -> Webhook:
        """How it stands with the post about candidate n right now."""

    def outcomes(self) -> list[tuple[int, Webhook]]:
        """What became of posts about candidates since this was last asked, each final and given once."""

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Send what is still due, for so long at the most; whatever is told afterwards is ignored."""


@dataclass(frozen=True)
class Silent:
    """Nobody is told."""

    configured: bool = False
    switched_off: bool = False

    def tell(self, event: Event) -> None:
        """Nothing comes of it."""

    def webhook(self, n: int, kept: bool) -> Webhook:
        """Not configured, or switched off."""
        return Webhook(
            webhook_enabled_by_config=self.configured,
            webhook_disabled_by_flag=self.switched_off,
            webhook_status="switched off" if self.configured else "not configured",
        )

    def outcomes(self) -> list[tuple[int, Webhook]]:
        """None, ever."""
        return []

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Nothing is under way."""


def choose_notifier(
    url: SecretStr | None,
    *,
    switched_off: bool = False,
    secrets: tuple[SecretStr, ...] = (),
    wins_only: bool = False,
) -> Notifier:
    """Discord where a webhook is configured and wanted. `secrets` are blotted out of posts like the URL itself.

    `wins_only`: nothing about a start, an end or trouble, for whoever waits at the screen.
    """
    if url is None or switched_off:
        return Silent(configured=url is not None, switched_off=switched_off)
    from agent.notify.discord import Discord
    from agent.notify.story import Story, Wins

    return Discord(url, secrets=secrets, story=Wins if wins_only else Story)
