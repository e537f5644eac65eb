"""knobs.yaml: domains, parsing, promotion of defaults."""

from __future__ import annotations

import random
import string
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.errors import CaseError
from hillclimb.harness.knobs.knobs import (
    KNOBS_FILE,
    MAX_CONSTRAINTS,
    MAX_KNOBS,
    RESERVED,
    Knobs,
    KnobValue,
    contains,
    defaults,
    load_knobs,
    parse_knobs,
    parse_value,
    replace_defaults,
    to_environment,
)
from hillclimb.harness.sandbox.confinement import LOADER_VARIABLE, SandboxLayout, base_variables
from tests.fakes.knob_values import draw_value

TEXT = """\
# tiles first
TILE: {type: log-int, low: 8, high: 256, default: 32, doc: rows}   # kept
ORDER:
  type: choice
  choices: [ijk, ikj, "yes", 3]
  default: ijk  # the naive one
UNROLL: {type: int, low: 1, high: 9, step: 2, default: 1}
SHARE: {type: float, low: 0.001, high: 1, log: true, default: 0.5}
FAST: {type: bool, default: false}
"""


def knobs(text: str = TEXT) -> Knobs:
    return parse_knobs(text, Path("knobs.yaml"))


def test_domains() -> None:
    found = knobs()
    assert found["TILE"].values() == [8, 16, 32, 64, 128, 256]
    assert found["UNROLL"].values() == [1, 3, 5, 7, 9]
    assert found["ORDER"].values() == ["ijk", "ikj", "yes", 3]
    assert found["FAST"].values() == [False, True]
    assert found["SHARE"].values() is None
    assert defaults(found) == {"TILE": 32, "ORDER": "ijk", "UNROLL": 1, "SHARE": 0.5, "FAST": False}


def test_log_int_with_another_base_stops_below_high() -> None:
    text = "A: {type: log-int, low: 3, high: 100, base: 3, default: 9}"
    assert knobs(text)["A"].values() == [3, 9, 27, 81]


def test_no_file_no_knobs(tmp_path: Path) -> None:
    assert load_knobs(tmp_path / "knobs.yaml") == {}


def test_types_are_not_confused() -> None:
    found = knobs()
    assert not contains(found["FAST"], 1)
    assert not contains(found["UNROLL"], True)
    assert not contains(found["UNROLL"], 3.0)
    assert not contains(found["SHARE"], True)
    assert not contains(found["SHARE"], float("nan"))
    assert contains(found["SHARE"], 1)


@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("tile: {type: int, low: 1, high: 2, default: 1}", "tile"),
        ("A B: {type: int, low: 1, high: 2, default: 1}", "A B"),
        ("A: {type: int, low: 1, high: 2, default: 3}", "A.default"),
        ("A: {type: int, low: 2, high: 1, default: 1}", "A"),
        ("A: {type: int, low: 1, high: 2, default: '1'}", "A.default"),
        ("A: {type: int, low: 1, high: 2, default: true}", "A.default"),
        ("A: {type: int, low: 1, high: 2, step: 0, default: 1}", "A.step"),
        ("A: {type: int, low: 0, high: 1000000000000, default: 1}", "A"),
        ("A: {type: log-int, low: 0, high: 8, default: 1}", "A.low"),
        ("A: {type: log-int, low: 1, high: 8, base: 1, default: 1}", "A.base"),
        ("A: {type: float, low: .nan, high: 1, default: 1}", "A.low"),
        ("A: {type: float, low: 0, high: .inf, default: 1}", "A.high"),
        ("A: {type: float, low: 0, high: 1, log: true, default: 1}", "A"),
        ("A: {type: float, low: 2, high: 1, default: 1}", "A"),
        ("A: {type: choice, choices: [], default: 1}", "A.choices"),
        ("A: {type: choice, choices: [1, true], default: 1}", "A"),
        ("A: {type: choice, choices: [1, 1.0], default: 1}", "A"),
        ('A: {type: choice, choices: [1, "1"], default: 1}', "A"),
        ('A: {type: choice, choices: ["a\\nb"], default: "a\\nb"}', "A"),
        ("A: {type: choice, choices: [a], default: b}", "A.default"),
        ("A: {type: spin, default: b}", "A.type"),
        ("A: {default: b}", "A.type"),
        ("A: {type: bool}", "A.default"),
        ("A: {type: bool, default: true, low: 1}", "A.low"),
        ("A: 3", "A"),
        ("A: {type: choice, choices: [1, [2]], default: 1}", "A.choices.1"),
        ("A: {type: choice, choices: [1], default: {}}", "A.default"),
        ("A: {type: bool, default: true, int: 1}", "A.int"),
        ("LD_PRELOAD: {type: bool, default: true}", "LD_PRELOAD"),
    ],
)
def test_a_wrong_knob_is_named(text: str, key: str) -> None:
    with pytest.raises(CaseError) as caught:
        knobs(text)
    assert caught.value.key == key
    assert caught.value.remedy


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("A: {type: int, low: 2, high: 1, default: 1}", "low 2 must not exceed high 1"),
        ("A: {type: log-int, low: 4, high: 1, default: 1}", "low 4 must not exceed high 1"),
        ("A: {type: bool, default: 2}", "A.default: value 2 is wrong; it must be true or false"),
        ("A: {type: spin, default: b}", "A.type: value 'spin' is wrong; it must be one of 'int', 'log-int'"),
        (
            "A: {type: choice, choices: [[2]], default: 1}",
            "value [2] is wrong; it must be true, false, a number or",
        ),
        ("A: {type: choice, choices: [a, b], default: c}", "outside the knob's domain; choose one of a, b"),
        ("A: {type: float, low: 0, high: 1, default: 2}", "choose a number from 0.0 to 1.0"),
        ("A: 3", "A: value 3 is wrong; it must be a mapping of keys to values"),
        ("A: {type: choice, choices: 3, default: 1}", "A.choices: value 3 is wrong; it must be a list"),
    ],
)
def test_complaints_say_what_a_person_wrote(text: str, says: str) -> None:
    with pytest.raises(CaseError) as caught:
        knobs(text)
    assert says in str(caught.value)
    assert "'knob'" not in str(caught.value)


