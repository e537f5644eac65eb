"""case.yaml, benchmarks/*.yaml and the digests: every documented key, and every way to get one wrong."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from hillclimb.harness.case.case import Case, find_case
from hillclimb.harness.case.digest import benchmarks_digest, contract_digest, harness_digest
from hillclimb.harness.case.settings import Serving, Settings, Suite
from hillclimb.harness.errors import CaseError, UsageError
from hillclimb.harness.yaml_errors import MAX_FILE_BYTES, parse_yaml

FULL: dict[str, Any] = {
    "schema": 1,
    "summary": "a thing",
    "model": "m",
    "model_path": "/models/m",
    "hardware": "any",
    "device": "cpu",
    "surface": "kernel",
    "command": None,
    "entry": "kernel.py:run",
    "mutable": ["*.py", "docs/**"],
    "objective": {"metric": "flops", "direction": "higher", "minimum_effect": 0.02, "suite": "main"},
    "guardrails": [{"suite": "ragged", "metric": "", "max_slowdown": 0.1}],
    "budgets": {
        "seconds": 60,
        "candidates": 5,
        "patience": 3,
        "tokens": 1000,
        "cost": 1.5,
        "prepare_seconds": 1.5,
        "call_seconds": 1,
        "memory_mib": 100,
    },
    "policy": {
        "library_calls": True,
        "weight_caches": True,
        "graphs": True,
        "reduced_precision": True,
        "imports": ["numpy"],
    },
    "llm": {
        "model": "m",
        "temperature": 0.5,
        "reasoning_effort": "low",
        "deadline_seconds": 9,
        "in_flight": 3,
        "repairs": 1,
        "briefing_tokens": 5000,
        "reply_tokens": 700,
        "prices": {"prompt": 2.5, "completion": 10, "cached": 0.25},
    },
    "gate": {"seeds": 3, "error_budget": 2.5, "contract_seconds": 30.0},
    "duel": {
        "alpha": 0.05,
        "segment_ms": 5,
        "screen_blocks": 4,
        "pair_blocks": 1,
        "max_pairs": 5,
        "report_pairs": 3,
    },
    "sweep": {"first": [{"TILE": 64, "FAST": True}, {"ORDER": "ikj"}]},
    "cuda": {
        "launch": "eager",
        "cache": "hot",
        "architecture": 100,
        "connections": 8,
        "sanitizers": ["racecheck"],
    },
    "serving": {"backend": "backend/serve.py:make", "context": 512, "slots": 4},
}
SUITE = {"problems": ["p"], "distribution": "normal", "doc": "why"}


def write_case(root: Path, document: dict[str, Any] | str = "schema: 1\nsummary: s\n") -> Path:
    folder = root / "cases" / "family" / "case"
    (folder / "benchmarks").mkdir(parents=True, exist_ok=True)
    (folder / "workspace").mkdir(exist_ok=True)
    text = document if isinstance(document, str) else yaml.safe_dump(document)
    (folder / "case.yaml").write_text(text)
    for suite in ("main", "ragged"):
        (folder / "benchmarks" / f"{suite}.yaml").write_text(yaml.safe_dump(SUITE))
    (folder / "workspace" / "kernel.py").write_text("def run(): ...\n")
    (folder / "contract.py").write_text("")
    return folder


def complaint(root: Path, document: dict[str, Any] | str) -> CaseError:
    with pytest.raises(CaseError) as caught:
        Case(write_case(root, document))
    return caught.value


def test_every_documented_key_is_read(tmp_path: Path) -> None:
    case = Case(write_case(tmp_path, FULL))
    assert case.name == "family/case"
    assert case.settings.model_dump(by_alias=True, mode="json") == FULL
    assert set(case.suites) == {"main", "ragged"}
    assert case.suites["main"].problems == ("p",)


def test_the_test_above_names_every_key() -> None:
    def keys(model: type[BaseModel]) -> set[str]:
        return {field.alias or name for name, field in model.model_fields.items()}

    assert keys(Settings) == FULL.keys()
    assert keys(Suite) == SUITE.keys()
    for name in ("objective", "budgets", "policy", "llm", "sweep", "gate", "duel", "cuda"):
        section = Settings.model_fields[name].annotation
        assert isinstance(section, type) and issubclass(section, BaseModel)
        assert keys(section) == FULL[name].keys()
    assert keys(Serving) == FULL["serving"].keys()


@pytest.mark.parametrize(
    ("change", "key", "remedy"),
    [
        ({"budgets": {"candiates": 3}}, "budgets.candiates", "did you mean 'candidates'?"),
        ({"budget": {}}, "budget", "did you mean 'budgets'?"),
        ({"zzz": 1}, "zzz", "docs/reference/case-format.md"),
        ({"schema": 2}, "schema", "1"),
        ({"budgets": {"candidates": 0}}, "budgets.candidates", "greater than 0"),
        ({"budgets": {"candidates": "ten"}}, "budgets.candidates", "a whole number"),
        ({"budgets": {"candidates": True}}, "budgets.candidates", "a whole number"),
        ({"budgets": {"candidates": 1.5}}, "budgets.candidates", "a whole number"),
        ({"budgets": {"seconds": float("inf")}}, "budgets.seconds", "finite"),
        ({"serving": {"backend": "serve.c:make"}}, "serving.backend", "a .py file"),
        ({"serving": {"backend": "../serve.py:make"}}, "serving.backend", "below workspace/"),
        ({"serving": {"backend": "serve.py"}}, "serving.backend", "text of the pattern"),
        ({"serving": {"slots": 0}}, "serving.slots", "greater than or equal to 1"),
        ({"serving": {"context": 1}}, "serving.context", "greater than or equal to 2"),
        ({"budgets": {"seconds": float("nan")}}, "budgets.seconds", "finite"),
        ({"policy": {"graphs": "yes"}}, "policy.graphs", "it must be true or false"),
        ({"policy": {"imports": "numpy"}}, "policy.imports", "it must be a list"),
        ({"objective": {"direction": "higher"}}, "objective", "'lower'"),
        ({"objective": {"minimum_effect": 1.0}}, "objective.minimum_effect", "less than 1"),
        ({"objective": {"suite": "../main"}}, "objective.suite", "pattern"),
        ({"objective": None}, "objective", "a mapping of keys to values"),
        ({"guardrails": [{"max_slowdown": 0.1}]}, "guardrails.0.suite", "add it"),
        ({"guardrails": {"suite": "main"}}, "guardrails", "it must be a list"),
        ({"guardrails": [{"suite": "main"}]}, "guardrails", "objective's own"),
        ({"guardrails": [{"suite": "ragged"}] * 2}, "guardrails", "'ragged' has two guardrails"),
        ({"mutable": "*.py"}, "mutable", "it must be a list"),
        ({"entry": f"{'x' * 300}.py:run"}, "entry", "name a file that is in workspace/"),
        ({"entry": "kernel.py"}, "entry", "pattern"),
        ({"entry": "../kernel.py:run"}, "entry", "below workspace/"),
        ({"entry": "other.py:run"}, "entry", "name a file that is in workspace/"),
        ({"mutable": ["../**"]}, "mutable.0", "below workspace/"),
        ({"mutable": ["/etc/*"]}, "mutable.0", "below workspace/"),
        ({"mutable": [".git/config"]}, "mutable.0", "below workspace/"),
        ({"device": "abacus"}, "device", "cpu"),
        ({"duel": {"alpha": 0}}, "duel.alpha", "greater than 0"),
        ({"sweep": {"first": {"TILE": 4}}}, "sweep.first", "it must be a list"),
        ({"sweep": {"first": [4]}}, "sweep.first.0", "a mapping"),
        ({"sweep": {"first": [{"TILE": [4]}]}}, "sweep.first.0.TILE", "true, false, a number or text"),
        ({"sweep": {"first": [{}] * 257}}, "sweep.first", "a list of at most 256"),
    ],
)
def test_a_wrong_key_or_value_is_named_with_its_remedy(
    tmp_path: Path, change: dict[str, Any], key: str, remedy: str
) -> None:
    error = complaint(tmp_path, {"schema": 1, "summary": "s", **change})
    assert error.file.endswith("case.yaml")
    assert error.key == key
    assert remedy in error.remedy
    assert len(str(error)) < 600


@pytest.mark.parametrize(
    ("first", "problem"),
    [
        ([{"TIEL": 4}], "TIEL is not a knob: did you mean 'TILE'?"),
        ([{"TILE": 4}, {"TILE": 9}], "TILE has no value 9; it takes one of 1, 2, 3, 4, 5, 6, 7, 8"),
        ([{"TILE": True}], "TILE has no value True; it takes one of 1, 2, 3, 4, 5, 6, 7, 8"),
        ([{"LR": 10**400}], "; it takes a number from 0.0 to 2.0"),
        ([{"LR": "1e-3"}], "LR has no value '1e-3'; it takes a number from 0.0 to 2.0"),
        (
            [{"TILE": 1, "ORDER": "kij"}],
            "it breaks the constraint TILE > 1 or ORDER == 'ijk' (TILE=1, ORDER=kij)",
        ),
    ],
)
def test_first_values_that_do_not_fit_the_knobs(tmp_path: Path, first: list[Any], problem: str) -> None:
    folder = write_case(tmp_path, {"schema": 1, "summary": "s", "sweep": {"first": first}})
    (folder / "workspace" / "knobs.yaml").write_text(
        "TILE: {type: int, low: 1, high: 8, default: 2, requires: [\"TILE > 1 or ORDER == 'ijk'\"]}\n"
        "ORDER: {type: choice, choices: [ijk, kij], default: ijk}\n"
        "LR: {type: float, low: 0, high: 2, default: 1}\n"
    )
    case = Case(folder)  # an edit may take a knob away
    with pytest.raises(CaseError) as caught:
        case.first_to_sweep()
    assert caught.value.key == f"sweep.first.{len(first) - 1}"
    assert problem in caught.value.problem


def test_first_values_are_those_that_kernels_see(tmp_path: Path) -> None:
    """A constraint that another knob's default breaks today may hold of a later incumbent."""
    folder = write_case(
        tmp_path, {"schema": 1, "summary": "s", "sweep": {"first": [{"LR": 1, "A": 2}, {"LR": -0.0}]}}
    )
    (folder / "workspace" / "knobs.yaml").write_text(
        "LR: {type: float, low: -1, high: 2, default: 1}\n"
        "A: {type: int, low: 0, high: 3, default: 0, requires: [A <= B]}\n"
        "B: {type: int, low: 0, high: 3, default: 1}\n"
    )
    one, other = Case(folder).first_to_sweep()
    assert (one["A"], repr(one["LR"]), repr(other["LR"])) == (2, "1.0", "0.0")


