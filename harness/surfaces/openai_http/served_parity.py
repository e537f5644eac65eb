"""Whether a server's tokens are those of the model: every one is read once more by a trusted computation.

The trusted one is float32 with the snapshot's own weights, and the unit of errors is what plain bfloat16 errs on the
same tokens. Identical texts are not asked for: rounding alone makes them part after some dozens of tokens.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from hillclimb.harness.case.contracts.llama.model import Cache, Llama
from hillclimb.harness.case.contracts.llama.session import RMS_BUDGET, regret_shares
from hillclimb.harness.case.contracts.llama.snapshot import read_any_snapshot
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason
from hillclimb.harness.surfaces.openai_http.client import LIKELIEST, AnsweredRequest

TOLD_REGRET_BUDGET = 16.0
"""Of the root mean square of its errors in logits: by how much the right logit of a token that is told may be below
those that should be."""

SCATTER, ANSWER_SCATTER = 1.5, 2.5
"""By how much more the errors of few tokens may be, over the square root of their number: of all answers of a segment,
and of any one."""


@dataclass(frozen=True)
class AnswerErrors:
    """Of one answer."""

    told: torch.Tensor
    """Mean square errors of the logarithms that are told of each token, [tokens]."""
    own: torch.Tensor
    """Those of the plain computation: of the same ones, or of all, if those are more."""
    regret: float
    """The largest of a token that was made, as a share of what is allowed."""
    told_regret: float
    """The largest of a token that was told as one of the likeliest, likewise."""

    @property
    def after_first(self) -> AnswerErrors:
        """Without the token that reading the prompt gives, which may be computed in another way."""
        return replace(self, told=self.told[1:], own=self.own[1:])


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
        """The largest error of a segment's answers, as a share of what is allowed.

        Raises CandidateFault for one above 1, and for tokens that are none, or not the likeliest of those told.
        """
        for answer in answers:
            self._require_likeliest(answer)
        with torch.no_grad():
            errors = [self._errors(answer) for answer in answers]
        shares = {
            "a token is too far below the best one": max(one.regret for one in errors),
            "tokens are told that are not the likeliest": max(one.told_regret for one in errors),
            "the logarithms that are told are too far off": _rms_share(errors, SCATTER),
            "those of the tokens after the first are": _rms_share(
                [one.after_first for one in errors], SCATTER
            ),
            "those of one answer are": max(_rms_share([one], ANSWER_SCATTER) for one in errors),
        }
        for what, share in shares.items():
            if share > 1:
                raise CandidateFault(Reason.WRONG_RESULT, f"{what}: {share:.3g} of what is allowed")
        return max(shares.values())

    @property
    def _place(self) -> torch.device:
        return self._exact.head.device

    def _errors(self, answer: AnsweredRequest) -> AnswerErrors:
        """One answer at a time: logits of many tokens and a large vocabulary are gigabytes."""
        read = torch.tensor([[*answer.prompt, *answer.tokens[:-1]]], device=self._place)
        chosen = torch.tensor([answer.tokens], device=self._place)[..., None]
        exact, plain = (self._logits(model, read, len(answer.tokens)) for model in (self._exact, self._plain))
        unit = (plain - exact).square().mean().sqrt().clamp_min(1e-300)
        told, own, below = [], [], []
        best = exact[0].topk(min(LIKELIEST, self.vocabulary), -1).values[:, -1]
        for step, likeliest in enumerate(answer.likeliest):
            tokens = torch.tensor(list(likeliest), device=self._place)
            given = torch.tensor(list(likeliest.values()), dtype=torch.float64, device=self._place)
            right, rounded = (found[0, step].log_softmax(-1) for found in (exact, plain))
            rounding = (rounded - right).square()
            told.append((given - right[tokens]).square().mean())
            own.append(torch.maximum(rounding.mean(), rounding[tokens].mean()))
            below.append((best[step] - exact[0, step, tokens]).max() / (TOLD_REGRET_BUDGET * unit))
        return AnswerErrors(
            torch.stack(told),
            torch.stack(own),
            float(regret_shares(exact, plain, chosen).max()),
            float(torch.stack(below).max()),
        )

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
            wanted = min(LIKELIEST, self.vocabulary)
            if not wanted <= len(told) <= wanted + 1:
                _refuse_count(len(told), wanted)
            if told.get(token) != max(told.values()):
                detail = f"token {token} is not the likeliest of {len(told)} that were told"
                raise CandidateFault(Reason.WRONG_RESULT, detail)


def _rms_share(errors: Sequence[AnswerErrors], scatter: float) -> float:
    """Root mean square error of what is told, over what is allowed by that of the plain computation."""
    told, own = (torch.cat([getattr(one, name) for one in errors]) for name in ("told", "own"))
    allowed = (RMS_BUDGET + scatter / math.sqrt(len(told))) * own.mean().sqrt()
    return float(told.mean().sqrt() / allowed.clamp_min(1e-300))


def _refuse_count(count: int, wanted: int) -> None:
    raise CandidateFault(
        Reason.BROKE_PROTOCOL, f"told {count} logarithms of a token, and was asked for {wanted}"
    )
