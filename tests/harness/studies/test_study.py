from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import CandidateFault, CaseError, UsageError
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.studies.study import StudyCase, choose_cases, find_studies
from hillclimb.harness.studies.variants import YARDSTICK, list_variants, stage_case, timed_problems
from tests.harness.studies.small_study import write_study

YARDSTICK_PY = "import torch\n\n\ndef run(x, y):\n    torch.matmul(x, x, out=y)\n"


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    folder = write_study(tmp_path, ("alone", "shared"))
    (tmp_path / "more").mkdir()
    write_study(tmp_path / "more", ("shared",), study="other")
    (tmp_path / "more" / "cases" / "other").rename(folder / "other")
    (folder / "_template" / "x" / "workspace").mkdir(parents=True)
    (folder / "_template" / "x" / "workspace" / "baseline.py").touch()
    (folder / "demo" / "plain" / "workspace").mkdir(parents=True)
    return folder


def told(cases: list[StudyCase]) -> list[str]:
    return [str(case) for case in cases]


def test_studies_are_families_of_cases_with_a_baseline(cases: Path) -> None:
    assert {name: [case.name for case in of_it] for name, of_it in find_studies(cases).items()} == {
        "other": ["shared"],
        "small": ["alone", "shared"],
    }


def test_cases_are_chosen_by_study_and_name(cases: Path) -> None:
    assert told(choose_cases(cases)) == ["other/shared", "small/alone", "small/shared"]
    assert told(choose_cases(cases, "small")) == ["small/alone", "small/shared"]
    assert told(choose_cases(cases, None, "alone")) == ["small/alone"], "found without its study"
    assert told(choose_cases(cases, "other", "shared")) == ["other/shared"]


@pytest.mark.parametrize(
    ("study", "name", "says"),
    [
        ("none", None, "no study 'none'; there are: other, small"),
        (None, "none", "no case 'none' in any study; there are: other/shared, small/alone, small/shared"),
        ("other", "alone", "no case 'alone' in study 'other'; there are: other/shared"),
        (None, "shared", "case 'shared' is in several studies; name one: other, small"),
    ],
)
def test_what_cannot_be_chosen_names_the_choices(
    cases: Path, study: str | None, name: str | None, says: str
) -> None:
    with pytest.raises(UsageError) as refused:
        choose_cases(cases, study, name)
    assert str(refused.value) == says


def test_no_study_at_all_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no study below .*: no case there has a workspace/baseline\.py"):
        choose_cases(tmp_path)


def case_of(cases: Path) -> Case:
    return Case(cases / "small" / "alone")


def test_a_variant_is_a_module_that_defines_the_entrys_function(cases: Path) -> None:
    case = case_of(cases)
    assert list_variants(case) == ("baseline", "optimized")
    (case.workspace / "kernel.py").write_text("def run(x, y):\n    pass\n")
    (case.workspace / "parts.py").write_text("def part(x):\n    pass\n")
    assert list_variants(case) == ("baseline", "kernel", "optimized")
    (case.workspace / "baseline.py").write_text("run = None\n")
    with pytest.raises(CaseError, match=r"baseline\.py: run: is not defined"):
        list_variants(case)
    (case.workspace / "optimized.py").write_text("def run(:\n")
    with pytest.raises(CaseError, match=r"optimized\.py: is no Python"):
        list_variants(case)


def test_each_variant_has_a_workspace_of_its_own(cases: Path) -> None:
    case = case_of(cases)
    with stage_case(case) as copy:
        entries = {name: (Path(side.tree) / "kernel.py").read_text() for name, side in copy.sides.items()}
        assert "from baseline import run as run" in entries["baseline"]
        assert "from optimized import run as run" in entries["optimized"]
        assert Case(copy.folder).settings == case.settings
        assert copy.suites == {}
        left = copy.folder
    assert not left.exists()


def test_timed_problems_have_suites_of_their_own_and_the_yardstick_its_liberty(cases: Path) -> None:
    case = case_of(cases)
    (case.folder / "yardstick.py").write_text(YARDSTICK_PY)
    assert timed_problems(case) == ("timed", "odd"), "the objective's first"
    with stage_case(case, timed=timed_problems(case)) as copy:
        read = Case(copy.folder)
        assert {p: read.suites[s].problems for p, s in copy.suites.items()} == {
            "timed": ("timed",),
            "odd": ("odd",),
        }
        yardstick = Path(copy.sides[YARDSTICK].tree)
        with pytest.raises(CandidateFault):
            check_policy(yardstick, case.settings.policy)
        assert [name for name, side in copy.sides.items() if side.is_yardstick] == [YARDSTICK]
        assert read.settings == case.settings, "the kernels keep to their policy beside it"
