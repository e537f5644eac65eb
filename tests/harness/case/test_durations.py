from __future__ import annotations

import pytest
from pydantic import ValidationError

from hillclimb.harness.case.durations import parse_duration
from hillclimb.harness.case.settings import Settings


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("45", 45),
        ("0.5", 0.5),
        ("1e3", 1000),
        ("45s", 45),
        ("90m", 5400),
        ("90 min", 5400),
        ("8h", 28800),
        ("8H", 28800),
        ("1.5h", 5400),
        ("2d", 172800),
        ("1h30m", 5400),
        ("1 h 30 min", 5400),
        (" 12 min 05 s ", 725),
    ],
)
def test_what_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "h", "8x", "8 hours", "-1", "-1h", "0", "0s", "inf", "nan", "1m1h", "1h1h", "1h30", "1:30"]
)
def test_what_is_not(text: str) -> None:
    with pytest.raises(ValueError, match="give a duration above 0: seconds, or a number with d, h, m or s"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("section", "key"),
    [
        ("budgets", "seconds"),
        ("budgets", "prepare_seconds"),
        ("budgets", "call_seconds"),
        ("llm", "deadline_seconds"),
    ],
)
def test_every_duration_of_a_case(section: str, key: str) -> None:
    def read(value: object) -> float:
        settings = Settings.model_validate({"schema": 1, "summary": "s", section: {key: value}})
        found: float = getattr(getattr(settings, section), key)
        return found

    assert [read(value) for value in ("90m", 90, 90.5)] == [5400, 90, 90.5]
    with pytest.raises(ValidationError, match="8h, 1h30m"):
        read("soon")
    with pytest.raises(ValidationError):
        read(True)
