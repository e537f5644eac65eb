"""What a command printed, read as metrics; whatever else it printed is called by its name."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NoReturn

from hillclimb.harness.case.command import Metric
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason

MAX_LINE_CHARACTERS = 1 << 16
QUOTED_CHARACTERS = 120

WRONG = "wrong"
"""Key under which a command says in words that what it measured is not right."""


class OutputFault(StrEnum):
    """What can be wrong with what a command prints."""

    EMPTY = "empty"
    NOT_TEXT = "not_text"
    NO_JSON = "no_json"
    TOO_LONG = "too_long"
    BAD_JSON = "bad_json"
    NOT_AN_OBJECT = "not_an_object"
    KEY_TWICE = "key_twice"
    MISSING_METRIC = "missing_metric"
    UNKNOWN_METRIC = "unknown_metric"
    NOT_A_NUMBER = "not_a_number"
    NOT_FINITE = "not_finite"
    NOT_POSITIVE = "not_positive"
    WRONG_UNIT = "wrong_unit"


class _KeyTwiceError(ValueError):
    """An object has a key twice."""


def read_metrics(printed: bytes, metrics: Mapping[str, Metric]) -> dict[str, float]:
    """The metrics out of the last line that begins with a bracket, in the order of `metrics`.

    That line is one JSON object: each metric's name, and its value as a number, or as {"value": ..., "unit": ...}.
    Raises CandidateFault: WRONG_RESULT where it has a text under `wrong`, BROKE_PROTOCOL for an OutputFault.
    """
    found = _object(_last_json_line(printed))
    if wrong := found.pop(WRONG, None):
        raise CandidateFault(Reason.WRONG_RESULT, f"the command says: {_quote(wrong)}")
    if missing := [name for name in metrics if name not in found]:
        _refuse(OutputFault.MISSING_METRIC, f"no {', '.join(missing)} in {_quote(', '.join(found) or '{}')}")
    if unknown := [name for name in found if name not in metrics]:
        _refuse(
            OutputFault.UNKNOWN_METRIC, f"{_quote(', '.join(unknown))}, which command.metrics does not have"
        )
    return {name: _value(name, found[name], metric) for name, metric in metrics.items()}


def _last_json_line(printed: bytes) -> str:
    try:
        text = printed.decode()
    except UnicodeDecodeError as error:
        _refuse(OutputFault.NOT_TEXT, f"byte {error.start} is not UTF-8")
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    if not lines:
        _refuse(OutputFault.EMPTY, "it printed nothing")
    line = next((line for line in reversed(lines) if line[0] in "{["), None)
    if line is None:
        _refuse(OutputFault.NO_JSON, f"no line begins with a bracket; the last one is {_quote(lines[-1])}")
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
    if not isinstance(found, dict):
        _refuse(OutputFault.NOT_AN_OBJECT, _quote(line))
    return found


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
    return value


def _quote(given: object) -> str:
    text = str(given)
    shown = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:QUOTED_CHARACTERS])
    return shown + ("…" if len(text) > QUOTED_CHARACTERS else "")


def _refuse(fault: OutputFault, detail: str) -> NoReturn:
    raise CandidateFault(Reason.BROKE_PROTOCOL, f"{fault}: {detail}")
