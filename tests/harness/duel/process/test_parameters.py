"""Checksums by which a change of parameters on a GPU is seen."""

from __future__ import annotations

import secrets

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.duel.process.parameters import Parameters, checksums, pairs_with_room

COUNT = 64


def weights() -> torch.Tensor:
    return torch.frombuffer(bytearray(secrets.token_bytes(8 * COUNT)), dtype=torch.int64)


CHANGES = st.dictionaries(st.integers(0, 3 * COUNT - 1), st.integers(1, 2**32 - 1), min_size=1, max_size=5)


@given(CHANGES)
def test_changed_bits_change_a_checksum(flipped: dict[int, int]) -> None:
    before = torch.randint(-(2**31), 2**31, (3 * COUNT,)).to(torch.int32)
    after = before.clone()
    for at, bits in flipped.items():
        after[at] ^= torch.tensor(bits - (bits >> 31 << 32), dtype=torch.int32)
    own = weights()
    assert not torch.equal(checksums(before, own), checksums(after, own))


def test_two_signs_are_not_changed_unseen() -> None:
    """Which sums of whole words of 64 bits, weighed by odd numbers, would miss."""
    words = torch.zeros(COUNT, dtype=torch.int32)
    words[3] = words[9] = -(2**31)
    own = weights()
    assert not torch.equal(checksums(torch.zeros_like(words), own), checksums(words, own))


def test_what_is_exchanged_is_seen() -> None:
    words, own = torch.arange(2 * COUNT, dtype=torch.int32), weights()
    turned = words.clone()
    turned[[3, 5]] = words[[5, 3]]
    swapped = torch.cat([words[COUNT:], words[:COUNT]])
    for other in (turned, swapped):
        assert not torch.equal(checksums(words, own), checksums(other, own))


def test_they_are_copied_and_readable() -> None:
    given_tensors = {
        "gain": torch.arange(6.0).reshape(2, 3).T,
        "steps": torch.tensor([1, 2], dtype=torch.int8),
    }
    made = Parameters(given_tensors, "cpu")
    given_tensors["gain"] += 1
    assert torch.equal(made.tensors["gain"], torch.arange(6.0).reshape(2, 3).T)
    assert made.tensors["gain"].stride() == (1, 3)
    assert torch.equal(made.tensors["steps"], given_tensors["steps"])
    made.lend().require_unchanged()
    made.lend().give_back()
    assert torch.equal(made.tensors["steps"], given_tensors["steps"]), "they are not one process's"
    made.close()


@pytest.mark.parametrize(("free", "pairs"), [(10**9, 6), (5 * 24 * 3, 3), (5 * 24 * 3 - 1, 2), (0, 1)])
def test_as_many_pairs_are_got_ready_as_there_is_room_for(free: int, pairs: int) -> None:
    made = Parameters({"gain": torch.zeros(6)}, "cpu")
    assert pairs_with_room(made, 6, lambda: free) == pairs
    assert pairs_with_room(None, 6, lambda: 0) == 6
    made.close()
