"""Each plateau signal stands where it should, falls silent where it should, and says figures."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.agent.proposal import Author, Edit, Proposal
from hillclimb.agent.record.entries import (
    BaselinedEntry,
    CalledEntry,
    DroppedEntry,
    JudgedEntry,
    ProfiledEntry,
    ProposedEntry,
    SettledEntry,
    TurnedEntry,
)
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.rhythm.signals import (
    failing,
    near_ties,
    no_win,
    old_wins_unchecked,
    profile_unmoved,
    sweep_spread,
    unchecked_wins,
)
from hillclimb.harness.knobs.knobs import KnobValue
from hillclimb.harness.records import Bucket, GateReport, Profile, Reason
from tests.agent.sweep.synthetic import interval, open_ledger

TURN = TurnedEntry(time=0.5, n=1, phase="edit", family="tiling", reason="the run begins")


def proposal(author: Author = "llm", call: int | None = None, undoes: int | None = None) -> Proposal:
    edits = (Edit(path="kernel.py", content="x\n"),) if author in ("llm", "human", "agent") else ()
    knobs: dict[str, KnobValue] = {} if edits else {"TILE": 16}
    return Proposal(author=author, idea="an idea", edits=edits, knobs=knobs, call=call, undoes=undoes)


def judge(ledger: Ledger, seen: float | None, *, kept: bool = False, what: Proposal | None = None) -> None:
    """Candidate n, seen so much faster than its incumbent; None: the gate stopped it."""
    n = len(ledger.candidates) + 1
    reason = None if kept else Reason.NO_PROVEN_GAIN if seen else Reason.WRONG_RESULT
    ledger.append(ProposedEntry(n=n, time=float(n), proposal=what or proposal()))
    ledger.append(
        JudgedEntry(
            n=n, time=float(n), kept=kept, reason=reason, screened=seen, parent="0" * 40,
            speedup=interval(seen) if kept and seen else None, commit=f"{n:040x}" if kept else None,
        )
    )  # fmt: skip
    ledger.append(SettledEntry(n=n))


def judge_all(ledger: Ledger, *seen: float | None) -> None:
    for value in seen:
        judge(ledger, value)


def test_near_ties_need_enough_of_the_last_ones_within_the_width(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    judge_all(ledger, 0.5, 1.004, 0.997, 1.002)
    signal = near_ties(ledger.candidates, 4, 3, 0.01)
    assert signal is not None
    assert signal.name == "near_ties"
    assert signal.sentence == "3 of the last 4 edits ended within 1.0% of 1.0x"
    assert near_ties(ledger.candidates, 4, 4, 0.01) is None
    assert near_ties(ledger.candidates, 4, 3, 0.001) is None
    assert near_ties(ledger.candidates, 5, 3, 0.01) is None, "there are only four"


def test_a_win_among_them_is_no_tie(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    judge_all(ledger, 1.0, 1.0)
    judge(ledger, 1.009, kept=True)
    assert near_ties(ledger.candidates, 3, 2, 0.01) is None
    assert no_win(ledger.candidates, 3) is None
    judge_all(ledger, 1.0, None, 0.5)
    signal = no_win(ledger.candidates, 3)
    assert signal is not None
    assert signal.sentence == "none of the last 3 candidates was kept"
    assert no_win(ledger.candidates, 4) is None


def test_sweep_spread_is_held_against_the_noise_floor(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    judge_all(ledger, 0.901, 0.900, None, 0.902)
    signal = sweep_spread(ledger.candidates, 3, 0.005)
    assert signal is not None
    assert "0.11%, below the noise floor of 0.50%" in signal.sentence
    assert sweep_spread(ledger.candidates, 3, 0.0005) is None
    assert sweep_spread(ledger.candidates, 4, 0.005) is None, "only three were timed"
    judge(ledger, 0.7)
    assert sweep_spread(ledger.candidates, 3, 0.005) is None


def profiled(ledger: Ledger, time: float, commit: str, **shares: float) -> None:
    buckets = tuple(Bucket(name=k, share=v, seconds_per_call=v, calls=1.0) for k, v in shares.items())
    ledger.append(ProfiledEntry(time=time, commit=commit, profile=Profile(problems=(), buckets=buckets)))


@pytest.mark.parametrize(
    ("after", "stands"),
    [
        ({"load": 0.58, "sum": 0.42}, True),
        ({"load": 0.4, "sum": 0.6}, False),
        ({"load": 0.6, "store": 0.4}, False),
    ],
)
def test_profile_unmoved(tmp_path: Path, after: dict[str, float], stands: bool) -> None:
    ledger = open_ledger(tmp_path)
    profiled(ledger, 0.1, "base", load=0.6, sum=0.4)
    profiled(ledger, 0.7, "the sweep's last win, looked at late", load=0.6, sum=0.4)
    assert profile_unmoved(ledger, TURN, 0.05) is None, "there was no win to move anything"
    judge(ledger, 1.2, kept=True)
    assert profile_unmoved(ledger, TURN, 0.05) is None, "it was not looked at since"
    profiled(ledger, 3.0, "win", **after)
    signal = profile_unmoved(ledger, TURN, 0.05)
    assert (signal is not None) == stands
    if signal:
        assert "load, sum moved by 2.0 points at most" in signal.sentence


def test_a_profile_of_one_bucket_says_nothing(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    profiled(ledger, 0.1, "base", run=1.0)
    judge(ledger, 1.2, kept=True)
    profiled(ledger, 3.0, "win", run=1.0)
    assert profile_unmoved(ledger, TURN, 0.05) is None


def test_old_wins_are_unchecked_until_each_was_tried_without(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    judge(ledger, 1.2, kept=True, what=proposal("sweep"))
    assert old_wins_unchecked(ledger) is None, "no source has changed"
    judge(ledger, 1.1, kept=True)
    judge(ledger, 1.1, kept=True)
    signal = old_wins_unchecked(ledger)
    assert signal is not None
    assert signal.sentence == "2 wins are older than the changed source of #3 and were not checked since"
    judge(ledger, 0.9, what=proposal("ablation", undoes=1))
    assert [win.n for win in unchecked_wins(ledger)] == [2]
    judge(ledger, 1.1, kept=True, what=proposal("ablation", undoes=2))
    assert old_wins_unchecked(ledger) is None, "taking a win back is no change of the source"
    judge(ledger, 1.3, kept=True)
    assert [win.n for win in unchecked_wins(ledger)] == [1, 3], (
        "once for every change; what is gone stays gone"
    )


def test_an_edit_of_docs_alone_changes_no_source(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    judge(ledger, 1.2, kept=True, what=proposal("sweep"))
    docs = Proposal(author="llm", idea="words", edits=(Edit(path="docs/notes.md", content="x"),))
    judge(ledger, 1.2, kept=True, what=docs)
    assert old_wins_unchecked(ledger) is None


def call(ledger: Ledger, time: float, outcome: str, repairs: int | None = None) -> int:
    k = len(ledger.calls) + 1
    ledger.append(
        CalledEntry.model_validate(
            {"k": k, "time": time, "seconds": 1.0, "model": "m", "incumbent": "0", "outcome": outcome}
            | {"repairs": repairs}
        )
    )
    return k


def test_failing_counts_ideas_that_came_to_nothing(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    judge_all(ledger, None)
    call(ledger, 1.2, "unusable")
    assert failing(ledger, TURN, 3) is None
    ledger.append(
        DroppedEntry(k=call(ledger, 1.3, "proposal"), time=1.4, reason="duplicate", detail="tried before")
    )
    signal = failing(ledger, TURN, 3)
    assert signal is not None
    assert "the last 3 ideas" in signal.sentence
    assert "a duplicate" in signal.sentence
    judge_all(ledger, 0.99)
    assert failing(ledger, TURN, 3) is None, "a clock ran"


def test_what_was_mended_or_came_too_late_is_no_failure(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    first = call(ledger, 1.0, "unusable")
    second = call(ledger, 1.1, "proposal", repairs=first)
    judge(ledger, None, what=proposal(call=second))
    assert failing(ledger, TURN, 1) is not None
    call(ledger, 2.1, "proposal", repairs=second)
    assert failing(ledger, TURN, 1) is None
    ledger.append(DroppedEntry(k=3, time=2.2, reason="stale", detail="moved on"))
    assert failing(ledger, TURN, 1) is None


def test_earlier_blocks_do_not_count(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    judge_all(ledger, None, None, None)
    call(ledger, 3.1, "unusable")
    later = TURN.model_copy(update={"n": 4, "time": 3.5})
    assert failing(ledger, later, 1) is None


def test_a_reopened_ledger_shows_the_same(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    gate = GateReport(passed=True)
    noise = interval(1.0)
    ledger.append(
        BaselinedEntry(time=0.0, gate=gate, seconds_per_call=1.0, pair_sd=0.01, noise=noise, seconds=1.0)
    )
    judge_all(ledger, None, 1.0, 1.0)
    again = Ledger.read(tmp_path / "ledger.jsonl")
    assert near_ties(again.candidates, 3, 2, 0.01) == near_ties(ledger.candidates, 3, 2, 0.01) is not None
