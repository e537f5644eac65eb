"""A candidate that was lucky on the screening pair counts with what fresh pairs saw, wherever it is told of."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from hillclimb.agent.api.runs import read_run
from hillclimb.agent.llm.briefing.call_history import describe_duplicate
from hillclimb.agent.llm.briefing.knob_summary import summarise_knobs
from hillclimb.agent.llm.briefing.ledger_summary import summarise_ledger
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.record.entries import ENTRY, JudgedEntry, WebhookState
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.record.views import COLUMNS, table
from hillclimb.agent.review.candidate_view import CandidateView, describe_candidate
from hillclimb.agent.rhythm.notes_files import write_notes
from hillclimb.agent.rhythm.signals import log_ratio
from hillclimb.agent.screen.events import JudgedEvent
from hillclimb.agent.screen.scoreboard import describe_verdict
from hillclimb.agent.sweep.landscape import build_landscape
from hillclimb.agent.sweep.warm_start import _see
from hillclimb.harness.records import Estimate, Reason
from hillclimb.harness.report.page_ledger import read_history
from hillclimb.harness.report.page_rows import StringTable, candidate_facts, candidate_rows
from tests.agent.sweep.synthetic import interval, judge_next, knobs, open_ledger

SAID = "decided 0.844x [0.836, 0.852]"
OLD_LINE = {
    "kind": "judged", "n": 1, "time": 1.0, "kept": False, "reason": "slower", "parent": "0" * 40,
    "screened": 1.396, "speedup": None, "e_value": 0.5, "detail": "0.844x over 20 values",
}  # fmt: skip


@pytest.fixture
def lucky(tmp_path: Path) -> Ledger:
    """One candidate screened at 1.396x and decided at 0.844x, by the sweep and by a model."""
    ledger = open_ledger(tmp_path)
    edit = (Edit(path="kernel.py", content="x"),)
    judge_next(
        ledger,
        Proposal(author="sweep", idea="TILE=16", knobs={"TILE": 16}),
        1.396,
        reason=Reason.SLOWER,
        decided=0.844,
    )
    idea = Proposal(author="llm", idea="unroll", edits=edit, fingerprint="f")
    judge_next(ledger, idea, 1.396, reason=Reason.SLOWER, decided=0.844)
    return ledger


def judged(**more: object) -> JudgedEntry:
    return JudgedEntry.model_validate({**OLD_LINE, "kind": "judged", **more})


def test_the_last_stage_that_timed_it_counts() -> None:
    decided = Estimate(stage="decide", speedup=0.844)
    assert judged(screened=None).estimate is None
    assert judged().estimate == Estimate(stage="screen", speedup=1.396)
    assert judged(decided=decided).estimate == decided
    refuted = judged(decided=decided, refuted=interval(1.001)).estimate
    assert refuted == Estimate(stage="report", speedup=1.001, interval=interval(1.001))
    reported = judged(decided=decided, speedup=interval(1.2)).estimate
    assert reported == Estimate(stage="report", speedup=1.2, interval=interval(1.2))


def test_a_ledger_from_before_it_was_recorded_is_read_and_says_of_which_stage_its_figure_is() -> None:
    entry = ENTRY.validate_json(json.dumps(OLD_LINE))
    assert isinstance(entry, JudgedEntry)
    assert str(entry.estimate) == "screened 1.396x"


def test_the_sweep_knows_it_as_slow(lucky: Ledger, tmp_path: Path) -> None:
    landscape = build_landscape(knobs(), lucky)
    seen = next(each for each in landscape.observations if each.n == 1)
    assert seen.value == pytest.approx(math.log(0.844))
    assert seen.estimate and seen.estimate.stage == "decide"
    told = "\n".join((*summarise_knobs(landscape, 1.0).spread, *summarise_knobs(landscape, 1.0).values))
    assert "best 1.000x, median 0.922x, worst 0.844x" in told
    assert "TILE=16: 0.844x decided (#1, slower)" in told
    assert "16: 0.844x decided of 1" in told
    earlier = next(each for each in _see(tmp_path / "ledger.jsonl", knobs()) if each.value)
    assert (earlier.value, earlier.stage) == (pytest.approx(math.log(0.844)), "decide")


def test_what_runs_as_the_incumbent_does_is_as_fast_and_no_failure(lucky: Ledger) -> None:
    idle = Proposal(author="sweep", idea="FASTMATH", knobs={"FASTMATH": True})
    judge_next(lucky, idle, None, reason=Reason.DOES_NOT_APPLY)
    assert build_landscape(knobs(), lucky).observations[-1].value == 0.0


def test_the_rhythm_and_the_notes_know_it_as_slow(lucky: Ledger) -> None:
    assert log_ratio(lucky.candidates[1]) == pytest.approx(math.log(0.844))
    assert f"slower ({SAID})" in write_notes(lucky, "")


def test_the_model_is_told_so(lucky: Ledger) -> None:
    assert f"slower, {SAID}" in summarise_ledger(lucky).rejected[0].line
    assert f"rejected: slower ({SAID})" in describe_duplicate(lucky, lucky.candidates[1].proposal)


def test_the_screen_the_table_and_show_say_so(lucky: Ledger) -> None:
    candidate = lucky.candidates[1]
    assert candidate.judged
    event = JudgedEvent.of(candidate.judged, lucky, time=1.0, elapsed=1.0, per_hour=1.0)
    assert describe_verdict(event) == f"slower ({SAID})"
    cells = dict(zip(COLUMNS, table(lucky).splitlines()[2].split("\t"), strict=True))
    assert (cells["screened"], cells["decided"], cells["speedup"]) == ("1.3960", "0.8440", "")
    view = CandidateView(
        run="demo/case/t", n=2, state="rejected", proposal=candidate.proposal, confirming=None,
        judged=candidate.judged, settled=True, webhook=WebhookState(), call=None, diff="",
        diff_missing="", stages=(), samples_missing="none",
    )  # fmt: skip
    shown = [line.text for line in describe_candidate(view)]
    assert "screened    1.396x on one pair, and measured afresh since" in shown
    assert "decided     0.844x [0.836, 0.852] over 5 fresh pairs" in shown


def test_the_python_interface_says_so(lucky: Ledger, tmp_path: Path) -> None:
    run = read_run(tmp_path)
    verdict = run.candidates[1].verdict
    assert verdict and verdict.estimate == verdict.decided
    row = run.rows()[1]
    assert (row["screened"], row["decided"], row["stage"]) == (
        pytest.approx(1.396),
        pytest.approx(0.844),
        "decide",
    )
    assert (row["estimate"], row["estimate_low"]) == (pytest.approx(0.844), pytest.approx(0.844 * 0.99))


def test_the_page_says_so(lucky: Ledger, tmp_path: Path) -> None:
    history, words = read_history(tmp_path / "ledger.jsonl"), StringTable()
    row = candidate_rows(history, words)[1]
    assert row[7] == pytest.approx(0.844), "over the baseline"
    assert row[10:13] == [pytest.approx(0.844), pytest.approx(0.83556), pytest.approx(0.85244)]
    assert words.strings[row[15]] == "decide"
    facts = candidate_facts(history.candidates[1], tmp_path)
    assert facts["decided"][0] == pytest.approx(0.844)


def test_one_deciding_pair_has_no_interval_and_none_is_made_up(lucky: Ledger) -> None:
    last = lucky.candidates[1]
    assert last.judged
    alone = last.judged.model_copy(update={"decided": Estimate(stage="decide", speedup=0.844)})
    lucky.candidates[1] = replace(last, judged=alone)
    assert "slower, decided 0.844x;" in summarise_ledger(lucky).rejected[0].line