def test_a_first_value_of_very_many_digits(tmp_path: Path) -> None:
    text = "schema: 1\nsummary: s\nsweep: {first: [{A: 0x1" + "0" * 5000 + "}]}\n"
    folder = write_case(tmp_path, text)
    (folder / "workspace" / "knobs.yaml").write_text("A: {type: int, low: 0, high: 3, default: 0}\n")
    with pytest.raises(
        CaseError, match="A has no value a number of thousands of digits; it takes one of 0, 1"
    ):
        Case(folder).first_to_sweep()


@pytest.mark.parametrize("key", ["schema", "summary"])
def test_a_missing_key_is_named(tmp_path: Path, key: str) -> None:
    document = {name: value for name, value in FULL.items() if name != key}
    error = complaint(tmp_path, document)
    assert (error.key, error.problem) == (key, "is missing")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("schema: 1\nschema: 1\n", "stands twice"),
        ("budgets: {seconds: 1, seconds: 2}\n", "stands twice"),
        ("schema: [1\n", "is not YAML"),
        ("\tschema: 1\n", "is not YAML"),
        ("- 1\n- 2\n", "not a mapping"),
        ("just words\n", "not a mapping"),
        ("1: 2\n", "not a mapping"),
        ("schema: 2001-13-45\n", "cannot be read"),
        ("schema: " + "9" * 5000 + "\n", "cannot be read"),
        ("schema: !!python/object:os.system {}\n", "is not YAML"),
        ("schema: *nowhere\n", "is not YAML"),
        ("a: \x07\n", "is not YAML"),
        ("a: " + "[" * 20_000 + "\n", ""),
    ],
)
def test_a_file_that_is_not_the_right_yaml(tmp_path: Path, text: str, problem: str) -> None:
    assert problem in complaint(tmp_path, text).problem


