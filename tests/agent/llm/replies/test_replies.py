from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hillclimb.agent.llm.replies.replies import (
    MAX_REPLY_CHARS,
    MAX_REPLY_LINES,
    DeleteFile,
    ParsedReply,
    SearchReplace,
    UnreadableReply,
    WholeFile,
    read_reply,
)
from hillclimb.agent.record.entries import Idea
from tests.agent.screen.rendering import answers, render

BLOCK = """<<<<<<< SEARCH
a = 1
=======
a = 2
>>>>>>> REPLACE"""
REPLY = f"""IDEA: double a
FAMILY: Loop Tiling!
NOTE: a was 1
NEXT: caching: keep a
KNOB: TILE=32

FILE: kernel.py
{BLOCK}
"""
CHANGE = SearchReplace("kernel.py", "a = 1\n", "a = 2\n")


def test_every_part_is_read() -> None:
    assert read_reply(REPLY) == ParsedReply(
        idea="double a",
        family="loop-tiling",
        notes=("a was 1",),
        next_ideas=(Idea(family="caching", idea="keep a"),),
        knobs={"TILE": "32"},
        changes=(CHANGE,),
    )


DECORATIONS: dict[str, Callable[[str], str]] = {
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "a fence around it": lambda text: f"```text\n{text}```\n",
    "a fence and a word around it": lambda text: f"Sure:\n\n~~~\n{text}~~~\nThat is all.",
    "bold headers": lambda text: text.replace("IDEA:", "**IDEA:**").replace("FILE:", "**FILE**:"),
    "a bold line": lambda text: text.replace("FILE: kernel.py", "**FILE: kernel.py**"),
    "backticks": lambda text: text.replace("FILE: kernel.py", "FILE: `kernel.py`"),
    "a header in backticks": lambda text: text.replace("FILE: kernel.py", "`FILE: kernel.py`"),
    "bold and backticks": lambda text: text.replace("FILE: kernel.py", "### **FILE:** **`kernel.py`**"),
    "a list": lambda text: text.replace("FILE:", "1. FILE:").replace("NOTE:", "- NOTE:"),
    "sentence case": lambda text: text.replace("FILE:", "File:").replace("IDEA:", "**Idea:**"),
    "indented headers": lambda text: text.replace("IDEA:", "  IDEA:").replace("FILE:", "\tFILE:"),
    "a block in a fence": lambda text: text.replace(BLOCK, f"```python\n{BLOCK}\n```"),
    "fences in a block": lambda text: text.replace("a = 1\n", "```python\na = 1\n```\n", 1),
    "an indented block": lambda text: text.replace(BLOCK, "\n".join(f"    {x}" for x in BLOCK.split("\n"))),
    "blanks after markers": lambda text: text.replace("SEARCH\n", "SEARCH  \n").replace("=\n", "= \n"),
    "a language after a marker": lambda text: text.replace("SEARCH\n", "SEARCH python\n"),
    "lower-case markers": lambda text: text.replace("SEARCH", "search").replace("REPLACE", "replace"),
    "five chevrons": lambda text: text.replace("<<<<<<<", "<<<<<").replace(">>>>>>>", ">>>>>"),
    "unequal markers": lambda text: text.replace("=======", "=========").replace("<<<<<<<", "<<<<<<<<"),
    "prose between": lambda text: text.replace("\nFILE", "\nIt is slow: so I do this.\n\nFILE").replace(
        "<<<<<<< S", "Only this:\n\n<<<<<<< S"
    ),
    "prose in front": lambda text: f"I looked at the profile.\n\n{text}",
    "code in front": lambda text: f"It does:\n```python\n# NOTE: not one\nx = 1\n```\n{text}",
    "thoughts": lambda text: f"<think>\nFILE: x.py\n<<<<<<< SEARCH\nIDEA: bad\n</think>\n{text}",
    "thoughts on one line": lambda text: f"<think> a -> b </think>{text}",
    "the end of thoughts": lambda text: f"IDEA: no\nFILE: y\n</think>\n\n{text}",
    "a byte-order mark": lambda text: f"\ufeff{text}",
    "no family": lambda text: text.replace("FAMILY: Loop Tiling!", "FAMILY: Loop. (tiling)"),
}


