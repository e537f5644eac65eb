from __future__ import annotations

import os
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.git.edits import (
    matches,
    why_changed_outside,
    why_forbidden,
    why_inapplicable,
    why_not_mutable,
)
from hillclimb.agent.git.repository import Change
from hillclimb.agent.proposal import Edit

MUTABLE = ("*.py", "knobs.yaml", "docs/**", "ops/*/*.cu")
EXISTING = ("kernel.py", "knobs.yaml", "docs/notes.md", "Straße.py")


ALLOWED = ["kernel.py", "new.py", "docs/a.md", "docs/deep/er/b.txt", "ops/cuda/k.cu", "Straße.py"]


@pytest.mark.parametrize("path", ["other.py", "ops/kernel.py", "kernel.pyx", "docs", "Kernel.py"])
def test_what_no_glob_names_is_refused(path: str) -> None:
    narrow = ("kernel.py", "docs/**")
    assert "matches none of the mutable globs" in (why_not_mutable(path, narrow) or "")
    change = Change(f"cases/a/b/workspace/{path}", "100644", "100644")
    assert why_changed_outside([change], "cases/a/b/workspace", narrow, [path]) is not None


@pytest.mark.parametrize("path", ALLOWED)
def test_allowed(path: str) -> None:
    assert why_forbidden([Edit(path=path, content="")], MUTABLE, EXISTING) is None


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("", "empty"),
        ("/kernel.py", "absolute"),
        ("../contract.py", "'..'"),
        ("docs/../../contract.py", "'..'"),
        ("./kernel.py", "'.'"),
        ("docs//a.md", "''"),
        ("docs/", "''"),
        ("docs\\a.md", "backslash"),
        ("docs/a\0.md", "control"),
        ("docs/a\n.md", "control"),
        ("docs/\u202egpj.md", "invisible"),
        ("docs/.g\u200cit/config", "invisible"),
        ("docs/.git/config", "git's own"),
        ("docs/.GIT/config", "git's own"),
        ("docs/.gitattributes", "git's own"),
        ("docs/git~1/config", "git's own"),
        ("docs/a ", "space"),
        ("docs/a.", "dot"),
        ("docs/a:stream", "colon"),
        ("docs/" + "a" * 101, "longer"),
        ("docs/" + "a/" * 130 + "b", "longer"),
        ("contract.txt", "mutable globs"),
        ("sub/kernel.py", "mutable globs"),
        ("docs", "mutable globs"),
        ("ops/k.cu", "mutable globs"),
        ("ops/a/b/k.cu", "mutable globs"),
        ("Kernel.py", "only in case"),
        ("KNOBS.yaml", "mutable globs"),
        ("docs/Notes.md", "only in case"),
        ("strasse.py", "only in case"),
        (unicodedata.normalize("NFD", "Straße.py").replace("ß", "SS"), "only in case"),
    ],
)
def test_forbidden(path: str, said: str) -> None:
    reason = why_forbidden([Edit(path=path, content="")], MUTABLE, EXISTING)
    assert reason is not None and said in reason


def test_two_edits_that_are_one_file_on_some_disks() -> None:
    edits = [Edit(path="a.py", content=""), Edit(path="A.py", content="")]
    assert "only in case" in (why_forbidden(edits, MUTABLE, EXISTING) or "")


PATHS = st.text(st.sampled_from("aA.~/\\ \0\n\u200c*gitGIT:é") | st.characters(), max_size=40)


@given(PATHS)
def test_nothing_allowed_leaves_the_workspace(path: str) -> None:
    if why_not_mutable(path, ("**",)) is None:
        assert os.path.normpath(os.path.join("/w", path)) == f"/w/{path}"  # noqa: PTH118 - text, not files
        assert ".git" not in path.casefold().split("/")
        assert not {unicodedata.category(character) for character in path} & {"Cc", "Cf", "Cs"}


@given(PATHS, st.sampled_from(MUTABLE))
def test_nothing_is_allowed_beyond_the_globs(path: str, glob: str) -> None:
    if why_not_mutable(path, (glob,)) is None:
        assert matches(path, glob)


@pytest.mark.parametrize(
    ("glob", "yes", "no"),
    [
        ("*.py", ["a.py"], ["d/a.py", "a.pyc"]),
        ("**/*.py", ["a.py", "d/a.py", "d/e/a.py"], ["d/a.md"]),
        ("docs/**", ["docs/a", "docs/a/b"], ["docs", "adocs/a"]),
        ("a/**/b", ["a/b", "a/x/b", "a/x/y/b"], ["a/xb", "b"]),
        ("**", ["a", "a/b"], [""]),
        ("[ab]?.cu", ["ax.cu"], ["cx.cu", "a/.cu"]),
        ("?", ["a"], ["/"]),
    ],
)
def test_globs(glob: str, yes: list[str], no: list[str]) -> None:
    assert [path for path in yes if not matches(path, glob)] == []
    assert [path for path in no if path and matches(path, glob)] == []


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (Change("cases/a/b/contract.py", "100644", "100644"), "outside the workspace"),
        (Change("w/workspace/../x.py", "000000", "100644"), "'..'"),
        (Change("w/workspace/x.py", "000000", "120000"), "a symbolic link"),
        (Change("w/workspace/x.py", "100644", "100755"), "an executable"),
        (Change("w/workspace/x.py", "000000", "160000"), "a git submodule"),
        (Change("w/workspace/secret", "100644", "000000"), "mutable globs"),
    ],
)
def test_trees_made_by_others(change: Change, said: str) -> None:
    assert said in (why_changed_outside([change], "w/workspace", MUTABLE, EXISTING) or "")


def test_a_tree_with_honest_changes() -> None:
    changes = [
        Change("w/workspace/kernel.py", "100755", "100755"),
        Change("w/workspace/docs/a", "000000", "100644"),
    ]
    assert why_changed_outside(changes, "w/workspace", MUTABLE, EXISTING) is None


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([("a.py", "x"), ("a.py", "y")], "twice"),
        ([("gone.py", None)], "does not exist"),
        ([("docs", "x")], "both a file and a folder"),
        ([("kernel.py/x.py", "x")], "both a file and a folder"),
        ([("docs/n/a", "x"), ("docs/n", "y")], "both a file and a folder"),
    ],
)
def test_inapplicable(edits: list[tuple[str, str | None]], said: str) -> None:
    given = [Edit(path=path, content=content) for path, content in edits]
    assert said in (why_inapplicable(given, EXISTING) or "")


def test_a_file_may_become_a_folder_if_it_is_removed() -> None:
    edits = [Edit(path="docs/notes.md", content=None), Edit(path="docs/notes.md/a", content="x")]
    assert why_inapplicable(edits, EXISTING) is None
