"""The mixed proposer: three that take turns, over a ledger and through the real controller."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.proposer import NotReady, ProposerContext, reads_profile
from hillclimb.agent.proposers.ablation import AblationProposer
from hillclimb.agent.proposers.mixed import MixedProposer
from hillclimb.agent.record.entries import BaselinedEntry, ProfiledEntry
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.rhythm.rules import RhythmRules
from hillclimb.agent.screen.events import Event, TurnedEvent
from hillclimb.agent.sweep.sweep import SweepProposer
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import Plateau
from hillclimb.harness.records import GateReport, Profile
from scripts.experiments.rhythm_landscapes import ARMS, climb_ridge, show, summarise
from tests.agent.sweep.synthetic import interval, judge_next, open_ledger
from tests.fakes.ridge import KINDS, Ridge
from tests.fakes.toy import KNOBS, write_toy

RULES = RhythmRules(first_sweep_patience=3, sweep_patience=2, edit_patience=3, max_fillers=2)


class Script:
    """An editor that says what a test wants, then again and again the last of it."""

    def __init__(self, *answers: Proposal | NotReady | str | None) -> None:
        self._answers, self.has_reply, self.finished = list(answers), False, False
        self.asked: list[tuple[str, str]] = []

    def propose(self, ledger: Ledger, family: str = "", reason: str = "") -> Proposal | NotReady | None:
        self.asked.append((family, reason))
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        if isinstance(answer, str):
            raise Plateau(answer)
        return answer

    is_down = False

    def is_ready(self, ledger: Ledger) -> bool:
        return self.has_reply

    def finish(self, ledger: Ledger) -> None:
        self.finished = True


def edit(family: str = "", content: str = "QUALITY = 2\n") -> Proposal:
    return Proposal(
        author="llm", idea="edit", family=family, edits=(Edit(path="kernel.py", content=content),)
    )


class World:
    """A mixed proposer over a ledger without a climb around it."""

    def __init__(self, folder: Path, editor: Script, knobs: str = KNOBS) -> None:
        case_folder = write_toy(folder)
        (case_folder / "workspace/knobs.yaml").write_text(knobs)
        case = Case(case_folder)
        self.events: list[Event] = []
        self.folder, self.editor = folder, editor
        self.ledger = open_ledger(folder / "run")
        gate, noise = GateReport(passed=True), interval(1.0)
        self.ledger.append(
            BaselinedEntry(time=0.0, gate=gate, seconds_per_call=1.0, pair_sd=0.001, noise=noise, seconds=1.0)
        )
        files = {"kernel.py": "QUALITY = 1\n", "knobs.yaml": knobs}
        self.background = ProposerContext(
            case=case, seed=0, folder=folder, files=lambda commit: files, emit=self.events.append
        )
        self.mixed = self.make()

    def make(self) -> MixedProposer:
        sweep = SweepProposer(self.background.case.knobs, 0)
        return MixedProposer(self.background, sweep, self.editor, AblationProposer(self.background), RULES)

    def run(self, candidates: int) -> Iterator[Proposal]:
        """Losing candidates, one after another."""
        for _ in range(candidates):
            proposal = self.mixed.propose(self.ledger)
            assert isinstance(proposal, Proposal)
            judge_next(self.ledger, proposal, 0.5)
            yield proposal


def test_a_sweep_block_then_edits_and_the_reasons_are_written_and_told(tmp_path: Path) -> None:
    world = World(tmp_path, Script(edit()))
    assert [proposal.author for proposal in world.run(5)] == ["sweep"] * 3 + ["llm"] * 2
    assert [(turn.n, turn.phase) for turn in world.ledger.turns] == [(1, "sweep"), (4, "edit")]
    assert "none of the last 3 candidates was kept" in world.ledger.turns[1].reason
    told = [event for event in world.events if isinstance(event, TurnedEvent)]
    assert [(one.phase, one.reason) for one in told] == [
        (one.phase, one.reason) for one in world.ledger.turns
    ]
    assert world.editor.asked[0] == (world.ledger.turns[1].family, world.ledger.turns[1].reason)


def test_it_foresees_what_the_phase_does_that_it_is_time_for(tmp_path: Path) -> None:
    waiting = edit(content="QUALITY = 3\n")

    class Knowing(Script):
        def peek(self, ledger: Ledger, count: int) -> list[Proposal]:
            return [waiting][:count]

    world = World(tmp_path, Knowing(edit()))
    sweep = SweepProposer(world.background.case.knobs, 0, lookahead=3)
    mixed = MixedProposer(world.background, sweep, world.editor, AblationProposer(world.background), RULES)
    written = len(world.ledger.turns)
    for _ in range(3):
        foreseen = mixed.peek(world.ledger, 2)
        assert [proposal.author for proposal in foreseen] == ["sweep"] * 2
        proposal = mixed.propose(world.ledger)
        assert proposal == foreseen[0]
        judge_next(world.ledger, foreseen[0], 0.5)
    assert written == 0 and len(world.ledger.turns) == 1, "to foresee a turn is not to make it"
    assert [proposal.author for proposal in mixed.peek(world.ledger, 3)] == ["llm", "sweep", "sweep"]
    assert mixed.peek(world.ledger, 1) == (waiting,)
    assert len(world.ledger.turns) == 1 and world.editor.asked == []


def test_without_knobs_it_begins_with_edits_and_says_so(tmp_path: Path) -> None:
    world = World(tmp_path, Script(edit()), knobs="")
    assert {proposal.author for proposal in world.run(6)} == {"llm"}
    assert world.ledger.turns[0].phase == "edit"
    assert world.ledger.turns[0].reason == "the run begins with edits: the case has no knobs"


def test_while_the_editor_thinks_the_sweep_fills_the_time_up_to_a_point(tmp_path: Path) -> None:
    world = World(tmp_path, Script(NotReady(seconds=0.0), edit()))
    filled = list(world.run(5))[3:]
    assert [proposal.author for proposal in filled] == ["sweep", "sweep"]
    assert len(world.editor.asked) == 1, "it was not disturbed while it thought"
    assert [proposal.author for proposal in world.run(1)] == ["llm"], (
        "the block's share of filling is used up"
    )


def test_a_profile_is_made_for_the_editor_when_it_is_asked(tmp_path: Path) -> None:
    world = World(tmp_path, Script(NotReady(seconds=0.0), edit()))
    assert not reads_profile(world.mixed, world.ledger)
    list(world.run(3))
    assert reads_profile(world.mixed, world.ledger)
    list(world.run(1))
    assert not reads_profile(world.mixed, world.ledger), "it thinks already"
    world.editor.has_reply = True
    assert reads_profile(world.mixed, world.ledger), "asked for its answer, it is told more at once"


def test_the_editor_is_asked_about_no_incumbent_that_was_not_looked_at(tmp_path: Path) -> None:
    """As the controller goes about it; a sweep may be over sooner than could be foreseen, and every phase but edits."""
    world = World(tmp_path, Script(edit()))
    mixed, ledger, look, waited = world.mixed, world.ledger, Profile(problems=()), 0
    ledger.append(ProfiledEntry(time=0.1, commit=ledger.incumbent, profile=look))
    while len(world.editor.asked) < 25:
        if reads_profile(mixed, ledger) and ledger.profiles[-1].commit != ledger.incumbent:
            ledger.append(
                ProfiledEntry(time=float(len(ledger.candidates)), commit=ledger.incumbent, profile=look)
            )
        asked, proposal = len(world.editor.asked), mixed.propose(ledger)
        if isinstance(proposal, NotReady):
            assert reads_profile(mixed, ledger), "or it would wait for ever"
            waited += 1
            continue
        assert proposal is not None
        if len(world.editor.asked) > asked:
            assert ledger.profiles[-1].commit == ledger.incumbent
        wins = len(ledger.candidates) % 7 == 1
        judge_next(ledger, proposal, 1.2 * ledger.cumulative if wins else 0.5)
    assert waited > 0
    assert len(ledger.wins) > 3
    assert all(one.n != other.n or one.phase != other.phase for one, other in pairwise(ledger.turns))


def test_an_answer_that_is_ready_goes_before_filling(tmp_path: Path) -> None:
    world = World(tmp_path, Script(NotReady(seconds=0.0), edit()))
    list(world.run(4))
    world.editor.has_reply = True
    assert [proposal.author for proposal in world.run(1)] == ["llm"]


def test_with_nothing_to_fill_it_passes_on_that_it_waits(tmp_path: Path) -> None:
    world = World(tmp_path, Script(NotReady(seconds=4.0)), knobs="")
    assert world.mixed.propose(world.ledger) == NotReady(seconds=4.0)
    assert world.mixed.propose(world.ledger) == NotReady(seconds=4.0)
    assert len(world.ledger.turns) == 1


@pytest.mark.parametrize("ending", ["the quota is used up", None])
def test_an_editor_that_is_finished_leaves_the_sweep_and_is_not_asked_again(
    tmp_path: Path, ending: str | None
) -> None:
    world = World(tmp_path, Script(ending))
    assert {proposal.author for proposal in world.run(12)} == {"sweep"}
    assert len(world.editor.asked) == 1
    last = world.ledger.turns[-1]
    assert (last.phase, last.signals) == ("sweep", ("exhausted",))
    assert (ending or "no ideas left") in last.reason


def test_when_nobody_has_anything_left_it_says_why_of_each(tmp_path: Path) -> None:
    world = World(tmp_path, Script("the quota is used up"), knobs="TILE: {type: bool, default: false}\n")
    assert [proposal.knobs for proposal in world.run(1)] == [{"TILE": True}]
    with pytest.raises(Plateau, match=r"every knob configuration.*; the quota is used up; no older win"):
        world.mixed.propose(world.ledger)


def test_a_run_taken_up_again_goes_on_in_the_same_phase(tmp_path: Path) -> None:
    world = World(tmp_path, Script(edit("tiling")))
    list(world.run(4))
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "run", copy)
    first = world.mixed.propose(world.ledger)
    world.mixed, again = world.make(), Ledger.read(copy / "ledger.jsonl")
    assert world.mixed.propose(again) == first
    assert len(again.turns) == len(world.ledger.turns)


def test_finish_reaches_the_editor(tmp_path: Path) -> None:
    world = World(tmp_path, Script(edit()))
    world.mixed.finish(world.ledger)
    assert world.editor.finished


@pytest.mark.slow(4)
def test_the_landscape_experiment_in_small(tmp_path: Path) -> None:
    """Two seeds through the real controller; the figures of a full one are in docs/evidence."""
    lengths = dict(zip(ARMS, (4, 4, 14), strict=True))
    runs = {
        (seed, arm): climb_ridge(tmp_path / f"{seed}-{arm}", Ridge(KINDS[seed], seed), arm, lengths[arm])
        for seed in range(2)
        for arm in ARMS
    }
    for (_, arm), climbed in runs.items():
        assert len(climbed.curve) == lengths[arm] + 1
        assert (climbed.turns > 0) == (arm == "rhythm")
        assert all(value >= before - 0.02 for before, value in pairwise(climbed.curve)), (
            "a win made it slower"
        )
    assert runs[0, "rhythm"].curve[-1] > 0.1
    figures = summarise(runs, 2, 14)
    assert [line.split()[0] for line in show(figures).splitlines()[1:]] == ["all", "knobs", "edits"]
