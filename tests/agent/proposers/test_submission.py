"""What a person brings as a proposal: exactly the difference, and clear words about what cannot be one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.git.repository import EXECUTABLE, REGULAR, SYMLINK
from hillclimb.agent.git.version import File, Version
from hillclimb.agent.proposers.submission import Submission, SubmissionProposer, read_knobs, to_proposal
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.rhythm.notes_files import NOTES_MARKER
from hillclimb.harness.errors import Paused, UsageError
from tests.fakes.toy import KNOBS


def version(**files: str) -> Version:
    return {name.replace("_", "."): File(REGULAR, text.encode()) for name, text in files.items()}


START = version(kernel_py="QUALITY = 1.0\n", knobs_yaml=KNOBS)


def test_edits_are_what_differs_and_nothing_else() -> None:
    mine = {**START, "kernel.py": File(REGULAR, b"QUALITY = 2.0\n"), "new.py": File(REGULAR, b"x = 1\n")}
    theirs = {**START, "old.py": File(REGULAR, b"gone\n")}
    proposal = to_proposal(Submission("mine", mine, author="agent", family="unroll"), theirs)
    assert [(edit.path, edit.content) for edit in proposal.edits] == [
        ("kernel.py", "QUALITY = 2.0\n"),
        ("new.py", "x = 1\n"),
        ("old.py", None),
    ]
    assert (proposal.author, proposal.family, proposal.knobs) == ("agent", "unroll", {})
    assert proposal.idea == "edits to kernel.py, new.py, old.py"


def test_turned_defaults_become_knob_values() -> None:
    mine = {**START, "knobs.yaml": File(REGULAR, KNOBS.replace("default: 8,", "default: 32,").encode())}
    proposal = to_proposal(Submission("mine", mine), START)
    assert (proposal.edits, proposal.knobs, proposal.idea) == ((), {"TILE": 32}, "TILE=32")


def test_a_knob_that_is_typed_goes_before_the_tree() -> None:
    mine = {**START, "knobs.yaml": File(REGULAR, KNOBS.replace("default: 8,", "default: 32,").encode())}
    assert to_proposal(Submission("mine", mine, ["TILE=16", "UNROLL=2"]), START).knobs == {
        "TILE": 16,
        "UNROLL": 2,
    }
    edited = {**START, "kernel.py": File(REGULAR, b"QUALITY = 2.0\n")}
    assert to_proposal(Submission("mine", edited, ["TILE=8"]), START).knobs == {}


def test_another_knob_is_an_edit_of_knobs_yaml() -> None:
    mine = {**START, "knobs.yaml": File(REGULAR, (KNOBS + "WARPS: {type: bool, default: true}\n").encode())}
    proposal = to_proposal(Submission("mine", mine, ["WARPS=0"]), START)
    assert [edit.path for edit in proposal.edits] == ["knobs.yaml"]
    assert (proposal.knobs, proposal.idea) == ({"WARPS": False}, "edits to knobs.yaml, WARPS=0")


def test_a_knobs_yaml_that_cannot_be_read_is_the_judges_business() -> None:
    mine = {**START, "knobs.yaml": File(REGULAR, b"TILE: [\n")}
    assert [edit.path for edit in to_proposal(Submission("mine", mine), START).edits] == ["knobs.yaml"]


@pytest.mark.parametrize(
    ("name", "file", "complaint"),
    [
        ("a.bin", File(REGULAR, b"\xff\xfe"), "'a.bin': is not UTF-8 text"),
        ("b\udcff.py", File(REGULAR, b"x"), "is not UTF-8 text"),
        ("run.sh", File(EXECUTABLE, b"x"), "run.sh: is executable and the incumbent's is not"),
        ("kernel.py", File(EXECUTABLE, b"QUALITY = 1.0\n"), "kernel.py: is executable"),
        ("link.py", File(SYMLINK, b"kernel.py"), "link.py: is a link or a submodule"),
    ],
)
def test_what_no_proposal_can_hold_is_told(name: str, file: File, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        to_proposal(Submission("mine", {**START, name: file}), START)


def test_nothing_changed_is_told() -> None:
    with pytest.raises(UsageError, match="the working files and the run's incumbent have the same files"):
        to_proposal(Submission("the working files", START, ["TILE=8"]), START)


def test_an_executable_that_is_one_already_may_change() -> None:
    theirs = {**START, "run.sh": File(EXECUTABLE, b"old\n")}
    mine = {**START, "run.sh": File(EXECUTABLE, b"new\n")}
    assert [edit.path for edit in to_proposal(Submission("mine", mine), theirs).edits] == ["run.sh"]


def test_an_idea_is_one_line_without_tricks() -> None:
    mine = {**START, "kernel.py": File(REGULAR, b"QUALITY = 2.0\n")}
    assert to_proposal(Submission("mine", mine, idea="a\n\x1b[2Jb"), START).idea == "a [2Jb"


def test_many_files_are_counted() -> None:
    mine = START | {f"part{i}.py": File(REGULAR, b"") for i in range(5)}
    assert to_proposal(Submission("mine", mine), START).idea == (
        "edits to part0.py, part1.py, part2.py, 2 more files"
    )


def docs(notes: str, candidates: str) -> Version:
    return {
        "docs/notes.md": File(REGULAR, notes.encode()),
        "docs/candidates.md": File(REGULAR, candidates.encode()),
    }


def test_the_climbs_own_notes_are_never_taken_back() -> None:
    theirs = {**START, **docs(f"mine\n{NOTES_MARKER}\n\nafter win 3\n", "set of win 3\n")}
    mine = {**START, "kernel.py": File(REGULAR, b"QUALITY = 2.0\n")}
    for older in ({}, docs("mine\n", "old set\n"), docs(f"mine\n{NOTES_MARKER}\n\nafter win 1\n", "")):
        assert [edit.path for edit in to_proposal(Submission("mine", {**mine, **older}), theirs).edits] == [
            "kernel.py"
        ]


def test_ones_own_notes_go_along_above_those_of_the_climb() -> None:
    theirs = {**START, **docs(f"old\n{NOTES_MARKER}\n\nafter win 3\n", "set\n")}
    mine = {**START, "kernel.py": File(REGULAR, b"QUALITY = 2.0\n"), **docs("new\n", "scribbles\n")}
    edits = {edit.path: edit.content for edit in to_proposal(Submission("mine", mine), theirs).edits}
    assert edits == {
        "docs/notes.md": f"new\n{NOTES_MARKER}\n\nafter win 3\n",
        "kernel.py": "QUALITY = 2.0\n",
    }


def test_notes_alone_are_nothing_to_judge() -> None:
    mine = {**START, **docs("new\n", "")}
    with pytest.raises(UsageError, match="the same files but docs/, so there is nothing to judge"):
        to_proposal(Submission("mine", mine), {**START, **docs("old\n", "")})


def test_a_knob_without_a_value_is_told() -> None:
    with pytest.raises(UsageError, match="--knob TILE: give it as NAME=VALUE"):
        read_knobs(START, ["TILE"])
    with pytest.raises(UsageError, match="choose one of none"):
        read_knobs({}, ["TILE=8"])


@given(
    *2
    * [
        st.dictionaries(
            st.sampled_from(["a.py", "b.py", "c/d.py", "notes.md"]),
            st.text(st.characters(exclude_categories=["Cs"])).map(lambda text: File(REGULAR, text.encode())),
        )
    ]
)
def test_the_edits_lead_from_the_incumbent_to_what_was_brought(mine: Version, theirs: Version) -> None:
    if mine == theirs:
        return
    files = dict(theirs)
    for edit in to_proposal(Submission("mine", mine), theirs).edits:
        if edit.content is None:
            del files[edit.path]
        else:
            files[edit.path] = File(REGULAR, edit.content.encode())
    assert files == mine


def test_a_hand_has_one_idea_and_then_pauses(tmp_path: Path) -> None:
    mine = {**START, "kernel.py": File(REGULAR, b"QUALITY = 2.0\n")}
    hand = SubmissionProposer(Submission("mine", mine), lambda commit: START, candidates_before=0)
    ledger = Ledger.read(tmp_path / "none.jsonl")
    assert hand.propose(ledger).idea == "edits to kernel.py"
    assert hand.n == 1
    assert hand.propose(ledger).idea == "edits to kernel.py"  # the disk refused the line; it is asked again
    assert hand.importances(ledger) == {}
    ledger.candidates.append(None)  # type: ignore[arg-type]
    with pytest.raises(Paused, match="candidate 1 was brought by hand"):
        hand.propose(ledger)
