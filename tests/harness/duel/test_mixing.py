"""Values of other distributions among ordinary ones: only where they may be, and in the end everywhere."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from typing import cast

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from hillclimb.harness.case.contract import Contract, Tensors
from hillclimb.harness.duel.inputs import MAX_MIXED, InputSource
from hillclimb.harness.duel.mixing import _level_and_mix, can_mix, except_few, mix, mix_whole, turned
from hillclimb.harness.duel.places import places_in
from hillclimb.harness.duel.secret_random import SecretRandom
from tests.harness.duel.test_inputs import Mixed

FLOATS = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]


class Declared:
    """What mixing asks of a contract."""

    def __init__(self, domains: Mapping[str, tuple[float, float]] | None = None) -> None:
        self.domains = domains or {}


def mixed(inputs: Tensors, donor: Tensors | None, seed: int, **domains: tuple[float, float]) -> Tensors:
    return mix(cast(Contract, Declared(domains)), inputs, donor, random.Random(seed))


def moved(inputs: Tensors, seed: int, **domains: tuple[float, float]) -> Tensors:
    return turned(cast(Contract, Declared(domains)), inputs, random.Random(seed))


def floats(shape: tuple[int, ...], value: float, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full(shape, value).to(dtype)


shapes = st.lists(st.integers(1, 9), min_size=1, max_size=3).map(tuple)


@given(
    shape=shapes,
    dtype=st.sampled_from(FLOATS),
    seed=st.integers(0, 10**6),
    is_permuted=st.booleans(),
)
def test_every_element_is_the_inputs_or_the_donors(
    shape: tuple[int, ...], dtype: torch.dtype, seed: int, *, is_permuted: bool
) -> None:
    own, other = floats(shape, 1, dtype), floats(shape, 2, dtype)
    if is_permuted:
        own, other = own.permute(*reversed(range(len(shape)))), other.permute(*reversed(range(len(shape))))
    found = mixed({"x": own}, {"x": other}, seed)["x"]
    assert (found.shape, found.dtype, found.stride()) == (own.shape, own.dtype, own.stride())
    assert set(found.float().flatten().tolist()) <= {1.0, 2.0}
    assert set(own.float().flatten().tolist()) == {1.0}, "it is a copy that is changed"
    if own.numel() > 1:
        assert bool((found.float() == 2).any())


def test_in_the_end_every_element_is_replaced_and_none_always() -> None:
    own, other = {"x": floats((7, 5), 1)}, {"x": floats((7, 5), 2)}
    replaced = [mixed(own, other, seed)["x"] == 2 for seed in range(400)]
    often = torch.stack(replaced).double().mean(0)
    assert bool((often > 0.02).all())
    assert bool((often < 0.9).all())
    counts = sorted(int(found.sum()) for found in replaced)
    assert counts[0] == 1, "small changes are as likely as large ones"
    assert counts[-1] > 17


def test_whole_numbers_without_a_domain_and_flags_are_left_alone() -> None:
    own = {"at": torch.arange(9), "mask": torch.zeros(9, dtype=torch.bool), "one": floats((1,), 1)}
    other = {
        "at": torch.zeros(9, dtype=torch.int64),
        "mask": torch.ones(9, dtype=torch.bool),
        "one": floats((1,), 2),
    }
    for seed in range(20):
        found = mixed(own, other, seed, mask=(0, 1), one=(0, 1))
        assert all(found[name] is own[name] for name in own)


WHOLE = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


@given(
    st.sampled_from(WHOLE),
    st.sampled_from([(0, 9), (-3, 100), (5, 6), (-(2**31), 2**31 - 1), (-(2**63), 2**63 - 1), (-9, -2)]),
    st.integers(0, 10**6),
)
def test_whole_numbers_of_a_domain_are_mixed_within_it(
    dtype: torch.dtype, domain: tuple[int, int], seed: int
) -> None:
    bounds = torch.iinfo(dtype)
    low, high = max(domain[0], bounds.min), min(domain[1], bounds.max)
    assume(low < high)
    own = torch.full((6, 40), low, dtype=dtype)
    found = mixed({"x": own}, {"x": own}, seed, x=domain)["x"]
    assert found.dtype == dtype
    assert low <= int(found.min())
    assert int(found.max()) <= high


@pytest.mark.parametrize("top", [2**31 - 1, 2**63 - 1])
def test_whole_numbers_of_a_domain_are_its_ends_0_and_of_all_magnitudes(top: int) -> None:
    own = {"x": torch.full((8, 64), 7)}
    seen = {
        v
        for seed in range(200)
        for v in mixed(own, None, seed, x=(-top - 1, top))["x"].flatten().tolist()
        if v != 7
    }
    assert {-top - 1, top, 0} <= seen
    assert any(0 < abs(v) < top**0.8 for v in seen)
    assert len({v % 2 for v in seen if abs(v) > top // 2}) == 2, "they are not rounded to floats"


@pytest.mark.parametrize("special", [float("nan"), float("inf"), float("-inf")])
def test_only_what_is_finite_stands_in_for_what_is_finite(special: float) -> None:
    own, other = floats((8, 8), 1), floats((8, 8), 2)
    own[:, ::2], other[::2] = special, special
    for seed in range(60):
        found = mixed({"x": own}, {"x": other}, seed)["x"]
        assert torch.equal(found.isfinite(), own.isfinite())
        assert bool(
            (found[~own.isfinite()].view(torch.int32) == own[~own.isfinite()].view(torch.int32)).all()
        )


@given(
    st.sampled_from(FLOATS),
    st.sampled_from([(-1e4, 1e4), (-3.0, 0.0), (1e-3, 1e3), (-1e3, -1e-3), (0.0, 1e300), (-1.0, 1e9)]),
    st.integers(0, 10**6),
)
def test_rare_values_are_of_the_domain_and_finite(
    dtype: torch.dtype, domain: tuple[float, float], seed: int
) -> None:
    own = floats((50,), min(max(1.0, domain[0]), domain[1]), dtype)
    found = mixed({"x": own}, None, seed, x=domain)["x"].double()
    assert bool(found.isfinite().all())
    changed = found[found != own.double()]
    slack = 1 + torch.finfo(dtype).eps
    assert bool(((changed >= min(domain[0] * slack, domain[0] / slack)) | (changed == 0)).all())
    assert bool(((changed <= max(domain[1] * slack, domain[1] / slack)) | (changed == 0)).all())


def test_a_domain_is_tried_to_its_ends_and_at_all_magnitudes() -> None:
    own = {"x": floats((50,), 7)}
    seen = [v for seed in range(300) for v in mixed(own, None, seed, x=(-1e4, 1e4))["x"].tolist() if v != 7]
    assert {-1e4, 1e4, 0.0} <= set(seen)
    assert min(abs(v) for v in seen if v) < 1e-2
    assert any(1 < v < 1e3 for v in seen)
    assert any(-1e3 < v < -1 for v in seen)


def test_values_that_meet_in_one_row_show_what_samples_hide() -> None:
    """A kernel for softmax that skips pieces by their first elements overflows only where three elements conspire."""
    own = {"x": torch.randn(64, 2048, generator=torch.Generator().manual_seed(1))}
    shown = sum(_is_skipped_wrongly(mixed(own, None, seed, x=(-400.0, 600.0))["x"]) for seed in range(400))
    assert shown >= 28


def _is_skipped_wrongly(x: torch.Tensor, piece: int = 256) -> bool:
    """Whether a piece that starts far below its row holds a value whose power overflows."""
    pieces = x.view(len(x), -1, piece)
    is_taken = pieces[:, :, 0] > x[:, :1] - 30
    top = pieces.amax(2).masked_fill(~is_taken, -torch.inf).amax(1)
    return bool((x.amax(1) > top + 89).any())


@given(
    st.sampled_from(FLOATS),
    st.sampled_from([(-1e4, 1e4), (-3.0, 0.0), (1e-3, 1e3), (-1e3, -1e-3), (0.3, 0.4)]),
    st.integers(0, 10**6),
)
def test_what_is_alike_or_shrunk_stays_in_the_domain(
    dtype: torch.dtype, domain: tuple[float, float], seed: int
) -> None:
    low, high = domain
    generator = torch.Generator().manual_seed(seed)
    own = (low + (high - low) * torch.rand((6, 9), generator=generator, dtype=torch.float64)).to(dtype)
    found = own.clone()
    _level_and_mix(found, low, high, random.Random(seed))
    slack = 2 * torch.finfo(dtype).eps
    assert bool(
        ((low - slack * abs(low) <= found.double()) & (found.double() <= high + slack * abs(high))).all()
    )


def test_in_the_end_whole_inputs_are_0_alike_and_small_as_a_whole() -> None:
    own = torch.randn((8, 64), generator=torch.Generator().manual_seed(1))
    usual, seen = float(own.abs().median()), []
    for seed in range(600):
        seen.append(mixed({"x": own}, None, seed, x=(-1e4, 1e4))["x"])
    assert any(not bool(found.any()) for found in seen)
    assert any(len(found.unique()) == 1 and bool(found.any()) for found in seen)
    assert any(len(found.unique()) == 2 and _is_rare(found) for found in seen), (
        "one value, with others among it"
    )
    assert any(float(found.abs().max()) < 1e-12 and len(found.unique()) > 400 for found in seen)
    halves = [bool((found[:, :32].abs() < 1e-12).all()) and float(found.abs().max()) > 1 for found in seen]
    assert any(halves), "some boxes alone"
    assert all(float(found.abs().max()) <= max(2 * usual, 1e4) for found in seen)


def test_one_box_of_one_input_is_often_all_that_is_changed() -> None:
    """Small values in some rows of one matrix, where none is rare, show what takes all rows by one scale."""
    generator = torch.Generator().manual_seed(1)
    own = {name: 1 + torch.rand((48, 48), generator=generator) for name in "ab"}
    donor = {name: torch.full((48, 48), 10.0) for name in "ab"}
    shown = 0
    for seed in range(3000):
        found = mixed(own, donor, seed, a=(-1e3, 1e3), b=(-1e3, 1e3))
        small = (found["a"].abs() < 0.1).all(1)
        shown += (
            bool(small.any())
            and float(found["a"].abs().median()) > 0.1
            and all(float(one.abs().max()) < 5 for one in found.values())
        )
    assert shown >= 20


def _is_rare(found: torch.Tensor) -> bool:
    _, counts = found.unique(return_counts=True)
    return 0 < int(counts.min()) < 9


def test_one_value_is_a_power_of_two_whose_sums_are_exact() -> None:
    own = torch.randn(4096, generator=torch.Generator().manual_seed(1))
    for seed in range(50):
        found = own.clone()
        _level_and_mix(found, -1e4, 1e4, random.Random(seed))
        if len(found.unique()) == 1 and bool(found.any()):
            assert float(torch.frexp(found).mantissa.abs().max()) == 0.5
            assert float(found.cumsum(0)[-1]) == float(found.double().sum())


def test_many_like_values_stay_where_their_sums_fit_the_dtype() -> None:
    """Of 64, the end of this domain, as few as 16 products leave float16."""
    generator = torch.Generator().manual_seed(1)
    for seed in range(200):
        a, b = (torch.randn(4096, generator=generator).half() for _ in range(2))
        secret = random.Random(seed)
        for one in (a, b):
            _level_and_mix(one, -64, 64, secret)
        assert abs(float(a.double() @ b.double())) < 65504


def test_whole_numbers_become_one_that_the_input_held() -> None:
    own = torch.arange(100, 164).view(8, 8)
    alike = 0
    for seed in range(60):
        found = own.clone()
        _level_and_mix(found, 0, 10**6, random.Random(seed))
        values, counts = found.unique(return_counts=True)
        assert set(values[counts > 40].tolist()) <= set(own.flatten().tolist())
        alike += len(values) == 1
    assert alike > 5


def test_what_is_infinite_stays_and_does_not_count_as_usual() -> None:
    own = torch.full((8, 8), -torch.inf)
    own[0, :4] = 1.0
    for seed in range(60):
        found = own.clone()
        _level_and_mix(found, -1e4, 1e4, random.Random(seed))
        assert torch.equal(found.isfinite(), own.isfinite())
        assert not bool(found.isnan().any())


@given(shapes, st.sampled_from([*FLOATS, torch.int64, torch.uint8]), st.integers(0, 10**6))
def test_what_is_turned_holds_the_same_values_at_other_places(
    shape: tuple[int, ...], dtype: torch.dtype, seed: int
) -> None:
    own = (torch.arange(math.prod(shape)) % 100).reshape(shape).to(dtype)  # any of these dtypes holds 99
    before = own.double().flatten().tolist()
    found = moved({"x": own}, seed, x=(0, 1000))["x"]
    assert found.dtype == dtype
    assert sorted(found.double().flatten().tolist()) == sorted(own.double().flatten().tolist())
    assert own.double().flatten().tolist() == before, "it is a copy"


def test_what_is_turned_is_flipped_or_rolled_along_one_dimension() -> None:
    own = torch.arange(12.0).reshape(3, 4)
    seen = {tuple(moved({"x": own}, seed, x=(0, 12))["x"].flatten().tolist()) for seed in range(200)}
    flips = {tuple(own.flip(dim).flatten().tolist()) for dim in (0, 1)}
    rolls = {
        tuple(own.roll(by, dim).flatten().tolist())
        for dim, size in enumerate(own.shape)
        for by in range(1, size)
    }
    assert seen == flips | rolls


def test_two_inputs_that_are_alike_are_swapped_at_times() -> None:
    own = {"a": torch.arange(6.0), "b": torch.arange(6.0) + 10}
    found = [moved(own, seed, a=(0, 20), b=(0, 20)) for seed in range(200)]
    swapped = [new for new in found if torch.equal(new["a"], own["b"]) and torch.equal(new["b"], own["a"])]
    assert 20 < len(swapped) < 100
    for seed in range(200):
        assert float(moved(own, seed, a=(0, 9), b=(0, 20))["a"].max()) < 10, (
            "b's values may be beyond a's domain"
        )


def test_equal_inputs_are_not_swapped() -> None:
    own = {"a": torch.arange(6.0), "b": torch.arange(6.0)}
    for seed in range(100):
        found = moved(own, seed, a=(0, 20), b=(0, 20))
        assert not (torch.equal(found["a"], own["a"]) and torch.equal(found["b"], own["b"]))


def test_what_has_no_domain_or_is_infinite_is_not_turned() -> None:
    own = {
        "free": torch.arange(6.0), "masked": torch.tensor([0.0, 1.0, -torch.inf]),
        "at": torch.arange(6), "bounded": torch.arange(6.0),
    }  # fmt: skip
    for seed in range(20):
        found = moved(own, seed, masked=(-9, 9), bounded=(-9, 9))
        assert [name for name in own if found[name] is own[name]] == ["free", "masked", "at"]
        assert not torch.equal(found["bounded"], own["bounded"])
    assert moved({"at": own["at"]}, 1)["at"] is own["at"]


def whole(inputs: Tensors, donor: Tensors, seed: int, **domains: tuple[float, float]) -> Tensors:
    found = mix_whole(cast(Contract, Declared(domains)), inputs, donor, random.Random(seed))
    assert found is not None
    return found


def test_some_inputs_are_wholly_of_another_distribution() -> None:
    own = {"a": floats((3, 5), 1), "b": floats((3, 5), 1), "mask": torch.ones(3, dtype=torch.bool)}
    other = {"a": floats((3, 5), 2), "b": floats((3, 5), 2), "mask": torch.zeros(3, dtype=torch.bool)}
    found = [whole(own, other, seed) for seed in range(100)]
    apart = {(float(new["a"].mean()), float(new["b"].mean())) for new in found}
    assert apart == {(2, 1), (1, 2)}
    assert all(new["mask"] is own["mask"] for new in found)
    alone, donor = {"a": own["a"], "mask": own["mask"]}, {"a": other["a"], "mask": other["mask"]}
    contract = cast(Contract, Declared())
    assert mix_whole(contract, alone, donor, random.Random(1)) is None, "that is the other distribution"
    assert mix_whole(contract, {"mask": own["mask"]}, donor, random.Random(1)) is None


def test_whole_inputs_are_of_a_magnitude_between_two_distributions() -> None:
    """The larger one's values, shrunk: those of the other would become larger than any that was drawn."""
    small = {"x": torch.randn(500, generator=torch.Generator().manual_seed(1))}
    large = {"x": 64 * small["x"].flip(0)}
    for own, other in ((small, large), (large, small)):
        ratios = [whole(own, other, seed, x=(-1e4, 1e4))["x"] / large["x"] for seed in range(400)]
        shrunk = [float(ratio[0]) for ratio in ratios if float(ratio.std()) < 1e-5 * float(ratio[0])]
        assert all(1 / 65 < ratio <= 1 for ratio in shrunk)
        assert {round(math.log2(ratio)) for ratio in shrunk} >= {-5, -4, -3, -2, -1}


