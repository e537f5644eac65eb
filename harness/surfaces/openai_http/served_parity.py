"""Whether a server's tokens are those of the model: every one is read once more by a trusted computation.

The trusted one is float32 with the snapshot's own weights, and the unit of errors is what plain bfloat16 errs on the
same tokens. Identical texts are not asked for: rounding alone makes them part after some dozens of tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from hillclimb.harness.case.contracts.llama.model import Cache, Llama
from hillclimb.harness.case.contracts.llama.session import (
    RMS_BUDGET,
    regret_shares,
    rms_budget,
)
from hillclimb.harness.case.contracts.llama.snapshot import read_any_snapshot
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason
from hillclimb.harness.surfaces.openai_http.client import LIKELIEST, AnsweredRequest


class ServedParity:
    """Holds a model twice, in float32 and in bfloat16."""

    def __init__(self, model_path: Path, place: torch.device) -> None:
        """Raises UsageError where no snapshot of a Llama is there."""
        shape, weights = read_any_snapshot(model_path, torch.float32, place)
        self._exact, self._plain = (
            Llama.of(shape, weights, dtype) for dtype in (torch.float32, torch.bfloat16)
        )

    @property
    def vocabulary(self) -> int:
        return self._exact.shape.vocab

    def share(self, answers: Sequence[AnsweredRequest]) -> float:
        """The largest error of answers of one size, as a share of what is allowed.

        Raises CandidateFault for one above 1, and for tokens that are none, or not the likeliest of those told.
        """
        for answer in answers:
            self._require_likeliest(answer)
        read = torch.tensor([[*one.prompt, *one.tokens[:-1]] for one in answers], device=self._place)
        chosen = torch.tensor([one.tokens for one in answers], device=self._place)
        with torch.no_grad():
            exact, plain = (
                self._logits(model, read, chosen.shape[1]) for model in (self._exact, self._plain)
            )
            regret = float(regret_shares(exact, plain, chosen[..., None]).max())
            told = _logprob_share(answers, exact, plain)
        if regret > 1:
            _refuse("a token is too far below the best one", regret)
        if told > 1:
            _refuse("the logarithms that are told are too far off", told)
        return max(regret, told)

    @property
    def _place(self) -> torch.device:
        return self._exact.head.device

    def _logits(self, model: Llama, read: torch.Tensor, last: int) -> torch.Tensor:
        shape = model.shape
        sizes = (shape.layers, len(read), shape.kv_heads, read.shape[1], shape.head_dim)
        cache = Cache(*(torch.zeros(sizes, dtype=model.dtype, device=self._place) for _ in range(2)))
        return model.logits(read, cache, 0, last).double()

    def _require_likeliest(self, answer: AnsweredRequest) -> None:
        for token, told in zip(answer.tokens, answer.likeliest, strict=True):
            named = [token, *told]
            if max(named) >= self.vocabulary:
                raise CandidateFault(Reason.BROKE_PROTOCOL, f"there is no token {max(named)}")
            if len(told) < min(LIKELIEST, self.vocabulary) or told.get(token) != max(told.values()):
                detail = f"token {token} is not the likeliest of {len(told)} that were told"
                raise CandidateFault(Reason.WRONG_RESULT, detail)


def _logprob_share(answers: Sequence[AnsweredRequest], exact: torch.Tensor, plain: torch.Tensor) -> float:
    """Root mean square error of what is told, over that of the plain computation on the same tokens."""
    errors, own = [], []
    for row, answer in enumerate(answers):
        right, rounded = (found[row].log_softmax(-1) for found in (exact, plain))
        for step, told in enumerate(answer.likeliest):
            tokens = torch.tensor(list(told), device=exact.device)
            given = torch.tensor(list(told.values()), dtype=torch.float64, device=exact.device)
            errors.append(given - right[step, tokens])
            own.append(rounded[step, tokens] - right[step, tokens])
    allowed = rms_budget(RMS_BUDGET, len(errors))
    theirs, unit = (torch.cat(found).square().mean().sqrt() for found in (errors, own))
    return float(theirs / (allowed * unit).clamp_min(1e-300))


def _refuse(what: str, share: float) -> None:
    raise CandidateFault(Reason.WRONG_RESULT, f"{what}: {share:.3g} of what is allowed")
