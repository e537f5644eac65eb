"""Looking ahead changes when things are compiled, and nothing else: real git, a judge that counts its hints."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import cast

import pytest

from hillclimb.agent.climb import lookahead
from hillclimb.agent.climb.candidate import CandidateBuilder
from hillclimb.agent.climb.supervision import JudgeSupervisor
from hillclimb.agent.climb.timekeeper import Timekeeper
from hillclimb.agent.climb.try_candidate import TrialContext
from hillclimb.agent.git.repository import Repository
from hillclimb.agent.git.trees import MaterialisedTrees
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.proposer import Proposer, ProposerContext
from hillclimb.agent.screen.events import ProposedEvent
from hillclimb.agent.sweep.sweep import SweepProposer
from hillclimb.harness.errors import CandidateFault, JudgeError, MachineError, StorageError
from hillclimb.harness.judge.protocol import EmptyAnswer
from hillclimb.harness.records import Reason, Screening, Side, Watch
from tests.fakes.hinted import GPU, Hinted
from tests.fakes.judge import PROVENANCE
from tests.fakes.night import Night, git, make_repository
from tests.fakes.proposer import KINDS, PlannedProposer


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(lookahead, "usable_cpus", lambda: 16)
    return make_repository(tmp_path / "repo")


def told(night: Night) -> list[dict[str, object]]:
    """The ledger without what differs from run to run."""
    lines = [json.loads(line) for line in (night.folder / "ledger.jsonl").read_bytes().splitlines()]
    for line in lines:
        for name in ("pid", "provenance", "time", "commit", "parent", "base"):
            line.pop(name, None)
    return [line for line in lines if line["kind"] != "session"]


def refs(root: Path) -> list[str]:
    return git(root, "for-each-ref", "--format=%(refname) %(objecttype) %(tree)").splitlines()


def swept(background: ProposerContext) -> Proposer:
    return SweepProposer(background.case.knobs, background.seed, background.lookahead_count)


def test_every_side_is_announced_before_it_is_asked_about_and_once(root: Path) -> None:
    judge = Hinted()
    Night(root, judge=lambda: judge).climb()
    assert len(judge.hints) == len(set(judge.hints))
    for number, (what, side) in enumerate(judge.heard):
        if what != "hint":
            assert ("hint", side) in judge.heard[:number]


def test_what_comes_next_is_announced_while_there_is_still_time(root: Path) -> None:
    judge = Hinted()
    plan = ("slower", "near", "crash", "ragged")
    Night(root, judge=lambda: judge, plan=plan).climb()
    assert [what for what, _ in judge.heard].index("screen") == 1 + lookahead.GPU_LOOKAHEAD_COUNT


def test_the_ledger_and_the_refs_are_those_of_a_climb_that_does_not_look_ahead(root: Path) -> None:
    seen, blind = Night(root, judge=Hinted), Night(make_repository(root.parent / "blind"))
    seen.climb()
    blind.climb()
    assert told(seen) == told(blind)
    assert [line.split()[0] for line in refs(root)] == [line.split()[0] for line in refs(blind.root)]


def test_on_a_cpu_nothing_is_announced(root: Path) -> None:
    judge = Hinted(PROVENANCE)
    Night(root, judge=lambda: judge).climb()
    assert judge.hints == []


@pytest.mark.parametrize(("cores", "count"), [(1, 0), (2, 0), (4, 1), (8, 3), (64, 31)])
def test_the_present_candidate_is_not_crowded_out(cores: int, count: int) -> None:
    assert lookahead.spare_compile_slots(cores) == count


def test_without_cores_to_spare_the_present_candidate_alone_is_announced(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookahead, "usable_cpus", lambda: 2)
    judge = Hinted()
    Night(root, judge=lambda: judge, plan=("slower", "near")).climb()
    assert [what for what, _ in judge.heard][:4] == ["hint", "screen", "hint", "screen"]


@pytest.mark.parametrize(
    "error",
    [MachineError("no more processes"), StorageError("full"), CandidateFault(Reason.POLICY, "imports os")],
)
def test_a_hint_that_fails_is_forgotten(root: Path, error: Exception) -> None:
    class Refusing(Hinted):
        def prepare(self, side: Side, parent: Side) -> EmptyAnswer:
            raise error

    judges: list[Refusing] = []

    def make() -> Refusing:
        judges.append(Refusing())
        return judges[-1]

    night = Night(root, judge=make)
    assert night.climb().wins == 3
    assert night.troubles == [] and len(judges) == 1


def test_a_judge_that_dies_of_a_hint_is_replaced_and_nothing_is_held_against_anybody(root: Path) -> None:
    class Frail(Hinted):
        def prepare(self, side: Side, parent: Side) -> EmptyAnswer:
            raise JudgeError("the judge died")

    judges = iter([Frail(), Frail(), *[Hinted() for _ in range(9)]])
    night = Night(root, judge=lambda: next(judges))
    assert night.climb().wins == 3
    assert [trouble for trouble in night.troubles if "what comes next" in trouble] == night.troubles != []
    blind = Night(make_repository(root.parent / "blind"))
    blind.climb()
    assert told(night) == told(blind)


def test_only_the_trees_still_needed_stay(root: Path) -> None:
    night = Night(root, judge=Hinted)
    night.climb()
    assert len(list((night.folder / "trees").iterdir())) == 3


def test_announced_trees_are_not_taken_from_under_the_judge(root: Path) -> None:
    class Reader(Hinted):
        """Looks, before every question, whether all it was told of is still there."""

        def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
            asked = {side for what, side in self.heard if what == "screen"}
            for side in set(self.hints) - asked:
                assert (Path(json.loads(side)["tree"]) / "kernel.py").is_file()
            return super().screen(candidate, incumbent, watch)

    plan = ("near", "ragged", "crash", "slower", "near", "ragged")
    assert Night(root, judge=Reader, plan=plan).climb().candidates == 6


def test_without_a_sandbox_no_edited_code_is_announced(root: Path) -> None:
    judge = Hinted(GPU.model_copy(update={"sandbox": "none"}))
    Night(root, judge=lambda: judge).climb()
    asked = {side for what, side in judge.heard if what != "hint"}
    foreseen = set(judge.hints) - asked
    assert judge.hints and all(json.loads(side)["knobs"] for side in foreseen)


class Killed(BaseException):
    """Ends a climb at once, as kill -9 does; nothing handles it."""


@pytest.mark.slow(3)
@pytest.mark.parametrize("fatal", [1, 2, 3, 5, 8])
def test_killed_in_the_midst_of_hints_a_run_ends_as_if_it_had_not_been(root: Path, fatal: int) -> None:
    class Doomed(Hinted):
        def prepare(self, side: Side, parent: Side) -> EmptyAnswer:
            if len(self.hints) == fatal:
                raise Killed
            return super().prepare(side, parent)

    night = Night(root, judge=Doomed, make_proposer=swept)
    with pytest.raises(Killed):
        night.climb()
    night.judge = Hinted
    night.climb()
    whole = Night(make_repository(root.parent / "whole"), judge=Hinted, make_proposer=swept)
    whole.climb()
    assert told(night) == told(whole)
    assert refs(root) == refs(whole.root)


def test_what_was_foreseen_and_never_proposed_leaves_no_ref_and_no_line(root: Path) -> None:
    """A win makes other proposals of those that were foreseen before it."""
    judge = Hinted()
    night = Night(root, judge=lambda: judge, plan=("near", "tune", "improve", "near", "slower"))
    night.climb()
    asked = {side for what, side in judge.heard if what != "hint"}
    assert set(judge.hints) - asked
    proposed = [event.n for event in night.events if isinstance(event, ProposedEvent)]
    assert proposed == [1, 2, 3, 4, 5] == [candidate.n for candidate in night.ledger.candidates]


def test_a_proposal_that_cannot_be_built_is_not_announced(root: Path) -> None:
    judge = Hinted()
    Night(root, judge=lambda: judge, plan=("outside", "unknown", "slower")).climb()
    assert len(judge.hints) == 1


class Shortsighted:
    """Proposes, and foresees nothing."""

    def __init__(self) -> None:
        self._planned = PlannedProposer(0, KINDS[:3])
        self.propose, self.finish, self.importances = (
            self._planned.propose,
            self._planned.finish,
            self._planned.importances,
        )


def test_a_proposer_need_not_foresee_anything(root: Path) -> None:
    judge = Hinted()
    assert Night(root, judge=lambda: judge, proposer=Shortsighted()).climb().candidates == 3
    assert [what for what, _ in judge.heard][:2] == ["hint", "screen"]


def test_a_proposer_that_cannot_look_ahead_is_not_the_end(root: Path) -> None:
    class Blind(PlannedProposer):
        def peek(self, ledger: object, count: int) -> list[Proposal]:
            raise MachineError("git is gone for a moment")

    assert Night(root, judge=Hinted, proposer=Blind()).climb().candidates == len(KINDS)


def test_what_was_built_ahead_is_not_built_again_unless_it_is_gone(tmp_path: Path) -> None:
    """A folder that another session left, whole or not, is never trusted either."""
    root = make_repository(tmp_path / "repo")
    repository = Repository.open(root)
    head = repository.resolve("HEAD^{commit}")
    assert head
    trees = MaterialisedTrees(repository, Disk(), tmp_path / "trees")
    builder = CandidateBuilder(repository, trees, "cases/demo/toy", ("*.py",))
    judge, keeper = cast(JudgeSupervisor, None), cast(Timekeeper, None)
    court = TrialContext(builder, judge, "bubblewrap", builder.side(head), 0.01, keeper)
    proposal = Proposal(author="sweep", idea="", knobs={"TILE": 32})
    built = court.build(proposal, head)
    assert court.build(proposal, head) is built
    shutil.rmtree(built.confirmed.tree)
    again = court.build(proposal, head)
    assert again == built and again is not built
    knobs = Path(again.confirmed.tree) / "knobs.yaml"
    knobs.chmod(0o644)
    knobs.write_text("")
    later = MaterialisedTrees(repository, Disk(), tmp_path / "trees")
    made = later.workspace(Path(again.confirmed.tree).name, "cases/demo/toy/workspace")
    assert "default: 32" in (made / "knobs.yaml").read_text()
