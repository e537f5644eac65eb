"""kernel_tuner's spaces as knobs: a T1 description, a cache of tuning results, or T4 results."""

from __future__ import annotations

import gzip
import json
import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import yaml

from hillclimb.agent.importers.formats.imported import KnobPlan
from hillclimb.agent.importers.formats.restrictions import Untranslatable, knobs_of, translate
from hillclimb.agent.importers.formats.value_lists import read_values
from hillclimb.harness.errors import UsageError
from hillclimb.harness.knobs.constraints import is_satisfied
from hillclimb.harness.knobs.knobs import MAX_KNOBS, MAX_VALUES, RESERVED, parse_knobs

LABEL = "a kernel_tuner space: a T1 description, a cache or T4 results, .json or .json.gz, for the knobs"

MAX_DEFAULTS_TRIED = 20_000
"""Configurations drawn in search of defaults that satisfy every constraint."""

MAX_BYTES = 512 << 20


@dataclass(frozen=True)
class TunerSpace:
    """Parameters with their values, restrictions, and configurations that are known to run, the fastest first."""

    values: Mapping[str, Sequence[Any]]
    defaults: Mapping[str, Any] = field(default_factory=dict)
    restrictions: Sequence[str] = ()
    known: Sequence[Mapping[str, Any]] = ()
    told: Sequence[str] = ()


def can_read(path: Path) -> bool:
    """Whether it looks like one."""
    if not path.is_file() or not path.name.endswith((".json", ".json.gz")):
        return False
    try:
        found = _document(path)
    except UsageError:
        return False
    return bool({"ConfigurationSpace", "tune_params"} & found.keys()) or _is_t4(found)


def read_knobs(path: Path) -> KnobPlan:
    """Raises UsageError where no knob can be made of it."""
    document = _document(path)
    space = _t1(path, document) if "ConfigurationSpace" in document else _results(path, document)
    names, told = _knob_names(space.values), list(space.told)
    values = {names[name]: list(domain) for name, domain in space.values.items()}
    if len(values) > MAX_KNOBS:
        raise UsageError(f"{path} has {len(values)} parameters; keep those that matter, at most {MAX_KNOBS}")
    requires: dict[str, list[str]] = {name: [] for name in values}
    for restriction in space.restrictions:
        try:
            for constraint in translate(restriction, names, values):
                requires[knobs_of(constraint, list(values))[-1]].append(constraint)
        except Untranslatable as error:
            told.append(f"restriction {restriction!r}: not carried over, for {error}")
    defaults = _defaults(path, space, names, values, [c for some in requires.values() for c in some], told)
    told += [f"{old}: the knob is {new}" for old, new in names.items() if new != old.upper()]
    declared = {
        name: {**_domain(domain, defaults[name]), **({"requires": requires[name]} if requires[name] else {})}
        for name, domain in values.items()
    }
    text = yaml.safe_dump(declared, sort_keys=False, allow_unicode=True, width=200)
    parse_knobs(text, path)
    described = {
        key: document[key] for key in ("ConfigurationSpace", "tune_params", "restrictions") if key in document
    }
    return KnobPlan(
        text, tuple(told), json.dumps(described or {"tune_params": dict(space.values)}, indent=1) + "\n"
    )


def _document(path: Path) -> dict[str, Any]:
    try:
        if path.stat().st_size > MAX_BYTES:
            raise UsageError(
                f"{path} has over {MAX_BYTES >> 20} MiB; give the description of the space alone"
            )
        raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        text = raw.decode("utf-8")
        try:
            found = json.loads(text)
        except ValueError:
            found = json.loads(
                text.rstrip().rstrip(",") + "}}"
            )  # a cache that is still open ends with a comma
    except (OSError, EOFError, ValueError) as error:
        raise UsageError(f"{path} is no JSON that can be read ({error})") from None
    return found if isinstance(found, dict) else {}


def _is_t4(document: Mapping[str, Any]) -> bool:
    results = document.get("results")
    return isinstance(results, list) and bool(results) and "configuration" in (results[0] or {})


def _t1(path: Path, document: Mapping[str, Any]) -> TunerSpace:
    body = document["ConfigurationSpace"]
    values, defaults = {}, {}
    for parameter in body.get("TuningParameters") or []:
        try:
            values[parameter["Name"]] = read_values(parameter["Values"])
        except (KeyError, ValueError) as error:
            raise UsageError(f"{path}: parameter {parameter.get('Name')!r}: {error}") from None
        if "Default" in parameter:
            defaults[parameter["Name"]] = parameter["Default"]
    conditions = [c["Expression"] if isinstance(c, dict) else str(c) for c in body.get("Conditions") or []]
    told = []
    if "KernelSpecification" in document:
        kernel = document["KernelSpecification"]
        told.append(
            f"KernelSpecification: {kernel.get('KernelFile', 'the kernel')} and its arguments are not carried over"
        )
    return TunerSpace(values, defaults, conditions, (), told)


