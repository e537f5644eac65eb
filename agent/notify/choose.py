"""Chooses who is told of a climb: a Discord channel, or nobody."""

from __future__ import annotations

from pydantic import SecretStr

from hillclimb.agent.notify.notifier import Notifier, SilentNotifier


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
        return SilentNotifier(configured=url is not None, switched_off=switched_off)
    from hillclimb.agent.notify.composer import PostComposer, WinPostComposer
    from hillclimb.agent.notify.discord import DiscordNotifier

    return DiscordNotifier(
        url, secrets=secrets, composer_class=WinPostComposer if wins_only else PostComposer
    )
