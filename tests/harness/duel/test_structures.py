"""Inputs with a structure as a whole."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.case.contract import Tensors
from hillclimb.harness.duel.structures import _relations, checker_all, held, structure_some, structures_of

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
WHOLE = [torch.int8, torch.uint8, torch.int32, torch.int64]
WIDE = (-1e4, 1e4)


def drawn(*shape: int, seed: int = 0, scale: float = 3.0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale


def structured(tensor: torch.Tensor, domain: tuple[float, float], secret: random.Random) -> torch.Tensor:
    return structure_some({"x": tensor}, {"x": domain}, ["x"], secret)["x"]


def many(own: torch.Tensor, domain: tuple[float, float] = WIDE, count: int = 400) -> list[torch.Tensor]:
    return [structured(own, domain, random.Random(seed)) for seed in range(count)]


def share(found: list[torch.Tensor], told: Callable[[torch.Tensor], bool]) -> float:
    return sum(map(told, found)) / len(found)


def is_sorted(x: torch.Tensor) -> bool:
    return all(bool((x.diff(dim=dim) >= 0).all()) for dim in range(x.dim()))


def is_of_two_values(x: torch.Tensor) -> bool:
    return len(x.unique()) == 2


TOLD: dict[str, Callable[[torch.Tensor], bool]] = {
    "rising": is_sorted,
    "falling": lambda x: is_sorted(-x),
    "whole numbers": lambda x: bool((x == x.round()).all()),
    "not negative": lambda x: bool((x >= 0).all()),
    "not positive": lambda x: bool((x <= 0).all()),
    "zeros and one number": lambda x: is_of_two_values(x) and bool((x == 0).any()),
    "one number of either sign": lambda x: is_of_two_values(x.abs() + (x < 0)) and len(x.abs().unique()) == 1,
    "one element": lambda x: int((x != 0).sum()) == 1,
    "mostly 0": lambda x: 1 < int((x != 0).sum()) <= x.numel() // 4,
    "zeros at the end": lambda x: bool((x[..., -1] == 0).all()) and bool((x[..., 0] != 0).all()),
    "what bfloat16 holds": lambda x: bool((x.bfloat16().float() == x).all()),
    "of unit length": lambda x: math.isclose(float(x.norm()), 1.0, rel_tol=1e-5),
}
"""Structures of vectors that a kernel could tell."""

OF_MATRICES: dict[str, Callable[[torch.Tensor], bool]] = {
    "lower": lambda x: bool((x == x.tril()).all()) and not bool((x == x.triu()).all()),
    "upper": lambda x: bool((x == x.triu()).all()) and not bool((x == x.tril()).all()),
    "diagonal": lambda x: torch.equal(x, x.diag().diag()) and int((x != 0).sum()) > 1,
    "symmetric": lambda x: torch.equal(x, x.T) and int((x != 0).sum()) > len(x) ** 2 // 2,
    "equal rows": lambda x: bool((x == x[0]).all()),
    "equal columns": lambda x: bool((x[:, 0] == x.T).all()),
    "rows of unit length": lambda x: bool(torch.isclose(x.norm(dim=1), torch.ones(len(x))).all()),
}


@pytest.mark.parametrize("name", TOLD)
def test_vectors_have_every_structure(name: str) -> None:
    assert share(many(drawn(40)), TOLD[name]) > 0.01


@pytest.mark.parametrize("name", {**TOLD, **OF_MATRICES})
def test_matrices_have_every_structure(name: str) -> None:
    assert share(many(drawn(12, 12)), {**TOLD, **OF_MATRICES}[name]) > 0.01


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4).filter(lambda shape: math.prod(shape) > 1),
    st.sampled_from([*FLOATS, *WHOLE]),
    st.sampled_from([(-100.0, 100.0), (0.0, 5.0), (0.5, 20.0), (-7.0, -1.0)]),
    st.integers(0, 10**6),
    st.booleans(),
)
def test_what_is_structured_stays_in_its_domain_and_grows_no_larger(
    shape: list[int], dtype: torch.dtype, domain: tuple[float, float], seed: int, is_permuted: bool
) -> None:
    low, high = domain
    if not dtype.is_signed and low < 0:
        low, high = 0.0, max(high, 3.0)
    own = (drawn(*shape, seed=seed).double() * 4).clamp(low, high)
    own = own.clamp(math.ceil(low), math.floor(high)).round().to(dtype) if dtype in WHOLE else own.to(dtype)
    if is_permuted:
        own = own.permute(*reversed(range(len(shape))))
    before = own.double().flatten().tolist()
    found = structured(own, (low, high), random.Random(seed))
    assert (found.shape, found.dtype, found.stride()) == (own.shape, own.dtype, own.stride())
    values = found.double()
    assert bool(((values >= low) & (values <= high)).all())
    assert float(values.abs().max()) <= max(1.0, float(own.double().abs().max().ceil()), abs(low))
    assert own.double().flatten().tolist() == before, "it is a copy"


@given(st.integers(0, 10**6))
def test_whole_numbers_are_only_moved_repeated_or_0(seed: int) -> None:
    own = torch.arange(3, 27).reshape(4, 6)
    values = structured(own, (0, 100), random.Random(seed)).flatten().tolist()
    assert {*values} <= {0, *own.flatten().tolist()}


def test_turns_that_count_up_give_every_structure() -> None:
    own = drawn(12, 12)
    count = len(structures_of(own, *WIDE))
    for first in (0, 7):
        found = [
            structure_some({"x": own}, {"x": WIDE}, ["x"], random.Random(turn), turn)["x"]
            for turn in range(first, first + 12 * count)
        ]
        assert all(any(map(is_so, found)) for is_so in {**TOLD, **OF_MATRICES}.values())


def both(inputs: Tensors, seed: int, **domains: tuple[float, float]) -> Tensors:
    known = domains or dict.fromkeys(inputs, WIDE)
    return structure_some(inputs, known, list(known), random.Random(seed))


def test_one_input_may_be_another_its_transpose_or_a_slice_of_it() -> None:
    own = {"a": drawn(5, 5, seed=1), "b": drawn(5, 5, seed=2), "x": drawn(5, seed=3)}
    found = [both(own, seed) for seed in range(400)]
    assert any(torch.equal(new["a"], own["b"]) and new["b"] is own["b"] for new in found)
    assert any(torch.equal(new["b"], own["a"].T) for new in found)
    assert {k for k in range(5) if any(torch.equal(new["x"], own["a"][k]) for new in found)} == {*range(5)}


def test_only_what_is_named_is_structured() -> None:
    own = {"a": drawn(4, 4, seed=1), "mask": drawn(4, 4, seed=2)}
    found = [both(own, seed, a=WIDE) for seed in range(50)]
    assert all(new["mask"] is own["mask"] for new in found)
    assert any(not torch.equal(new["a"], own["a"]) for new in found)


@pytest.mark.parametrize("whole", [False, True])
def test_another_inputs_values_stay_in_the_domain(whole: bool) -> None:
    own = {"a": drawn(60, seed=1, scale=50.0).clamp(-500, 500), "b": drawn(60, seed=2).clamp(-4, 4)}
    own = {name: tensor.round().to(torch.int32) for name, tensor in own.items()} if whole else own
    found = [both(own, seed, a=(-500, 500), b=(-4, 4)) for seed in range(200)]
    assert max(float(new["b"].abs().max()) for new in found) <= 4
    assert any(torch.equal(new["a"], own["b"]) for new in found), "of a narrower domain they may be"


@pytest.mark.parametrize("dtype", [*FLOATS])
@pytest.mark.parametrize("domain", [(0.0, 0.999), (-0.3, 0.7), (1e-3, 1e5), (-1e5, -1e-3)])
def test_values_are_held_within_a_domain_whose_ends_the_dtype_lacks(
    dtype: torch.dtype, domain: tuple[float, float]
) -> None:
    low, high = domain
    values = torch.tensor([low, high, (low + high) / 2, -1e9, 1e9], dtype=torch.float64)
    found = held(values, dtype, domain).double()
    assert bool(((found >= low) & (found <= high)).all())
    assert bool(torch.isfinite(found).all())


def test_an_input_may_be_another_one_rolled() -> None:
    own = {"a": drawn(9, seed=1), "b": drawn(9, seed=2)}
    found = [both(own, seed)["a"] for seed in range(600)]
    places = {k for k in range(9) if any(torch.equal(a, own["b"].roll(k)) for a in found)}
    assert len(places) > 4


TIMES = torch.randint(10**15, 10**17, (400,), generator=torch.Generator().manual_seed(1))
PERIODS = torch.randint(1, 10**6, (400,), generator=torch.Generator().manual_seed(2))


def test_whole_numbers_may_be_next_to_multiples_of_others() -> None:
    own, domains = {"t": TIMES, "p": PERIODS}, {"t": (10**7, 10**17), "p": (1, 10**6)}
    left: set[int] = set()
    for seed in range(400):
        new = structure_some(own, domains, ["t", "p"], random.Random(seed))
        rest = ((new["t"] + 1) % own["p"] - 1).unique() if new["p"] is own["p"] else torch.arange(3)
        if len(rest) == 1:
            assert bool(((own["t"] - new["t"]).abs() <= own["p"]).all()), (
                "they are near those that were drawn"
            )
            left.add(int(rest))
    assert left == {-1, 0, 1}


def test_floats_are_no_multiples_of_others() -> None:
    """A right kernel may round such a quotient either way."""
    own = {"a": drawn(40, seed=1, scale=100.0), "b": drawn(1, seed=2).expand(2)}
    assert list(_relations(own, dict.fromkeys(own, WIDE), ["a", "b"])) == []


@pytest.mark.parametrize("dtype", [torch.float8_e4m3fn, torch.uint16, torch.int8])
def test_any_dtype_is_rolled(dtype: torch.dtype) -> None:
    own = {name: torch.arange(1, 9).to(dtype) for name in ("a", "b")}
    found = [
        structure_some(own, dict.fromkeys(own, (0, 99)), ["a", "b"], random.Random(s)) for s in range(300)
    ]
    rolled = [new["a"].tolist() for new in found if new["b"] is own["b"]]
    rotations = [torch.arange(1.0, 9.0).roll(by).tolist() for by in range(1, 8)]
    assert any(rotation in rolled for rotation in rotations)


def test_quarters_that_touch_at_a_corner_are_shrunk_in_all_matrices() -> None:
    own = {
        "a": drawn(8, 6, seed=1),
        "b": drawn(6, 7, seed=2),
        "x": drawn(8),
        "n": torch.ones(4, 4, dtype=torch.int64),
    }
    seen = set()
    for seed in range(60):
        new = checker_all(own, dict.fromkeys(own, WIDE), list(own), random.Random(seed))
        assert new is not None
        assert new["x"] is own["x"]
        assert new["n"] is own["n"]
        factors = {name: (new[name] / own[name]) for name in ("a", "b")}
        corners = [float(factors[name][0, 0]) for name in factors]
        small = min(corners[0], float(factors["a"][0, -1]))
        assert small in {0.5**bits for bits in range(1, 11)}
        for name, factor in factors.items():
            rows, columns = (size // 2 for size in factor.shape)
            quarters = [
                part
                for half in (factor[:rows], factor[rows:])
                for part in (half[:, :columns], half[:, columns:])
            ]
            values = [float(quarter.unique()) for quarter in quarters]
            assert values in ([small, 1, 1, small], [1, small, small, 1]), name
        seen.add(tuple(corner == small for corner in corners))
    assert len(seen) == 4


def test_without_matrices_there_are_no_quarters() -> None:
    assert checker_all({"x": drawn(8)}, {"x": WIDE}, ["x"], random.Random(1)) is None
