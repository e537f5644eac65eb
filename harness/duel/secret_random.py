"""Randomness that a candidate cannot work out from what it has seen of it."""

from __future__ import annotations

import hashlib
import random


class SecretRandom(random.Random):
    """Draws from BLAKE2b in counter mode under a key.

    The generator of the standard library gives its state away to whoever collects some hundred outputs, and seeds of
    inputs can be collected from the inputs themselves.
    """

    def __init__(self, key: bytes) -> None:
        self._key, self._counter = key, 0
        super().__init__(0)

    def getrandbits(self, k: int, /) -> int:
        """`k` random bits as a whole number."""
        size = (k + 7) // 8
        drawn = b"".join(self._block() for _ in range(-(-size // 64)))[:size]
        return int.from_bytes(drawn, "little") >> (8 * size - k)

    def random(self) -> float:
        """A float in [0, 1) with 53 random bits."""
        return self.getrandbits(53) / (1 << 53)

    def _block(self) -> bytes:
        self._counter += 1
        return hashlib.blake2b(self._counter.to_bytes(16, "little"), key=self._key).digest()