@pytest.mark.parametrize("decorate", DECORATIONS.values(), ids=DECORATIONS)
def test_decorations_change_nothing(decorate: Callable[[str], str]) -> None:
    assert decorate(REPLY) != REPLY
    assert read_reply(decorate(REPLY)) == read_reply(REPLY)


@settings(max_examples=50)
@given(answers(), st.sets(st.sampled_from(["crlf", "wrapped", "bold", "prose", "ticks", "fenced"])))
def test_what_is_written_is_read(answer: ParsedReply, style: set[str]) -> None:
    assert read_reply(render(answer, style)) == answer


@settings(max_examples=50)
@given(answers(), st.sets(st.sampled_from(["crlf", "wrapped", "bold", "ticks", "fenced"])), st.floats(0, 1))
def test_a_reply_cut_off_has_no_half_changes(answer: ParsedReply, style: set[str], share: float) -> None:
    lines = render(answer, style).splitlines(keepends=True)
    try:
        cut = read_reply("".join(lines[: round(share * len(lines))]))
    except UnreadableReply:
        return
    assert cut.changes == answer.changes[: len(cut.changes)]


def test_whole_files_and_deletions() -> None:
    reply = "IDEA: x\nFILE: a.py\n```python\na = 1\n\n\n```\nFILE: b.txt\n```\n```\n**DELETE:** `old.py`\n"
    assert read_reply(reply).changes == (
        WholeFile("a.py", "a = 1\n"),
        WholeFile("b.txt", ""),
        DeleteFile("old.py"),
    )


def test_an_empty_search_and_an_empty_replacement() -> None:
    reply = f"IDEA: x\nFILE: a.py\n<<<<<<< SEARCH\n=======\nb\n>>>>>>> REPLACE\n{BLOCK.replace('a = 2', '')}"
    assert read_reply(reply).changes == (
        SearchReplace("a.py", "", "b\n"),
        SearchReplace("a.py", "a = 1\n", "\n"),
    )
    reply = "IDEA: x\nFILE: a.py\n<<<<<<< SEARCH\nb\n=======\n>>>>>>> REPLACE"
    assert read_reply(reply).changes == (SearchReplace("a.py", "b\n", ""),)


def test_longer_markers_hold_shorter_ones() -> None:
    inner = BLOCK + "\n"
    reply = f"IDEA: x\nFILE: a.md\n<<<<<<<<< SEARCH\n{inner}=========\n{inner}{inner}>>>>>>>>> REPLACE\n"
    assert read_reply(reply).changes == (SearchReplace("a.md", inner, inner + inner),)


def test_other_rulers_in_a_block() -> None:
    reply = "IDEA: x\nFILE: a.rst\n<<<<<<< SEARCH\nT\n=====\n=======\nU\n  =======\n>>>>>>> REPLACE"
    assert read_reply(reply).changes == (SearchReplace("a.rst", "T\n=====\n", "U\n  =======\n"),)


DOCSTRING = '"""Use:\n\n```\nrun()\n```\n\n```python\nrun()\n```\n"""\nx = 1\n'


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("a.py", DOCSTRING),
        ("a.py", DOCSTRING.replace('"""', "'''").replace("run()", '"""')),
        ("a.py", "def f():\n    '''\n    ```\n    x\n    ```\n    '''\n"),
        ("a.py", "x = 1\n# NOTE: this stays\n# FILE: so does this\n"),
        ("a.md", "# Title\n```\ncode\n```\nmore\n```sh\nls\n```\n"),
        ("a.yaml", "A:\n  doc: ```no fence\n"),
        ("a.cu", "kernel<<<1, 2>>>();\n<<<<<<< SEARCH\n"),
        ("a.py", "FILE: str = 'x'\nDELETE: int = 1\nNOTE: str\n"),
    ],
)
@pytest.mark.parametrize("before", ["", "```\n"])
@pytest.mark.parametrize("after", ["", "NOTE: done\n", f"FILE: b.py\n{BLOCK}\n", "FILE: b.py\n```\nb\n```\n"])
def test_fences_within_files(path: str, content: str, before: str, after: str) -> None:
    reply = f"{before}IDEA: x\nFILE: {path}\n```{path[2:]}\n{content}```\n{after}{before}"
    assert read_reply(reply).changes[0] == WholeFile(path, content)
    assert len(read_reply(reply).changes) == 1 + ("FILE" in after)


