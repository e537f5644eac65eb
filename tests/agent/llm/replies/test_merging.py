from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.llm.replies.merging import MergeConflict, merge, revert
from hillclimb.agent.proposal import Edit
from hillclimb.harness.errors import MachineError
from tests.agent.screen.rendering import TEXTS

BASE = {"k.py": "".join(f"line {i}\n" for i in range(1, 21)), "docs/n.md": "n\n"}


def _with(line: int, text: str, files: dict[str, str] = BASE) -> dict[str, str]:
    return {**files, "k.py": files["k.py"].replace(f"line {line}\n", text)}


def _made(files: dict[str, str], edits: tuple[Edit, ...]) -> dict[str, str]:
    after = {**files, **{edit.path: edit.content or "" for edit in edits}}
    return {path: after[path] for path in after if path not in {e.path for e in edits if e.content is None}}


def test_changes_of_other_lines_are_both_there() -> None:
    edits = merge(BASE, _with(2, "two\n"), _with(15, ""))
    assert edits == (Edit(path="k.py", content=_with(2, "two\n", _with(15, ""))["k.py"]),)


@pytest.mark.parametrize(
    ("base", "proposed", "ours", "expected"),
    [
        ({}, {"a": "1"}, {}, {"a": "1"}),
        ({}, {"a": "1"}, {"a": "1"}, {"a": "1"}),
        ({"a": "0"}, {"a": "1"}, {"a": "1"}, {"a": "1"}),
        ({"a": "0"}, {"a": "0", "new": "x"}, {"a": "2"}, {"a": "2", "new": "x"}),
        ({"a": "0"}, {"a": "0"}, {"a": "2"}, {"a": "2"}),
        ({"a": "0"}, {}, {"a": "0", "b": ""}, {"b": ""}),
        ({"a": "0"}, {}, {"b": ""}, {"b": ""}),
    ],
)
def test_whole_files(
    base: dict[str, str], proposed: dict[str, str], ours: dict[str, str], expected: dict[str, str]
) -> None:
    assert _made(ours, merge(base, proposed, ours)) == expected


def test_what_is_there_already_is_no_edit() -> None:
    changed = _with(3, "three\n")
    assert merge(BASE, changed, changed) == ()
    assert merge(BASE, BASE, changed) == ()


@pytest.mark.parametrize(
    ("proposed", "ours", "said"),
    [
        (_with(5, "five\n"), _with(5, "FIVE\n"), ["k.py", "(lines 5)"]),
        (_with(5, "five\n"), _with(5, "a\nb\nc\n"), ["k.py", "(lines 5-7)"]),
        (_with(18, "x\n", _with(5, "five\n")), _with(18, "y\n", _with(5, "a\nb\nc\n")), ["(lines 5-7, 20)"]),
        (_with(5, "five\n"), {"docs/n.md": "n\n"}, ["k.py is to be changed, and is gone"]),
        ({"docs/n.md": "n\n"}, _with(5, "five\n"), ["k.py is to be removed, and has changed"]),
        ({**BASE, "new": "a\n"}, {**BASE, "new": "b\n"}, ["new has changed", "(lines 1)"]),
        (_with(5, "\0"), _with(9, "\0"), ["k.py is no text"]),
        ({**_with(5, "five\n"), "docs/n.md": "a\n"}, {"docs/n.md": "b\n"}, ["docs/n.md has", "; k.py is"]),
    ],
)
def test_conflicts(proposed: dict[str, str], ours: dict[str, str], said: list[str]) -> None:
    with pytest.raises(MergeConflict) as caught:
        merge(BASE, proposed, ours)
    assert [part for part in said if part not in str(caught.value)] == [], str(caught.value)


def test_many_conflicts_are_counted() -> None:
    files = {f"{i:02}": "a\n" for i in range(15)}
    with pytest.raises(MergeConflict, match=r"; and 5 more files$"):
        merge(files, dict.fromkeys(files, "b\n"), dict.fromkeys(files, "c\n"))


def test_lines_like_markers_are_text() -> None:
    marks = "<<<<<<< ours\na\n=======\nb\n>>>>>>> theirs\n"
    ours = _with(15, marks)
    assert merge(BASE, _with(2, marks), ours)[0].content == _with(2, marks, ours)["k.py"]


@pytest.mark.parametrize("text", ["é漢\n", "x\r\n", "no end", "\u2028\x0c\n"])
def test_text_of_any_kind(text: str) -> None:
    ours = {**BASE, "k.py": BASE["k.py"] + text}
    assert merge(BASE, _with(2, "two\n"), ours)[0].content == _with(2, "two\n", ours)["k.py"]


def test_nothing_of_the_users_git_matters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / ".gitconfig").write_text("[merge]\n\tconflictStyle = nonsense\n[core]\n\tbroken = [\n[[\n")
    for name, value in {"HOME": tmp_path, "GIT_DIR": tmp_path / "none", "GIT_CONFIG_COUNT": "x"}.items():
        monkeypatch.setenv(name, str(value))
    assert len(merge(BASE, _with(2, "two\n"), _with(15, ""))) == 1


def test_git_that_is_not_there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="git is not installed"):
        merge(BASE, _with(2, "two\n"), _with(15, ""))


def test_a_win_is_taken_back_out() -> None:
    after = {**_with(4, "faster\n"), "new.py": "x\n"}
    now = _with(16, "later\n", after)
    assert _made(now, revert(BASE, after, now)) == _with(16, "later\n")


def test_a_win_that_was_built_upon_stays() -> None:
    after = _with(4, "faster\n")
    with pytest.raises(MergeConflict, match=r"k.py .*lines 4-5"):
        revert(BASE, after, {"k.py": after["k.py"].replace("faster\n", "faster\nstill\n")})


FILES = st.dictionaries(st.sampled_from(["a.py", "b.cu", "d/c.md"]), TEXTS)


@given(FILES, FILES)
def test_undoing_at_once_leads_back(before: dict[str, str], after: dict[str, str]) -> None:
    assert _made(after, revert(before, after, after)) == before
    assert _made(before, merge(before, after, before)) == after


@given(st.tuples(TEXTS, TEXTS, TEXTS, TEXTS))
def test_changes_apart_from_each_other_commute(texts: tuple[str, str, str, str]) -> None:
    kept = "".join(f"kept {i}\n" for i in range(4))
    old_top, old_end, new_top, new_end = texts
    base, both = {"k": f"{old_top}{kept}{old_end}"}, {"k": f"{new_top}{kept}{new_end}"}
    top, end = {"k": f"{new_top}{kept}{old_end}"}, {"k": f"{old_top}{kept}{new_end}"}
    assert _made(top, merge(base, end, top)) == _made(end, merge(base, top, end)) == both


@pytest.mark.parametrize("proposed", [{}, {"p" * 500: "b\n"}])
def test_a_conflict_is_told_in_few_words(proposed: dict[str, str]) -> None:
    path = "p" * 500
    with pytest.raises(MergeConflict) as caught:
        merge({path: "a\n"}, proposed, {path: "c\n"})
    assert "p" * 77 + "..." in str(caught.value)
    assert "p" * 78 not in str(caught.value)


def test_ever_so_many_lines_in_conflict_are_told_in_part() -> None:
    base, proposed, ours = (
        {"k": "".join(f"{'x' if i % 10 else side} {i}\n" for i in range(12000))} for side in "abc"
    )
    with pytest.raises(MergeConflict) as caught:
        merge(base, proposed, ours)
    assert len(str(caught.value)) == 4000
