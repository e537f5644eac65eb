"""What is dropped with knobs still open has no solution, whatever they are set to."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.knobs.constraints import check_constraint, is_satisfied, knob_names
from hillclimb.harness.knobs.intervals import possible_mask, range_of
from hillclimb.harness.knobs.solutions import values_of

DOMAINS: dict[str, list[object]] = {
    "A": [-3, 0, 2, 5],
    "B": [1, 2, 4, 8],
    "C": [-2, -1, 3],
    "F": [0.0, 0.5, 1.5],
    "ON": [False, True],
    "KIND": ["whole", "looped"],
    "MIXED": ["a", 2, 0],
}
NUMBERS = ("A", "B", "C", "F", "ON", "0", "1", "3", "7.5")
OPERATORS = ("+", "-", "*", "/", "//", "%", "&", "|", "<<")


def arithmetic() -> st.SearchStrategy[str]:
    leaves = st.sampled_from(NUMBERS)
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(OPERATORS), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
            st.tuples(inner, st.integers(0, 4)).map(lambda t: f"({t[0]} ** {t[1]})"),
            st.tuples(st.sampled_from(["max", "min"]), inner, inner).map(lambda t: f"{t[0]}({t[1]}, {t[2]})"),
            inner.map(lambda one: f"abs({one})"),
            inner.map(lambda one: f"(-{one})"),
            st.tuples(inner, inner, inner).map(lambda t: f"({t[0]} if {t[1]} else {t[2]})"),
        ),
        max_leaves=5,
    )


def truths() -> st.SearchStrategy[str]:
    comparison = st.tuples(
        arithmetic(), st.sampled_from(["<", "<=", "==", "!=", ">", ">="]), arithmetic()
    ).map(" ".join)
    words = st.sampled_from(
        [
            "KIND == 'whole'",
            "KIND != 'looped'",
            "MIXED in ('a', 2)",
            "MIXED == A",
            "(A, B) not in ((2, 4), (0, 1))",
        ]
    )
    return st.recursive(
        st.one_of(comparison, words),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(lambda t: f"({t[0]} {t[1]} {t[2]})"),
            inner.map(lambda one: f"not ({one})"),
        ),
        max_leaves=3,
    )


@given(truths(), st.permutations(list(DOMAINS)), st.integers(0, 4))
def test_nothing_that_can_be_satisfied_is_called_impossible(
    expression: str, order: list[str], depth: int
) -> None:
    names = knob_names(expression)
    if not names:
        return
    check_constraint(expression, DOMAINS)
    known = [name for name in order[:depth] if name in names]
    rows = list(product(*(range(len(DOMAINS[name])) for name in known)))
    columns = {name: values_of(DOMAINS[name])[[row[i] for row in rows]] for i, name in enumerate(known)}  # type: ignore[arg-type]
    ranges = {name: range_of(DOMAINS[name]) for name in names if name not in known}
    found = possible_mask(expression, columns, ranges)
    still_open = [name for name in names if name not in known]
    for row, possible in zip(rows, np.broadcast_to(found, (len(rows),)).tolist(), strict=True):
        fixed = {name: DOMAINS[name][at] for name, at in zip(known, row, strict=True)}
        settings = product(*(DOMAINS[name] for name in still_open))
        if not possible:
            assert not any(
                is_satisfied(expression, {**fixed, **dict(zip(still_open, values, strict=True))})
                for values in settings
            )


@pytest.mark.parametrize(
    ("expression", "known", "expected"),
    [
        ("A * B <= 8", {"A": [5.0, 2.0]}, [True, True]),
        ("A * B > 40", {"A": [5.0, 2.0]}, [False, False]),
        ("A * B >= 40", {"A": [5.0, 2.0]}, [True, False]),
        ("A + B + C == 16", {"A": [5.0, -3.0]}, [True, False]),
        ("B % 16 == 9", {"A": [0.0]}, [False]),
        ("A ** 2 == 25 and B > 8", {"A": [5.0]}, [False]),
        ("KIND == 'whole' and A > 5", {"A": [5.0]}, [False]),
        ("(A > 2) + (B > 9) == 2", {"A": [5.0]}, [False]),
        ("max(A, B) < 0", {"A": [-3.0]}, [False]),
        ("A / C > 100", {"A": [5.0]}, [True]),
        ("not A / ON < 9", {"A": [5.0]}, [True]),
    ],
)
def test_what_no_value_can_mend_is_dropped(
    expression: str, known: dict[str, list[float]], expected: list[bool]
) -> None:
    columns = {name: np.array(values) for name, values in known.items() if name in knob_names(expression)}
    ranges = {n: range_of(DOMAINS[n]) for n in knob_names(expression) if n not in columns}
    assert np.broadcast_to(possible_mask(expression, columns, ranges), (len(expected),)).tolist() == expected
