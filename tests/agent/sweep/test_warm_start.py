"""What earlier runs saw: found once, written down, and the same whenever the run is taken up."""

from __future__ import annotations

from pathlib import Path

from hillclimb.agent.proposal import Proposal
from hillclimb.agent.proposer import ProposerContext
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.sweep.sweep import SweepProposer
from hillclimb.agent.sweep.warm_start import (
    EARLIER_FILE,
    MAX_BEST,
    MAX_OTHERS,
    EarlierResult,
    load_earlier_results,
    select_results,
)
from hillclimb.harness.case.case import Case
from tests.agent.sweep.synthetic import climb, judge_next, open_ledger
from tests.fakes.toy import write_toy


def background(root: Path, tag: str) -> ProposerContext:
    folder = root / "runs" / "demo" / "toy" / tag
    folder.mkdir(parents=True, exist_ok=True)
    return ProposerContext(case=Case(write_toy(root)), seed=0, folder=folder, files=lambda commit: {})


def judged(root: Path, tag: str, values: dict[int, float | None]) -> Ledger:
    """A run that tried these tiles."""
    ledger = open_ledger(root / "runs" / "demo" / "toy" / tag)
    for tile, speedup in values.items():
        judge_next(ledger, Proposal(author="sweep", idea="", knobs={"TILE": tile}), speedup)
    return ledger


def test_a_first_run_has_nothing_to_recall_and_writes_nothing(tmp_path: Path) -> None:
    now = background(tmp_path, "second")
    assert load_earlier_results(now) == ()
    assert not (now.folder / EARLIER_FILE).exists()


def test_it_recalls_what_other_runs_of_the_same_knobs_saw(tmp_path: Path) -> None:
    judged(tmp_path, "first", {16: 0.9, 32: 0.8, 64: None})
    found = load_earlier_results(background(tmp_path, "second"))
    told = {seen.configuration["TILE"]: seen.value for seen in found}
    assert told[8] == 0.0 and told[64] is None
    assert told[16] is not None and told[32] is not None and told[32] < told[16] < 0
    assert {seen.run for seen in found} == {"first"}


def test_what_it_began_with_stays_whatever_becomes_of_the_others(tmp_path: Path) -> None:
    judged(tmp_path, "first", {16: 0.9, 32: 0.8})
    now = background(tmp_path, "second")
    began_with = load_earlier_results(now)
    judged(tmp_path, "third", {64: 1.2})
    assert load_earlier_results(background(tmp_path, "second")) == began_with != ()


def test_a_run_that_began_without_goes_on_without(tmp_path: Path) -> None:
    judged(tmp_path, "second", {16: 0.9})
    judged(tmp_path, "first", {32: 0.8})
    assert load_earlier_results(background(tmp_path, "second")) == ()


def test_runs_of_other_knobs_and_broken_ones_are_left_aside(tmp_path: Path) -> None:
    other = judged(tmp_path, "other", {})
    edits = ({"path": "knobs.yaml", "content": "TILE: {type: log-int, low: 8, high: 16, default: 8}\n"},)
    judge_next(other, Proposal.model_validate({"author": "llm", "idea": "", "edits": edits}), 3.0)
    broken = background(tmp_path, "broken").folder / "ledger.jsonl"
    broken.write_text("{}\n{}\n")
    assert load_earlier_results(background(tmp_path, "second")) == ()


def test_a_broken_file_counts_as_none(tmp_path: Path) -> None:
    now = background(tmp_path, "second")
    (now.folder / EARLIER_FILE).write_text("[{}")
    assert load_earlier_results(now) == ()


def test_of_many_the_best_and_some_others_are_taken() -> None:
    many = [
        EarlierResult(run="r", configuration={"N": n}, value=None if n % 10 == 0 else n / 1000)
        for n in range(1000)
    ]
    chosen = select_results(many)
    assert MAX_BEST < len(chosen) <= MAX_BEST + MAX_OTHERS
    assert [seen.configuration["N"] for seen in chosen[:3]] == [999, 998, 997]
    assert any(seen.value is None for seen in chosen)
    assert select_results(many[:5]) != () and len(select_results(many[:5])) == 5


def test_a_sweep_that_recalls_proposes_good_ones_first_and_the_same_when_resumed(tmp_path: Path) -> None:
    now = background(tmp_path, "now")
    start = now.case.knobs
    first = open_ledger(tmp_path / "runs" / "demo" / "toy" / "first")

    def speed(configuration: object) -> float:
        assert isinstance(configuration, dict)
        return 1.0 + 0.2 * (configuration["TILE"] == 32) + 0.1 * configuration["UNROLL"]

    climb(first, SweepProposer(start, 3), start, speed, 20)
    earlier = load_earlier_results(now)
    ledger = open_ledger(now.folder)
    proposal = SweepProposer(start, 9, earlier=earlier).propose(ledger)
    assert proposal is not None
    assert proposal.knobs.get("TILE") == 32 and proposal.knobs.get("UNROLL") == 4
    assert (
        SweepProposer(start, 9, earlier=load_earlier_results(background(tmp_path, "now"))).propose(ledger)
        == proposal
    )
