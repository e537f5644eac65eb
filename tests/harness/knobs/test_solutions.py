"""Solving constraints: exactly the settings that satisfy them, however few they are among however many."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.errors import CaseError
from hillclimb.harness.knobs.constraints import KnobValue, is_satisfied
from hillclimb.harness.knobs.knobs import parse_knobs
from hillclimb.harness.knobs.solutions import Domains, Solver, TooMany, connected_groups, nearest_setting

POWERS = [1 << power for power in range(8)]
DIGITS = list(range(10))
ALL = {"A": [1, 2, 3], "B": [0, 1, 4], "C": [-2, 5], "D": ["x", "y"], "E": [False, True]}
EXPRESSIONS = (
    "A * B == 4",
    "12 % (A * C) == 0",
    "A + B + C > 4",
    "D == 'x' or E",
    "E == (A > 2)",
    "B // A >= 1 and C > 0",
    "A < B",
    "(A, B) in ((1, 4), (2, 0))",
    "A * B * C == 20",
)


def brute(domains: Domains, expressions: tuple[str, ...]) -> list[list[int]]:
    rows = product(*(range(len(domain)) for domain in domains.values()))
    settings = (
        (row, dict(zip(domains, (d[i] for d, i in zip(domains.values(), row, strict=True)), strict=True)))
        for row in rows
    )
    return [list(row) for row, setting in settings if all(is_satisfied(e, setting) for e in expressions)]


@given(st.lists(st.sampled_from(EXPRESSIONS), max_size=4, unique=True), st.permutations(list(ALL)))
def test_all_solutions_and_nothing_else_in_order(expressions: list[str], order: list[str]) -> None:
    domains: Domains = {name: ALL[name] for name in order}  # type: ignore[misc]
    solver = Solver(domains, tuple(expressions))
    assert solver.solutions(1000).tolist() == brute(domains, tuple(expressions))


@pytest.mark.parametrize(
    ("domains", "expressions", "count", "steps"),
    [
        (dict.fromkeys("ABCDEFGH", POWERS), ["A * B * C * D * E * F * G * H == 1024"], 19_160, 10**6),
        (dict.fromkeys("ABCDEFGH", DIGITS), ["A < B < C < D < E < F < G < H"], 45, 10**5),
        (
            dict.fromkeys("ABCDEFG", DIGITS),
            ["A*1000000 + B*100000 + C*10000 + D*1000 + E*100 + F*10 + G == 1234567"],
            1,
            10**4,
        ),
        (dict.fromkeys("ABCD", range(1, 101)), ["A * B * C * D == 1000000"], 330, 10**6),
        (
            dict.fromkeys("ABCD", range(1, 101)),
            ["30030 % (A * B * C * D) == 0", "A * B * C * D > 15000"],
            2136,
            10**6,
        ),
        (dict.fromkeys("ABCDEF", range(100)), ["A + B + C + D + E + F == 591"], 56, 10**5),
        (dict.fromkeys("ABCDEFGH", DIGITS), ["A + B + C + D + E + F + G + H == 999"], 0, 100),
        (
            dict.fromkeys("ABCDEFGHIJ", POWERS),
            ["A * B == 64 if C > 4 else A * B * D * E * F == 32768", "G * H * I * J == 134217728"],
            98_392,
            10**7,
        ),
    ],
)
def test_few_among_very_many_are_found_in_few_steps(
    domains: Domains, expressions: list[str], count: int, steps: int
) -> None:
    found = 1
    for group in connected_groups(list(domains), expressions):
        inside = {name: domains[name] for name in group}
        about = tuple(e for e in expressions if any(name in e for name in group))
        found *= len(Solver(inside, about, max_steps=steps).solutions(2_000_000))
    assert found == count


@pytest.mark.slow(3)
def test_one_of_ten_million_that_nothing_foretells_is_found() -> None:
    domains = dict.fromkeys("ABCDEFG", DIGITS)
    terms = "A*1234577 + B*7654321 + C*39119 + D*104729 + E*1299709 + F*611953 + G*15485863"
    [row] = Solver(domains, (f"({terms}) % 9999991 == 4242",)).solutions(10).tolist()
    assert is_satisfied(f"({terms}) % 9999991 == 4242", dict(zip("ABCDEFG", row, strict=True)))


def test_too_many_are_said_to_be_too_many() -> None:
    domains = dict.fromkeys("ABCD", DIGITS)
    with pytest.raises(TooMany):
        Solver(domains, ()).solutions(9_999)
    assert len(Solver(domains, ()).solutions(10_000)) == 10_000
    with pytest.raises(TooMany):
        Solver(domains, (), max_steps=5_000).solutions(10_000)


def test_long_constraints_count_for_more() -> None:
    """A row costs what is asked of it."""
    long = " + ".join(f"{name} * {name}" for name in "ABCD" for _ in range(8))
    domains = dict.fromkeys("ABCD", DIGITS)
    with pytest.raises(TooMany):
        Solver(domains, (f"({long}) % 7 == 3",), max_steps=12_000).solutions(10_000)
    assert len(Solver(domains, ("(A + B + C + D) % 7 == 3",), max_steps=12_000).solutions(10_000))


def test_numbers_that_overflow_end_nothing() -> None:
    domains: Domains = {"A": [1.0, 1e200], "B": [False, True]}
    assert Solver(domains, ("A ** 2 > 0 and B",)).solutions(10).tolist() == [[0, 1], [1, 1]]


def test_knobs_are_connected_by_constraints_alone() -> None:
    assert connected_groups("ABCDE", ["A < D", "C == 1"]) == [("A", "D"), ("B",), ("C",), ("E",)]
    assert connected_groups("ABCD", ["A < C", "B < D", "C < D"]) == [("A", "B", "C", "D")]
    assert connected_groups([], []) == []


def test_prefixes_reach_as_deep_as_they_may() -> None:
    solver = Solver(dict.fromkeys("ABCD", DIGITS), ("A < B < C < D",))
    assert solver.prefixes(1).shape == (1, 0)
    assert solver.prefixes(70).shape == (9, 1)  # no A above 8 leaves room for a B
    assert solver.prefixes(10**6).shape == (210, 4)


@pytest.mark.parametrize(
    ("wished", "expected"),
    [
        ({"A": 4, "B": 3}, {"A": 4, "B": 2}),
        ({"A": 8, "B": 1}, {"A": 8, "B": 1}),
        ({"A": 1, "B": 0}, {"A": 8, "B": 1}),
    ],
)
def test_the_nearest_setting_turns_the_fewest_knobs(
    wished: dict[str, KnobValue], expected: dict[str, KnobValue]
) -> None:
    found = nearest_setting({"A": [1, 2, 4, 8], "B": [0, 1, 2, 3]}, ["A * B == 8"], wished)
    assert found is not None
    assert sum(found[name] != wished[name] for name in found) == sum(
        expected[n] != wished[n] for n in expected
    )
    assert is_satisfied("A * B == 8", found)


def test_defaults_that_break_a_constraint_are_told_with_some_that_do_not() -> None:
    sheet = (
        "A: {type: int, low: 0, high: 9, default: 3, requires: [A * B == 14]}\n"
        "B: {type: int, low: 0, high: 9, default: 3}\n"
    )
    with pytest.raises(CaseError, match=r"A \* B == 14 \(A=3, B=3\).*such as A=(2, B=7|7, B=2)"):
        parse_knobs(sheet, Path("knobs.yaml"))


def test_constraints_that_nothing_satisfies_are_told_as_such() -> None:
    knobs = "".join(f"{name}: {{type: int, low: 0, high: 9, default: 3}}\n" for name in "BCDEFGH")
    sheet = (
        "A: {type: int, low: 0, high: 9, default: 3, requires: [A + B + C + D + E + F + G + H == 73]}\n"
        + knobs
    )
    with pytest.raises(CaseError, match=r"no setting at all satisfies the constraints.*loosen a constraint"):
        parse_knobs(sheet, Path("knobs.yaml"))