def test_a_longer_fence_holds_anything() -> None:
    content = f"```\nFILE: b.py\n```\nx\n```\n{BLOCK}\n"
    assert read_reply(f"IDEA: x\nFILE: a.md\n````\n{content}````\n").changes == (WholeFile("a.md", content),)


def test_code_shown_after_a_file_is_prose() -> None:
    reply = "IDEA: x\nFILE: a.py\n```python\na = 1\n```\nRun it:\n```bash\npython a.py\n```\nNOTE: y\n"
    assert read_reply(reply) == ParsedReply(idea="x", notes=("y",), changes=(WholeFile("a.py", "a = 1\n"),))


@pytest.mark.parametrize(
    "path", ["../contract.py", "/etc/passwd", "__init__.py", "docs/a b.md", "workspace/k.py"]
)
def test_paths_are_kept_as_they_are(path: str) -> None:
    assert read_reply(f"IDEA: x\nDELETE: {path}\n").changes == (DeleteFile(path),)


@pytest.mark.parametrize(
    ("head", "idea"),
    [
        ("IDEA:\nfuse the loops\n", "fuse the loops"),
        ("## Fuse the loops\n", "Fuse the loops"),
        ("\n***\n- fuse\n", "fuse"),
        ("IDEA: a\x00\u2028b\n", "a b"),
        (f"IDEA: {'é' * 300}\n", "é" * 199 + "…"),
        ("IDEA: same\nIDEA: same\n", "same"),
    ],
)
def test_the_idea(head: str, idea: str) -> None:
    assert read_reply(f"{head}DELETE: a.py\n").idea == idea


def test_limits_cut_remarks() -> None:
    notes = "".join(f"NOTE: {i}{'n' * 400}\n" for i in range(9))
    ideas = "".join(f"NEXT: f{i}: idea\n" for i in range(20))
    answer = read_reply(f"IDEA: x\nFAMILY: {'ab' * 99}\nDELETE: a\n{notes}{ideas}")
    assert [len(note) for note in answer.notes] == [300] * 5
    assert len(answer.next_ideas) == 12
    assert answer.family == "ab" * 20


@pytest.mark.parametrize(
    ("value", "family", "idea"),
    [
        ("loop order: try kij", "loop-order", "try kij"),
        ("try kij", "other", "try kij"),
        ("read all of A once: it is used twice: yes", "other", "read all of A once: it is used twice: yes"),
        ("`cache`: keep B", "cache", "keep B"),
    ],
)
def test_what_to_try_next(value: str, family: str, idea: str) -> None:
    answer = read_reply(f"IDEA: x\nDELETE: a\nNEXT: {value}\n")
    assert answer.next_ideas == (Idea(family=family, idea=idea),)


