"""Constraints of knobs: what they may say, what they refuse, and that nothing in them is ever run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from harness.case.constraints import LONGEST, NoConstraint, check, holds, names, satisfied
from harness.case.knobs import broken, constraints, parse_declarations, parse_knobs, with_defaults
from harness.errors import CaseError

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
    ],
)
def test_says_what_it_says(expression: str, values: dict[str, object], expected: bool) -> None:
    check(expression, DOMAINS)
    assert holds(expression, values) is expected


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
        ("A ** 9 > 1", "may not stand there"),
        ("A << 9 > 1", "may not stand there"),
        ("(A := 2) > 1", "may not stand there"),
        ("A if ON else B", "may not stand there"),
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
        ("A < 1" + " " * LONGEST, "at most"),
        ("(" * 150 + "A" + ")" * 150 + "<", "it is no expression"),
    ],
)
def test_refuses_everything_else(expression: str, said: str) -> None:
    with pytest.raises(NoConstraint) as caught:
        check(expression, DOMAINS)
    assert said in str(caught.value)


def test_names_the_knobs_it_is_about() -> None:
    assert names("A * B <= 8 and ON == true") == {"A", "B", "ON"}


def test_many_configurations_are_judged_as_each_alone() -> None:
    expression = "KIND == 'whole' and A % B == 0 or not (A + B > 4)"
    rows = [
        {"A": a, "B": b, "KIND": kind} for a in (1, 2, 4, 8) for b in range(4) for kind in ("whole", "looped")
    ]
    columns = {name: [row[name] for row in rows] for name in ("A", "B", "KIND")}
    together = satisfied(expression, columns)
    assert together.tolist() == [holds(expression, row) for row in rows]
    assert 0 < np.count_nonzero(together) < len(rows)


def test_knobs_bring_their_constraints() -> None:
    knobs = parse_knobs(SHEET, FILE)
    assert constraints(knobs) == ("A * B <= 8", "KIND != 'looped' or B in (1, 2)")
    assert broken(knobs, {}) is None
    assert broken(knobs, {"A": 8}) == "it breaks the constraint A * B <= 8 (A=8, B=2)"
    assert broken(knobs, {"KIND": "looped", "B": 3}) is not None


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
        parse_knobs(with_defaults(SHEET, {"A": 8}), FILE)
    assert parse_knobs(with_defaults(SHEET, {"A": 4}), FILE)["A"].default == 4


def test_a_part_of_a_sheet_may_name_knobs_of_another() -> None:
    part = SHEET.strip().splitlines()[0]
    assert list(parse_declarations(part, FILE)) == ["A"]
    with pytest.raises(CaseError, match="there is no knob B"):
        parse_knobs(part, FILE)
