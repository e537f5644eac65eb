"""Neighbours of listed problems: that they are none of these, and that every contract answers for its own."""

from __future__ import annotations

import random
from itertools import combinations
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.case.checked import check_contract, load_contract
from hillclimb.harness.case.contract import Contract, Problem
from hillclimb.harness.case.contracts.neighbours import MAX_UNLIKE, changed, neighbours
from hillclimb.harness.case.sizes import TILES, remainder_of, tile_of
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.device.cpu.cpu import MAX_INTERPRETED_BYTES
from tests.cases.interpreted import small
from tests.cases.workspace import CASES

FOLDERS = sorted(
    {
        path.parent
        for glob in ("*/*/", "_template/", "_template_cuda/")
        for path in CASES.glob(glob + "contract.py")
    }
)

each = pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)

each_with_small_problems = pytest.mark.parametrize(
    "folder",
    [folder for folder in FOLDERS if folder.parent.name not in ("llama_1b", "llama_8b")],
    ids=lambda folder: folder.name,
)
"""Of a whole model no problem is small: it has all of its weights. The tests of each such case try a smaller one."""

sizes = st.fixed_dictionaries({name: st.integers(1, 2000) for name in ("m", "n", "k")})


def found_near(contract: Contract) -> dict[str, Problem]:
    """Neighbours of small problems that are small themselves."""
    secret = random.Random(4)
    found: dict[str, Problem] = {}
    for name, problem in small(contract).items():
        for other in contract.vary(problem, secret):
            if contract.work(other).bytes <= MAX_INTERPRETED_BYTES and other not in found.values():
                found[f"{name}, varied {len(found)}"] = other
    return found


def is_prime(number: int) -> bool:
    return number > 1 and all(number % divisor for divisor in range(2, number))


@given(sizes, st.integers(), st.integers(0, 1))
def test_one_size_is_one_more_or_less_or_prime_or_two_are_swapped(
    problem: dict[str, int], seed: int, least: int
) -> None:
    found = changed(problem, random.Random(seed), ("m", "n"), ("k",), least=least)
    for name, size in problem.items():
        alone = [other[name] for other in found if {**other, name: size} == problem]
        expected = {size + 1} | ({size - 1} if size > least else set())
        assert expected <= set(alone)
        others = {other for other in {*alone} - expected if not are_edges({**problem, name: other})}
        assert all(is_prime(other) for other in others)
        assert len(others) <= 1 <= sum(is_prime(other) for other in {*alone} - expected)
    swapped = {**problem, "m": problem["n"], "n": problem["m"]}
    low, high = sorted((problem["m"], problem["n"]))
    assert (swapped in found) == (low != high and high <= MAX_UNLIKE * low) or are_edges(swapped)


@given(sizes, st.lists(sizes, max_size=3), st.integers(), st.data())
def test_neighbours_are_new_and_not_too_small(
    problem: dict[str, int], others: list[dict[str, int]], seed: int, data: st.DataObject
) -> None:
    near = changed(problem, random.Random(seed), ("m", "n", "k"))
    listed = dict(enumerate([problem, *others, *data.draw(st.lists(st.sampled_from(near), max_size=3))]))
    known = {str(name): sizes for name, sizes in listed.items()}
    found = neighbours(problem, random.Random(seed), known, ("m", "n", "k"))
    new = [other for other in near if other not in listed.values()]
    assert found[: len(new)] == new
    largest = {name: max(sizes[name] for sizes in listed.values()) for name in problem}
    assert all(other[name] <= largest[name] for other in found[len(new) :] for name in problem)
    enlarged = [other for other in found[len(new) :] if any(other[n] > 1.5 * problem[n] for n in problem)]
    assert all(other[name] <= 2.5 * problem[name] for other in enlarged for name in problem)
    grown = {n for other in enlarged for n in problem if other[n] > 1.5 * problem[n]}
    assert {n for n, size in problem.items() if size > 99 and largest[n] > 2 * size} <= grown
    assert len({tuple(other.values()) for other in found}) == len(found)
    assert min((min(other.values()) for other in found), default=1) >= 1
    assert all(list(other) == list(problem) for other in found)


@given(sizes, sizes, st.integers())
def test_some_lie_between_this_problem_and_a_smaller_one(
    problem: dict[str, int], other: dict[str, int], seed: int
) -> None:
    known = {"one": problem, "two": other}
    near = changed(problem, random.Random(seed), ("m", "n", "k"))
    for found in neighbours(problem, random.Random(seed), known, ("m", "n", "k")):
        apart = [name for name in problem if found[name] != problem[name]]
        if found not in near and len(apart) > 1 and not are_edges(found):
            assert all(min(problem[n], other[n]) <= found[n] <= max(problem[n], other[n]) for n in problem)


