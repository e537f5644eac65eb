"""The text of an answer, as its tokens come."""

from __future__ import annotations

from collections.abc import Callable, Sequence

UNFINISHED = "\ufffd"
"""At the end of a text: its last character lacks bytes."""


class TextStream:
    """Text that is sure not to change, and not to be cut off by a stop.

    A tokenizer spells a token by what stands before it. So new text is that of the last tokens, less the text of those
    before the new ones, as Hugging Face's text-generation-inference has it.
    """

    def __init__(self, spell: Callable[[Sequence[int]], str], stop: Sequence[str]) -> None:
        """`spell` gives the text of tokens."""
        self._spell, self._stop = spell, tuple(stop)
        self._tokens: list[int] = []
        self._begin = self._known = 0
        self._given = 0
        """Characters of the new text that were given before its last character was whole."""
        self._held = ""
        self.is_stopped = False

    def add(self, token: int, *, may_stop: bool = True) -> str:
        """What is sure now. Without `may_stop` no stop is looked for in it."""
        self._tokens.append(token)
        text = self._new_text()
        sure = text.rstrip(UNFINISHED)
        new, self._given = sure[self._given :], len(sure)
        if sure == text and text:
            self._begin, self._known, self._given = self._known, len(self._tokens), 0
        return self._release(new, may_stop=may_stop)

    def end(self) -> str:
        """What was held back, where nothing more comes."""
        if self.is_stopped:
            return ""
        text = self._release(self._new_text()[self._given :]) + self._held
        self._held = ""
        return text

    def _new_text(self) -> str:
        before = self._spell(self._tokens[self._begin : self._known])
        return self._spell(self._tokens[self._begin :])[len(before) :]

    def _release(self, text: str, *, may_stop: bool = True) -> str:
        """All but what may be the beginning of a stop; a stop, and what is behind it, is dropped."""
        text, self._held = self._held + text, ""
        if not may_stop:
            return text
        found = [at for one in self._stop if (at := text.find(one)) >= 0]
        if found:
            self.is_stopped = True
            return text[: min(found)]
        sure = len(text) - max((_overlap(text, one) for one in self._stop), default=0)
        self._held = text[sure:]
        return text[:sure]


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of the text with which the stop begins, at the most."""
    longest = min(len(text), len(stop) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(stop[:size])), 0)
