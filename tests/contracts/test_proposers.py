"""Every proposer keeps the promises of hillclimb.agent.proposer.Proposer, CanPeek and UsesProfile where it can."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from hillclimb.agent.proposal import Proposal
from hillclimb.agent.proposer import CanPeek, NotReady, Proposer, reads_profile
from hillclimb.agent.sweep import importance
from hillclimb.harness.errors import UsageError
from hillclimb.harness.knobs.knobs import KNOBS_FILE, broken_constraint, contains, parse_knobs
from tests.contracts.proposer_worlds import (
    AHEAD,
    WORLDS,
    Files,
    Step,
    World,
    bound_ablation,
    bound_hand,
    bound_llm,
    declared,
    llm_at_work,
)

ROOT = Path(__file__).resolve().parents[2]

OWN_LINES = {"called", "dropped", "turned"}
"""That a proposer may append."""

MAX_STEPS = 40
ENDLESS = {"endless_sweep": 14, "llm_of_three": 9, "mixed": 16, "ridge_model": 12}
"""Steps of those that would go on; the others are asked until their ideas end."""
PEEKING = [
    "sweep",
    "endless_sweep",
    "retuned",
    "llm_of_three",
    "mixed",
    "mixed_to_its_end",
    "ablation",
    "planned",
]
"""Those that foresee something; what the one call of `llm` brings is taken at once."""
RECKONING = ["sweep", "endless_sweep", "retuned", "mixed", "mixed_to_its_end", "planned"]
REPEATABLE = [name for name in WORLDS if name not in ("llm_of_three", "mixed_to_its_end")]
"""Of three calls any may be answered first; a model that has given up is asked once more by a new session."""


@dataclass(frozen=True)
class Climbed:
    """A run from its first proposal to its last."""

    name: str
    world: World
    proposer: Proposer
    steps: list[Step]

    @property
    def proposals(self) -> Iterator[tuple[Proposal, Step]]:
        return ((step.outcome, step) for step in self.steps if isinstance(step.outcome, Proposal))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(autouse=True)
def tells_importances_of_little(monkeypatch: pytest.MonkeyPatch) -> None:
    """The toy has 24 configurations: too few to tell of, enough to see what is promised."""
    monkeypatch.setattr(importance, "MIN_OBSERVATIONS", 4)
    monkeypatch.setattr(importance, "SHUFFLES", 0)


@pytest.mark.slow(3, only=["retuned", "endless_sweep", "mixed_to_its_end", "mixed"])
@pytest.mark.parametrize("name", WORLDS)
def test_from_its_first_proposal_to_its_last_it_keeps_every_promise(
    name: str, tmp_path: Path, stack: ExitStack
) -> None:
    """One run for all that follows, since the run is what takes the time."""
    world = WORLDS[name](tmp_path / "once", stack)
    proposer = world.make()
    climbed = Climbed(name, world, proposer, list(climb(world, proposer, name)))
    expect_a_proposal_or_that_none_is_ready_or_that_there_is_no_more(climbed)
    expect_ideas_in_one_line_that_change_something(climbed)
    expect_only_lines_of_its_own(climbed)
    expect_knob_values_in_their_domains_that_satisfy_the_constraints(climbed)
    expect_importances_that_are_shares_of_knobs_that_exist(climbed)
    expect_that_reckoning_leaves_no_trace(climbed)
    if name not in ENDLESS:
        expect_that_out_of_ideas_it_says_so_again(climbed)
    if name in REPEATABLE:
        expect_that_new_instances_go_on_like_the_old_one(climbed, WORLDS[name](tmp_path / "again", stack))


def climb(world: World, proposer: Proposer, name: str) -> Iterator[Step]:
    for _ in range(ENDLESS.get(name, MAX_STEPS)):
        step = world.step(proposer)
        yield step
        if not isinstance(step.outcome, Proposal):
            return


def expect_a_proposal_or_that_none_is_ready_or_that_there_is_no_more(climbed: Climbed) -> None:
    assert climbed.world.answers, "nothing but an exception came of asking"
    for said in climbed.world.answers:
        assert said is None or isinstance(said, Proposal | NotReady)
        assert not isinstance(said, NotReady) or said.seconds >= 0
    assert isinstance(climbed.steps[0].outcome, Proposal)
    is_over = not isinstance(climbed.steps[-1].outcome, Proposal)
    assert is_over == (climbed.name not in ENDLESS), climbed.steps[-1].outcome


def expect_ideas_in_one_line_that_change_something(climbed: Climbed) -> None:
    for proposal, step in climbed.proposals:
        assert proposal.idea.strip() and proposal.idea.isprintable()
        assert proposal.edits or proposal.knobs
        assert len({edit.path for edit in proposal.edits}) == len(proposal.edits)
        for edit in proposal.edits:
            assert edit.content is not None or edit.path in step.incumbent
        assert Proposal.model_validate_json(proposal.model_dump_json()) == proposal


def expect_only_lines_of_its_own(climbed: Climbed) -> None:
    written = {kind for step in climbed.steps for kind in step.written}
    assert written <= OWN_LINES
    expected = {
        "llm": {"called"},
        "llm_of_three": {"called"},
        "mixed": {"called", "turned"},
        "mixed_to_its_end": {"called", "turned"},
        "ridge_model": {"called"},
    }
    assert written >= expected.get(climbed.name, set()), "the test would see no line at all"


def expect_knob_values_in_their_domains_that_satisfy_the_constraints(climbed: Climbed) -> None:
    assert any(proposal.knobs for proposal, _ in climbed.proposals)
    for proposal, step in climbed.proposals:
        assert_possible(proposal, step.incumbent)


def assert_possible(proposal: Proposal, incumbent: Files) -> None:
    knobs = declared(proposal, incumbent)
    for name, value in proposal.knobs.items():
        assert contains(knobs[name], value), f"{name}={value!r}"
    assert broken_constraint(knobs, proposal.knobs) is None


@pytest.mark.parametrize("make", [bound_ablation, bound_hand, bound_llm])
def test_values_that_a_constraint_forbids_are_not_proposed(
    make: Callable[[Path, ExitStack], World], tmp_path: Path, stack: ExitStack
) -> None:
    world = make(tmp_path, stack)
    proposer = world.make()
    with suppress(UsageError):
        while isinstance((outcome := world.ask(proposer)[0]), Proposal):
            assert_possible(outcome, world.incumbent)
            world.begin(outcome)
            world.judge_pending()


def expect_importances_that_are_shares_of_knobs_that_exist(climbed: Climbed) -> None:
    assert any(step.importances for step in climbed.steps) == (climbed.name in RECKONING)
    files = [step.incumbent for step in climbed.steps[1:]] + [climbed.world.incumbent]
    for step, incumbent in zip(climbed.steps, files, strict=True):
        shares = list(step.importances.values())
        assert shares == sorted(shares, reverse=True)
        assert all(0 <= share <= 1 for share in shares)
        assert sum(shares) == pytest.approx(1) or not shares
        assert step.importances.keys() <= parse_knobs(incumbent[KNOBS_FILE], Path(KNOBS_FILE)).keys()


def expect_that_reckoning_leaves_no_trace(climbed: Climbed) -> None:
    before = climbed.world.contents()
    first = climbed.proposer.importances(climbed.world.ledger)
    assert list(first.items()) == list(climbed.proposer.importances(climbed.world.ledger).items())
    reads_profile(climbed.proposer, climbed.world.ledger)
    assert climbed.world.contents() == before


def expect_that_out_of_ideas_it_says_so_again(climbed: Climbed) -> None:
    over = climbed.steps[-1].outcome
    for _ in range(2):
        assert climbed.world.ask(climbed.proposer) == (over, ())


def expect_that_new_instances_go_on_like_the_old_one(climbed: Climbed, world: World) -> None:
    """Each of a run like the first is asked once, over the ledger as the disk has it."""
    outcomes = []
    for _ in climbed.steps:
        proposer = world.make()
        outcomes.append(world.step(proposer).outcome)
        proposer.finish(world.ledger)
        world.reopen()
    assert outcomes == [step.outcome for step in climbed.steps]


@pytest.mark.slow(2, only=["mixed_to_its_end", "retuned"])
@pytest.mark.parametrize("name", PEEKING)
def test_what_it_foresees_is_what_it_proposes(name: str, tmp_path: Path, stack: ExitStack) -> None:
    world = WORLDS[name](tmp_path, stack)
    proposer, expected, foretold = world.make(), None, 0
    assert isinstance(proposer, CanPeek)
    for _ in range(ENDLESS.get(name, MAX_STEPS)):
        world.settle()
        foreseen = look_ahead(world, proposer)
        calls = len(world.ledger.calls)
        outcome, written = world.ask(proposer)
        if not isinstance(outcome, Proposal):
            assert not foreseen
            break
        is_news = outcome.call is not None and outcome.call > calls
        if foreseen and not is_news:
            assert outcome == foreseen[0]
            foretold += 1
        if expected and not is_news and "turned" not in written:
            assert outcome == expected
        world.begin(outcome)
        coming = look_ahead(world, proposer)
        assert outcome not in coming, "what is being judged is not to come"
        expected = coming[0] if coming and not world.judge_pending() else None
        if world.ledger.pending:
            world.judge_pending()
    assert foretold >= 2


def look_ahead(world: World, proposer: Proposer) -> list[Proposal]:
    """What it foresees, which leaves no trace and is the same when asked twice."""
    before = world.contents()
    foreseen = list(world.foresee(proposer))
    assert len(foreseen) <= AHEAD
    assert list(world.foresee(proposer)) == foreseen
    assert world.contents() == before
    return foreseen


@pytest.mark.slow(2, only=["mixed_to_its_end", "endless_sweep"])
@pytest.mark.parametrize("name", PEEKING)
def test_it_foresees_nothing_twice(name: str, tmp_path: Path, stack: ExitStack) -> None:
    world = WORLDS[name](tmp_path, stack)
    proposer = world.make()
    for _ in range(ENDLESS.get(name, MAX_STEPS)):
        ideas = [proposal.model_dump_json() for proposal in world.foresee(proposer)]
        assert len(set(ideas)) == len(ideas)
        if not isinstance(world.step(proposer).outcome, Proposal):
            break


@pytest.mark.parametrize("name", PEEKING)
def test_a_new_instance_foresees_the_same(name: str, tmp_path: Path, stack: ExitStack) -> None:
    world = WORLDS[name](tmp_path, stack)
    proposer = world.make()
    assert isinstance(world.step(proposer).outcome, Proposal)
    proposer.finish(world.ledger)
    foreseen = list(world.foresee(proposer))
    world.reopen()
    assert list(world.foresee(world.make())) == foreseen


@pytest.mark.parametrize("name", WORLDS)
def test_whoever_can_peek_is_tested_for_it(name: str, tmp_path: Path, stack: ExitStack) -> None:
    assert isinstance(WORLDS[name](tmp_path, stack).make(), CanPeek) == (name in [*PEEKING, "llm"])


@pytest.mark.parametrize("name", WORLDS)
def test_finishing_twice_does_no_harm(name: str, tmp_path: Path, stack: ExitStack) -> None:
    world = WORLDS[name](tmp_path, stack)
    proposer = world.make()
    assert isinstance(world.step(proposer).outcome, Proposal)
    before = world.lines()
    proposer.finish(world.ledger)
    assert set(world.lines()[len(before) :]) <= OWN_LINES
    once = world.contents()
    proposer.finish(world.ledger)
    assert world.contents() == once


def test_what_is_under_way_at_the_end_is_given_up_and_counted_once(tmp_path: Path, stack: ExitStack) -> None:
    world = llm_at_work(tmp_path, stack)
    proposer = world.make()
    assert isinstance(proposer.propose(world.ledger), NotReady)
    for _ in range(2):
        proposer.finish(world.ledger)
        assert [call.fault for call in world.ledger.calls] == ["given_up"] * 2
    assert all(call.usage.prompt > 0 for call in world.ledger.calls)


@pytest.mark.parametrize("name", WORLDS)
def test_a_proposer_that_was_never_asked_can_be_finished(name: str, tmp_path: Path, stack: ExitStack) -> None:
    world = WORLDS[name](tmp_path, stack)
    before = world.lines()
    world.make().finish(world.ledger)
    assert world.lines() == before


def test_no_implementation_is_left_out(tmp_path: Path, stack: ExitStack) -> None:
    """Read off the syntax: a class with the three methods, and no Protocol, is a proposer."""
    tested = {type(make(tmp_path / name, stack).make()).__name__ for name, make in WORLDS.items()}
    found = set()
    for path in [*(ROOT / "agent").rglob("*.py"), *(ROOT / "tests/fakes").glob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and "Protocol" not in map(ast.unparse, node.bases):
                methods = {inner.name for inner in node.body if isinstance(inner, ast.FunctionDef)}
                if methods >= {"propose", "importances", "finish"}:
                    found.add(node.name)
    assert found == tested
