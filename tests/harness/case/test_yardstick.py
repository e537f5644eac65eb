"""What is read of a yardstick's text."""

from __future__ import annotations

import pytest

from hillclimb.harness.case.yardstick import is_compiled


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("COMPILED = False", False),
        ("x\nCOMPILED = False  # it is called as it is\n", False),
        ("COMPILED: bool = False", False),
        ("COMPILED = True\nCOMPILED = False", False),
        ("COMPILED = False\nCOMPILED = True", True),
        ("# COMPILED = False", True),
        ('"""\nCOMPILED = False\n"""', True),
        ("def f():\n    COMPILED = False", True),
        ("", True),
    ],
)
def test_a_yardstick_is_compiled_unless_it_says_that_it_is_not(text: str, expected: bool) -> None:
    assert is_compiled(text) == expected


@pytest.mark.parametrize("text", ["COMPILED = False\n(", b"\xff\xfe", b"\0"])
def test_what_is_no_python_is_told(text: str | bytes) -> None:
    with pytest.raises((SyntaxError, ValueError)):
        is_compiled(text)
