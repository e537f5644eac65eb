from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hillclimb.agent.llm.replies.declarations import merge_knobs
from hillclimb.agent.llm.replies.merging import MergeConflict, merge, revert
from hillclimb.harness.knobs.knobs import Knobs, parse_knobs, replace_defaults


def _int(name: str, high: int = 8, default: int = 2, about: str = "") -> str:
    comment = f"# {about}\n" if about else ""
    return f"{comment}{name}:\n  type: int\n  low: 1\n  high: {high}\n  default: {default}\n"


def _merged(base: str, proposed: str, ours: str) -> str:
    edits = merge({"knobs.yaml": base}, {"knobs.yaml": proposed}, {"knobs.yaml": ours})
    return edits[0].content or "" if edits else ours


def _parsed(text: str) -> Knobs:
    return parse_knobs(text, Path("knobs.yaml"))


BASE = f"# Read on.\n\n{_int('A', about='about A')}{_int('B')}{_int('C')}\n# the end\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (_int("B"), _int("B") + _int("N", about="about N")),
        (_int("A", about="about A"), _int("N") + _int("A", about="about A")),
        (_int("B"), ""),
        (_int("B"), _int("B", high=64, about="wider")),
        (_int("C"), _int("C").replace("type: int", "type: log-int  # doubles")),
    ],
)
@pytest.mark.parametrize("turned", [{"A": 3}, {"C": 7}, {"A": 1, "C": 4}])
def test_an_edit_beside_a_turned_default(old: str, new: str, turned: dict[str, int]) -> None:
    turned = {name: 4 if "log-int" in new else value for name, value in turned.items()}
    edited, swept = BASE.replace(old, new), replace_defaults(BASE, turned)
    assert _merged(BASE, edited, swept) == _merged(BASE, swept, edited) == replace_defaults(edited, turned)


def test_a_win_of_a_sweep_is_taken_back_out_of_what_a_model_made_of_it() -> None:
    swept = replace_defaults(BASE, {"B": 5})
    now = swept.replace(_int("B", default=5), _int("B", high=64, default=5) + _int("N"))
    edits = revert({"knobs.yaml": BASE}, {"knobs.yaml": swept}, {"knobs.yaml": now})
    assert edits[0].content == replace_defaults(now, {"B": 2})


def test_knobs_added_at_one_place_are_both_there() -> None:
    ours, theirs = BASE + "\n" + _int("O", about="ours"), BASE + "\n" + _int("P", about="theirs")
    text = _merged(BASE, theirs, ours)
    assert list(_parsed(text)) == ["A", "B", "C", "O", "P"]
    assert [text.count(said) for said in ("# ours\nO:", "# theirs\nP:", "# the end")] == [1, 1, 1]


def test_knobs_beside_each_other_are_each_from_the_side_that_changed_it() -> None:
    ours = BASE.replace(_int("A"), _int("A", high=9))
    theirs = BASE.replace(_int("B"), _int("B", high=10)).replace("about A", "about A, at length")
    text = _merged(BASE, theirs, ours)
    assert text == ours.replace(_int("B"), _int("B", high=10)).replace("about A", "about A, at length")


def test_a_comment_that_a_removed_knob_leaves_behind_survives() -> None:
    base = "# for all\n" + _int("A") + _int("B")
    assert _merged(base, "# for all\n" + _int("B"), replace_defaults(base, {"B": 7})) == "# for all\n" + _int(
        "B", default=7
    )


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (_int("A", default=3), _int("A", default=4)),
        (_int("A", high=4), _int("A", default=5)),
        (_int("A", high=4), _int("A", high=5)),
        ("", _int("A", default=5)),
        (_int("A", default=5), ""),
        (_int("A", default=5), _int("A", high=9, default=6)),
    ],
)
def test_one_knob_changed_in_two_ways_is_a_conflict(theirs: str, ours: str) -> None:
    base = _int("A")
    with pytest.raises(MergeConflict, match=r"^knobs\.yaml has changed meanwhile"):
        _merged(base + _int("B"), theirs + _int("B"), ours + _int("B"))