MALFORMED = {
    "empty": ("  \n ", ["reply is empty", "FILE: path"]),
    "cut off in a block": (
        REPLY.removesuffix(">>>>>>> REPLACE\n"),
        ["begins in line 8", "not closed", "the reply ends", "smaller blocks"],
    ),
    "a block that the next one interrupts": (
        REPLY.replace(">>>>>>> REPLACE\n", f"{BLOCK}\n"),
        ["begins in line 8", "next one begins in line 12"],
    ),
    "another tool's markers": (
        REPLY.replace(">>>>>>> REPLACE", ">>>>>>> UPDATED"),
        ["line 12 is '>>>>>>> UPDATED'", "write '>>>>>>> REPLACE'"],
    ),
    "merge conflict markers": (
        REPLY.replace("<<<<<<< SEARCH", "<<<<<<< HEAD"),
        ["line 8 is '<<<<<<< HEAD'", "write '<<<<<<< SEARCH'"],
    ),
    "no ruler": (REPLY.replace("=======\n", ""), ["lines 8 to 11", "no line '======='"]),
    "two rulers": (REPLY.replace("a = 2", "=======\na"), ["2 lines", "lines 10, 11", "9 characters"]),
    "REPLACE alone": ("IDEA: x\nFILE: a\nb\n>>>>>>> REPLACE\n", ["line 4", "without a '<<<<<<< SEARCH'"]),
    "no FILE": (REPLY.replace("FILE: kernel.py\n", ""), ["line 7", "names no file"]),
    "FILE and no path": (REPLY.replace("kernel.py", ""), ["line 7", "FILE names no file"]),
    "FILE and nothing": ("IDEA: x\nFILE: a.py\nFILE: b.py\n```\n```\n", ["line 2", "a.py", "neither"]),
    "FILE and bare code": ("IDEA: x\nFILE: a.py\nx = 1\n", ["line 2", "neither"]),
    "FILE as a comment in its code": (
        "Here:\n```python\n# FILE: a.py\nx = 1\n```\n",
        ["line 3", "a.py", "right after it"],
    ),
    "a file cut off": ("IDEA: x\nFILE: a.py\n```python\nx = 1\n", ["line 3", "never closed", "cut off"]),
    "a file cut off before the next": (
        "IDEA: x\nFILE: a.py\n```python\nx = 1\nFILE: b.py\n```\ny = 1\n```\n",
        ["line 3", "a.py is never closed"],
    ),
    "two whole files": (
        "IDEA: x\nFILE: a\n```\n1\n```\nFILE: a\n```\n2\n```\n",
        ["a is changed as a whole file in line 2", "as a whole file in line 6"],
    ),
    "whole and in blocks": (f"IDEA: x\nFILE: a\n```\n1\n```\n{BLOCK}\n", ["as a whole", "by SEARCH/REPLACE"]),
    "removed and changed": (f"IDEA: x\nDELETE: a\nFILE: a\n{BLOCK}\n", ["by DELETE in line 2", "line 3"]),
    "blocks after DELETE": (f"IDEA: x\nDELETE: a\n{BLOCK}\n", ["line 3", "names no file"]),
    "two ideas": (f"{REPLY}IDEA: another\n", ["lines 1 and 13", "NEXT"]),
    "no idea": ("DELETE: a.py\n", ["no line 'IDEA: ...'"]),
    "no change": ("IDEA: x\nI would tile the loop.", ["no FILE, DELETE or KNOB line", "FILE: path"]),
    "code alone": ("Use this:\n```python\nx = 1\n```\n", ["code in line 2", "no file"]),
    "JSON": ('```json\n{"idea": "x", "edits": [{"path": "a.py"}]}\n```', ["is JSON", "FILE: path"]),
    "a diff": ("x\n--- a/k.py\n+++ b/k.py\n@@ -1 +1 @@\n-a\n+b\n", ["line 2", "a diff", "FILE: path"]),
    "a diff as a file": ("IDEA: x\nFILE: k.py\n```diff\n-a\n+b\n```\n", ["line 3", "a diff of k.py"]),
    "a diff as a file, untagged": (
        "IDEA: x\nFILE: k.py\n```\n@@ -1 +1 @@\n-a\n+b\n```\n",
        ["a diff of k.py"],
    ),
    "HTML": (
        REPLY.replace("<", "&lt;").replace(">", "&gt;"),
        ["line 8 is HTML-escaped", "as they are"],
    ),
    "KNOB without a value": ("IDEA: x\nKNOB: TILE 32\n", ["line 2", "NAME=value", "'TILE 32'"]),
    "KNOB twice": ("IDEA: x\nKNOB: T=1\nKNOB: T=2\n", ["line 3", "another value"]),
    "many knobs": ("IDEA: x\n" + "".join(f"KNOB: K{i}=1\n" for i in range(65)), ["line 66", "64"]),
    "many changes": ("IDEA: x\n" + "".join(f"DELETE: {i}\n" for i in range(201)), ["more than 200"]),
    "thoughts alone": ("<think>\nIDEA: x\nDELETE: y\n", ["within its <think>"]),
    "half a character": ("IDEA: x\nDELETE: a\ud800", ["line 2", "surrogate"]),
    "too long": ("x" * (MAX_REPLY_CHARS + 1), ["characters", "SEARCH blocks"]),
    "too many lines": ("\n" * MAX_REPLY_LINES + "x", ["100001 lines"]),
}


