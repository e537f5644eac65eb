"""A study on the CPU from end to end: gated, timed, drawn and written up; broken cases hide no other."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from hillclimb.harness.errors import UsageError
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Profile, Reason, Side, Watch
from hillclimb.harness.studies import judging
from hillclimb.harness.studies.gating import gate_cases
from hillclimb.harness.studies.page import write_page
from hillclimb.harness.studies.plots import ROOFLINE, SPEEDUPS
from hillclimb.harness.studies.profiling import TimingOptions, VariantTimes, profile_cases
from hillclimb.harness.studies.study import choose_cases
from hillclimb.harness.studies.times import TABLE_FILE, read
from tests.harness.studies.small_study import WRONG, write_study


def ignore(_: object) -> None:
    """Nobody listens."""


@pytest.mark.slow(12)
def test_one_broken_case_hides_no_other(tmp_path: Path) -> None:
    cases = write_study(tmp_path, ("broken", "late", "sound", "wrong"))
    study = cases / "small"
    (study / "broken" / "case.yaml").write_text("schema: 2\n")
    (study / "late" / "contract.py").write_text("raise ValueError('not today')\n")
    (study / "wrong" / "workspace" / "optimized.py").write_text(WRONG)
    told: list[str] = []
    found = gate_cases(
        choose_cases(cases), ignore, lambda gated: told.append(f"{gated.case}/{gated.variant}")
    )
    assert told == [
        "broken/",
        "late/",
        "sound/baseline",
        "sound/optimized",
        "wrong/baseline",
        "wrong/optimized",
    ]
    assert [gated.passed for gated in found.results] == [False, False, True, True, True, False]
    assert not found.passed
    assert "schema" in found.results[0].error
    assert "not today" in found.results[1].error
    report = found.results[-1].report
    assert report is not None
    assert report.reason is Reason.WRONG_RESULT
    assert found.provenance is not None


@pytest.mark.slow(30)
def test_times_and_speedups_are_measured_and_kept(tmp_path: Path) -> None:
    cases = write_study(tmp_path, ("affine", "broken"))
    (cases / "small" / "broken" / "case.yaml").write_text("schema: 2\n")
    chosen, told = choose_cases(cases), list[VariantTimes]()
    found = profile_cases(chosen, TimingOptions(suites=("main",)), ignore, told.append)
    assert [(profiled.case, profiled.problem, profiled.passed) for profiled in found] == [
        ("affine", "timed", True),
        ("broken", "", False),
    ]
    assert tuple(told) == found
    known, rows = read(cases / "small" / TABLE_FILE)
    assert float(known["copy_gb_per_s"]) > 0
    fast = next(row for row in rows if row.variant == "optimized")
    assert fast.speedup is not None
    assert fast.speedup_low is not None
    assert fast.speedup > 1, "it does a thirtieth of the work"
    assert fast.speedup_low < fast.speedup
    assert fast.bytes == 8 * 20_000
    assert fast.call_us is not None
    assert fast.gb_per_s == pytest.approx(fast.bytes / fast.call_us / 1e3)
    assert {row.variant for row in rows} == {"baseline", "optimized"}

    again = profile_cases(chosen[:1], TimingOptions(suites=("main",), resume=True), ignore, ignore)
    assert [profiled.rows for profiled in again] == [()], "nothing changed, so nothing is measured"
    page = write_page(cases / "small").read_text()
    for said in ("affine", "timed", "optimized", "data:image/png;base64,"):
        assert said in page
    assert "http" not in page.replace("http-equiv", "")
    for picture in (SPEEDUPS, ROOFLINE):
        assert (cases / "small" / picture).read_bytes().startswith(b"\x89PNG")

    kernel = cases / "small" / "affine" / "workspace" / "optimized.py"
    kernel.write_text(kernel.read_text() + "# changed\n")
    (anew,) = profile_cases(chosen[:1], TimingOptions(suites=("main",), resume=True), ignore, ignore)
    assert anew.rows, "what changed is measured again"


def test_what_is_no_table_is_found_before_anything_is_timed(tmp_path: Path) -> None:
    cases = write_study(tmp_path)
    (cases / "small" / TABLE_FILE).write_text("a,b\n1,2\n")
    told: list[VariantTimes] = []
    with pytest.raises(UsageError, match="move the file away"):
        profile_cases(choose_cases(cases), TimingOptions(), ignore, told.append)
    assert told == []


@pytest.mark.slow(6)
def test_a_kernel_that_fails_while_timed_is_told_in_its_row(tmp_path: Path) -> None:
    cases = write_study(tmp_path)
    (cases / "small" / "affine" / "workspace" / "optimized.py").write_text(
        "def run(x, y):\n    raise ValueError('no')\n"
    )
    (profiled,) = profile_cases(choose_cases(cases), TimingOptions(suites=("main",)), ignore, ignore)
    rows = {row.variant: row for row in profiled.rows}
    assert rows["baseline"].call_us is not None
    assert rows["optimized"].call_us is None
    assert "ValueError: no" in rows["optimized"].note
    assert not profiled.passed


@pytest.mark.slow(40)
def test_a_yardstick_that_cannot_be_compiled_is_told_of_and_hides_no_kernel(tmp_path: Path) -> None:
    cases = write_study(tmp_path)
    (cases / "small" / "affine" / "yardstick.py").write_text("import torch_misspelt\n")
    wish = TimingOptions(suites=("main",), resume=True)
    (profiled,) = profile_cases(choose_cases(cases), wish, ignore, ignore)
    notes = {row.variant: row.note for row in profiled.rows}
    assert "No module named 'torch_misspelt'" in notes.pop("torch")
    assert set(notes) == {"baseline", "optimized"}
    assert not profiled.passed
    _, before = read(cases / "small" / TABLE_FILE)
    assert all(row.call_us for row in before if row.variant != "torch")
    (again,) = profile_cases(choose_cases(cases), wish, ignore, ignore)
    assert again.rows == (), "the others are kept"
    assert "No module named 'torch_misspelt'" in again.error, "it was tried again"
    assert not again.passed
    assert read(cases / "small" / TABLE_FILE)[1] == before


class DiesOnce(LocalJudge):
    """A judge that is killed as it is asked for a profile, the second time that any is."""

    asked = 0

    def profile(self, side: Side, watch: Watch, suite: str = "") -> Profile:
        DiesOnce.asked += 1
        if DiesOnce.asked == 2:
            os.kill(self._process.pid, signal.SIGKILL)
        return super().profile(side, watch, suite)


@pytest.mark.slow(15)
def test_a_judge_that_dies_takes_no_time_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cases, wish = write_study(tmp_path), TimingOptions(suites=("main",))
    profile_cases(choose_cases(cases), wish, ignore, ignore)
    table = cases / "small" / TABLE_FILE
    known, before = read(table)
    monkeypatch.setattr(judging, "LocalJudge", DiesOnce)
    (profiled,) = profile_cases(choose_cases(cases), wish, ignore, ignore)
    assert not profiled.passed
    notes = {row.variant: (row.call_us is not None, row.note) for row in profiled.rows}
    assert notes["baseline"][0]
    assert not notes["optimized"][0]
    assert "the judge" in notes["optimized"][1]
    again, after = read(table)
    assert {row.variant for row in after if row.call_us is not None} == {"baseline", "optimized"}
    assert [row for row in after if row.variant == "optimized"] == [
        row for row in before if row.variant == "optimized"
    ]
    assert again["copy_gb_per_s"]
    assert known["device_id"] == again["device_id"]


@pytest.mark.slow(5)
def test_what_cannot_be_read_ends_its_own_case(tmp_path: Path) -> None:
    cases = write_study(tmp_path, ("aslant", "sound"))
    (cases / "small" / "aslant" / "data.bin").symlink_to("/nowhere/data.bin")
    found = gate_cases(choose_cases(cases), ignore, ignore)
    assert [gated.passed for gated in found.results] == [False, True, True]
    assert "data.bin" in found.results[0].error
