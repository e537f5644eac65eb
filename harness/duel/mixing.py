"""Mixes inputs: values of another distribution, and of all of an input's domain, stand among ordinary ones.

Which elements they are is secret, so a kernel cannot tell from a sample of an input what the rest of it holds. Of
floats only finite ones stand in for finite ones. Whole numbers may be places, lengths and choices: they are mixed where
the contract gives their domain.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import combinations

import torch

from hillclimb.harness.case.contract import Contract, Tensors
from hillclimb.harness.case.operands import are_equal
from hillclimb.harness.duel.places import box_of, generator_for, places_in, single_places, uniform
from hillclimb.harness.duel.process.arena import WORDS
from hillclimb.harness.duel.structures import Domain, held

EVERY_SHARE, MAX_STEP = 0.25, 8
"""Of exceptions to a structure, how often one in every few elements is one, and in every how many at the most."""

ONE_VALUE_SHARE = 0.25
"""How often rare values are all the same."""


ROUNDS = (1, 1, 2, 3)
"""How often elements of one input are replaced, one of these: what hides one thing may show with two."""

DECADES = 8.0
"""Powers of ten below the largest value of a domain that holds 0 in which rare values are drawn."""

SHRUNK_DECADES = 16.0
"""Powers of ten by which many values are shrunk together, at most; fewer where the dtype's normal numbers end. Products
of two values that are shrunk as far are still normal in 32 bits."""

ALONE_SHARE = 0.2
"""Of mixed inputs, in how many one box of one input is shrunk or made alike, and nothing else is changed: what looks at
all magnitudes would tell rare values by them."""

SWAPPED_SHARE = 0.25
"""Where values move to other places, in how many calls two inputs that are alike are swapped."""

WHOLE_SHARE = 0.4
"""Of the boxes whose values are shrunk or made alike, how many are the whole input, and of the others' lengths how many
are whole."""

SAMPLED = 1024
"""Elements from which it is told what is usual in an input, about."""


def mix(contract: Contract, inputs: Tensors, donor: Tensors | None, secret: random.Random) -> Tensors:
    """These inputs with some elements of `donor`, a draw of the same problem, and of `contract.domains`.

    Tensors that are not changed are handed back as they are; the others are new.
    """
    ways = {
        name: _ways(contract, name, donor)
        for name, tensor in inputs.items()
        if _is_mixable(tensor, has_domain=name in contract.domains)
    }
    able = [name for name, found in ways.items() if found]
    if not able:
        return inputs
    with_domain = [name for name in able if name in contract.domains]
    if with_domain and secret.random() < ALONE_SHARE:
        return _with_one_box(contract, inputs, secret.choice(with_domain), secret)
    mixed = dict(inputs)
    for name in secret.sample(able, secret.randint(1, len(able))):
        mixed[name] = inputs[name].clone()
        for _ in range(secret.choice(ROUNDS)):
            secret.choice(ways[name])(mixed[name], secret)
    return mixed


def _with_one_box(contract: Contract, inputs: Tensors, name: str, secret: random.Random) -> Tensors:
    changed = inputs[name].clone()
    _level_box(changed, *contract.domains[name], secret)
    return {**inputs, name: changed}


def mix_whole(contract: Contract, inputs: Tensors, donor: Tensors, secret: random.Random) -> Tensors | None:
    """Some inputs, but not all, wholly of the other distribution, or of a magnitude between the two where a domain
    allows it; None where that would only be the other distribution."""
    able = [name for name, tensor in inputs.items() if _is_mixable(tensor, name in contract.domains)]
    mixed, is_alone = dict(inputs), len(able) == 1
    for name in secret.sample(able, max(1, secret.randrange(len(able)))) if able else ():
        values = donor[name]
        may_shrink = name in contract.domains and values.is_floating_point()
        if is_alone and not may_shrink:
            return None
        if may_shrink and (is_alone or secret.random() < 0.5):
            values = _between(values, inputs[name], contract.domains[name], secret)
        mixed[name] = inputs[name].clone()
        _replace(mixed[name], tuple(slice(size) for size in values.shape), values)
    return mixed if able else None


def _between(one: torch.Tensor, other: torch.Tensor, domain: Domain, secret: random.Random) -> torch.Tensor:
    """The larger of the two by what is usual, shrunk by one factor, at most as far as the other one's usual."""
    sizes = torch.stack([_usual_value(tensor, secret).double().abs() for tensor in (one, other)])
    larger = torch.where(sizes[0] >= sizes[1], one.double(), other.double())
    ratio = torch.where(sizes.min() > 0, sizes.min() / sizes.max(), 1.0) ** secret.random()
    return held(larger * ratio, one.dtype, domain)


