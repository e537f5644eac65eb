"""What is read of a yardstick's text."""

from __future__ import annotations

import pytest

from hillclimb.harness.case.yardstick import is_compiled


@pytest.mark.parametrize(
    ("text", "expected"),
    [("COMPILED = False", False), ("x\nCOMPILED = False\n", False), ("# COMPILED = False", True), ("", True)],
)
def test_a_yardstick_is_compiled_unless_a_line_says_that_it_is_not(text: str, expected: bool) -> None:
    assert is_compiled(text) == expected
