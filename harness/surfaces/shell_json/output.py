"""What a command printed, read as metrics; whatever else it printed is called by its name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NoReturn

from hillclimb.harness.case.metrics import WRONG, Metric
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason

MAX_LINE_CHARACTERS = 1 << 16
QUOTED_CHARACTERS = 120

SMALLEST, LARGEST = 1e-30, 1e30
"""Values of a metric."""


class OutputFault(StrEnum):
    """What can be wrong with what a command prints."""

    EMPTY = "empty"
    NOT_TEXT = "not_text"
    NO_JSON = "no_json"
    TOO_LONG = "too_long"
    BAD_JSON = "bad_json"
    KEY_TWICE = "key_twice"
    MISSING_METRIC = "missing_metric"
    UNKNOWN_METRIC = "unknown_metric"
    NOT_A_NUMBER = "not_a_number"
    NOT_FINITE = "not_finite"
    NOT_POSITIVE = "not_positive"
    OUT_OF_RANGE = "out_of_range"
    WRONG_UNIT = "wrong_unit"


class _KeyTwiceError(ValueError):
    """An object has a key twice."""


def read_metrics(printed: bytes, metrics: Mapping[str, Metric]) -> dict[str, float]:
    """The metrics out of the last line that begins with `{`, in the order of `metrics`; of none no line is needed.

    That line is one JSON object: each metric's name, and its value as a number, or as {"value": ..., "unit": ...}.
    Raises CandidateFault: WRONG_RESULT where it has the key `wrong`, BROKE_PROTOCOL for an OutputFault.
    """
    line = _last_json_line(printed, is_needed=bool(metrics))
    found = _object(line) if line else {}
    if WRONG in found:
        raise CandidateFault(Reason.WRONG_RESULT, f"the command says: {_quote(found[WRONG])}")
    if missing := [name for name in metrics if name not in found]:
        _refuse(OutputFault.MISSING_METRIC, f"no {', '.join(missing)} in {_quote(', '.join(found) or '{}')}")
    if unknown := [name for name in found if name not in metrics]:
        _refuse(
            OutputFault.UNKNOWN_METRIC, f"{_quote(', '.join(unknown))}, which command.metrics does not have"
        )
    return {name: _value(name, found[name], metric) for name, metric in metrics.items()}


def _last_json_line(printed: bytes, *, is_needed: bool) -> str:
    """Empty where there is none and none is needed."""
    try:
        text = printed.decode()
    except UnicodeDecodeError as error:
        _refuse(OutputFault.NOT_TEXT, f"byte {error.start} is not UTF-8")
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    line = next((line for line in reversed(lines) if line.startswith("{")), "")
    if not lines and is_needed:
        _refuse(OutputFault.EMPTY, "it printed nothing")
    if not line and is_needed:
        _refuse(OutputFault.NO_JSON, f"no line begins with a brace; the last one is {_quote(lines[-1])}")
    if len(line) > MAX_LINE_CHARACTERS:
        _refuse(OutputFault.TOO_LONG, f"a line of {len(line)} characters")
    return line


def _object(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line, object_pairs_hook=_without_duplicates)
    except _KeyTwiceError as error:
        _refuse(OutputFault.KEY_TWICE, f"{_quote(error)} stands twice")
    except (ValueError, RecursionError) as error:
        _refuse(OutputFault.BAD_JSON, f"{_quote(line)}: {error}")
    return dict(found)


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise _KeyTwiceError(next(key for key in keys if keys.count(key) > 1))
    return found


def _value(name: str, given: Any, metric: Metric) -> float:
    if isinstance(given, dict):
        if set(given) != {"value", "unit"}:
            _refuse(OutputFault.NOT_A_NUMBER, f"{name} has the keys {_quote(', '.join(given) or 'none')}")
        if given["unit"] != metric.unit:
            _refuse(OutputFault.WRONG_UNIT, f"{name} in {_quote(given['unit'])}, not in {metric.unit}")
        given = given["value"]
    if isinstance(given, bool) or not isinstance(given, int | float):
        _refuse(OutputFault.NOT_A_NUMBER, f"{name} is {_quote(json.dumps(given))}")
    try:
        value = float(given)
    except OverflowError:
        value = math.inf
    if not math.isfinite(value):
        _refuse(OutputFault.NOT_FINITE, f"{name} is {_quote(given)}")
    if value <= 0:
        _refuse(OutputFault.NOT_POSITIVE, f"{name} is {value:g}; a metric is above 0")
    if not SMALLEST <= value <= LARGEST:
        _refuse(OutputFault.OUT_OF_RANGE, f"{name} is {value:g}; choose a unit that fits it")
    return value


def _quote(given: object) -> str:
    text = str(given)
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:QUOTED_CHARACTERS])
    return shown + ("…" if len(text) > QUOTED_CHARACTERS else "")


def _refuse(fault: OutputFault, detail: str) -> NoReturn:
    raise CandidateFault(Reason.BROKE_PROTOCOL, f"{fault}: {detail}")