def turned(contract: Contract, inputs: Tensors, secret: random.Random) -> Tensors:
    """The same values at other places: some inputs flipped or rolled along one dimension, or two that are alike
    swapped. What was kept of a sum, a largest value or a sample is then of another result.

    Only inputs with a domain and without infinite values are; the others are handed back as they are.
    """
    able, moved = changeable(contract, inputs), dict(inputs)
    alike = [pair for pair in combinations(able, 2) if _may_be_swapped(contract, inputs, *pair)]
    if alike and secret.random() < SWAPPED_SHARE:
        one, other = secret.choice(alike)
        return {**moved, one: inputs[other].clone(), other: inputs[one].clone()}
    for name in secret.sample(able, secret.randint(1, len(able))) if able else ():
        moved[name] = _turned(inputs[name], secret)
    return moved


def changeable(contract: Contract, inputs: Tensors) -> list[str]:
    """The inputs with a domain and without infinite values, of more than one element."""
    return [
        name
        for name, tensor in inputs.items()
        if name in contract.domains
        and _is_mixable(tensor, has_domain=True)
        and bool(_is_finite(tensor).all())
    ]


def except_few(contract: Contract, structured: Tensors, inputs: Tensors, secret: random.Random) -> Tensors:
    """`structured`, but for some elements of one input: they are those that it was made of, or a few of its domain."""
    names = [name for name, tensor in structured.items() if tensor is not inputs[name]]
    if not names:
        return structured
    name = secret.choice(names)
    tensor, domain = structured[name].clone(), contract.domains[name]
    if secret.random() < EVERY_SHARE:
        step = secret.randint(2, min(MAX_STEP, tensor.numel()))
        every = torch.arange(secret.randrange(step), tensor.numel(), step, device=tensor.device)
        places = torch.unravel_index(every, tensor.shape)
        _replace(tensor, places, inputs[name][places])
        return {**structured, name: tensor}
    generator = generator_for(tensor, secret)
    places = single_places(tensor, secret, generator)
    values = (
        inputs[name][places]
        if secret.random() < 0.5
        else _rare_values_as(tensor.dtype, *domain, len(places[0]), generator)
    )
    _replace(tensor, places, values)
    return {**structured, name: tensor}


def _may_be_swapped(contract: Contract, inputs: Tensors, one: str, other: str) -> bool:
    kinds = [(inputs[name].shape, inputs[name].dtype, tuple(contract.domains[name])) for name in (one, other)]
    return kinds[0] == kinds[1] and not are_equal(inputs[one], inputs[other])


def can_mix(contract: Contract) -> bool:
    """Whether anything may be mixed into its inputs."""
    return bool(contract.domains) or (not contract.unmixed and len(contract.distributions) > 1)


Way = Callable[[torch.Tensor, random.Random], None]
"""Replaces elements in place."""

Where = tuple[slice, ...] | tuple[torch.Tensor, ...]
"""Which elements: a box, or single ones."""


