"""Inputs that have a structure as a whole, for which a kernel might take a short cut: sorted, triangular, of one sign.

They are made of the values that a distribution gave, and stay within the domain that the contract states. No magnitude
becomes larger than the largest was, or than 1.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping
from itertools import permutations

import torch

from hillclimb.harness.case.contract import Tensors

RELATED_SHARE, ROLLED_SHARE = 0.3, 0.25
"""Of inputs that are given a structure, in how many one is made of another: the same, its transpose or a slice, or near
multiples of it. And of those that are the same, how many have the values at other places."""

FEW_BITS = (1, 1, 2, 3, 8)
"""Of a mantissa, where few are left: bfloat16 has eight, float8 three or four."""

MAX_SHRUNK_BITS = 10
"""Powers of two by which quarters of a matrix are shrunk, at most: to a thousandth of the others."""

Domain = tuple[float, float]
Structure = Callable[[torch.Tensor, random.Random], torch.Tensor]
"""Gives a tensor of the same shape from one of float64 or int64."""

Relation = Callable[[torch.Tensor, torch.Tensor, random.Random], torch.Tensor]
"""Gives a tensor of the first one's shape from it and another one."""


def structure_some(
    inputs: Tensors,
    domains: Mapping[str, Domain],
    able: list[str],
    secret: random.Random,
    turn: int | None = None,
) -> Tensors:
    """These inputs, some of `able` with a structure. Those have domains, and more than one value, all finite.

    Turns that count up give every structure equally often; without one it is drawn. Every other time all that are
    changed have the same.
    """
    relations = list(_relations(inputs, domains, able))
    changed = dict(inputs)
    if relations and secret.random() < RELATED_SHARE:
        one, other, relation = secret.choice(relations)
        changed[one] = _as(inputs[one], relation(inputs[one], inputs[other], secret), domains[one])
        return changed
    turn, is_common = secret.getrandbits(30) if turn is None else turn, secret.random() < 0.5
    for name in secret.sample(able, secret.randint(1, len(able))):
        found = structures_of(inputs[name], *domains[name])
        structure = found[turn % len(found)]
        changed[name] = _as(inputs[name], structure(_wide(inputs[name]), secret), domains[name])
        turn = turn if is_common else secret.getrandbits(30)
    return changed


def checker_all(
    inputs: Tensors, domains: Mapping[str, Domain], able: list[str], secret: random.Random
) -> Tensors | None:
    """Of all matrices of floats two quarters that touch at a corner shrunk by one power of two: what is added across
    quarters loses the small ones. None where there are no such matrices."""
    changed, factor = dict(inputs), 0.5 ** secret.randint(1, MAX_SHRUNK_BITS)
    for name in able:
        tensor, (low, high) = inputs[name], domains[name]
        if tensor.is_floating_point() and tensor.dim() > 1 and low <= 0 <= high:
            rows, columns = (
                torch.arange(size, device=tensor.device) < size // 2 for size in tensor.shape[-2:]
            )
            is_shrunk = (rows[:, None] == columns) == (secret.random() < 0.5)
            values = _wide(tensor)
            changed[name] = _as(tensor, torch.where(is_shrunk, values * factor, values), domains[name])
    return changed if any(changed[name] is not inputs[name] for name in able) else None


def structures_of(tensor: torch.Tensor, low: float, high: float) -> list[Structure]:
    """Those that such an input can have. Whole numbers are only moved, repeated or made 0."""
    found: list[Structure] = [_rising, _falling]
    has_rows, has_zero = tensor.dim() > 1, low <= 0 <= high
    if has_zero:
        found += [_one_element, _sparse, _padded]
    if tensor.is_floating_point():
        found += [_whole, _of_few_bits, _of_one_magnitude, _of_unit_length]
        found += [_zero_or_one, _zero_or_usual] if has_zero else []
        found += [_not_negative, _not_positive] if low < 0 < high else []
    if has_rows:
        found += [_alike]
        found += [_lower, _upper, _diagonal] if has_zero else []
        found += [_of_unit_rows] if tensor.is_floating_point() else []
    if has_rows and tensor.shape[-1] == tensor.shape[-2] > 1:
        found.append(_symmetric)
    return found


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.to(torch.float64 if tensor.is_floating_point() else torch.int64)


def held(values: torch.Tensor, dtype: torch.dtype, domain: Domain) -> torch.Tensor:
    """float64 values as floats of another dtype, within the domain even where the dtype does not hold its ends."""
    low, high = (_inside(end, dtype, way) for end, way in zip(domain, (1, -1), strict=True))
    return values.clamp(low, high).to(dtype)


def _inside(end: float, dtype: torch.dtype, way: int) -> float:
    """The end of a domain, or a number just inside, up or down, that the dtype rounds to no other side of it."""
    kind = torch.finfo(dtype)
    end = min(max(float(end), kind.min), kind.max)
    rounded = float(torch.tensor(end, dtype=torch.float64).to(dtype).double())
    return end if (rounded - end) * way >= 0 else end + way * kind.eps * abs(end)


def _as(tensor: torch.Tensor, values: torch.Tensor, domain: Domain) -> torch.Tensor:
    """These values, floats within the domain, in a tensor like that one."""
    found = (
        held(values.double(), tensor.dtype, domain)
        if tensor.is_floating_point()
        else values.clamp(*whole_ends(tensor.dtype, domain))
    )
    return torch.empty_like(tensor).copy_(found)