LAYOUT = SandboxLayout(workspace="/w", scratch="/s", python_path="/l")


@pytest.mark.parametrize(
    "name",
    [
        *base_variables(LAYOUT),
        "NUMBA_NUM_THREADS",
        "OMP_NUM_THREADS",
        "PYTHONHASHSEED",
        "PYTHONWARNINGS",
        "LD_AUDIT",
        "ASAN_OPTIONS",
        "CUBLAS_WORKSPACE_CONFIG",
        "CUDA_LAUNCH_BLOCKING",
        "MALLOC_ARENA_MAX",
        "NUMBA_DISABLE_JIT",
        "OPENBLAS_NUM_THREADS",
        "TORCHINDUCTOR_CACHE_DIR",
        "TRITON_ALWAYS_COMPILE",
    ],
)
def test_no_knob_may_be_a_variable_of_the_labs(name: str) -> None:
    with pytest.raises(CaseError, match=f"{name}: is a variable that .*; rename the knob, as MY_{name}"):
        knobs(f"{name}: {{type: bool, default: true}}")


LOADED = st.from_regex(
    rf"\A(?:{LOADER_VARIABLE.pattern})", alphabet=string.ascii_uppercase + string.digits + "_"
)


@given(name=LOADED)
def test_what_the_sandbox_refuses_no_knob_may_be(name: str) -> None:
    assert LOADER_VARIABLE.match(name) and RESERVED.match(name)


@pytest.mark.parametrize(
    "name", ["PATHS", "MM_PATH", "HOMER", "MY_OMP_NUM_THREADS", "LDA", "NUMBA_OPT", "CCX", "NVEC", "TORQUE"]
)
def test_names_that_only_resemble_them_are_free(name: str) -> None:
    assert name in knobs(f"{name}: {{type: bool, default: true}}")


def test_defaults_are_replaced_and_all_else_kept() -> None:
    text = replace_defaults(TEXT, {"ORDER": "yes", "TILE": 64, "FAST": True, "SHARE": 0.25})
    expected = (
        TEXT.replace("default: ijk", "default: 'yes'")
        .replace("default: 32", "default: 64")
        .replace("default: false", "default: true")
        .replace("default: 0.5", "default: 0.25")
    )
    assert text == expected


def test_an_unknown_default_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        replace_defaults(TEXT, {"NO": 1})


WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1, max_size=8)


@given(choices=st.lists(WORDS | st.integers(-99, 99), min_size=2, max_size=4, unique_by=str), data=st.data())
def test_any_promoted_default_reads_back(choices: list[KnobValue], data: st.DataObject) -> None:
    text = yaml.safe_dump(
        {"A": {"type": "choice", "choices": choices, "default": choices[0]}}, allow_unicode=True
    )
    if not all(str(choice).isprintable() for choice in choices):
        return
    wanted = data.draw(st.sampled_from(choices))
    assert defaults(knobs(replace_defaults(text, {"A": wanted}))) == {"A": wanted}


@given(data=st.data())
def test_any_value_typed_as_the_environment_shows_it_is_parsed_back(data: st.DataObject) -> None:
    name, knob = data.draw(st.sampled_from(sorted(knobs().items())))
    value = draw_value(knob, random.Random(data.draw(st.integers(0, 1000))))
    assert contains(knob, value)
    assert parse_value(knobs(), name, to_environment({name: value})[name]) == value


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("FAST", "true", True),
        ("FAST", "1", True),
        ("FAST", "False", False),
        ("ORDER", "yes", "yes"),
        ("SHARE", "1", 1.0),
    ],
)
def test_people_may_type_values_their_way(name: str, text: str, value: KnobValue) -> None:
    assert parse_value(knobs(), name, text) == value


@pytest.mark.parametrize(
    ("name", "text"), [("NO", "1"), ("TILE", "7"), ("SHARE", "2"), ("SHARE", "x"), ("FAST", "on")]
)
def test_values_outside_the_domain_are_refused_with_the_domain(name: str, text: str) -> None:
    with pytest.raises(CaseError, match=r"choose one of|give a number"):
        parse_value(knobs(), name, text)


def test_knobs_and_constraints_are_counted_before_they_are_used() -> None:
    many = "".join(f"K{n}: {{type: bool, default: false}}\n" for n in range(MAX_KNOBS + 1))
    with pytest.raises(CaseError, match=f"declares {MAX_KNOBS + 1} knobs; keep those that matter"):
        parse_knobs(many.replace("{", "\n  ").replace("}", "").replace(", ", "\n  "), Path(KNOBS_FILE))
    lines = "".join(f"  - K {'<' if n % 2 else '<='} {n + 9}\n" for n in range(MAX_CONSTRAINTS + 1))
    text = f"K:\n  type: int\n  low: 1\n  high: 4\n  default: 1\n  requires:\n{lines}"
    with pytest.raises(CaseError, match=f"has {MAX_CONSTRAINTS + 1} constraints"):
        parse_knobs(text, Path(KNOBS_FILE))
    with pytest.raises(CaseError, match="characters; a case's file has at most"):
        parse_knobs("# " + "x" * (1 << 20), Path(KNOBS_FILE))