def test_what_says_why_it_is_not_mixed_is_not() -> None:
    contract = Mixed()
    assert can_mix(contract)
    contract.unmixed = "rows are sorted"
    assert not can_mix(contract)
    assert InputSource(contract, "one", "normal", SecretRandom(b"k"), "cpu")._donor() is None
    contract.domains = {"x": (-1, 1)}
    assert can_mix(contract), "rare values are right whatever the others are"
    contract = Mixed()
    contract.distributions = ("normal",)
    assert not can_mix(contract)


@pytest.mark.parametrize(("slots", "kept"), [(1, 1), (1, 0), (3, 3), (40, 0), (40, 3), (40, 32), (400, 32)])
def test_as_many_calls_are_mixed_whatever_is_compared(slots: int, kept: int) -> None:
    source = InputSource(Mixed(), "one", "normal", SecretRandom(b"k"), "cpu")
    drawn = [source._mixed_slots(range(5, 5 + slots), range(5, 5 + kept)) for _ in range(300)]
    mean = sum(map(len, drawn)) / 300
    assert 0.75 * min(MAX_MIXED, slots / 4) < mean <= min(MAX_MIXED, slots / 4 + 0.1)
    assert all(slot in range(5, 5 + slots) for found in drawn for slot in found)
    if kept >= MAX_MIXED:
        among = sum(len([slot for slot in found if slot < 5 + kept]) for found in drawn) / 300
        assert among >= mean / 2
    if 0 < kept < slots:
        assert any(slot >= 5 + kept for found in drawn for slot in found), "others are mixed, too"


