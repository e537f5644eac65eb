"""The sizes of a language model, and the matrices of weights that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict, PositiveInt

from hillclimb.harness.errors import UsageError

Part = Callable[[str, int], int]
"""One GPU's share of a width, which is named for the error."""


class ModelPart(BaseModel):
    """Read from a definition file; nothing may stand there that is not named."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class LatentAttention(ModelPart):
    """Multi-head latent attention (DeepSeek-V2, arXiv:2405.04434): queries, keys and values by way of short vectors."""

    q_rank: PositiveInt
    """Width of the vector that queries are made of."""
    kv_rank: PositiveInt
    """Width of the vector that keys and values are made of."""
    rope_dim: PositiveInt
    """Width of the part of a head that holds the position."""
    nope_dim: PositiveInt
    """Width of the other part."""
    value_dim: PositiveInt
    """Width of a head's values."""


class Experts(ModelPart):
    """A mixture of experts."""

    count: PositiveInt
    per_token: PositiveInt
    """How many experts a token meets."""
    intermediate: PositiveInt
    """Width of one expert."""
    shared_intermediate: int = 0
    """Width of what every token meets besides; 0: there is none."""


class Model(ModelPart):
    """What a model's config.json says of its linear layers."""

    hidden: PositiveInt
    heads: PositiveInt
    kv_heads: PositiveInt
    head_dim: PositiveInt
    intermediate: PositiveInt | None = None
    """Width of a dense layer; left out where all layers are mixtures."""
    latent: LatentAttention | None = None
    experts: Experts | None = None


@dataclass(frozen=True)
class Weight:
    """One matrix of weights as one GPU of a tensor-parallel group holds it: n x k, of every group."""

    layer: str
    n: int
    k: int
    groups: int = 1
    rows_per_token: int = 1
    """Rows that one token brings: of experts as many as it meets."""


def weights(name: str, model: Model, tp: int) -> tuple[Weight, ...]:
    """What one of `tp` GPUs holds, split as Megatron-LM does (arXiv:1909.08053): columns first, then rows.

    Heads of keys and values are repeated where there are fewer of them than GPUs. Raises UsageError where a width
    cannot be split into so many equal parts.
    """

    def part(what: str, size: int) -> int:
        if size % tp:
            known = ", ".join(str(tp) for tp in range(1, 65) if size % tp == 0)
            raise UsageError(f"{name}: {what} is {size}, which {tp} GPUs cannot share; take one of {known}")
        return size // tp

    return (*_attention(model, part, tp), *_dense(model, part), *_mixture(model, part))


def _attention(model: Model, part: Part, tp: int) -> Iterator[Weight]:
    heads, latent = part("heads", model.heads), model.latent
    if latent is None:
        kv_heads = part("kv_heads", model.kv_heads) if model.kv_heads > tp else 1
        yield Weight("qkv", (heads + 2 * kv_heads) * model.head_dim, model.hidden)
        yield Weight("o", model.hidden, heads * model.head_dim)
        return
    yield Weight("qkv_a", latent.q_rank + latent.kv_rank + latent.rope_dim, model.hidden)
    yield Weight("q_b", heads * (latent.nope_dim + latent.rope_dim), latent.q_rank)
    yield Weight("kv_b", heads * (latent.nope_dim + latent.value_dim), latent.kv_rank)
    yield Weight("o", model.hidden, heads * latent.value_dim)


def _dense(model: Model, part: Part) -> Iterator[Weight]:
    if model.intermediate is not None:
        yield from _gated("", model, part("intermediate", model.intermediate))


def _mixture(model: Model, part: Part) -> Iterator[Weight]:
    experts = model.experts
    if experts is None:
        return
    if experts.shared_intermediate:
        yield from _gated("shared_", model, part("experts.shared_intermediate", experts.shared_intermediate))
    width = part("experts.intermediate", experts.intermediate)
    for one in _gated("experts_", model, width):
        yield Weight(one.layer, one.n, one.k, experts.count, experts.per_token)


def _gated(prefix: str, model: Model, width: int) -> Iterator[Weight]:
    """Gate and up as one product, then down."""
    yield Weight(f"{prefix}gate_up", 2 * width, model.hidden)
    yield Weight(f"{prefix}down", model.hidden, width)