def test_aliases_that_multiply_give_a_short_complaint(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, 20)]
    assert len(str(complaint(tmp_path, "\n".join(lines)))) < 1000


def test_files_of_the_wrong_kind(tmp_path: Path) -> None:
    folder = write_case(tmp_path)
    path = folder / "case.yaml"
    path.write_bytes("summary: größe".encode("latin-1"))
    with pytest.raises(CaseError, match="UTF-8"):
        Case(folder)
    path.write_bytes(b"#" * (MAX_FILE_BYTES + 1))
    with pytest.raises(CaseError, match=f"has {MAX_FILE_BYTES + 1} bytes"):
        Case(folder)
    path.unlink()
    with pytest.raises(CaseError, match="does not exist"):
        Case(folder)
    os.mkfifo(path)
    with pytest.raises(CaseError, match="not a regular file"):
        Case(folder)
    path.unlink()
    path.mkdir()
    with pytest.raises(CaseError, match="not a regular file"):
        Case(folder)


def test_a_missing_or_wrong_suite_is_named(tmp_path: Path) -> None:
    folder = write_case(tmp_path, {"schema": 1, "summary": "s", "guardrails": [{"suite": "none"}]})
    with pytest.raises(CaseError, match=r"none\.yaml does not exist"):
        Case(folder)
    folder = write_case(tmp_path)
    (folder / "benchmarks" / "main.yaml").write_text("problems: []\ndistribution: normal\n")
    with pytest.raises(CaseError, match=r"main\.yaml: problems"):
        Case(folder)