@given(sizes, sizes, st.integers(), st.integers(1, 60))
def test_none_between_is_less_than_allowed(
    problem: dict[str, int], other: dict[str, int], seed: int, least: int
) -> None:
    known = {"one": problem, "two": other}
    near = changed(problem, random.Random(seed), ("m", "n", "k"), least=least)
    for found in neighbours(problem, random.Random(seed), known, ("m", "n", "k"), least=least):
        assert found in near or min(found.values()) >= min(least, *problem.values())


def test_sizes_between_are_of_every_magnitude_and_often_round() -> None:
    """From 256 x 256 x 256 down to 4 x 4 x 4, 128 x 128 x 128 and its like among them."""
    large, small = (dict.fromkeys(("m", "n", "k"), size) for size in (256, 4))
    found = [
        other
        for seed in range(300)
        for other in neighbours(large, random.Random(seed), {"one": large, "two": small}, ("m", "n", "k"))
        if other not in changed(large, random.Random(seed), ("m", "n", "k")) and 256 not in other.values()
    ]
    sizes_found = [other["m"] for other in found]
    for low, high in ((4, 16), (16, 64), (64, 256)):
        assert sum(low <= size < high for size in sizes_found) > len(found) / 8
    assert sum(all(size % 32 == 0 for size in other.values()) for other in found) > len(found) / 30


def are_edges(problem: Problem) -> bool:
    return all(remainder_of(size) is not None or size < TILES[-1] for size in problem.values())


@given(st.fixed_dictionaries({name: st.integers(8, 80) for name in ("m", "n", "k", "l")}), st.integers())
def test_every_two_tails_of_tiles_meet_in_two_sizes(problem: dict[str, int], seed: int) -> None:
    found = [other for other in changed(problem, random.Random(seed), tuple(problem)) if are_edges(other)]
    for one, two in combinations(problem, 2):
        met = {(remainder_of(other[one]), remainder_of(other[two])) for other in [*found, problem]}
        assert met >= {(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)}


@pytest.mark.parametrize(
    ("size", "tile", "remainder"),
    [(6, 0, None), (7, 8, -1), (8, 8, 0), (9, 8, 1), (10, 8, None), (15, 16, -1), (17, 16, 1), (31, 32, -1),
     (48, 32, None), (63, 32, -1), (64, 32, 0), (65, 32, 1), (71, 32, None)],
)  # fmt: skip
def test_what_a_size_leaves_of_a_tile(size: int, tile: int, remainder: int | None) -> None:
    assert (tile_of(size), remainder_of(size)) == (tile, remainder)


@given(sizes, st.integers())
def test_any_two_sizes_are_changed_at_once(problem: dict[str, int], seed: int) -> None:
    found = changed(problem, random.Random(seed), ("m", "n"), ("k",))
    apart = {frozenset(name for name in problem if other[name] != problem[name]) for other in found}
    assert {frozenset(names) for names in combinations(problem, 2)} <= apart


@given(sizes, st.integers())
def test_only_named_sizes_vary(problem: dict[str, int], seed: int) -> None:
    given_problem = {**problem, "dtype": "float16", "flag": True}
    for other in changed(given_problem, random.Random(seed), ("m", "k")):
        assert {key: other[key] for key in ("n", "dtype", "flag")} == {
            "n": problem["n"], "dtype": "float16", "flag": True,
        }  # fmt: skip


@pytest.mark.slow(2, but=["triton_softmax", "_template", "c_matvec"])
@each_with_small_problems
def test_a_contract_answers_for_its_neighbours(folder: Path) -> None:
    """inputs, outputs, reference, attainable and scale, under every distribution."""
    torch.set_num_threads(1)
    contract = load_contract(folder / "contract.py", dtypes=TORCH_DTYPES)
    found = found_near(contract)
    assert found
    assert [other for other in found.values() if other in contract.problems.values()] == []
    check_contract(contract.extended(found), folder / "contract.py", found)


@each
def test_large_problems_have_neighbours_too(folder: Path) -> None:
    """Not much larger than the problem: what fits on a machine still does."""
    contract = load_contract(folder / "contract.py", dtypes=TORCH_DTYPES)
    for name, problem in contract.problems.items():
        others = contract.vary(problem, random.Random(name))
        assert all(other not in contract.problems.values() for other in others)
        if contract.work(problem).bytes > MAX_INTERPRETED_BYTES:
            assert others, name
            most = max(contract.work(other).bytes for other in others)
            assert most <= 6 * contract.work(problem).bytes, name


@each
def test_domains_are_in_the_range_of_their_inputs(folder: Path) -> None:
    contract = load_contract(folder / "contract.py", dtypes=TORCH_DTYPES)
    for problem in small(contract).values():
        inputs = contract.inputs(problem, contract.distributions[0], torch.Generator().manual_seed(1))
        for name, bounds in contract.domains.items():
            most = torch.finfo(inputs[name].dtype).max
            assert all(-most <= bound <= most for bound in bounds), name
