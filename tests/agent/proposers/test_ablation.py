"""Re-ablation takes back what a win changed, as far as that still stands, and each win once."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.proposer import ProposerContext
from hillclimb.agent.proposers.ablation import AblationProposer
from hillclimb.agent.record.entries import JudgedEntry, ProposedEntry, SettledEntry
from hillclimb.agent.record.ledger import Ledger
from hillclimb.harness.case.case import Case
from hillclimb.harness.knobs.knobs import KnobValue
from tests.agent.sweep.synthetic import interval, open_ledger
from tests.fakes.toy import write_toy

KNOBS = """\
TILE: {{type: log-int, low: 8, high: 64, default: {tile}}}

UNROLL: {{type: choice, choices: [1, 2, 4], default: {unroll}}}
"""
KERNEL = "first\n\nmiddle\n\nlast\n"


class World:
    """A ledger and the trees of its commits."""

    def __init__(self, folder: Path) -> None:
        self.ledger: Ledger = open_ledger(folder / "run")
        self.trees: dict[str, Mapping[str, str]] = {
            self.ledger.incumbent: {"kernel.py": KERNEL, "knobs.yaml": KNOBS.format(tile=8, unroll=1)}
        }
        case = Case(write_toy(folder))
        background = ProposerContext(case=case, seed=0, folder=folder / "run", files=self.trees.__getitem__)
        self.ablation = AblationProposer(background)

    def win(self, proposal: Proposal, gain: float = 1.2, **files: str) -> int:
        """A kept candidate, after which these files of the workspace are so."""
        before, n = self.ledger.incumbent, len(self.ledger.candidates) + 1
        commit = f"{n:040x}"
        changed = {name.replace("_", "."): text for name, text in files.items()}
        self.trees[commit] = {**self.trees[before], **changed, "docs/notes.md": f"after {n}\n"}
        self.ledger.append(ProposedEntry(n=n, time=float(n), proposal=proposal))
        self.ledger.append(
            JudgedEntry(n=n, time=float(n), kept=True, speedup=interval(gain), parent=before, commit=commit)
        )
        self.ledger.append(SettledEntry(n=n))
        return n

    def tune(self, gain: float = 1.2, *, tile: int = 8, unroll: int = 1, **values: KnobValue) -> int:
        knobs = KNOBS.format(tile=tile, unroll=unroll)
        return self.win(Proposal(author="sweep", idea="tuned", knobs=values), gain, knobs_yaml=knobs)

    def edit(self, kernel: str, gain: float = 1.2, **files: str) -> int:
        what = Proposal(author="llm", idea="edited", edits=(Edit(path="kernel.py", content=kernel),))
        return self.win(what, gain, kernel_py=kernel, **files)

    def try_without(self, proposal: Proposal) -> None:
        n = len(self.ledger.candidates) + 1
        self.ledger.append(ProposedEntry(n=n, time=float(n), proposal=proposal))
        self.ledger.append(
            JudgedEntry(n=n, time=float(n), kept=False, screened=0.9, parent=self.ledger.incumbent)
        )
        self.ledger.append(SettledEntry(n=n))


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_nothing_is_taken_back_before_the_source_has_changed(world: World) -> None:
    world.tune(tile=32, TILE=32)
    assert world.ablation.propose(world.ledger) is None


def test_a_knob_win_goes_back_to_the_value_before_it(world: World) -> None:
    n = world.tune(tile=32, TILE=32)
    world.edit(KERNEL + "more\n")
    proposal = world.ablation.propose(world.ledger)
    assert proposal == Proposal(
        author="ablation", idea=f"without #{n}: tuned", knobs={"TILE": 8}, undoes=n, family=""
    )


def test_each_win_is_asked_once_for_every_change_of_the_source(world: World) -> None:
    world.tune(tile=32, TILE=32)
    world.edit(KERNEL + "more\n")
    first = world.ablation.propose(world.ledger)
    assert first is not None
    world.try_without(first)
    assert world.ablation.propose(world.ledger) is None
    world.edit("begin\n" + KERNEL + "more\n")
    undone = set()
    while proposal := world.ablation.propose(world.ledger):
        undone.add(proposal.undoes)
        world.try_without(proposal)
    assert undone == {1, 2}


def test_the_smallest_win_is_asked_first(world: World) -> None:
    world.tune(1.5, tile=32, TILE=32)
    small = world.tune(1.02, tile=32, unroll=2, UNROLL=2)
    world.edit(KERNEL + "more\n")
    proposal = world.ablation.propose(world.ledger)
    assert proposal is not None
    assert (proposal.undoes, proposal.knobs) == (small, {"UNROLL": 1})


@pytest.mark.parametrize(
    "knobs",
    [
        KNOBS.format(tile=64, unroll=1),
        "UNROLL: {type: choice, choices: [1, 2, 4], default: 1}\n",
        KNOBS.format(tile=32, unroll=1).replace("low: 8", "low: 16"),
        "no: [knobs\n",
    ],
    ids=["turned since", "gone", "out of its domain", "unreadable"],
)
def test_knobs_that_cannot_go_back_are_left_alone(world: World, knobs: str) -> None:
    world.tune(tile=32, TILE=32)
    world.edit(KERNEL + "more\n", knobs_yaml=knobs)
    assert world.ablation.propose(world.ledger) is None


def test_an_edit_is_taken_out_of_today_s_files_and_docs_are_not_touched(world: World) -> None:
    n = world.edit(KERNEL.replace("first", "FIRST"))
    world.edit(KERNEL.replace("first", "FIRST").replace("last", "LAST"))
    proposal = world.ablation.propose(world.ledger)
    assert proposal is not None
    assert (proposal.author, proposal.undoes, proposal.idea) == ("ablation", n, f"without #{n}: edited")
    assert proposal.edits == (Edit(path="kernel.py", content=KERNEL.replace("last", "LAST")),)


def test_an_edit_that_is_built_upon_is_skipped_for_the_next(world: World) -> None:
    world.edit(KERNEL.replace("first", "FIRST"), 1.01)
    knob = world.tune(1.3, tile=32, TILE=32)
    world.edit(KERNEL.replace("first", "FIRST!"))
    proposal = world.ablation.propose(world.ledger)
    assert proposal is not None
    assert proposal.undoes == knob


def test_it_foresees_the_wins_that_are_left(world: World) -> None:
    world.tune(1.5, tile=32, TILE=32)
    world.tune(1.02, tile=32, unroll=2, UNROLL=2)
    world.edit(KERNEL + "more\n")
    foreseen = world.ablation.peek(world.ledger, 3)
    assert [proposal.undoes for proposal in foreseen] == [2, 1]
    world.ledger.append(ProposedEntry(n=4, time=4.0, proposal=foreseen[0]))
    assert world.ablation.peek(world.ledger, 3) == foreseen[1:]
