"""Constraints of knobs: what they may say, what they refuse, and that nothing in them is ever run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from hillclimb.harness.errors import CaseError
from hillclimb.harness.knobs.constraints import (
    MAX_EXPRESSION_CHARS,
    InvalidConstraint,
    check_constraint,
    is_satisfied,
    knob_names,
    satisfied_mask,
)
from hillclimb.harness.knobs.knobs import (
    all_constraints,
    broken_constraint,
    parse_declarations,
    parse_knobs,
    replace_defaults,
)

FILE = Path("knobs.yaml")
DOMAINS = {
    "A": [1, 2, 4, 8],
    "B": [0, 1, 2, 3],
    "KIND": ["whole", "looped"],
    "ON": [False, True],
    "MIXED": [True, "a", 2],
    "F": None,
}
SHEET = """
A: {type: log-int, low: 1, high: 8, default: 2, requires: [A * B <= 8]}  # together
B: {type: int, low: 0, high: 3, default: 2}
KIND: {type: choice, choices: [whole, looped], default: whole, requires: ["KIND != 'looped' or B in (1, 2)"]}
"""


@pytest.mark.parametrize(
    ("expression", "values", "expected"),
    [
        ("A * B <= 8", {"A": 4, "B": 2}, True),
        ("A * B <= 8", {"A": 4, "B": 3}, False),
        ("1 <= A < B <= 3", {"A": 2, "B": 3}, True),
        ("1 <= A < B <= 3", {"A": 3, "B": 3}, False),
        ("A % B == 0", {"A": 4, "B": 2}, True),
        ("A // B == 1", {"A": 4, "B": 3}, True),
        ("A / B > 1.3", {"A": 4, "B": 3}, True),
        ("-A + 3 == -1", {"A": 4}, True),
        ("KIND == 'whole' and not ON", {"KIND": "whole", "ON": False}, True),
        ("KIND == 'whole' and not ON", {"KIND": "whole", "ON": True}, False),
        ("ON == true", {"ON": True}, True),
        ("ON or A in (1, 2)", {"ON": False, "A": 2}, True),
        ("A not in (1, 2)", {"A": 2}, False),
        ("KIND in ('looped',)", {"KIND": "whole"}, False),
        ("MIXED != 'a'", {"MIXED": 2}, True),
        ("MIXED != 'a'", {"MIXED": "a"}, False),
        ("F * 2 < A", {"F": 0.9, "A": 2}, True),
        ("A % B == 0", {"A": 4, "B": 0}, False),
        ("A // B >= 0", {"A": 4, "B": 0}, False),
        ("B == 0 or A % B == 0", {"A": 3, "B": 0}, True),
        ("A ** 2 <= 64", {"A": 8}, True),
        ("max(A, B, 3) == 3", {"A": 2, "B": 3}, True),
        ("min(A, B) >= 1", {"A": 2, "B": 0}, False),
        ("abs(A - B) <= 1", {"A": 2, "B": 3}, True),
        ("A & (A - 1) == 0", {"A": 8}, True),
        ("A & (A - 1) == 0", {"A": 6}, False),
        ("A << 1 <= 8", {"A": 8}, False),
        ("F & 1 == 0", {"F": 0.5}, False),
        ("A if B > 1 else true", {"A": 2, "B": 1}, True),
        ("(KIND if ON else 'looped') == 'whole'", {"KIND": "whole", "ON": True}, True),
        ("+A <= 8", {"A": 8}, True),
        ("(A, B) != (8, 2)", {"A": 8, "B": 2}, False),
        ("(A, B) in ((4, 2), (8, 2))", {"A": 8, "B": 2}, True),
        ("(A, B) not in ((4, 2), (8, 2))", {"A": 8, "B": 3}, True),
        ("-(A > B) == -1", {"A": 8, "B": 3}, True),
        ("(A > B) + (A > 1) == 2", {"A": 8, "B": 3}, True),
    ],
)
def test_says_what_it_says(expression: str, values: dict[str, object], expected: bool) -> None:
    check_constraint(expression, DOMAINS)
    assert is_satisfied(expression, values) is expected


@pytest.mark.parametrize("values", [{"A": 1e200}, {"A": -1e200}, {"A": 2}])
def test_what_is_too_large_for_a_number_is_infinite(values: dict[str, object]) -> None:
    assert is_satisfied("A ** 16 > 0", values)
    assert is_satisfied("(100000 ** 16) ** 16 > A", values)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("A * C <= 8", "there is no knob C; the knobs are A, B"),
        ("A.real > 1", "A.real may not stand there"),
        ("__import__('os').system('true')", "may not stand there"),
        ("open('/etc/passwd') == A", "may not stand there"),
        ("A[0] == 1", "may not stand there"),
        ("(lambda: A)() == 1", "may not stand there"),
        ("[A for A in (1, 2)] == 1", "may not stand there"),
        ("A ** 99 > 1", "the exponent 99 may not stand there"),
        ("2 ** A > 1", "the exponent A may not stand there"),
        ("sum(A, B) > 1", "may not stand there"),
        ("max(A) > 1", "max has 1 arguments; give two or more"),
        ("abs(A, B) > 1", "abs has 2 arguments; give one"),
        ("max(A, default=1) > 1", "may not stand there"),
        ("max(*A, 1) > 1", "may not stand there"),
        ("(A, B)", "may not stand there"),
        ("(A, B) == 8", "differ in length"),
        ("(A, B) == (8, 8, 8)", "differ in length"),
        ("(A, B) in (8, 8)", "differ in length"),
        ("(A, B) < (8, 8)", "has no order"),
        ("~A == 1", "may not stand there"),
        ("A >= 4 && B <= 8", "write and, or"),
        ("KIND << 1 == 2", "KIND is no number"),
        ("(KIND if ON else 1) < 2", "is no number"),
        ("(A := 2) > 1", "may not stand there"),
        ("f'{A}' == 'a'", "may not stand there"),
        ("A in B", "'in' wants literals"),
        ("A is 1", "write == or !="),
        ("A <", "it is no expression"),
        ("A\n< 1", "it is no expression"),
        ("A < 1; B < 1", "it is no expression"),
        ("KIND < 3", "KIND is no number"),
        ("KIND * 3 == 'wholewholewhole'", "KIND is no number"),
        ("MIXED + 1 == 3", "MIXED is no number"),
        ("A == 1e999", "too large"),
        ("A < " + "9" * 30, "too large"),
        ("KIND == '\\x41'", "backslash"),
        ("1 < 2", "names no knob"),
        ("A < 1" + " " * MAX_EXPRESSION_CHARS, "at most"),
        ("(" * 150 + "A" + ")" * 150 + "<", "it is no expression"),
    ],
)
def test_refuses_everything_else(expression: str, said: str) -> None:
    with pytest.raises(InvalidConstraint) as caught:
        check_constraint(expression, DOMAINS)
    assert said in str(caught.value)


def test_names_the_knobs_it_is_about() -> None:
    assert knob_names("A * B <= 8 and ON == true") == {"A", "B", "ON"}


def test_many_configurations_are_judged_as_each_alone() -> None:
    expression = "KIND == 'whole' and A % B == 0 or not (A + B > 4)"
    rows = [
        {"A": a, "B": b, "KIND": kind} for a in (1, 2, 4, 8) for b in range(4) for kind in ("whole", "looped")
    ]
    columns = {name: [row[name] for row in rows] for name in ("A", "B", "KIND")}
    together = satisfied_mask(expression, columns)
    assert together.tolist() == [is_satisfied(expression, row) for row in rows]
    assert 0 < np.count_nonzero(together) < len(rows)


def test_knobs_bring_their_constraints() -> None:
    knobs = parse_knobs(SHEET, FILE)
    assert all_constraints(knobs) == ("A * B <= 8", "KIND != 'looped' or B in (1, 2)")
    assert broken_constraint(knobs, {}) is None
    assert broken_constraint(knobs, {"A": 8}) == "it breaks the constraint A * B <= 8 (A=8, B=2)"
    assert broken_constraint(knobs, {"KIND": "looped", "B": 3}) is not None


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        ("A * B <= 8", "A * C <= 8", r"A\.requires: 'A \* C <= 8' is no constraint: there is no knob C"),
        (
            "default: 2, requires",
            "default: 8, requires",
            r"default: of the knobs is impossible: it breaks .*A=8, B=2",
        ),
        ("[A * B <= 8]", "A * B <= 8", r"A\.requires: .* must be a list"),
        ("[A * B <= 8]", "[3]", r"A\.requires\.0: value 3 is wrong"),
    ],
)
def test_a_wrong_sheet_is_an_error_that_says_where(was: str, now: str, said: str) -> None:
    assert was in SHEET
    with pytest.raises(CaseError, match=said):
        parse_knobs(SHEET.replace(was, now, 1), FILE)


def test_promoting_a_default_that_breaks_one_does_not_load() -> None:
    with pytest.raises(CaseError, match="impossible"):
        parse_knobs(replace_defaults(SHEET, {"A": 8}), FILE)
    assert parse_knobs(replace_defaults(SHEET, {"A": 4}), FILE)["A"].default == 4


def test_a_part_of_a_sheet_may_name_knobs_of_another() -> None:
    part = SHEET.strip().splitlines()[0]
    assert list(parse_declarations(part, FILE)) == ["A"]
    with pytest.raises(CaseError, match="there is no knob B"):
        parse_knobs(part, FILE)
