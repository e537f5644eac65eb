"""A Llama's session: prompts are read by torch, and single tokens of one sequence by a few kernels a layer.

They are those of decode.cu, or, where a model or a GPU does not suit it, Triton kernels.
"""

from __future__ import annotations

from typing import Any

import torch
from cuda_decode import CudaDecoder
from decode import Decoder
from plain import read


def decoder_of(weights: dict[str, torch.Tensor]) -> CudaDecoder | Decoder:
    """That of decode.cu where it can decode this model here."""
    try:
        return CudaDecoder(weights)
    except ValueError:
        return Decoder(weights)


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
        (batch, count), made, step = prompt.shape, tokens.shape[1], 0
        if batch == 1 and count == 1:
            self._decoder.begin(prompt)
        else:
            following = self._read(prompt, shifts, keys, values, tokens, logits, context, 0)
            context, step = context + count, 1
            while batch > 1 and step < made:
                following = self._read(following, shifts, keys, values, tokens, logits, context, step)
                context, step = context + 1, step + 1
            if step < made:
                self._decoder.begin(following)
        for at in range(step, made):
            self._decoder.step(shifts, keys, values, tokens, logits, context + at - step, at)

    def _read(self, read_now: torch.Tensor, shifts: torch.Tensor, *rest: Any) -> torch.Tensor:
        """The next token by torch; what is read after it."""
        keys, values, tokens, logits, context, step = rest
        found = read(self._weights, read_now, keys, values, context)
        logits[:, step] = found
        tokens[:, step] = found.argmax(1)
        return ((tokens[:, step] + shifts[:, step]) % logits.shape[2])[:, None]