def whole_ends(dtype: torch.dtype, domain: Domain) -> tuple[int, int]:
    """The least and the largest whole number that an int64 has of the domain."""
    low, high = domain
    bounds = torch.iinfo(dtype if dtype is not torch.uint64 else torch.int64)
    return min(max(math.ceil(low), bounds.min), bounds.max), min(
        max(math.floor(high), bounds.min), bounds.max
    )


def _rising(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    """Sorted along every dimension at once."""
    return values.reshape(-1).sort().values.reshape(values.shape)


def _falling(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    return values.reshape(-1).sort(descending=True).values.reshape(values.shape)


def _alike(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    """All slices along one dimension equal: rows, columns or matrices."""
    along = _long_dimension(values, secret)
    return values.narrow(along, secret.randrange(values.shape[along]), 1).expand(values.shape)


def _one_element(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    """0 elsewhere."""
    at = secret.randrange(values.numel())
    return _only(values, slice(at, at + 1))


def _sparse(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    """0 but for one element in a power of two."""
    step = 1 << secret.randrange(1, values.numel().bit_length())
    return _only(values, slice(secret.randrange(min(step, values.numel())), None, step))


def _only(values: torch.Tensor, places: slice) -> torch.Tensor:
    flat = torch.zeros_like(values).reshape(-1)
    flat[places] = values.reshape(-1)[places]
    return flat.reshape(values.shape)


def _padded(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    """0 from a place of one dimension on."""
    along = _long_dimension(values, secret)
    length = secret.randrange(1, values.shape[along])
    padded = values.clone()
    padded.narrow(along, length, values.shape[along] - length).zero_()
    return padded


def _lower(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    """0 above the diagonal."""
    return values.tril()


def _upper(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    return values.triu()


def _diagonal(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    return values.tril().triu()


def _symmetric(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    return values.tril() + values.tril(-1).transpose(-1, -2)


def _whole(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    return values.round()


def _of_few_bits(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    """What fewer bits of mantissa hold; with one bit all are powers of two."""
    mantissa, exponent = torch.frexp(values)
    units = float(1 << secret.choice(FEW_BITS))
    return torch.ldexp((mantissa * units).trunc() / units, exponent)


def _zero_or_one(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    return (values > 0).double()


def _zero_or_usual(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    return torch.where(values > 0, _usual(values), 0.0)


def _of_one_magnitude(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    usual = _usual(values)
    return torch.where(values < 0, -usual, usual)


def _of_unit_length(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    """Where the length is less than 1 it is left."""
    return values / values.square().sum().sqrt().clamp_min(1.0)


def _of_unit_rows(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    return values / values.square().sum(-1, keepdim=True).sqrt().clamp_min(1.0)


def _not_negative(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    return values.abs()


def _not_positive(values: torch.Tensor, secret: random.Random) -> torch.Tensor:
    return -values.abs()


def _usual(values: torch.Tensor) -> torch.Tensor:
    return values.abs().median()


def _long_dimension(values: torch.Tensor, secret: random.Random) -> int:
    return secret.choice([dim for dim, size in enumerate(values.shape) if size > 1])


def _may_be_made_of(one: torch.Tensor, other: torch.Tensor) -> bool:
    is_another = one is not other and one.dtype == other.dtype
    return is_another and one.shape in (
        other.shape,
        other.shape[::-1],
        other.shape[other.dim() - one.dim() :],
    )


def _is_within(inner: Domain, outer: Domain) -> bool:
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _relations(
    inputs: Tensors, domains: Mapping[str, Domain], able: list[str]
) -> Iterator[tuple[str, str, Relation]]:
    """What may be made of what, and how."""
    for one, other in permutations(able, 2):
        made, of = inputs[one], inputs[other]
        if _may_be_made_of(made, of) and _is_within(domains[other], domains[one]):
            yield one, other, _made_of
        are_whole = not (made.is_floating_point() or of.is_floating_point())
        if are_whole and made.shape[made.dim() - of.dim() :] == of.shape:
            yield one, other, _multiples_of


def _multiples_of(one: torch.Tensor, other: torch.Tensor, secret: random.Random) -> torch.Tensor:
    """Near each whole number a multiple of the other one, one more or one less.

    Of floats a quotient would be a tie, which a right kernel may round either way.
    """
    values, units = _wide(one), _wide(other)
    units = torch.where(units == 0, 1, units)
    return values.div(units, rounding_mode="floor") * units + secret.choice((-1, 0, 1))


def _made_of(one: torch.Tensor, other: torch.Tensor, secret: random.Random) -> torch.Tensor:
    """The same values, those of the transpose, or those of one slice; of as many now and then at other places."""
    other = _wide(other)  # not all dtypes can be rolled
    made = [made for made in (other, other.permute(*reversed(range(other.dim())))) if made.shape == one.shape]
    if made and secret.random() < ROLLED_SHARE:
        along = _long_dimension(one, secret)
        return secret.choice(made).roll(secret.randrange(1, one.shape[along]), along)
    if made:
        return secret.choice(made)
    rows = other.reshape(-1, *one.shape)
    return rows[secret.randrange(len(rows))]
