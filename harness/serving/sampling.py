"""Which token comes next."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt
import torch

from hillclimb.harness.serving.generation import Generation, Likelihood

FloatArray = npt.NDArray[np.float32]
IndexArray = npt.NDArray[np.intp]

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
        places = [token, *_largest(logits, min(count, len(logits)))]
        logprobs = _at(places, logits.float().log_softmax(-1))
        chosen, *likeliest = (
            Likelihood(place, max(logprob, LEAST_LOGPROB))
            for place, logprob in zip(places, logprobs, strict=True)
        )
        return chosen, tuple(likeliest)

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


def _is_here(logits: torch.Tensor) -> bool:
    """Whether NumPy reads them, which took a tenth of torch's time on a CPU for the largest of 128256."""
    return logits.device.type == "cpu" and logits.dtype == torch.float32


def _likeliest(logits: torch.Tensor) -> int:
    """The first of the largest."""
    return int(logits.numpy().argmax() if _is_here(logits) else logits.argmax())


def _at(places: list[int], logprobs: torch.Tensor) -> list[float]:
    found: list[float] = (logprobs.numpy() if _is_here(logprobs) else logprobs)[places].tolist()
    return found


def _largest(logits: torch.Tensor, count: int) -> list[int]:
    """Where the largest ones are, in falling order."""
    if not _is_here(logits) or not count:
        return [int(at) for at in logits.topk(count).indices.tolist()]
    given = logits.numpy()
    rows = given[: len(given) // ROW * ROW].reshape(-1, ROW).max(1)
    if len(rows) <= count:
        places = _last_of(given, count)
    else:  # so many are not below the least of as many rows' maxima
        places = np.flatnonzero(given >= rows[_last_of(rows, count)].min())
    order = np.argsort(-given[places], kind="stable")
    return [int(at) for at in places[order[:count]]]


def _last_of(values: FloatArray, count: int) -> IndexArray:
    """Where the `count` largest ones are, in any order; all, if there are no more."""
    return np.argpartition(values, -count)[-count:] if count < len(values) else np.arange(len(values))