def test_what_is_compared_with_is_what_the_kernel_is_handed() -> None:
    for seed in range(30):
        source = InputSource(Mixed(), "one", "normal", SecretRandom(b"%d" % seed), "cpu", mixed_share=1.0)
        with source.arena(6) as arena:
            kept = source.refresh(arena, range(6), (1, 4))
            assert list(kept) == [1, 4]
            for slot, inputs in kept.items():
                assert all(torch.equal(arena.inputs(slot)[name], inputs[name]) for name in inputs)
            assert any(bool((arena.inputs(slot)["x"].abs() > 100).any()) for slot in range(6))


def test_a_few_elements_do_not_have_a_structure() -> None:
    """What it was made of has them, or they are of the domain."""
    own, plain = {"x": torch.arange(100.0), "y": torch.ones(5)}, {"x": torch.zeros(100)}
    contract = cast(Contract, Declared({"x": (-1e9, 1e9)}))
    found = [except_few(contract, {**own, **plain}, own, random.Random(seed)) for seed in range(200)]
    assert all(new["y"] is own["y"] for new in found)
    changed = [new["x"].nonzero().flatten() for new in found]
    assert {len(places) for places in changed} >= {1, 2, 4, 8}
    many = [places for places in changed if len(places) > 8]
    assert 20 < len(many) < 100
    assert {int(places.diff().unique()) for places in many} == {2, 3, 4, 5, 6, 7, 8}, "one in so many"
    are_own = [bool((new["x"] == own["x"])[places].all()) for new, places in zip(found, changed, strict=True)]
    assert 80 < sum(are_own) < 180
    assert bool((plain["x"] == 0).all()), "it is a copy"