def _ways(contract: Contract, name: str, donor: Tensors | None) -> list[Way]:
    """How elements of this input may be replaced."""
    ways: list[Way] = []
    if donor is not None:
        other = donor[name]
        ways += [
            lambda tensor, secret: _mix_in_box(tensor, other, secret),
            lambda tensor, secret: _mix_in_elements(tensor, other, secret),
        ]
    if name in contract.domains:
        low, high = contract.domains[name]
        ways += [
            lambda tensor, secret: _mix_in_rare_values(tensor, low, high, secret),
            lambda tensor, secret: _level_and_mix(tensor, low, high, secret),
        ]
    return ways


def _turned(tensor: torch.Tensor, secret: random.Random) -> torch.Tensor:
    words, out = WORDS[tensor.dtype.itemsize], tensor.clone()
    along = secret.choice([dim for dim, size in enumerate(tensor.shape) if size > 1])
    size, bits = tensor.shape[along], tensor.view(words)
    is_flipped = secret.random() < 0.5
    out.view(words).copy_(bits.flip(along) if is_flipped else bits.roll(secret.randrange(1, size), along))
    return out


def _is_mixable(tensor: torch.Tensor, has_domain: bool) -> bool:
    is_whole = not (tensor.is_floating_point() or tensor.is_complex() or tensor.dtype is torch.bool)
    return tensor.numel() > 1 and (tensor.is_floating_point() or (is_whole and has_domain))


def _mix_in_box(tensor: torch.Tensor, donor: torch.Tensor, secret: random.Random) -> None:
    """A box of the donor's at the same place."""
    box = box_of(tensor, secret)
    _replace(tensor, box, donor[box])


def _level_and_mix(tensor: torch.Tensor, low: float, high: float, secret: random.Random) -> None:
    """As `_level_box`, and every other time rare values in it."""
    inside = tensor[_level_box(tensor, low, high, secret)]
    if inside.numel() > 1 and secret.random() < 0.5:
        _mix_in_rare_values(inside, low, high, secret)


def _level_box(tensor: torch.Tensor, low: float, high: float, secret: random.Random) -> tuple[slice, ...]:
    """A box, or all of the input, of one value, or of values that are shrunk by one factor; where it lies.

    None becomes much larger than what is usual in the input: of many large ones the sum may leave a dtype. Value and
    factor are powers of two, whose sums and products are exact: rounding many like values adds up otherwise.
    """
    box = box_of(tensor, secret, 1.0 if secret.random() < WHOLE_SHARE else WHOLE_SHARE)
    values = (
        tensor[box] if tensor.is_floating_point() and secret.random() < 0.5 else _usual_value(tensor, secret)
    )
    if tensor.is_floating_point():
        exponent = _shrinking_exponent(tensor.dtype, secret) if low <= 0 <= high else 0
        values = (values.double() * 0.5**exponent).clamp(low, high).to(tensor.dtype)
    _replace(tensor, box, values.expand(tensor[box].shape))
    return box


def _shrinking_exponent(dtype: torch.dtype, secret: random.Random) -> float:
    """Infinite now and then, which makes 0; else anywhere in what the dtype holds."""
    if secret.random() < 0.125:
        return math.inf
    most = min(SHRUNK_DECADES * math.log2(10), -math.log2(torch.finfo(dtype).tiny))
    return secret.randint(0, int(most))


