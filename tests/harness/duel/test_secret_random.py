"""Secret draws: uniform enough, reproducible under a key, and unlike under another."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.duel.secret_random import SecretRandom


@given(st.integers(1, 300))
def test_bits_stay_in_range(bits: int) -> None:
    assert 0 <= SecretRandom(b"key").getrandbits(bits) < 1 << bits


def test_the_key_decides_everything() -> None:
    one, same, other = SecretRandom(b"a"), SecretRandom(b"a"), SecretRandom(b"b")
    assert [one.getrandbits(62) for _ in range(5)] == [same.getrandbits(62) for _ in range(5)]
    assert one.getrandbits(62) != other.getrandbits(62)


def test_choices_fall_evenly() -> None:
    secret = SecretRandom(b"key")
    counts = Counter(secret.choice("ABCD") for _ in range(4000))
    assert all(850 < counts[letter] < 1150 for letter in "ABCD")
    assert 0.48 < sum(secret.random() for _ in range(4000)) / 4000 < 0.52
    assert sorted(secret.sample(range(10), 10)) == list(range(10))
