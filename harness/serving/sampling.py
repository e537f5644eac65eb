"""Which token comes next."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import torch

from hillclimb.harness.serving.generation import Generation, Likelihood

FloatArray = npt.NDArray[np.float32]

ROW = 512
"""Logits whose largest one is found first; a vocabulary has some hundreds of such rows."""

LEAST_TEMPERATURE = 1e-5
"""Below it the likeliest token is always chosen."""

LEAST_LOGPROB = -9999.0
"""Told for what is impossible, as JSON has no infinity."""


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
        is_greedy = self._generation.temperature < LEAST_TEMPERATURE
        token = _likeliest(allowed) if is_greedy else self._draw(allowed)
        count = self._generation.top_logprobs
        if count is None:
            return Likelihood(token, 0.0), ()
        given = logits.float().cpu().numpy()
        total = _log_sum_exp(given)

        def told(at: int) -> Likelihood:
            return Likelihood(at, max(float(given[at]) - total, LEAST_LOGPROB))

        return told(token), tuple(told(at) for at in _largest(given, min(count, len(given))))

    def _draw(self, logits: torch.Tensor) -> int:
        """On the CPU, so that a seed gives the same on every device."""
        logits = logits.double().cpu()
        shares = torch.softmax((logits - logits.max()) / self._generation.temperature, dim=-1)
        if self._generation.top_p < 1:
            ordered, tokens = shares.sort(descending=True, stable=True)
            is_kept = ordered.cumsum(-1) - ordered < self._generation.top_p
            is_kept[0] = True
            shares = torch.zeros_like(shares).scatter(0, tokens, ordered * is_kept)
        return int(torch.multinomial(shares, 1, generator=self._random))


def _likeliest(logits: torch.Tensor) -> int:
    """The first of the largest. On a CPU by NumPy, which took a tenth of torch's time for 128256 of them."""
    return int(logits.numpy().argmax() if logits.device.type == "cpu" else logits.argmax())


def _log_sum_exp(logits: FloatArray) -> float:
    largest = float(logits.max())
    return largest + math.log(float(np.exp(logits - largest).sum()))


def _largest(logits: FloatArray, count: int) -> list[int]:
    """Where the largest ones are, in falling order: they lie in the rows that have the largest maxima."""
    if not count:
        return []
    whole = len(logits) // ROW * ROW
    maxima = logits[:whole].reshape(-1, ROW).max(1)
    rows = (
        np.argpartition(maxima, len(maxima) - count)[-count:]
        if len(maxima) > count
        else np.arange(len(maxima))
    )
    places = np.concatenate([(rows[:, None] * ROW + np.arange(ROW)).ravel(), np.arange(whole, len(logits))])
    found = places[np.argpartition(logits[places], len(places) - count)[-count:]]
    return [int(at) for at in found[np.argsort(-logits[found], kind="stable")]]