def _results(path: Path, document: Mapping[str, Any]) -> TunerSpace:
    if "tune_params" in document:
        values = {name: read_values(domain) for name, domain in document["tune_params"].items()}
        rows = [row for row in (document.get("cache") or {}).values() if isinstance(row, dict)]
        timed = [(row["time"], row) for row in rows if isinstance(row.get("time"), int | float)]
        given = [str(r) for r in document.get("restrictions") or []]
    elif _is_t4(document):
        rows = [result["configuration"] for result in document["results"]]
        timed = [
            (seconds, r["configuration"]) for r in document["results"] if (seconds := _t4_time(r)) is not None
        ]
        values = {name: sorted({row[name] for row in rows}, key=_order) for name in rows[0]}
        given = []
    else:
        raise UsageError(f"{path} has neither ConfigurationSpace nor tune_params nor results")
    fastest = [row for _, row in sorted(timed, key=lambda pair: pair[0])[:1000]]
    told = (
        []
        if given
        else ["restrictions: the file has none; configurations that cannot run are rejected as they come"]
    )
    return TunerSpace(values, {}, given, fastest, told)


def _t4_time(result: Mapping[str, Any]) -> float | None:
    if result.get("invalidity", "correct") != "correct":
        return None
    measured = (m.get("value") for m in result.get("measurements") or [] if m.get("name") == "time")
    found = next(measured, None)
    return float(found) if isinstance(found, int | float) else None


def _order(value: Any) -> tuple[bool, Any]:
    return isinstance(value, str), value


def _knob_names(values: Mapping[str, Any]) -> dict[str, str]:
    """Environment variables for a tuner's parameters, each its own."""
    found: dict[str, str] = {}
    for name in values:
        upper = re.sub(r"\W", "_", name, flags=re.ASCII).upper()
        upper = upper if upper[:1].isalpha() else f"K_{upper}"
        upper = f"KNOB_{upper}" if RESERVED.match(upper) or upper in ("TRUE", "FALSE") else upper
        while upper in found.values():
            upper += "_"
        found[name] = upper
    return found


def _domain(domain: Sequence[Any], default: Any) -> dict[str, Any]:
    """The shortest type of knob that has exactly these values."""
    plain = {"default": default}
    if (
        len(domain) > 2
        and all(type(value) is int for value in domain)
        and list(domain) == sorted(set(domain))
    ):
        low, high = domain[0], domain[-1]
        steps = {after - before for before, after in pairwise(domain)}
        if len(steps) == 1:
            return {"type": "int", "low": low, "high": high, "step": steps.pop(), **plain}
        if low > 0 and domain[1] % low == 0:
            base = domain[1] // low
            if all(after == before * base for before, after in pairwise(domain)):
                return {"type": "log-int", "low": low, "high": high, "base": base, **plain}
    return {"type": "choice", "choices": list(domain), **plain}


def _defaults(
    path: Path,
    space: TunerSpace,
    names: Mapping[str, str],
    values: Mapping[str, list[Any]],
    constraints: Sequence[str],
    told: list[str],
) -> dict[str, Any]:
    """The file's own where they are possible, else the fastest it knows, else any that satisfies every constraint."""
    for name, domain in values.items():
        if not domain or len(domain) > MAX_VALUES:
            raise UsageError(f"{path}: {name} has {len(domain)} values; give 1 to {MAX_VALUES}")
    first = {names[n]: space.defaults.get(n, values[names[n]][0]) for n in space.values}
    wanted = [first, *({names[n]: row.get(n) for n in space.values} for row in space.known)]
    if space.known:
        wanted = wanted[1:] + wanted[:1]
    secret = random.Random(0)
    possible = {name: first[name] if first[name] in values[name] else values[name][0] for name in values}
    drawn = (
        {
            name: secret.choice(domain) if secret.random() < number / MAX_DEFAULTS_TRIED else possible[name]
            for name, domain in values.items()
        }
        for number in range(MAX_DEFAULTS_TRIED)
    )
    for number, row in enumerate((*wanted, *drawn)):
        if all(row[n] in values[n] for n in values) and all(is_satisfied(c, row) for c in constraints):
            if number >= len(wanted) or (row is not first and not space.known):
                told.append("defaults: the file's own are impossible, so others were chosen")
            elif space.known:
                told.append("defaults: the fastest configuration of the file, which another device measured")
            return row
    raise UsageError(
        f"{path}: no configuration was found that satisfies every restriction; give Default values that do"
    )
