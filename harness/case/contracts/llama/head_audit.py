"""Whether logits are products with the head's weights at all, or with others near them, such as ones of fewer bits.

The vector that the head multiplies is the kernel's own, and has the errors of all layers before. But logits have many
more elements than it, so it can be told from them, by least squares; what then is left of the logits is the head's own
error. There is none but rounding where the weights are the right ones.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

ROWS = 16384
"""Of the head, that are multiplied in float64 at a time."""

MIN_EXCESS = 1.5
"""Times as many tokens as elements of the vector, from which something is left to look at."""


@dataclass(frozen=True)
class HeadAudit:
    """One head; of another one, `of` makes another."""

    weights: torch.Tensor
    """[vocab, hidden], in the dtype that logits are compared in."""
    _inverse: torch.Tensor
    """Of the products of its columns with each other, [hidden, hidden]."""

    @classmethod
    def of(cls, weights: torch.Tensor) -> HeadAudit | None:
        """None where the vocabulary is too small for it."""
        vocab, hidden = weights.shape
        if vocab < MIN_EXCESS * hidden:
            return None
        products = torch.zeros(hidden, hidden, dtype=torch.float64, device=weights.device)
        for part in torch.split(weights, ROWS):
            wide = part.double()
            products += wide.T @ wide
        return cls(weights, torch.linalg.pinv(products, hermitian=True))

    def error(self, logits: torch.Tensor) -> float:
        """Root mean square of what no vector explains of logits, float64 [positions, vocab]."""
        seen = torch.zeros(len(logits), self.weights.shape[1], dtype=torch.float64, device=logits.device)
        for part, weights in zip(torch.split(logits, ROWS, 1), torch.split(self.weights, ROWS), strict=True):
            seen += part @ weights.double()
        vectors = seen @ self._inverse
        squares = torch.zeros((), dtype=torch.float64, device=logits.device)
        for part, weights in zip(torch.split(logits, ROWS, 1), torch.split(self.weights, ROWS), strict=True):
            squares += (part - vectors @ weights.double().T).square().sum()
        return float((squares / logits.numel()).sqrt())
