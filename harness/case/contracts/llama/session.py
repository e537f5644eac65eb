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

ELEMENT_BUDGET = 4.0
"""Of the largest error of the plain computation: what any one element may err."""

RMS_BUDGET = 1.5
"""Of the root mean square of its errors in logits: what theirs may be, over many positions."""

RMS_SCATTER = 2.0
"""Of few positions, by how much more the root mean squares of two right computations differ, over their square root."""

CACHE_BYTES = 64 << 20
"""Weights that may stay in a cache from one token to the next."""

AUDITED_POSITIONS = 32
"""Fewest of a call from whose logits scales are told."""

AUDITED_VOCAB = 4096
"""Tokens of the vocabulary, at equal distances, whose logits tell of scales: all would take gigabytes."""

MAX_TOGETHER = 1024
"""Tokens that models with a changed scale read at a time, all together."""

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
    distributions = ("normal",)
    unmixed = "a cache holds what a model can have put there"

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
        chosen = logits.gather(2, tokens.clamp(0, vocab - 1)[..., None])[..., 0]
        is_best = (tokens >= 0) & (tokens < vocab) & (chosen == logits.amax(2))
        trusted = self._trusted(inputs)
        exact, plain = (
            self._read(problem, inputs, tokens, model) for model in (trusted.exact, trusted.plain)
        )
        return {
            "keys": self._cache_errors(
                problem, inputs["keys"], outputs["keys"], exact.cache.keys, plain.cache.keys
            ),
            "values": self._cache_errors(
                problem, inputs["values"], outputs["values"], exact.cache.values, plain.cache.values
            ),
            "tokens": torch.where(is_best, 0.0, math.inf),
            "logits": self._logit_errors(problem, inputs, tokens, logits, exact.logits, plain.logits),
        }

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        changes = [
            {"context": problem["context"] + secret.randint(1, 17)},
            {"batch": problem["batch"] + 1},
            {"tokens": max(1, problem["tokens"] - secret.randint(1, 5))},
            {"prompt": problem["prompt"] + secret.randint(1, 9)},
        ]
        return [{**problem, **change} for change in changes]

    def work(self, problem: Problem) -> Work:
        shape, batch, made = self.shape, problem["batch"], problem["tokens"]
        item = self.precision.itemsize
        weights, cached = (
            item * shape.streamed_weights,
            item * 2 * shape.layers * shape.kv_heads * shape.head_dim,
        )
        read = problem["prompt"] + made - 1
        moved = weights + (made - 1) * max(0, weights - CACHE_BYTES)
        moved += batch * (cached * (problem["context"] + read) + 4 * made * shape.vocab)
        head = shape.vocab * shape.hidden
        flops = 2 * batch * (read * (shape.streamed_weights - head) + made * head)
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
        rounding = torch.finfo(self.precision).eps * exact.double().abs()
        own = torch.maximum((plain.double() - exact.double()).abs(), rounding).amax(
            (1, 2, 3, 4), keepdim=True
        )
        shares = errors / (ELEMENT_BUDGET * own).clamp_min(1e-300)
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
        budget = RMS_BUDGET + RMS_SCATTER / math.sqrt(positions)
        whole = float(errors.square().mean().sqrt() / (budget * own.square().mean().sqrt()).clamp_min(1e-300))
        if whole <= 1 and (head := self._trusted(inputs).head) is not None:
            given, rounding = (head.error(found.flatten(0, 1)) for found in (logits, plain))
            whole = max(whole, given / max(budget * rounding, 1e-300))
        if whole <= 1 and positions >= AUDITED_POSITIONS and _CHANCE.random() < self.audited_share:
            whole = max(whole, self._scale_share(problem, inputs, tokens, errors, own))
        return (errors.abs() / (ELEMENT_BUDGET * own.abs().max()).clamp_min(1e-300)).clamp_min(whole)

    def _scale_share(
        self, problem: Problem, inputs: Tensors, tokens: torch.Tensor, errors: torch.Tensor, own: torch.Tensor
    ) -> float:
        """The scales of the weights: the largest change of one, as the errors tell, as a share of what is allowed."""
        step = max(1, self.shape.vocab // AUDITED_VOCAB)
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