@pytest.mark.parametrize(("reply", "said"), MALFORMED.values(), ids=MALFORMED)
def test_malformed(reply: str, said: list[str]) -> None:
    with pytest.raises(UnreadableReply) as caught:
        read_reply(reply)
    message = str(caught.value)
    assert [part for part in said if part not in message] == [], message
    assert len(message) < 500


PIECES = st.sampled_from(
    [
        *REPLY.split("\n"),
        "```",
        "```python",
        "````",
        "~~~",
        "FILE: a.md",
        "DELETE: b",
        "=====",
        ">>>>> x",
        "\r",
        " ",
        '"""',
        "# FILE: c.py",
        "</think>",
        "KNOB: A",
        "NEXT: :",
        "<<<<<<<<< SEARCH",
        "    <<<<< SEARCH",
        "\u2028",
    ]
)


@given(st.lists(PIECES | st.text(max_size=20), max_size=40).map("\n".join))
def test_nothing_but_unreadable_is_raised(text: str) -> None:
    try:
        answer = read_reply(text)
    except UnreadableReply:
        return
    assert answer.changes or answer.knobs
    assert answer.idea.isprintable() and 0 < len(answer.idea) <= 200
    assert all(
        c.content == "" or c.content.endswith("\n") for c in answer.changes if isinstance(c, WholeFile)
    )


SIZE = 5_000_000


