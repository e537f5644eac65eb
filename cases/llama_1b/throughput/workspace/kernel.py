"""A Llama's session: prompts are read by torch, and single tokens by a few kernels a layer, 32 sequences at a time.

They are those of decode.cu. Where a model or a GPU does not suit them, torch makes the tokens as well.
"""

from __future__ import annotations

from typing import Any

import torch
from cuda_decode import SEQUENCES, CudaDecoder
from plain import read


def decoder_of(weights: dict[str, torch.Tensor]) -> CudaDecoder | None:
    """None where decode.cu cannot decode this model here."""
    try:
        return CudaDecoder(weights)
    except ValueError:
        return None


class Session:
    """Called as kernel(prompt, shifts, keys, values, tokens, logits, context=context)."""

    def __init__(self, **weights: torch.Tensor) -> None:
        self._weights = weights
        self._decoder = decoder_of(weights)

    def __call__(
        self,
        prompt: torch.Tensor,
        shifts: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        tokens: torch.Tensor,
        logits: torch.Tensor,
        *,
        context: int,
    ) -> None:
        made, step = tokens.shape[1], 0
        while step < made and (self._decoder is None or prompt.shape[1] > 1):
            following = self._read(prompt, shifts, keys, values, tokens, logits, context, step)
            context, step, prompt = context + prompt.shape[1], step + 1, following
        if self._decoder is None or step == made:
            return
        for first in range(0, len(prompt), SEQUENCES):
            some = slice(first, first + SEQUENCES)
            self._decoder.begin(prompt[some])
            state = shifts[some], keys[:, some], values[:, some], tokens[some], logits[some]
            for at in range(step, made):
                self._decoder.step(*state, context + at - step, at)

    def _read(self, read_now: torch.Tensor, shifts: torch.Tensor, *rest: Any) -> torch.Tensor:
        """The next tokens by torch; what is read after them."""
        keys, values, tokens, logits, context, step = rest
        found = read(self._weights, read_now, keys, values, context)
        logits[:, step] = found
        tokens[:, step] = found.argmax(1)
        return ((tokens[:, step] + shifts[:, step]) % logits.shape[2])[:, None]
