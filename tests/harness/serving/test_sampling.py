"""The likeliest tokens, and what is told of them, held to torch's own functions."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.serving.generation import Generation
from hillclimb.harness.serving.sampling import LEAST_LOGPROB, ROW, Sampler

SIZES = st.one_of(st.integers(1, 3 * ROW), st.sampled_from([ROW, ROW + 1, 50 * ROW, 128256]))
DTYPES = (torch.float32, torch.float64)
"""Of the first by NumPy, and of others as on a GPU: by torch."""


@given(SIZES, st.integers(0, 20), st.integers(0, 2**32 - 1), st.booleans(), st.sampled_from(DTYPES))
def test_what_is_told_is_what_torch_tells(
    size: int, count: int, seed: int, is_partly_barred: bool, dtype: torch.dtype
) -> None:
    drawn = torch.Generator().manual_seed(seed)
    logits = 10 * torch.rand(size, generator=drawn)
    if is_partly_barred:
        logits[torch.randint(size, (3,), generator=drawn)] = -torch.inf
        logits[0] = 1.0
    logits = logits.to(dtype)
    asked = Generation(prompt=(1,), most_tokens=1, temperature=0, top_logprobs=count)
    chosen, likeliest = Sampler(asked).choose(logits)
    logprobs = torch.log_softmax(logits.double(), -1).clamp(min=LEAST_LOGPROB)
    values = logprobs.topk(min(count, size)).values.tolist()
    largest = float(logprobs.max())
    assert chosen.token == int(logits.argmax())
    assert chosen.logprob == pytest.approx(largest, abs=1e-4)
    assert [one.logprob for one in likeliest] == pytest.approx(values, abs=1e-4)
    assert [one.logprob for one in likeliest] == pytest.approx(
        [float(logprobs[one.token]) for one in likeliest], abs=1e-4
    )
    assert len({one.token for one in likeliest}) == min(count, size)


def test_of_equal_ones_the_first_is_chosen() -> None:
    logits = torch.zeros(4 * ROW)
    logits[[ROW + 3, 2 * ROW]] = 1.0
    asked = Generation(prompt=(1,), most_tokens=1, temperature=0, top_logprobs=2)
    chosen, likeliest = Sampler(asked).choose(logits)
    assert chosen.token == ROW + 3
    assert {one.token for one in likeliest} == {ROW + 3, 2 * ROW}
