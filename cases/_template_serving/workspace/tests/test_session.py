"""A sequence in a slot: whatever is made ahead, each token follows from the text before it."""

from __future__ import annotations

import pytest
import torch
from backend import session
from backend.environment import DEVICE, as_given

pytestmark = pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="needs a GPU")

VOCABULARY, CONTEXT = 37, 24


def expected(text):
    """The token that follows."""
    return (7 * sum(text) + len(text)) % VOCABULARY


@pytest.fixture(params=[0, 1, 2, 3], ids=lambda ahead: f"{ahead} ahead")
def slot(request, monkeypatch):
    monkeypatch.setattr(session, "AHEAD", request.param)
    monkeypatch.setattr(session, "ROWS", request.param + 2)
    marks = as_given(torch.arange(VOCABULARY, device=DEVICE))

    def step(prompt, shifts, keys, values, tokens, logits, *, context):
        end = context + prompt.shape[1]
        keys[0, 0, 0, context:end, 0] = prompt[0]
        logits[0, 0] = -abs(marks - (7 * keys[0, 0, 0, :end, 0].sum() + end) % VOCABULARY)
        tokens[0, 0] = logits[0, 0].argmax()

    cache = [torch.zeros(1, 1, 1, CONTEXT, 1, device=DEVICE) for _ in range(2)]
    return session.Slot(step, cache, VOCABULARY)


@pytest.mark.parametrize("odd_turns", [(), (0,), (4,), (1, 2, 3), range(20)], ids=str)
def test_each_token_follows_from_the_text(slot, odd_turns):
    """In odd turns the text goes on with another token than the likeliest one."""
    for prompt in ([3, 5, 8, 1], [2, 7, 1, 8], [9], [9], [4, 4, 4, 4]):
        text, read_now = [], prompt
        while len(text) + len(read_now) <= CONTEXT:
            text += read_now
            found = int(slot.read(read_now).argmax())
            assert found == expected(text)
            read_now = [(found + (len(text) - len(prompt) in odd_turns)) % VOCABULARY]
        slot.forget()
