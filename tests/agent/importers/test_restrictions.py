"""Restrictions of a tuner become constraints that say the same, or are told as what no constraint can say."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from hillclimb.agent.importers.formats.restrictions import Untranslatable, knobs_of, translate
from hillclimb.harness.knobs.constraints import is_satisfied

NAMES = {"a": "A", "b": "B", "tile_x": "TILE_X"}
VALUES = {"A": [0, 1, 2, 3, 8], "B": [1, 2, 4, 16], "TILE_X": [1, 2, 3, 4, 5, 6, 7]}

numbers = st.sampled_from(["a", "b", "tile_x", "0", "1", "2", "3", "16", "32"])


def arithmetic(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    binary = st.tuples(parts, st.sampled_from(["+", "-", "*", "//", "%", "/", "&", "|", "^"]), parts)
    called = st.tuples(st.sampled_from(["max", "min"]), parts, parts)
    return st.one_of(
        binary.map(lambda p: f"({p[0]} {p[1]} {p[2]})"),
        called.map(lambda p: f"{p[0]}({p[1]}, {p[2]})"),
        parts.map(lambda p: f"abs(-{p})"),
        parts.map(lambda p: f"({p}) ** 2"),
    )


terms = st.recursive(numbers, arithmetic, max_leaves=5)
comparisons = st.one_of(
    st.tuples(terms, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), terms).map(" ".join),
    st.tuples(terms, st.lists(numbers, min_size=1, max_size=3)).map(
        lambda p: f"{p[0]} in [{', '.join(p[1])}]"
    ),
    st.tuples(terms, terms).map(lambda p: f"({p[0]}, {p[1]}) != (2, 4)"),
    st.tuples(terms, terms, terms).map(lambda p: f"1 < {p[0]} <= ({p[1]} if b > 2 else {p[2]})"),
)


def logic(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    joined = st.tuples(parts, st.sampled_from([" and ", " or ", " && ", " || "]), parts)
    return st.one_of(joined.map(lambda p: f"({p[0]}{p[1]}{p[2]})"), parts.map(lambda p: f"not ({p})"))


expressions = st.recursive(comparisons, logic, max_leaves=4)


@given(
    text=expressions,
    a=st.sampled_from(VALUES["A"]),
    b=st.sampled_from(VALUES["B"]),
    x=st.sampled_from(VALUES["TILE_X"]),
)
def test_a_constraint_says_what_python_says(text: str, a: int, b: int, x: int) -> None:
    try:
        expected = bool(
            eval(text.replace("&&", " and ").replace("||", " or "), {"a": a, "b": b, "tile_x": x})
        )
    except (ZeroDivisionError, TypeError):
        assume(False)
    try:
        constraints = translate(text, NAMES, VALUES)
    except Untranslatable as error:
        assert "names no knob" in str(error) or "characters" in str(error)
        return
    row = {"A": a, "B": b, "TILE_X": x}
    assert all(is_satisfied(constraint, row) for constraint in constraints) is expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a*b <= 1024 and a % tile_x == 0", ["A * B <= 1024", "A % TILE_X == 0"]),
        ("a == 0 || b > 1", ["A == 0 or B > 1"]),
        ("!(a == 8)", ["not A == 8"]),
        ("lambda p: p['a'] * p[\"b\"] >= 32", ["A * B >= 32"]),
        ("p.a + p.tile_x < 9", ["A + TILE_X < 9"]),
        ("max([a, b]) <= 8", ["max(A, B) <= 8"]),
        ("a in [1, 2] or True", ["A in [1, 2] or true"]),
        ("a\n  >= 2", ["A >= 2"]),
    ],
)
def test_what_is_translated(text: str, expected: list[str]) -> None:
    assert translate(text, NAMES, VALUES) == expected


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(a or b) == 4", "is used as a number"),
        ("a + (b and 2) > 1", "is used as a number"),
        ("math.ceil(a / b) > 1", "may not stand there"),
        ("unknown * a < 3", "there is no knob unknown"),
        ("a <", "it is no expression"),
        ("2 < 3", "it names no knob"),
        ("len(str(a)) > 1", "may not stand there"),
        (" or ".join(["a * b == 4"] * 40), "characters"),
        ("__import__('os')", "may not stand there"),
    ],
)
def test_what_is_not_is_told(text: str, said: str) -> None:
    with pytest.raises(Untranslatable, match=said):
        translate(text, NAMES, VALUES)


def test_knobs_in_the_order_of_the_file() -> None:
    assert knobs_of("TILE_X % A == 0", ["A", "B", "TILE_X"]) == ["A", "TILE_X"]
