"""Replies that outlive the incumbent they were written for."""

from __future__ import annotations

import pytest

from hillclimb.agent.llm.replies.merging import MergeConflict
from hillclimb.agent.llm.reply_to_proposal import UnusableReply, parse_usable_reply, to_proposal
from tests.fakes.toy import KNOBS

FILES = {"kernel.py": "A = 1\n\n\nB = 2\n\n\nC = 3\n", "knobs.yaml": KNOBS}


def edit(search: str, replace: str, path: str = "kernel.py") -> str:
    return (
        f"IDEA: i\nFAMILY: f\nFILE: {path}\n<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n"
    )


def test_it_is_merged_onto_what_came_meanwhile() -> None:
    now = {**FILES, "kernel.py": FILES["kernel.py"].replace("C = 3", "C = 30")}
    proposal = to_proposal(parse_usable_reply(edit("A = 1", "A = 10"), FILES), 7, FILES, now)
    assert proposal.edits[0].content == "A = 10\n\n\nB = 2\n\n\nC = 30\n"
    assert (proposal.call, proposal.author, proposal.family) == (7, "llm", "f")


def test_a_conflict_is_told_and_undoes_nothing() -> None:
    now = {**FILES, "kernel.py": FILES["kernel.py"].replace("A = 1", "A = 5")}
    with pytest.raises(MergeConflict):
        to_proposal(parse_usable_reply(edit("A = 1", "A = 10"), FILES), 1, FILES, now)


def test_a_knob_that_is_gone_by_now_is_a_conflict() -> None:
    reading = parse_usable_reply("IDEA: i\nFAMILY: f\nKNOB: UNROLL=2\n", FILES)
    gone = {**FILES, "knobs.yaml": "\n".join(x for x in KNOBS.splitlines() if "UNROLL" not in x) + "\n"}
    with pytest.raises(MergeConflict, match="UNROLL"):
        to_proposal(reading, 1, FILES, gone)
    with pytest.raises(MergeConflict):
        to_proposal(reading, 1, FILES, {"kernel.py": FILES["kernel.py"]})


def test_sides_that_merge_into_nonsense_are_a_conflict() -> None:
    base = {"kernel.py": "x = [\n    1,\n]\n\n\n\n\n\ny = 2\n"}
    now = {"kernel.py": "x = [\n    1,\n] + [\n    2,\n]\n\n\n\n\n\ny = 2\n"}
    reading = parse_usable_reply(edit("y = 2", "y = x"), base)
    assert to_proposal(reading, 1, base, now).edits
    broken = {"kernel.py": now["kernel.py"].replace("x = [", "x = [[", 1)}
    with pytest.raises(MergeConflict):
        to_proposal(reading, 1, base, broken)


def test_what_the_incumbent_has_by_now_is_no_proposal() -> None:
    now = {**FILES, "kernel.py": FILES["kernel.py"].replace("A = 1", "A = 10")}
    with pytest.raises(MergeConflict, match="all of it"):
        to_proposal(parse_usable_reply(edit("A = 1", "A = 10"), FILES), 1, FILES, now)


def test_docs_alone_are_no_change() -> None:
    with pytest.raises(UnusableReply, match="NOTE"):
        parse_usable_reply("IDEA: i\nFAMILY: f\nFILE: docs/notes.md\n```\nhello\n```\n", FILES)


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (edit("", "x", "run.sh"), "'run.sh' matches none of the mutable globs"),
        (edit("", "x = 1", "Kernel.py"), "'Kernel.py' differs from 'kernel.py' only in case"),
        (edit("", "x = 1", "../kernel.py"), "has a part '..'"),
        (edit("", "x = 1", "././kernel.py"), "has a part '.'"),
        (edit("", "x = 1", "/kernel.py"), "is absolute"),
        (edit("", "x = 1", "kernel.py/a.py"), "would be both a file and a folder"),
    ],
)
def test_what_the_lab_would_refuse_goes_back_to_the_model(reply: str, said: str) -> None:
    with pytest.raises(UnusableReply) as caught:
        parse_usable_reply(reply, FILES, mutable=["*.py", "*/*.py", "knobs.yaml"])
    assert said in str(caught.value)


def test_globs_that_are_not_told_forbid_nothing() -> None:
    assert parse_usable_reply(edit("", "x", "run.sh"), FILES).edits[0].path == "run.sh"


def test_docs_are_no_matter_of_the_globs() -> None:
    reply = edit("A = 1", "A = 2") + "FILE: docs/notes.md\n```\nhello\n```\n"
    assert [e.path for e in parse_usable_reply(reply, FILES, mutable=["*.py"]).edits] == ["kernel.py"]


@pytest.mark.parametrize("reply", [edit("A = 1", "A = 2", "./kernel.py"), "IDEA: i\nDELETE: ./kernel.py\n"])
def test_a_path_may_begin_at_the_workspace(reply: str) -> None:
    assert [e.path for e in parse_usable_reply(reply, FILES, mutable=["*.py"]).edits] == ["kernel.py"]


def test_a_sweep_win_beside_a_new_knob_is_merged() -> None:
    line = next(line for line in KNOBS.splitlines() if line.startswith("UNROLL"))
    both = f"DEPTH: {{type: bool, default: true}}\n{line}"
    swept = KNOBS.replace("default: 8", "default: 32")
    reading = parse_usable_reply(edit(line, both, "knobs.yaml"), FILES)
    proposal = to_proposal(reading, 1, FILES, {**FILES, "knobs.yaml": swept})
    assert proposal.edits[0].content == swept.replace(line, both)


def test_equal_syntax_has_equal_fingerprints() -> None:
    one, other = (
        to_proposal(parse_usable_reply(edit("A = 1", new), FILES), 1, FILES, FILES)
        for new in ("A = 9", "A  =  9  # nine")
    )
    assert one.fingerprint == other.fingerprint
    assert (
        to_proposal(parse_usable_reply(edit("A = 1", "A = 8"), FILES), 1, FILES, FILES).fingerprint
        != one.fingerprint
    )
