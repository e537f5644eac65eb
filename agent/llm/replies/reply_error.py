"""What is said against a reply: a message for its author, short enough for a line of the ledger."""

from __future__ import annotations

MAX_MESSAGE_CHARS = 4000
"""Characters of one message."""


class ReplyError(ValueError):
    """Something wrong with a reply or its changes; the message, cut to LONGEST, is for the author."""

    def __init__(self, message: str) -> None:
        super().__init__(clip(message, MAX_MESSAGE_CHARS))


def clip(text: str, longest: int = 80) -> str:
    """A path or a line as a message shows it."""
    return text if len(text) <= longest else text[: longest - 3] + "..."
