"""The pytest plugin.

    @pytest.mark.proven(lambda params: ["cases/demo"])

A marked test depends on its module, on all that this module imports, on the files below the paths named, on the pinned
packages, and on Python's version and the machine's kind; `same_kernel=True` adds the kernel's release. While a digest
of all that is the one in record.json, the test is skipped, and the skip says so.

`./scripts/test --all` runs them all and writes the record. Every other run draws a sample of the skipped ones anew and
runs it. A record that is missing or damaged costs time: everything runs.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import random
import re
import secrets
import sys
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

import pytest

from tests.proven.closure import ROOT, import_closure

RECORD = Path(__file__).with_name("record.json")
SAMPLE = 2
"""Proven tests that are run all the same, drawn anew each time."""
SEED = "HILLCLIMB_PROVEN_SEED"
"""Handed from the controller to its workers, which must draw the same sample."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--all", action="store_true", help="run proven tests as well, and write the record anew")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "proven(paths, same_kernel=False): skipped while nothing it depends on changes"
    )
    if not hasattr(config, "workerinput"):
        os.environ.setdefault(SEED, secrets.token_hex(8))
        config.pluginmanager.register(Recorder(config), "proven recorder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    marked = [item for item in items if item.get_closest_marker("proven")]
    digests = {item: digest_of(item) for item in marked}
    for item in marked:
        item.user_properties.append(("proven", digests[item]))
    if config.getoption("--all"):
        return
    proven = read_record()
    unchanged = [item for item in marked if proven.get(without_group(item.nodeid)) == digests[item]]
    seed = os.environ[SEED]
    sample = random.Random(seed).sample(unchanged, min(SAMPLE, len(unchanged)))
    for item in unchanged:
        if item not in sample:
            reason = "proven: nothing it depends on has changed; ./scripts/test --all runs it"
            item.add_marker(pytest.mark.skip(reason=reason))


def without_group(nodeid: str) -> str:
    """A test's name without the group that xdist writes behind it."""
    return re.sub(r"@\w+$", "", nodeid)


def digest_of(item: pytest.Item) -> str:
    """Over everything that a marked test depends on."""
    marker = item.get_closest_marker("proven")
    assert marker is not None
    callspec = getattr(item, "callspec", None)
    paths = marker.args[0](callspec.params if callspec else {}) if marker.args else ()
    surroundings = [sys.version.split()[0], platform.machine()]
    if marker.kwargs.get("same_kernel"):
        surroundings.append(platform.release())
    total = hashlib.sha256(json.dumps(surroundings).encode())
    files = set(_closure(item.path)) | {file for path in paths for file in below(ROOT / path)}
    files |= {ROOT / "requirements" / "dev.txt", *Path(__file__).parent.glob("*.py")}
    for file in sorted(files):
        total.update(f"{file.relative_to(ROOT).as_posix()}\0{_file_digest(file)}\0".encode())
    return total.hexdigest()


@cache
def _closure(path: Path) -> frozenset[Path]:
    conftests = [parent / "conftest.py" for parent in path.parents if (parent / "conftest.py").is_file()]
    return frozenset(import_closure([path, *conftests]))


@cache
def _file_digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def below(path: Path) -> Iterable[Path]:
    """The files at or below a path, without what Python leaves there. Raises FileNotFoundError for a wrong path."""
    if path.is_file():
        return [path]
    if not path.is_dir():
        raise FileNotFoundError(f"{path}: a proven test names it; name a file or a folder of the repository")
    return [file for file in path.rglob("*") if file.is_file() and "__pycache__" not in file.parts]


def read_record(path: Path = RECORD) -> Mapping[str, str]:
    """Test -> digest; empty where the file is missing or is not what `write_record` writes."""
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    is_sound = isinstance(found, dict) and all(isinstance(value, str) for value in found.values())
    return found if is_sound else {}


class Recorder:
    """In the controller: notes what passed, and writes it down after a run of all."""

    def __init__(self, config: pytest.Config) -> None:
        self._writes = bool(config.getoption("--all"))
        self._passed: dict[str, str] = {}
        self._seen: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        properties = dict(report.user_properties)
        if "proven" not in properties:
            return
        test = without_group(report.nodeid)
        self._seen.add(test)
        if report.when == "call" and report.passed:
            self._passed[test] = str(properties["proven"])

    def pytest_sessionfinish(self) -> None:
        if self._writes:
            kept = {test: digest for test, digest in read_record().items() if test not in self._seen}
            write_record(RECORD, {**kept, **self._passed})


def write_record(path: Path, record: Mapping[str, str]) -> None:
    """Whole or not at all."""
    beside = path.with_suffix(".new")
    beside.write_text(json.dumps(record, indent=0, sort_keys=True) + "\n")
    beside.replace(path)
