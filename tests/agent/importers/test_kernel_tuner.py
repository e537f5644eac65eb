"""kernel_tuner's spaces become knobs."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from hillclimb.agent.importers.formats.kernel_tuner import can_read, read_knobs
from hillclimb.agent.importers.formats.value_lists import read_values
from hillclimb.agent.importers.import_case import WantedCase, import_case
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import UsageError
from hillclimb.harness.knobs.knobs import ChoiceKnob, IntKnob, LogIntKnob, all_constraints, parse_knobs

T1 = {
    "ConfigurationSpace": {
        "TuningParameters": [
            {"Name": "block", "Type": "int", "Values": "[2**i for i in range(5, 9)]", "Default": 64},
            {"Name": "tile", "Type": "int", "Values": "list(range(1, 9))", "Default": 2},
            {"Name": "layout", "Type": "string", "Values": "['rows', 'columns']", "Default": "rows"},
            {"Name": "path", "Type": "int", "Values": "[1, 2, 3, 5]", "Default": 5},
        ],
        "Conditions": [
            {"Expression": "block * tile <= 512", "Parameters": ["block", "tile"]},
            {"Expression": "ceil(block / 3) > tile", "Parameters": ["block", "tile"]},
        ],
    },
    "KernelSpecification": {"KernelFile": "blur.cu"},
}
CACHE = {
    "tune_params": {"x": [1, 2, 4], "on": [0, 1]},
    "restrictions": ["x * (on + 1) < 8"],
    "cache": {
        "1,0": {"x": 1, "on": 0, "time": 3.0},
        "2,1": {"x": 2, "on": 1, "time": 1.0},
        "4,1": {"x": 4, "on": 1, "time": "InvalidConfig"},
    },
}
T4 = {
    "results": [
        {
            "configuration": {"x": 8, "y": 2},
            "invalidity": "correct",
            "measurements": [{"name": "time", "value": 2.0}],
        },
        {"configuration": {"x": 4, "y": 1}, "invalidity": "runtime", "measurements": []},
    ]
}


def write(folder: Path, document: Any, name: str = "space.json") -> Path:
    path = folder / name
    path.write_text(json.dumps(document))
    return path


def test_a_description_has_names_values_and_conditions(tmp_path: Path) -> None:
    found = read_knobs(write(tmp_path, T1))
    knobs = parse_knobs(found.text, tmp_path)
    assert isinstance(knobs["BLOCK"], LogIntKnob) and knobs["BLOCK"].values() == [32, 64, 128, 256]
    assert isinstance(knobs["TILE"], IntKnob) and knobs["TILE"].high == 8
    assert isinstance(knobs["KNOB_PATH"], ChoiceKnob) and knobs["KNOB_PATH"].default == 5
    assert all_constraints(knobs) == ("BLOCK * TILE <= 512",)
    assert any("'ceil(block / 3) > tile': not carried over" in line for line in found.told)
    assert "path: the knob is KNOB_PATH" in found.told
    assert any("blur.cu and its arguments are not carried over" in line for line in found.told)


def test_a_cache_knows_its_fastest_configuration(tmp_path: Path) -> None:
    found = read_knobs(write(tmp_path, CACHE))
    knobs = parse_knobs(found.text, tmp_path)
    assert {name: knob.default for name, knob in knobs.items()} == {"X": 2, "ON": 1}
    assert all_constraints(knobs) == ("X * (ON + 1) < 8",)


def test_results_are_a_space_too_and_may_be_packed(tmp_path: Path) -> None:
    path = tmp_path / "t4.json.gz"
    path.write_bytes(gzip.compress(json.dumps(T4).encode()))
    assert can_read(path)
    found = read_knobs(path)
    assert parse_knobs(found.text, tmp_path)["X"].default == 8
    assert any(line.startswith("restrictions: the file has none") for line in found.told)


def test_impossible_defaults_are_replaced_and_told(tmp_path: Path) -> None:
    document = json.loads(json.dumps(T1))
    document["ConfigurationSpace"]["TuningParameters"][0]["Default"] = 48
    found = read_knobs(write(tmp_path, document))
    assert "defaults: the file's own are impossible, so others were chosen" in found.told


@pytest.mark.slow(2)
def test_a_space_without_a_possible_configuration_is_refused(tmp_path: Path) -> None:
    document = {"tune_params": {"x": [1, 2]}, "restrictions": ["x > 5"]}
    with pytest.raises(UsageError, match="no configuration was found"):
        read_knobs(write(tmp_path, document))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1, 2]", [1, 2]),
        ("[1] + [2*i for i in range(1, 4)]", [1, 2, 4, 6]),
        ("[1, 2] + list(range(32, 97, 32))", [1, 2, 32, 64, 96]),
        ("(True, 'a', -1.5)", [True, "a", -1.5]),
    ],
)
def test_lists_are_read(text: str, expected: list[Any]) -> None:
    assert read_values(text) == expected


@pytest.mark.parametrize(
    "text",
    ["open('x')", "[x for x in y]", "range(10**9)", "9**9**9", "3", "[", "[1]*99999999", "[1/0]", "['a'-1]"],
)
def test_other_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_values(text)


def test_a_space_alone_is_a_case_of_the_template(tmp_path: Path) -> None:
    found = import_case(tmp_path, [str(write(tmp_path, T1))], (), WantedCase("demo", "blur"))
    case = Case(found.folder)
    assert {"BLOCK", "TILE", "RS_BLOCK"} <= set(case.knobs)
    assert any(line.startswith("operator: a space does not say") for line in found.told)