def test_one_knob_added_twice_is_a_conflict() -> None:
    with pytest.raises(MergeConflict, match=r"would not load with the change: .*'N' stands twice"):
        _merged(BASE, _int("N", high=9) + BASE, BASE + _int("N"))


@pytest.mark.parametrize(
    "base",
    [
        "{A: {type: bool, default: true}, B: {type: bool, default: true}}\n",
        "? A\n: {type: bool, default: true}\n",
        "A: &a {type: bool, default: true}\nB: *a\n",
        'A: {type: bool, default: true, doc: "x\n# y"}\nB: {type: bool, default: true}\n',
        "A: {type: bool\n",
        "A: {type: bool, default: 3}\n",
        "- 1\n",
    ],
)
def test_texts_that_are_not_merged_by_knob(base: str) -> None:
    assert merge_knobs(base, f"{base}# x\n", f"# y\n{base}") is None


@pytest.mark.parametrize(
    "body",
    [
        "A: {type: bool, default: true}",
        "A: {type: bool,\n  default: true}  # why\n  # more",
        "'A':\n  type: bool\n  doc: |\n    one\n    # two\n\n    three\n  default: true",
        "A:\r\n  type: bool\r\n  default: true",
    ],
)
def test_ways_to_write_a_knob(body: str) -> None:
    base = f"---\n{_int('X')}\n\n# A\n{body}\n{_int('Y')}"
    theirs, ours = base.replace("true", "false"), replace_defaults(base, {"X": 4, "Y": 5})
    assert merge_knobs(base, theirs, ours) == ours.replace("true", "false")
    assert merge_knobs(base.removesuffix("\n"), theirs, ours) == ours.replace("true", "false")


NAMES = "ABCDEF"
COMMENTS = st.sampled_from(["", "", "\n", "# c\n", "\n# c\n", "# c\n\n", "  # c\n"])


@st.composite
def _cases(draw: st.DrawFn) -> tuple[str, str, dict[str, int]]:
    """A text, what a model makes of it, and defaults that a sweep turns of knobs that the model left alone."""
    knobs = {name: draw(COMMENTS) + _int(name, high=draw(st.integers(4, 8))) for name in NAMES}
    fates = {name: draw(st.sampled_from(["kept", "kept", "removed", "wider"])) for name in NAMES}
    edited: list[str] = []
    for name, text in knobs.items():
        if draw(st.booleans()):
            edited.append(draw(COMMENTS) + _int(f"NEW_{name}"))
        if fates[name] != "removed":
            edited.append(text if fates[name] == "kept" else text.replace("high: ", "high: 10"))
    kept = [name for name in NAMES if fates[name] == "kept"]
    turned = draw(st.dictionaries(st.sampled_from(kept), st.integers(1, 4))) if kept else {}
    return "".join(knobs.values()), "".join(edited), turned


@settings(max_examples=40)
@given(_cases())
def test_edits_and_turns_of_different_knobs_never_conflict(case: tuple[str, str, dict[str, int]]) -> None:
    base, edited, turned = case
    swept = replace_defaults(base, turned)
    for text in (_merged(base, edited, swept), _merged(base, swept, edited)):
        assert list(_parsed(text).items()) == list(_parsed(replace_defaults(edited, turned)).items())
        assert text.count("# c") == edited.count("# c")


def test_a_knob_whose_constraint_names_another_is_merged_like_any_other() -> None:
    base = BASE + 'D: {type: int, low: 1, high: 8, default: 1, requires: ["D <= B"]}\n'
    edited, swept = (
        base.replace(_int("A", about="about A"), _int("A", high=64)),
        replace_defaults(base, {"D": 2}),
    )
    assert _merged(base, edited, swept) == replace_defaults(edited, {"D": 2})
    with pytest.raises(MergeConflict):
        _merged(base, base.replace(_int("B"), _int("B", default=1)), swept)