def test_where_nothing_has_a_structure_there_is_no_exception() -> None:
    own = {"x": torch.arange(9.0)}
    assert except_few(cast(Contract, Declared({"x": (0, 9)})), dict(own), own, random.Random(1)) == own


@pytest.mark.parametrize("parts", [3, 7, 13])
def test_places_may_divide_a_line_evenly(parts: int) -> None:
    tensor = torch.zeros(500, 2)
    even = {i * 500 // parts for i in range(parts)}
    found = []
    for seed in range(2000):
        secret = random.Random(seed)
        rows, _ = places_in(tensor, secret, torch.Generator().manual_seed(seed))
        found.append({*rows.tolist()})
    assert any(len(rows) >= min(parts, 5) and rows <= even for rows in found)
    assert all(min(rows) >= 0 and max(rows) < 500 for rows in found)


def test_rare_values_are_all_the_same_now_and_then() -> None:
    own = torch.full((64,), 2.0)
    found = [mixed({"x": own}, None, seed, x=(1.0, 1e6))["x"] for seed in range(600)]
    rare = [x[(x != 2.0)] for x in found]
    same = [float(part[0]) for part in rare if len(part) >= 8 and len(part.unique()) == 1]
    assert any(not math.log2(value).is_integer() for value in same), "others are those of a box"