def _fill(unit: str) -> str:
    return (unit * (min(SIZE, (MAX_REPLY_LINES - 10) * len(unit) // max(1, unit.count("\n"))) // len(unit)))[
        :SIZE
    ]


HOSTILE = {
    "blank lines": "IDEA: x\nDELETE: a\n" + "\n" * (MAX_REPLY_LINES - 10),
    "one line of chevrons": "IDEA: x\n" + "<" * SIZE,
    "one line of blanks": "IDEA: x\n" + " " * SIZE + "x",
    "one line of ticks": "IDEA: x\n" + "`" * SIZE,
    "one line of quotes": "IDEA: x\nFILE: a.py\n```\n" + "'''" * (SIZE // 3),
    "one line of mixed quotes": "IDEA: x\nFILE: a.py\n```\n" + "'''\"\"\"" * (SIZE // 6),
    "one header": "IDEA: " + "**`" * (SIZE // 3),
    "decorations": "IDEA: x\n" + _fill("> * # ` - _ \n"),
    "SEARCH lines": "IDEA: x\nFILE: a\n" + _fill("<<<<<<< SEARCH\n"),
    "SEARCH lines, each longer": "IDEA: x\nFILE: a\n"
    + "".join("<" * i + " SEARCH\n" for i in range(5, 3000)),
    "blocks": "IDEA: x\nFILE: a\n" + _fill("<<<<<<< SEARCH\n=======\n>>>>>>> REPLACE\n"),
    "rulers": "IDEA: x\nFILE: a\n<<<<<<< SEARCH\n" + _fill("=======\n") + ">>>>>>> REPLACE\n",
    "fences": "IDEA: x\n" + _fill("```\n"),
    "fences after FILE": "IDEA: x\nFILE: a.md\n" + _fill("```\n"),
    "files": "IDEA: x\n" + "".join(f"FILE: {i}.py\n```\n'''\n```\n" for i in range(20_000)),
    "files as comments": "IDEA: x\n" + "".join(f"# FILE: {i}.py\n```\n'''\n```\n" for i in range(20_000)),
    "files with blanks": "IDEA: x\n" + _fill("FILE: a.py\n\n\n\n\n\n\n\n"),
    "headers in a file": "IDEA: x\nFILE: a.py\n```\n" + _fill("FILE: b.py\n\n\n"),
    "knobs": "IDEA: x\n" + _fill("KNOB: A=1\n"),
    "notes": "IDEA: x\nDELETE: a\n" + _fill("NOTE: " + "n" * 50 + "\n"),
    "thoughts": "<think>" + _fill("x</thin\n"),
    "ends of thoughts": "IDEA: x\n" + _fill("</think>\n"),
    "tags in lines": "IDEA: x\n" + _fill("</a></b></c>\n"),
    "fences that never close": "IDEA: x\n" + _fill("```a\n"),
    "prose": _fill("Lorem ipsum dolor sit\n"),
}


@pytest.mark.slow(
    1,
    but=[
        "decorations",
        "one line of ticks",
        "one header",
        "thoughts",
        "fences that never close",
        "SEARCH lines, each longer",
        "rulers",
    ],
)
@pytest.mark.parametrize("reply", HOSTILE.values(), ids=HOSTILE)
def test_time_is_linear(reply: str) -> None:
    began = time.process_time()
    try:
        read_reply(reply)
    except UnreadableReply as error:
        assert len(str(error)) < 800
    assert time.process_time() - began < 10


LONG_PATHS = ["a" * 241, "é" * 121, "d/" * 500_000 + "a.py", "../" * 100_000]


@pytest.mark.parametrize("path", LONG_PATHS, ids=len)
@pytest.mark.parametrize("keyword", ["FILE", "DELETE"])
def test_a_long_path_is_refused_where_it_stands(keyword: str, path: str) -> None:
    with pytest.raises(UnreadableReply, match=f"^line 2: the path after {keyword} has ") as caught:
        read_reply(f"IDEA: i\n{keyword}: {path}\n```\nx\n```\n")
    assert len(str(caught.value)) < 300
    assert path[:81] not in str(caught.value)


def test_the_longest_path_is_read_and_shown_in_part() -> None:
    path = "a" * 240
    assert read_reply(f"IDEA: i\nDELETE: {path}\n").changes == (DeleteFile(path),)
    for reply in (f"FILE: {path}\n", f"DELETE: {path}\nDELETE: {path}\n", f"FILE: {path}\n```\nx\n"):
        with pytest.raises(UnreadableReply) as caught:
            read_reply(f"IDEA: i\n{reply}")
        assert "a" * 77 + "..." in str(caught.value)
        assert "a" * 78 not in str(caught.value)


@pytest.mark.parametrize(("path", "read"), [("./k.py", "k.py"), ("././k.py", "./k.py"), (".k.py", ".k.py")])
def test_one_leading_dot_and_slash_is_left_out(path: str, read: str) -> None:
    assert read_reply(f"IDEA: i\nDELETE: {path}\n").changes == (DeleteFile(read),)


def test_a_file_is_one_file_however_it_is_spelt() -> None:
    with pytest.raises(UnreadableReply, match=r"k\.py is changed by DELETE .* say once how"):
        read_reply("IDEA: i\nDELETE: ./k.py\nDELETE: k.py\n")


@pytest.mark.parametrize("path", [".", "./"])
def test_the_workspace_itself_is_no_file(path: str) -> None:
    with pytest.raises(UnreadableReply, match="names no file"):
        read_reply(f"IDEA: i\nFILE: {path}/\n```\nx\n```\n".replace("//", "/"))
