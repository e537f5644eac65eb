"""A case as stamped works: valid, right under every knob setting, admitted by its own policy."""

from __future__ import annotations

import itertools
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from agent.stamp import stamp
from harness.case.case import Case
from harness.case.checked import check_contract
from harness.case.contract import Contract
from harness.case.knobs import Value, load_knobs, to_environment
from harness.judge.policy import check_policy
from tests.cases.workspace import CASES, call, checks, import_file, kernel, load_case

VALUES: list[dict[str, Value]] = [
    {"RS_BLOCK": block, "RS_FASTMATH": fast}
    for block, fast in itertools.product((64, 512, 8192), (False, True))
]


@pytest.fixture(scope="module")
def stamped(tmp_path_factory: pytest.TempPathFactory) -> tuple[Case, Contract]:
    root = tmp_path_factory.mktemp("stamped")
    shutil.copytree(CASES / "_template", root / "cases" / "_template")
    return load_case(stamp(root, "new_model", "new_case", "a model", "", "a machine"))


@pytest.mark.parametrize("values", [{}, *VALUES], ids=lambda v: "-".join(map(str, v.values())) or "defaults")
def test_every_setting_is_right(stamped: tuple[Case, Contract], values: dict[str, Value]) -> None:
    case, contract = stamped
    with kernel(case, values) as run:
        errors = {check.name: check.error(call(run, check)) for check in checks(contract, seed=4)}
    assert max(errors.values()) < 2, errors


def test_its_own_policy_admits_it(stamped: tuple[Case, Contract]) -> None:
    check_policy(stamped[0].workspace, stamped[0].settings.policy)


def test_its_suites_name_problems_of_the_contract(stamped: tuple[Case, Contract]) -> None:
    case, contract = stamped
    assert {name for suite in case.suites.values() for name in suite.problems} <= set(contract.problems)
    assert {suite.distribution for suite in case.suites.values()} <= set(contract.distributions)


def test_a_wrong_kernel_is_far_outside_the_budget(stamped: tuple[Case, Contract]) -> None:
    for check in checks(stamped[1], seed=4):
        if check.inputs["x"].shape[1] > 1:
            wrong = (
                check.inputs["x"][:, 1:].sum(dim=1)
                if "wide" not in check.name
                else torch.zeros_like(check.outputs["s"])
            )
            assert check.error({"s": wrong}) > 10, check.name


def test_its_local_tests_pass(stamped: tuple[Case, Contract], tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-o",
        "addopts=",
        "-p",
        "no:cacheprovider",
        "--rootdir",
        str(tmp_path),
    ]
    done = subprocess.run(
        [*command, stamped[0].workspace / "tests"], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout


def test_its_contract_keeps_its_promises(stamped: tuple[Case, Contract]) -> None:
    check_contract(stamped[1], stamped[0].contract_file)


KNOBS = """
C: {type: choice, choices: [true, false, a, 2, 0.5], default: a}
B: {type: bool, default: true}
F: {type: float, low: 0, high: 1, default: 0.25}
I: {type: int, low: 0, high: 9, default: 3}
"""


def test_its_knobs_are_the_demos_and_read_whatever_the_judge_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = (CASES / "_template" / "workspace" / "knobs.py").read_text()
    assert (CASES / "demo" / "cpu_matmul" / "workspace" / "knobs.py").read_text() == source
    (tmp_path / "knobs.yaml").write_text(KNOBS)
    (tmp_path / "knobs.py").write_text(source)
    module = import_file(tmp_path / "knobs.py")
    knobs = load_knobs(tmp_path / "knobs.yaml")
    for name, declared in knobs.items():
        assert module.knob(name) == declared.default
        for value in declared.values() or [0.0, 0.125]:
            monkeypatch.setenv(name, to_environment({name: value})[name])
            assert (module.knob(name), type(module.knob(name))) == (value, type(value))
    monkeypatch.setenv("C", "True")
    with pytest.raises(ValueError, match=r"C is 'True', which is none of \[True, False, 'a', 2, 0\.5\]"):
        module.knob("C")


def test_every_key_of_the_format_is_shown() -> None:
    """The template is the format's documentation by example, so it may not fall behind."""
    text = (CASES / "_template" / "case.yaml").read_text()
    case = Case(CASES / "demo" / "cpu_matmul")
    keys = set()
    for name, value in case.settings.model_dump(by_alias=True).items():
        keys |= {name} | (set(value) if isinstance(value, dict) else set())
    assert [key for key in sorted(keys | {"max_slowdown"}) if f"{key}:" not in text] == []