def _usual_value(tensor: torch.Tensor, secret: random.Random) -> torch.Tensor:
    """Of some that lie evenly, the finite one of median magnitude; a float is cut to a power of two, float64."""
    step = max(1, tensor.numel() // SAMPLED)
    some = tensor.reshape(-1)[secret.randrange(step) :: step]
    size = some.double().abs()
    usual = some[torch.where(torch.isfinite(size), size, torch.nan).nanmedian(0).indices]
    if not tensor.is_floating_point():
        return usual
    mantissa, exponent = torch.frexp(usual.double())
    return torch.ldexp(mantissa.sign(), exponent - 1)


def _mix_in_elements(tensor: torch.Tensor, donor: torch.Tensor, secret: random.Random) -> None:
    places = places_in(tensor, secret, generator_for(tensor, secret))
    _replace(tensor, places, donor[places])


def _mix_in_rare_values(tensor: torch.Tensor, low: float, high: float, secret: random.Random) -> None:
    generator = generator_for(tensor, secret)
    places = places_in(tensor, secret, generator)
    values = _rare_values_as(tensor.dtype, low, high, len(places[0]), generator)
    _replace(tensor, places, values[:1].expand_as(values) if secret.random() < ONE_VALUE_SHARE else values)


def _rare_values_as(
    dtype: torch.dtype, low: float, high: float, count: int, generator: torch.Generator
) -> torch.Tensor:
    """Values of the domain, as far as the dtype holds them."""
    if dtype.is_floating_point:
        most = float(torch.finfo(dtype).max)
        return _rare_values(float(low), float(high), count, generator).clamp(-most, most).to(dtype)
    bounds, wide = torch.iinfo(dtype), torch.iinfo(torch.int64)
    least, largest = max(math.ceil(low), bounds.min), min(math.floor(high), bounds.max, wide.max)
    return _rare_whole_numbers(least, largest, count, generator).to(dtype)


def _rare_whole_numbers(low: int, high: int, count: int, generator: torch.Generator) -> torch.Tensor:
    """As `_rare_values`, int64; float64 would round large ones."""
    even = torch.randint(low, max(high, low + 1), (count,), generator=generator, device=generator.device)
    small = torch.exp(-math.log(10) * DECADES * uniform((count,), generator))
    shrunk = [(sign * small * min(abs(end), 2**62)).to(torch.int64) for sign, end in ((-1, low), (1, high))]
    kinds: list[float | torch.Tensor] = [low, high, even, even]
    if low <= 0 <= high:
        kinds += [0, even, *shrunk]
    return _chosen(kinds, even, generator)


def _rare_values(low: float, high: float, count: int, generator: torch.Generator) -> torch.Tensor:
    """Ends of the domain, 0, values drawn from a linear scale or, by magnitude, from a logarithmic one; float64."""
    share, height = (uniform((count,), generator) for _ in range(2))
    even = low * (1 - share) + high * share
    kinds: list[float | torch.Tensor]
    if low <= 0 <= high:
        ends = [end for end in (low, high) if end]
        small = [end * torch.exp(-math.log(10) * DECADES * height) for end in (ends[0], ends[-1])]
        kinds = [low, high, 0.0, even, even, even, *small]
    else:
        least, largest = sorted((abs(low), abs(high)))
        drawn = torch.exp(math.log(least) * (1 - height) + math.log(largest) * height)
        kinds = [low, high, even, math.copysign(1.0, low) * drawn]
    return _chosen(kinds, even, generator)


def _chosen(
    kinds: list[float | torch.Tensor], like: torch.Tensor, generator: torch.Generator
) -> torch.Tensor:
    """For each element of `like` one of these, numbers or tensors like it."""
    rows = [kind if isinstance(kind, torch.Tensor) else torch.full_like(like, kind) for kind in kinds]
    chosen = torch.randint(len(kinds), (1, len(like)), generator=generator, device=like.device)
    return torch.stack(rows).gather(0, chosen)[0]


def _replace(tensor: torch.Tensor, where: Where, values: torch.Tensor) -> None:
    """Other values there, wherever both the old and the new one are finite."""
    # torch selects among whole numbers where it cannot among floats of one byte
    words = WORDS[tensor.dtype.itemsize]
    old = tensor[where]
    usable = _is_finite(old) & _is_finite(values)
    tensor.view(words)[where] = torch.where(
        usable, values.contiguous().view(words), old.contiguous().view(words)
    )


def _is_finite(tensor: torch.Tensor) -> torch.Tensor:
    """By element; of float8 torch cannot tell that itself."""
    return torch.isfinite(tensor.float() if tensor.dtype.itemsize == 1 else tensor)
