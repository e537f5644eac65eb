"""The rhythm over ledgers that never ran: what comes after what, and that it always gets somewhere."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.record.entries import BaselinedEntry, CalledEntry, Idea, Phase, TurnedEntry
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.rhythm.arms import arms
from hillclimb.agent.rhythm.rhythm import PhaseChange, next_phase
from hillclimb.agent.rhythm.rules import RhythmRules
from hillclimb.harness.records import GateReport
from tests.agent.rhythm.test_signals import judge, proposal
from tests.agent.sweep.synthetic import interval, open_ledger

RULES = RhythmRules(
    max_first_sweep=6, first_sweep_patience=3, max_sweep=4, sweep_patience=2, max_edits=6, edit_patience=3
)
PHASES: tuple[Phase, ...] = ("sweep", "edit", "ablate")


def begin(folder: Path) -> Ledger:
    ledger = open_ledger(folder)
    gate, noise = GateReport(passed=True), interval(1.0)
    ledger.append(
        BaselinedEntry(time=0.0, gate=gate, seconds_per_call=1.0, pair_sd=0.001, noise=noise, seconds=1.0)
    )
    return ledger


def enter(ledger: Ledger, turn: PhaseChange) -> None:
    n = len(ledger.candidates) + 1
    line = TurnedEntry(
        time=n - 0.5, n=n, phase=turn.phase, family=turn.family, reason=turn.reason, signals=turn.signals
    )
    ledger.append(line)


def suggest(ledger: Ledger, *ideas: tuple[str, str], family: str = "") -> int:
    k = len(ledger.calls) + 1
    ledger.append(
        CalledEntry(
            k=k, time=len(ledger.candidates) + 0.6, seconds=1.0, model="m", incumbent="0", family=family,
            outcome="proposal", ideas=tuple(Idea(family=f, idea=i) for f, i in ideas),
        )
    )  # fmt: skip
    return k


def edit(family: str, path: str = "kernel.py") -> Proposal:
    return Proposal(author="llm", idea="i", family=family, edits=(Edit(path=path, content="x\n"),))


def in_phase(folder: Path, phase: Phase, family: str = "") -> Ledger:
    """A ledger after a first sweep of one win, in this phase."""
    ledger = begin(folder)
    enter(ledger, PhaseChange("sweep", "", "the run begins"))
    judge(ledger, 1.5, kept=True, what=proposal("sweep"))
    enter(ledger, PhaseChange(phase, family, "a test"))
    return ledger


def test_a_run_with_knobs_begins_with_a_sweep_and_one_without_with_edits(tmp_path: Path) -> None:
    ledger = begin(tmp_path)
    first = next_phase(ledger, RULES)
    assert first is not None
    assert (first.phase, first.family) == ("sweep", "")
    without = next_phase(ledger, RULES, {"sweep": "there are no knobs"})
    assert without is not None
    assert without.phase == "edit"
    assert "there are no knobs" in without.reason


def test_a_sweep_goes_on_while_it_wins_and_ends_on_its_patience(tmp_path: Path) -> None:
    ledger = begin(tmp_path)
    enter(ledger, PhaseChange("sweep", "", "the run begins"))
    for _ in range(2):
        judge(ledger, 0.8, what=proposal("sweep"))
    judge(ledger, 1.2, kept=True, what=proposal("sweep"))
    assert next_phase(ledger, RULES) is None
    for seen in (0.7, 0.8, 0.9):
        judge(ledger, seen, what=proposal("sweep"))
    turn = next_phase(ledger, RULES)
    assert turn is not None
    assert turn.phase == "edit"
    assert turn.signals == ("no_win", "full")
    assert "none of the last 3 candidates was kept" in turn.reason


def test_knobs_that_decide_nothing_are_left_early(tmp_path: Path) -> None:
    ledger = begin(tmp_path)
    enter(ledger, PhaseChange("sweep", "", "the run begins"))
    for seen in (0.9, 0.9, 0.9, 0.9001, 0.9, 0.9):
        judge(ledger, seen, what=proposal("sweep"))
    turn = next_phase(ledger, RhythmRules())
    assert turn is not None
    assert turn.signals == ("sweep_spread",)


def test_an_edit_block_ends_on_near_ties_of_its_family(tmp_path: Path) -> None:
    ledger = in_phase(tmp_path, "edit", "tiling")
    suggest(ledger, ("vectorise", "wider loads"))
    for seen in (1.001, 0.999):
        judge(ledger, seen, what=edit("tiling"))
    turn = next_phase(ledger, RhythmRules(edit_patience=3, min_ties=2))
    assert turn is not None
    assert turn.signals == ("near_ties",)
    assert (turn.phase, turn.family) == ("edit", "vectorise")
    assert "vectorise: not tried yet, 1 ideas open" in turn.reason


def test_sweep_candidates_that_fill_the_time_do_not_end_an_edit_block(tmp_path: Path) -> None:
    ledger = in_phase(tmp_path, "edit", "tiling")
    for _ in range(10):
        judge(ledger, 0.8, what=proposal("sweep"))
    assert next_phase(ledger, RULES) is None


def test_gate_failures_in_a_row_end_an_edit_block(tmp_path: Path) -> None:
    ledger = in_phase(tmp_path, "edit", "tiling")
    for _ in range(3):
        judge(ledger, None, what=edit("tiling"))
    turn = next_phase(ledger, RhythmRules(edit_patience=5))
    assert turn is not None
    assert turn.signals == ("failing",)


def test_after_a_changed_source_the_knobs_are_swept_then_older_wins_checked(tmp_path: Path) -> None:
    ledger = in_phase(tmp_path, "edit", "tiling")
    rules = RhythmRules(sweep_after=1, ablate_after=1, sweep_patience=2)
    judge(ledger, 1.3, kept=True, what=edit("tiling"))
    assert next_phase(ledger, rules) is None, "a block that wins goes on"
    for seen in (0.5, 0.6, 0.7, 0.8):
        judge(ledger, seen, what=edit("tiling"))
    turn = next_phase(ledger, rules)
    assert turn is not None
    assert (turn.phase, turn.signals) == ("sweep", ("no_win",))
    assert "#2 changed the source" in turn.reason
    enter(ledger, turn)
    for seen in (0.8, 0.7):
        judge(ledger, seen, what=proposal("sweep"))
    turn = next_phase(ledger, rules)
    assert turn is not None
    assert (turn.phase, turn.signals) == ("ablate", ("no_win", "old_wins_unchecked"))
    assert "1 win is older than the changed source of #2" in turn.reason
    enter(ledger, turn)
    judge(ledger, 0.9, what=proposal("ablation", undoes=1))
    turn = next_phase(ledger, rules)
    assert turn is not None
    assert turn.phase == "edit"
    assert turn.signals == ("checked",)


def test_new_knobs_are_swept_at_once_and_dry_blocks_make_it_rarer(tmp_path: Path) -> None:
    rules = RhythmRules(sweep_after=1, ablate_after=99, sweep_patience=2)
    ledger = in_phase(tmp_path, "sweep")
    for _ in range(2):
        judge(ledger, 0.8, what=proposal("sweep"))
    enter(ledger, PhaseChange("edit", "a", "a test"))
    judge(ledger, 1.3, kept=True, what=edit("a"))
    for _ in range(4):
        judge(ledger, 0.5, what=edit("a"))
    turn = next_phase(ledger, rules)
    assert turn is not None
    assert "changed the source" not in turn.reason, (
        "the last sweep won nothing, so one changed source is not enough"
    )
    enter(ledger, PhaseChange("edit", "b", "a test"))
    judge(ledger, 1.3, kept=True, what=edit("b", "knobs.yaml"))
    for _ in range(4):
        judge(ledger, 0.5, what=edit("b"))
    turn = next_phase(ledger, rules)
    assert turn is not None
    assert turn.phase == "sweep"
    assert "changed the source and its knobs" in turn.reason


def test_what_gained_most_lately_comes_next_and_a_long_list_of_failures_last(tmp_path: Path) -> None:
    ledger = in_phase(tmp_path, "edit", "good")
    judge(ledger, 1.5, kept=True, what=edit("good"))
    enter(ledger, PhaseChange("edit", "bad", "a test"))
    for _ in range(8):
        judge(ledger, 0.5, what=edit("bad"))
    scores = {arm.family: arm.score for arm in arms(ledger, RhythmRules(), {"sweep": "none"})}
    assert scores["good"] > scores[""] > scores["bad"]


def test_the_label_that_a_model_gives_does_not_leave_the_family_asked_for_untried(tmp_path: Path) -> None:
    ledger = in_phase(tmp_path, "edit", "vectorise")
    k = suggest(ledger, family="vectorise")
    judge(ledger, 0.5, what=edit("SIMD loads").model_copy(update={"call": k}))
    told = {arm.family: arm.reason for arm in arms(ledger, RhythmRules(), {})}
    assert "1 tried" in told["vectorise"]
    assert "1 tried" in told["simd-loads"]


def test_in_a_drought_everything_gets_its_turn_before_any_again(tmp_path: Path) -> None:
    ledger = in_phase(tmp_path, "edit", "good")
    judge(ledger, 1.5, kept=True, what=edit("good"))
    suggest(ledger, ("a", "this"), ("b", "that"))
    places = []
    for _ in range(80):
        turn = next_phase(ledger, RULES)
        if turn:
            places.append((turn.phase, turn.family))
            enter(ledger, turn)
        present = ledger.turns[-1]
        judge(ledger, 0.5, what=edit(present.family) if present.phase == "edit" else proposal("sweep"))
    every = {("sweep", ""), ("edit", ""), ("edit", "a"), ("edit", "b"), ("edit", "good")}
    assert set(places[:4]) == every - {("edit", "good")}, "that one was just left"
    counts = Counter(places)
    assert counts.keys() == every
    assert max(counts.values()) - min(counts.values()) <= 2


@pytest.mark.parametrize("left", PHASES)
def test_where_only_one_phase_is_left_it_is_taken_and_kept(tmp_path: Path, left: Phase) -> None:
    shut: dict[Phase, str] = {phase: f"no {phase}" for phase in PHASES if phase != left}
    ledger = begin(tmp_path)
    turn = next_phase(ledger, RULES, shut)
    assert turn is not None
    assert turn.phase == left
    enter(ledger, turn)
    for _ in range(20):
        judge(ledger, 0.5, what=proposal("llm" if left == "edit" else "sweep"))
        again = next_phase(ledger, RULES, shut)
        assert again is None or again.phase == left


STEP = st.tuples(st.sampled_from([None, 0.7, 1.0, 1.2]), st.sampled_from(["", "a", "b"]), st.booleans())


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(STEP, max_size=40), st.sets(st.sampled_from(PHASES), max_size=2))
def test_it_always_gets_somewhere_and_says_why(
    steps: list[tuple[float | None, str, bool]], closed: set[Phase]
) -> None:
    """No turn follows a turn without a candidate between, none leads where it is shut, each has its reason; the
    same ledger read again decides the same."""
    shut = {phase: f"{phase} has nothing left" for phase in closed}
    with TemporaryDirectory() as name:
        ledger = begin(Path(name))
        for seen, family, brings in steps:
            turn = next_phase(ledger, RULES, shut)
            assert turn == next_phase(Ledger.read(Path(name) / "ledger.jsonl"), RULES, shut)
            if turn:
                assert turn.phase not in shut
                assert turn.reason
                assert turn.signals or not ledger.turns
                enter(ledger, turn)
                follow = next_phase(ledger, RULES, shut)
                assert follow is None or turn.phase == "ablate", (
                    "only re-ablation may turn out to have no work"
                )
            present = ledger.turns[-1].phase
            assert present not in shut or len(shut) == 3
            suggest(ledger, ("a", "this"), ("b", "that"))
            path = "knobs.yaml" if brings else "kernel.py"
            what = edit(family, path) if present == "edit" else proposal("sweep")
            judge(ledger, seen, kept=bool(seen and seen > 1.1), what=what)
