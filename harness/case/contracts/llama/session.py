"""The contract of a session: a Llama reads tokens, and then makes tokens one after another.

A problem is {"batch", "context", "prompt", "tokens"}: sequences, positions that are in the cache already, tokens that
are read, tokens that are made. The kernel is called as

    kernel(prompt, shifts, keys, values, tokens, logits, context=context)

- prompt: int64 [batch, prompt].
- shifts: int64 [batch, tokens]. After a token, (token + shift) mod vocab is read. The shifts are secret until the call,
  so no token can be made beforehand or out of turn, and no model ends in a loop.
- keys, values: [layers, batch, kv_heads, context + prompt + tokens - 1, head_dim], the cache, changed in place. The
  first `context` positions are given.
- tokens: int64 [batch, tokens], each one with the largest of its logits.
- logits: float32 [batch, tokens, vocab].

The weights are parameters, as hillclimb.harness.case.contracts.llama.model.LlamaShape.weight_shapes names them, and
`frequencies` of the rotary embedding. They are drawn from the secret seed, or read from the case's `model_path`.

Right is what the same computation gives in a wider dtype for the tokens that the kernel made. How much it may err is
told by a plain computation in the case's own dtype of the same tokens.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import torch

from hillclimb.harness.case.contract import Contract, Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.llama.head_audit import HeadAudit
from hillclimb.harness.case.contracts.llama.model import Cache, Llama, LlamaShape, seeded_weights
from hillclimb.harness.case.contracts.llama.scale_audit import Scale, ScaleAudit, larger, scales_of
from hillclimb.harness.case.contracts.llama.snapshot import read_snapshot
from hillclimb.harness.channel.layout import Attributes

RMS_BUDGET, CACHE_RMS_BUDGET = 1.3, 1.5
"""Of the root mean square of the plain computation's errors, in logits and in a layer's part of the cache: what theirs
may be, over many positions. Right kernels that round as often, or add in bfloat16, have up to 1.26 and 1.44."""

HEAD_RMS_BUDGET = 1.6
"""The same of the head by itself: one with the last norm folded into it in bfloat16 has 1.41."""

RMS_SCATTER = 1.0
"""Of few positions, by how much more the root mean squares of two right computations differ, over their square root."""

ELEMENT_BUDGET, CACHE_ELEMENT_BUDGET = 3.0, 4.0
"""Of its largest error: what any one element may err."""

REGRET_BUDGET, MEAN_REGRET, REGRET_SCATTER = 8.0, 0.15, 6.0
"""Of the root mean square of its errors in logits: by how much the right logit of a token that was chosen may be below
the largest one; how much that may be in the mean of many positions; and of few, how much more, over their square root.
"""

CACHE_BYTES = 64 << 20
"""Weights that may stay in a cache from one token to the next."""

AUDITED_POSITIONS = 32
"""Fewest of a call from whose logits scales are told."""

AUDITED_VOCAB = 4096
"""Most tokens of the vocabulary, at equal distances, whose logits tell of scales: all would take gigabytes."""

MAX_TOGETHER = 1024
"""Tokens that models with a changed scale read at a time, all together."""

LEAST = {"batch": 1, "context": 0, "prompt": 1, "tokens": 1}
"""Of each size of a problem."""

_CHANCE = random.SystemRandom()

WIDER = {torch.bfloat16: torch.float32, torch.float16: torch.float32, torch.float32: torch.float64}


class LlamaSession(Contract):
    """Subclasses give `shape` and `problems`, and may give the dtypes."""

    shape: LlamaShape
    dtype: torch.dtype = torch.bfloat16
    """Of weights and cache as they are handed over. On a CPU NumPy has no bfloat16: float32 then."""
    precision: torch.dtype = torch.bfloat16
    """What they are rounded to, and in what the plain computation is made."""

    audited_share: float = 0.25
    """Of the compared calls with AUDITED_POSITIONS or more, how many are audited, drawn by chance. An audit reads the
    tokens again for every matrix, so of a large model it takes a second."""

    needs_reference = False
    is_session = True
    distributions = ("normal",)
    unmixed = "a cache holds what a model can have put there"

    def __init__(self) -> None:
        """Raises ValueError for problems and dtypes that no session has."""
        if self.precision not in WIDER:
            raise ValueError(f"precision is {self.precision}; give one of {', '.join(map(str, WIDER))}")
        if not 0 <= self.audited_share <= 1:
            raise ValueError(f"audited_share is {self.audited_share}; give a share, from 0 to 1")
        for name, problem in self.problems.items():
            require_sizes(name, problem)

    def parameters(self, generator: torch.Generator) -> Tensors:
        found = (
            seeded_weights(self.shape, self.precision, generator)
            if self.model_path is None
            else read_snapshot(self.model_path, self.shape, self.precision, generator.device)
        )
        return {name: w if name == "frequencies" else w.to(self.dtype) for name, w in found.items()}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        shape, place = self.shape, generator.device
        sizes = self._cache_sizes(problem)

        def drawn_tokens(count: int) -> torch.Tensor:
            return torch.randint(shape.vocab, (problem["batch"], count), generator=generator, device=place)

        cache = {}
        for name in ("keys", "values"):
            made = torch.zeros(sizes, dtype=self.dtype, device=place)
            given = (*sizes[:3], problem["context"], sizes[4])
            drawn = torch.randn(given, generator=generator, device=place)
            made[:, :, :, : problem["context"]] = drawn.to(self.precision)
            cache[name] = made
        return {
            "prompt": drawn_tokens(problem["prompt"]),
            "shifts": drawn_tokens(problem["tokens"]),
            **cache,
        }

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        made = (problem["batch"], problem["tokens"])
        cache = Spec(self._cache_sizes(problem), self.dtype)
        return {
            "keys": cache,
            "values": cache,
            "tokens": Spec(made, torch.int64),
            "logits": Spec((*made, self.shape.vocab), torch.float32),
        }

    def attributes(self, problem: Problem) -> Attributes:
        return {"context": problem["context"]}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        found = self._made(problem, inputs, self._trusted(inputs).exact)
        return {name: value if name == "tokens" else value.double() for name, value in found.items()}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        found, specs = self._made(problem, inputs, self._trusted(inputs).plain), self.outputs(problem)
        return {name: found[name].to(spec.dtype) for name, spec in specs.items()}

    def errors(self, problem: Problem, inputs: Tensors, outputs: Tensors) -> Tensors:
        tokens, logits = outputs["tokens"], outputs["logits"].double()
        vocab = self.shape.vocab
        chosen = tokens.clamp(0, vocab - 1)[..., None]
        is_best = (tokens >= 0) & (tokens < vocab) & (logits.gather(2, chosen)[..., 0] == logits.amax(2))
        trusted = self._trusted(inputs)
        exact, plain = (
            self._read(problem, inputs, tokens, model) for model in (trusted.exact, trusted.plain)
        )
        caches = {
            name: self._cache_errors(
                problem, inputs[name], outputs[name], getattr(exact.cache, name), getattr(plain.cache, name)
            )
            for name in Cache._fields
        }
        regrets = regret_shares(exact.logits, plain.logits, chosen)
        return {
            **caches,
            "tokens": torch.where(is_best, regrets, math.inf),
            "logits": self._logit_errors(problem, inputs, tokens, logits, exact.logits, plain.logits),
        }

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        tokens = problem["tokens"]
        changes = [
            {"context": problem["context"] + secret.randint(1, 17)},
            {"batch": problem["batch"] + 1},
            {"tokens": tokens - secret.randint(1, min(5, tokens - 1)) if tokens > 1 else 2},
            {"prompt": problem["prompt"] + secret.randint(1, 9)},
        ]
        found = [{**problem, **change} for change in changes]
        return [other for other in found if other not in self.problems.values()]

    def work(self, problem: Problem) -> Work:
        shape, batch, made = self.shape, problem["batch"], problem["tokens"]
        item = self.precision.itemsize
        last = sum(out * within for name, (out, within) in shape.matrices.items() if name not in ("k", "v"))
        weights, cached = (
            item * shape.streamed_weights,
            item * 2 * shape.layers * shape.kv_heads * shape.head_dim,
        )
        read = problem["prompt"] + made - 1
        moved = weights + (made - 1) * max(0, weights - CACHE_BYTES)
        moved += batch * (cached * (problem["context"] + read) + 4 * made * shape.vocab)
        head = shape.vocab * shape.hidden
        flops = 2 * batch * (read * (shape.streamed_weights - head - last) + made * (head + last))
        return Work(flops=flops, bytes=moved)

    def _cache_sizes(self, problem: Problem) -> tuple[int, ...]:
        shape = self.shape
        positions = problem["context"] + problem["prompt"] + problem["tokens"] - 1
        return shape.layers, problem["batch"], shape.kv_heads, positions, shape.head_dim

    def _trusted(self, inputs: Tensors) -> Trusted:
        """Of the parameters among the inputs; kept for as long as these are the same tensors."""
        kept: Trusted | None = self.__dict__.get("_kept")
        if kept is None or kept.owner is not inputs["embedding"]:
            weights = {name: inputs[name] for name in (*self.shape.weight_shapes(), "frequencies")}
            exact, plain = (
                Llama.of(self.shape, weights, dtype) for dtype in (WIDER[self.precision], self.precision)
            )
            kept = self.__dict__["_kept"] = Trusted(
                inputs["embedding"], exact, plain, HeadAudit.of(exact.head)
            )
        return kept

    def _empty_cache(self, inputs: Tensors, dtype: torch.dtype) -> Cache:
        return Cache(inputs["keys"].to(dtype, copy=True), inputs["values"].to(dtype, copy=True))

    def _made(self, problem: Problem, inputs: Tensors, model: Llama) -> Tensors:
        """The outputs, token after token."""
        cache = self._empty_cache(inputs, model.dtype)
        read, context = inputs["prompt"], problem["context"]
        tokens, logits = [], []
        for step in range(problem["tokens"]):
            found = model.logits(read, cache, context, 1)[:, 0]
            logits.append(found.to(torch.promote_types(model.dtype, torch.float32)))
            tokens.append(found.argmax(1))
            context += read.shape[1]
            read = ((tokens[-1] + inputs["shifts"][:, step]) % self.shape.vocab)[:, None]
        return {
            "keys": cache.keys,
            "values": cache.values,
            "tokens": torch.stack(tokens, 1),
            "logits": torch.stack(logits, 1),
        }

    def _read(self, problem: Problem, inputs: Tensors, tokens: torch.Tensor, model: Llama) -> Forced:
        """Logits and cache of a model that reads what the kernel has read, all at once."""
        cache = self._empty_cache(inputs, model.dtype)
        logits = model.logits(self._whole(inputs, tokens), cache, problem["context"], problem["tokens"])
        return Forced(logits.double(), cache)

    def _whole(self, inputs: Tensors, tokens: torch.Tensor) -> torch.Tensor:
        """All tokens that a kernel has read which made these."""
        follows = ((tokens + inputs["shifts"]) % self.shape.vocab)[:, :-1]
        return torch.cat([inputs["prompt"], follows], 1)

    def _cache_errors(
        self,
        problem: Problem,
        given: torch.Tensor,
        found: torch.Tensor,
        exact: torch.Tensor,
        plain: torch.Tensor,
    ) -> torch.Tensor:
        """By layer, as shares of what is allowed; of what was given, nothing is."""
        errors = (found.double() - exact.double()).abs()
        rounding = torch.finfo(self.precision).eps / 4 * exact.double().abs()
        own = torch.maximum((plain.double() - exact.double()).abs(), rounding)
        layer, begin = (1, 2, 3, 4), problem["context"]
        shares = errors / (CACHE_ELEMENT_BUDGET * own.amax(layer, keepdim=True)).clamp_min(1e-300)
        prompt = [slice(begin, begin + problem["prompt"])] if problem["prompt"] > 1 else []
        for span in (slice(begin, None), *prompt):  # what is read in another way is held to it by itself
            budget = rms_budget(CACHE_RMS_BUDGET, errors.shape[1] * errors[:, :, :, span].shape[3])
            whole, own_whole = (
                e[:, :, :, span].square().mean(layer, keepdim=True).sqrt() for e in (errors, own)
            )
            shares = torch.maximum(shares, whole / (budget * own_whole).clamp_min(1e-300))
        is_given = torch.arange(given.shape[3], device=given.device)[:, None] < problem["context"]
        return torch.where(is_given, torch.where(found == given, 0.0, math.inf), shares)

    def _logit_errors(
        self,
        problem: Problem,
        inputs: Tensors,
        tokens: torch.Tensor,
        logits: torch.Tensor,
        exact: torch.Tensor,
        plain: torch.Tensor,
    ) -> torch.Tensor:
        """Of each element, or of all of them or of the scales of the weights, if that is more."""
        errors, own = logits - exact, plain - exact
        positions = tokens.numel()
        budget = rms_budget(RMS_BUDGET, positions)
        whole = float(errors.square().mean().sqrt() / (budget * own.square().mean().sqrt()).clamp_min(1e-300))
        if whole <= 1 and (head := self._trusted(inputs).head) is not None:
            given, rounding = (head.error(found.flatten(0, 1)) for found in (logits, plain))
            whole = max(whole, given / max(rms_budget(HEAD_RMS_BUDGET, positions) * rounding, 1e-300))
        if whole <= 1 and positions >= AUDITED_POSITIONS and _CHANCE.random() < self.audited_share:
            whole = max(whole, self._scale_share(problem, inputs, tokens, errors, own))
        return (errors.abs() / (ELEMENT_BUDGET * own.abs().max()).clamp_min(1e-300)).clamp_min(whole)

    def _scale_share(
        self, problem: Problem, inputs: Tensors, tokens: torch.Tensor, errors: torch.Tensor, own: torch.Tensor
    ) -> float:
        """The scales of the weights: the largest change of one, as the errors tell, as a share of what is allowed."""
        step = -(-self.shape.vocab // AUDITED_VOCAB)
        model, context = self._trusted(inputs).exact.thinned(step), problem["context"]
        read, cache = self._whole(inputs, tokens), self._empty_cache(inputs, model.dtype)
        together = max(1, MAX_TOGETHER // read.numel())

        def logits(some: Sequence[Scale]) -> torch.Tensor:
            models = replace(model, scales=larger(some, len(read), read.device))
            caches = Cache(*(part.repeat(1, len(some), 1, 1, 1) for part in cache))
            found = models.logits(read.repeat(len(some), 1), caches, context, problem["tokens"])
            return found.view(len(some), -1, found.shape[-1])

        scales = scales_of(self.shape.layers, has_context=context > 0)
        groups = [scales[i : i + together] for i in range(0, len(scales), together)]
        changed = torch.cat([logits(some) for some in groups])
        exact = model.logits(read, cache, context, problem["tokens"]).flatten(0, 1)
        own, errors = (found.flatten(0, 1)[:, ::step].to(exact.dtype) for found in (own, errors))
        return ScaleAudit.of(scales, exact, changed, own).share(errors)


def require_sizes(name: str, problem: Problem) -> None:
    """Raises ValueError for what is no problem of a session."""
    if set(problem) != set(LEAST):
        raise ValueError(f"problem {name!r} has the sizes {', '.join(problem)}; give {', '.join(LEAST)}")
    for size, least in LEAST.items():
        value = problem[size]
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"problem {name!r}: {size} is {value!r}; give a whole number, {least} or more")


def rms_budget(many: float, positions: int) -> float:
    """Of a root mean square over so many positions."""
    return many + RMS_SCATTER / math.sqrt(positions)


def regret_shares(exact: torch.Tensor, plain: torch.Tensor, chosen: torch.Tensor) -> torch.Tensor:
    """Of the tokens that were chosen, as shares of what is allowed, [batch, tokens]."""
    unit = (plain - exact).square().mean().sqrt().clamp_min(1e-300)
    regrets = (exact.amax(2) - exact.gather(2, chosen)[..., 0]) / unit
    mean = MEAN_REGRET + REGRET_SCATTER / math.sqrt(regrets.numel())
    return (regrets / REGRET_BUDGET).clamp_min(float(regrets.mean() / mean))


class Trusted(NamedTuple):
    """What kernels with the same weights are compared with."""

    owner: torch.Tensor
    """The parameter by which they are known."""
    exact: Llama
    plain: Llama
    head: HeadAudit | None


class Forced(NamedTuple):
    """Of a model that has read tokens which were given."""

    logits: torch.Tensor
    cache: Cache
