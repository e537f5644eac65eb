"""The quick look at the studies: which kernels it times, under which settings. Timing itself needs a GPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

from harness.case.case import Case
from harness.case.knobs import broken, load_knobs, parse
from harness.studies.study import choose
from harness.studies.variants import timed_problems

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "experiments"))

import study_overview  # noqa: E402

SOFTMAX = ROOT / "cases" / "unroll_for_loop" / "softmax_optimize"


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    tried = [{"problems": ["square_8192x8192"], "knobs": {"LN_WARPS": 16}}]
    (tmp_path / "layernorm_fwd_triton.json").write_text(json.dumps(tried))
    (tmp_path / "softmax_optimize.json").write_text(json.dumps(tried))
    return tmp_path


def test_variants_come_first_and_settings_only_where_they_are_meant(settings: Path) -> None:
    case = Case(SOFTMAX)
    found = [(name, knobs) for name, knobs, _ in study_overview.kernels(case, "square_8192x8192", settings)]
    assert found[:3] == [("baseline", {}), ("optimized", {}), ("torch", {})]
    assert found[3:] == [("optimized", {"LN_WARPS": "16"})]
    assert len(list(study_overview.kernels(case, "small_128x512", settings))) == 3


def test_what_is_compiled_ahead_is_every_kernel_once_with_its_problems(settings: Path) -> None:
    found = study_overview.kernels_of("softmax_optimize", settings)
    everywhere = list(timed_problems(Case(SOFTMAX)))
    assert found == [
        ("baseline", {}, everywhere),
        ("optimized", {}, everywhere),
        ("optimized", {"LN_WARPS": "16"}, ["square_8192x8192"]),
    ]


def test_a_kernel_is_compiled_into_tritons_cache_without_a_device(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "experiments" / "study_overview.py"
    command = [sys.executable, script, "--inside", "mean_reduction", "--part", "0"]
    environment = {**os.environ, "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    subprocess.run(command, env=environment, check=True, cwd=ROOT)
    assert list(tmp_path.rglob("*.cubin"))


def test_a_kernel_is_imported_under_its_knobs_and_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LN_WARPS", raising=False)
    case = Case(ROOT / "cases" / "unroll_for_loop" / "layernorm_fwd_triton")
    plain = study_overview.load(case, case.workspace, "baseline", {})
    other = study_overview.load(case, case.workspace, "baseline", {"LN_WARPS": "16"})
    for name in ("baseline", "knobs"):
        del sys.modules[name]
    assert other.__globals__["WARPS"] == 16 != plain.__globals__["WARPS"]
    assert str(case.workspace) not in sys.path


def test_a_kernel_that_hangs_costs_its_process_and_no_other_row(monkeypatch: pytest.MonkeyPatch) -> None:
    every = [{"case": "some", "n": n} for n in range(5)]
    asked = []

    def run_inside(options: Namespace, name: str, gpu: str, *more: str) -> tuple[int, list[dict[str, Any]]]:
        start = int(more[more.index("--skip") + 1])
        asked.append(start)
        end = next((n for n in (1, 2) if n >= start), len(every) - 1)
        return (0 if end == len(every) - 1 else study_overview.HUNG), every[start : end + 1]

    monkeypatch.setattr(study_overview, "run_inside", run_inside)
    assert study_overview.clock_case(Namespace(), "some", "0") == every
    assert asked == [0, 2, 3]


def test_a_process_gives_up_with_a_row_that_says_so() -> None:
    script = "import study_overview; study_overview.Timer(0.1, study_overview.give_up, [{'case': 'some'}]).start(); "
    command = [sys.executable, "-c", script + "import time; time.sleep(60)"]
    place = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "scripts" / "experiments")])}
    done = subprocess.run(command, env={**os.environ, **place}, capture_output=True, text=True)
    assert done.returncode == study_overview.HUNG
    assert json.loads(done.stdout) == {"case": "some", "error": "hung: no end after 20 s"}


SETTINGS = sorted((ROOT / "scripts" / "experiments" / "study_settings").glob("*.json"))


@pytest.mark.parametrize("file", SETTINGS, ids=lambda file: file.stem)
def test_the_settings_kept_are_of_problems_and_knobs_that_exist(file: Path) -> None:
    (study,) = choose(ROOT / "cases", name=file.stem)
    case = Case(study.folder)
    knobs, problems = load_knobs(case.workspace / "knobs.yaml"), timed_problems(case)
    for setting in json.loads(file.read_text()):
        assert set(setting["problems"]) <= set(problems), setting
        values = {name: parse(knobs, name, str(value)) for name, value in setting["knobs"].items()}
        assert broken(knobs, values) is None, setting