@given(text=st.text(max_size=200))
def test_no_text_gets_past_the_parser_as_anything_but_a_mapping_or_a_complaint(text: str) -> None:
    try:
        assert isinstance(parse_yaml(text, Path("case.yaml")), dict)
    except CaseError as error:
        assert error.remedy


TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(sorted(FULL)), inner, max_size=3)
    ),
    max_leaves=6,
)


@given(key=st.sampled_from(sorted(FULL)), value=TREES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_anywhere_is_taken_or_complained_about(tmp_path: Path, key: str, value: Any) -> None:
    try:
        Case(write_case(tmp_path, {**FULL, key: value}))
    except CaseError as error:
        assert error.remedy and error.file


def test_complaints_never_speak_of_types_of_ours(tmp_path: Path) -> None:
    for value in (None, 3, "x", [1], {"a": 1}, [[1]], 1.5, True):
        for key in FULL:
            try:
                Case(write_case(tmp_path, {**FULL, key: value}))
            except CaseError as error:
                for word in ("tuple", "dictionary", "instance", "Input should", "Objective"):
                    assert word not in str(error)


def test_find_case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_case(tmp_path)
    elsewhere = tmp_path / "elsewhere" / "deep"
    elsewhere.mkdir(parents=True)
    for here in (tmp_path, folder, elsewhere):
        monkeypatch.chdir(here)
        assert find_case("family/case").resolve() == folder.resolve()
        assert find_case(str(folder)).resolve() == folder.resolve()
        for wrong in ("family/other", "x" * 300, "y" * 5000, "a\0b", "../cases/family/other"):
            with pytest.raises(UsageError, match=r"cases in .*/cases: family/case$"):
                find_case(wrong)
    monkeypatch.chdir(folder.parent)
    assert find_case("case").resolve() == folder.resolve()


def test_find_case_looks_upwards_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = tmp_path / "beside"
    beside.mkdir()
    write_case(tmp_path / "other")
    monkeypatch.chdir(beside)
    with pytest.raises(UsageError, match="no case at 'family/case'"):
        find_case("family/case")


def test_digests_follow_the_fixed_files_alone(tmp_path: Path) -> None:
    folder = write_case(tmp_path)
    case = Case(folder)
    before = contract_digest(case), benchmarks_digest(case)
    (folder / "workspace" / "kernel.py").write_text("other")
    assert (contract_digest(case), benchmarks_digest(case)) == before
    (folder / "contract.py").write_text("other")
    assert contract_digest(case) != before[0]
    assert benchmarks_digest(case) == before[1]
    (folder / "benchmarks" / "new.yaml").write_text("")
    assert benchmarks_digest(case) != before[1]
    assert len(harness_digest()) == 64


def test_every_file_that_a_contract_may_read_is_in_a_digest(tmp_path: Path) -> None:
    folder = write_case(tmp_path)
    case = Case(folder)
    seen = {(contract_digest(case), benchmarks_digest(case))}
    changes = [
        "table.npy",
        "data/weights.bin",
        "lib/__init__.py",
        "benchmarks/more/x.csv",
        "sub/workspace/x",
        "README.md",
    ]
    for count, name in enumerate(changes, 2):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1")
        seen.add((contract_digest(case), benchmarks_digest(case)))
        assert len(seen) == count, name
    for name in ("program.md", "__pycache__/contract.pyc", "lib/__pycache__/x.pyc", ".cache/x", ".notes"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("1")
        assert (contract_digest(case), benchmarks_digest(case)) in seen, name


def test_a_fixed_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    folder = write_case(tmp_path)
    (folder / "table").symlink_to("/proc/self/mem")
    with pytest.raises(CaseError, match=r"table: cannot be read"):
        contract_digest(Case(folder))
