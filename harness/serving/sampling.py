"""Which token comes next."""

from __future__ import annotations

from collections.abc import Collection

import torch

from hillclimb.harness.serving.generation import Generation, Likelihood


class Sampler:
    """Draws the tokens of one answer."""

    def __init__(self, generation: Generation) -> None:
        self._generation = generation
        self._random = torch.Generator()
        if generation.seed is None:
            self._random.seed()
        else:
            self._random.manual_seed(generation.seed)

    def choose(
        self, logits: torch.Tensor, barred: Collection[int] = ()
    ) -> tuple[Likelihood, tuple[Likelihood, ...]]:
        """One token that is not barred, and the likeliest of all, of logits of one position, [vocabulary]."""
        allowed = logits
        if barred:
            allowed = logits.clone()
            allowed[list(barred)] = -torch.inf
        token = self._draw(allowed) if self._generation.temperature else int(allowed.argmax())
        count = self._generation.top_logprobs
        if count is None:
            return Likelihood(token, 0.0), ()
        logprobs = torch.log_softmax(logits.float(), dim=-1)
        values, tokens = logprobs.topk(min(count, len(logprobs)))
        likeliest = zip(tokens.tolist(), values.tolist(), strict=True)
        return Likelihood(token, float(logprobs[token])), tuple(Likelihood(*one) for one in likeliest)

    def _draw(self, logits: torch.Tensor) -> int:
        """On the CPU, so that a seed gives the same on every device."""
        shares = torch.softmax(logits.float().cpu() / self._generation.temperature, dim=-1)
        if self._generation.top_p < 1:
            ordered, tokens = shares.sort(descending=True, stable=True)
            before = ordered.cumsum(-1) - ordered
            shares = torch.zeros_like(shares).scatter(0, tokens, ordered * (before < self._generation.top_p))
        return int(torch.multinomial(shares, 1, generator=self._random))
