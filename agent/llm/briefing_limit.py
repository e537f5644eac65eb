"""How long a briefing may be: the case's limit, and what the server was seen to take of it."""

from __future__ import annotations

SHRINK_FACTOR = 0.7
"""Of the tokens of a briefing that was too long: they are an estimate, and the server counts its own."""
READ_SHARE = 0.9
"""Of the tokens that a server reads, for a briefing that it reads whole."""


class BriefingLimit:
    """One a session; tokens as estimated from the text."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        """The limit for the next briefing."""
        self._trouble = ""
        self._is_tried = False

    @property
    def trouble(self) -> str:
        """Why the limit is below the case's, as the beginning of a sentence; empty where it is not."""
        return self._trouble

    def refused(self, limit: int, tokens: int) -> None:
        """A briefing of so many tokens was too long; once for each limit, since others made for it are under way."""
        if limit == self.tokens:
            self._trouble = f"the model found a briefing of {tokens} tokens too long, and "
            self.tokens = int(min(limit, tokens) * SHRINK_FACTOR)

    def try_shorter(self, limit: int, tokens: int) -> bool:
        """Whether a shorter briefing is to be tried after a refusal that does not say why: once."""
        if self._is_tried or limit != self.tokens:
            return False
        self._is_tried = True
        self.refused(limit, tokens)
        return True

    def cut(self, read: int) -> str:
        """The server read so many tokens of a longer briefing; what to tell of it, empty where that is no news."""
        shorter = int(read * READ_SHARE)
        if shorter >= self.tokens:
            return ""
        self._trouble = f"the server reads {read} tokens of a briefing, and "
        self.tokens = shorter
        return (
            f"the model server read {read} tokens of a longer briefing and dropped the rest; raise its context "
            f"(num_ctx, --ctx-size, --max-model-len); briefings have at most {shorter} tokens from here on"
        )
