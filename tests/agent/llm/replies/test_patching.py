from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.llm.replies.patching import InapplicableChange, apply, knob_values
from hillclimb.agent.llm.replies.replies import DeleteFile, FileChange, SearchReplace, WholeFile, read_reply
from hillclimb.agent.proposal import Edit
from hillclimb.harness.knobs.knobs import parse_knobs
from tests.agent.screen.rendering import TEXTS, block_of

KERNEL = '''"""A kernel."""

import os


def run(a, b, c):
    total = 0
    for i in range(len(a)):
        total += a[i] * b[i]

    c[0] = total


def other(a, b, c):
    for i in range(len(a)):
        c[i] = a[i]
'''
KNOBS = (
    "TILE:\n  type: log-int\n  low: 8\n  high: 64\n  default: 16\nUNROLL:\n  type: bool\n  default: false\n"
)
FILES = {"kernel.py": KERNEL, "knobs.yaml": KNOBS, "docs/notes.md": "# Notes\n"}


def _lines(text: str) -> list[str]:
    return text.removesuffix("\n").split("\n") if text else []


def _refused(*changes: FileChange, files: dict[str, str] = FILES) -> str:
    with pytest.raises(InapplicableChange) as caught:
        apply(changes, files)
    return str(caught.value)


def test_several_files_at_once() -> None:
    changes = [
        SearchReplace("kernel.py", "    total = 0\n", "    total = 0.0\n"),
        WholeFile("new.py", "x = 1\n"),
        DeleteFile("docs/notes.md"),
        SearchReplace("kernel.py", "    total = 0.0\n    for", "    total = 1.0\n    for"),
    ]
    assert "does not stand" in _refused(*changes)
    changes[3] = SearchReplace("kernel.py", "    total = 0.0\n", "    total = 1.0\n")
    assert apply(changes, FILES) == (
        Edit(path="kernel.py", content=KERNEL.replace("total = 0", "total = 1.0")),
        Edit(path="new.py", content="x = 1\n"),
        Edit(path="docs/notes.md", content=None),
    )


def test_no_changes_are_no_edits() -> None:
    assert apply((), FILES) == ()


def test_only_files_that_differ_are_edited() -> None:
    changes = [WholeFile("kernel.py", KERNEL), WholeFile("docs/notes.md", "")]
    assert apply(changes, FILES) == (Edit(path="docs/notes.md", content=""),)


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
@pytest.mark.parametrize(
    ("search", "replace", "result"),
    [("b", "x", "a\nx"), ("a", "x", "x\nb"), ("b", "", "a"), ("a\nb", "x", "x")],
)
def test_the_end_of_a_file_stays(end: str, search: str, replace: str, result: str) -> None:
    change = SearchReplace("t.txt", f"{search}\n", replace and f"{replace}\n")
    assert apply([change], {"t.txt": f"a\nb{end}"})[0].content == result + end


@pytest.mark.parametrize(
    ("name", "search", "replace", "there", "result"),
    [
        ("blanks at ends", "a\nb\n", "x\n", "1\na  \nb\t\n2\n", "1\nx\n2\n"),
        ("CRLF", "a\nb\n", "x\ny\n", "1\r\na\r\nb\r\n2\r\n", "1\r\nx\r\ny\r\n2\r\n"),
        ("the exact one first", "a\n", "x\n", "a \na\n", "a \nx\n"),
        (
            "more indentation",
            "if a:\n  b\n",
            "if c:\n\n  d\n",
            "f\n\tif a:\n\t  b\n",
            "f\n\tif c:\n\n\t  d\n",
        ),
        ("less indentation", "    if a:\n      b\n", "    if c:\n", "if a:\n  b\n", "if c:\n"),
        ("blank lines within", "a\n\nb\n", "x\n", "  a\n   \n  b\n", "  x\n"),
        ("a blank line", "a\n\n", "", "a\n\nb\n", "b\n"),
    ],
)
def test_what_is_tolerated(name: str, search: str, replace: str, there: str, result: str) -> None:
    assert apply([SearchReplace("t", search, replace)], {"t": there})[0].content == result


@pytest.mark.parametrize(
    ("search", "there"),
    [
        ("a\nb\n", "  a\nb\n"),
        ("a\n  b\n", "a\n    b\n"),
        ("\ta\n", "  a\n  a\n"),
        ("a b\n", "a  b\n"),
        ("a\n", "A\n"),
        ("a\nb\n", "a\n\nb\n"),
        ("a\n", "aa\nba\n"),
    ],
)
def test_nothing_fuzzier_is(search: str, there: str) -> None:
    assert "SEARCH of block 1" in _refused(SearchReplace("t", search, "x\n"), files={"t": there})


def test_files_are_created() -> None:
    assert apply([SearchReplace("n.py", "", "x = 1\n")], FILES) == (Edit(path="n.py", content="x = 1\n"),)
    assert apply([SearchReplace("n.py", "\n", "x = 1\n")], {"n.py": ""}) == (
        Edit(path="n.py", content="x = 1\n"),
    )
    changes = [
        SearchReplace("n.py", "", "x = 1\n"),
        SearchReplace("n.py", "x = 1\n", "x = 2\n"),
        DeleteFile("docs/notes.md"),
    ]
    assert apply(changes, FILES)[0] == Edit(path="n.py", content="x = 2\n")


LOOP = "    for i in range(len(a)):\n        total += a[i] * b[i]\n"
REFUSED: dict[str, tuple[list[FileChange], list[str]]] = {
    "a blank line forgotten": (
        [SearchReplace("kernel.py", f"    total = 0\n{LOOP}    c[0] = total\n", "pass\n")],
        [
            "kernel.py: the SEARCH of block 1",
            "line 10: the file has a blank line, SEARCH has '    c[0] = total'",
            "    9 |         total += a[i] * b[i]\n   10 | \n   11 |     c[0] = total",
        ],
    ),
    "a blank line too many": (
        [SearchReplace("kernel.py", f"    total = 0\n\n{LOOP}", "pass\n")],
        ["line 8: the file has '    for i in range(len(a)):', SEARCH has a blank line"],
    ),
    "the first line from memory": (
        [SearchReplace("kernel.py", f"    total = 0.0\n{LOOP}", "pass\n")],
        ["line 7: the file has '    total = 0', SEARCH has '    total = 0.0'"],
    ),
    "a single line from memory": (
        [SearchReplace("kernel.py", "        total += a[i] * b[j]\n", "pass\n")],
        ["line 9: the file has '        total += a[i] * b[i]', SEARCH has"],
    ),
    "past the end": (
        [SearchReplace("docs/notes.md", "# Notes\nmore\n", "x\n")],
        ["line 2: the file has the end of the file, SEARCH has 'more'"],
    ),
    "nothing like it": (
        [SearchReplace("docs/notes.md", "import torch\n", "x\n")],
        ["docs/notes.md", "Nothing in its 1 lines is like it"],
    ),
    "several places": (
        [SearchReplace("kernel.py", "    for i in range(len(a)):\n", "    while 1:\n")],
        ["stands in 2 places (lines 8, 15)", "add lines above or below"],
    ),
    "several places with other indentation": (
        [SearchReplace("kernel.py", "for i in range(len(a)):\n", "while 1:\n")],
        ["stands in 2 places (lines 8, 15)"],
    ),
    "line numbers": (
        [SearchReplace("kernel.py", "7 |     total = 0\n8 |     for i in range(len(a)):\n", "x\n")],
        ["line numbers", "leave those out"],
    ),
    "line numbers as in an editor": (
        [SearchReplace("kernel.py", "    7:    total = 0\n    8:    for i in range(len(a)):\n", "x\n")],
        ["line numbers"],
    ),
    "lines left out in SEARCH": (
        [
            SearchReplace(
                "kernel.py", "def run(a, b, c):\n    # ... existing code ...\n    c[0] = total\n", "x\n"
            )
        ],
        ["leaves lines out with '...'"],
    ),
    "lines left out in REPLACE": (
        [SearchReplace("kernel.py", "    c[0] = total\n", "    # ... rest of the function unchanged\n")],
        ["kernel.py, line 11", "'# ... rest of the function unchanged'", "write all lines"],
    ),
    "lines left out in a file": (
        [WholeFile("kernel.py", "import os\n# ... (existing code) ...\ndef f(): pass\n")],
        ["kernel.py, line 2", "left out"],
    ),
    "HTML": (
        [SearchReplace("t.cu", "run&lt;&lt;&lt;1&gt;&gt;&gt;();\n", "x\n")],
        ["HTML-escaped", "as they are"],
    ),
    "changed by an earlier block": (
        [
            SearchReplace("kernel.py", "import os\n", "import sys\n"),
            SearchReplace("kernel.py", "import os\n\n", "\n"),
        ],
        ["SEARCH of block 2", "an earlier block", "one block of both"],
    ),
    "there already": ([SearchReplace("kernel.py", "import sys\n", "import os\n")], ["is there already"]),
    "in another file": ([SearchReplace("kernel.py", "# Notes\n", "x\n")], ["it stands in docs/notes.md"]),
    "an empty SEARCH": (
        [SearchReplace("kernel.py", "", "x\n")],
        ["SEARCH of block 1 is empty", "the file exists"],
    ),
    "a missing file": (
        [SearchReplace("kernal.py", "import os\n", "x\n")],
        ["no file 'kernal.py'", "did you mean kernel.py?", "docs/notes.md, kernel.py, knobs.yaml"],
    ),
    "the workspace in the path": (
        [SearchReplace("workspace/kernel.py", "import os\n", "x\n")],
        ["did you mean kernel.py?", "relative to workspace/"],
    ),
    "the workspace in a whole file's path": (
        [WholeFile("workspace/kernel.py", "x = 1\n")],
        ["relative to workspace/; write kernel.py"],
    ),
    "removing a missing file": (
        [DeleteFile("../kernel.py")],
        ["no file '../kernel.py'", "did you mean kernel.py?"],
    ),
    "removing twice": ([DeleteFile("kernel.py"), DeleteFile("kernel.py")], ["no file 'kernel.py'"]),
    "nothing changes": (
        [WholeFile("kernel.py", KERNEL), SearchReplace("docs/notes.md", "# Notes\n", "# Notes\n")],
        ["nothing changes: docs/notes.md, kernel.py would be as before"],
    ),
    "not Python": (
        [SearchReplace("kernel.py", "    total = 0\n", "    total = = 0\n")],
        ["kernel.py would not be Python: line 7: 'total = = 0': invalid syntax"],
    ),
    "a wrong escape is no error, a tab is": (
        [WholeFile("kernel.py", 'x = "\\d"\nif x:\n\ty = 1\n        z = 2\n')],
        ["line 4", "inconsistent use of tabs"],
    ),
    "nested too deeply": ([WholeFile("kernel.py", "a" + ".b" * 80_000)], ["kernel.py", "parsed", "flatter"]),
    "nested beyond memory": ([WholeFile("kernel.py", "-" * 80_000 + "1")], ["nested too deeply", "flatter"]),
    "a long number": ([WholeFile("kernel.py", "1" * 5000)], ["would not be Python", "4300 digits"]),
    "NUL": ([WholeFile("a.txt", "a\0")], ["a.txt", "NUL"]),
    "half a character": ([WholeFile("a.txt", "a\ud800")], ["'a.txt'", "surrogate"]),
    "half a character in a path": ([WholeFile("a\udc00", "a")], ["surrogate"]),
    "knobs that do not load": (
        [SearchReplace("knobs.yaml", "  default: 16\n", "  default: 17\n")],
        ["knobs would not load: knobs.yaml: TILE.default: value 17", "choose one of 8, 16"],
    ),
    "knobs that are no YAML": (
        [SearchReplace("knobs.yaml", "  low: 8\n", "  low: [8\n")],
        ["knobs would not load: knobs.yaml: line"],
    ),
    "knobs nested too deeply": (
        [WholeFile("knobs.yaml", "A: " + "[" * 5000)],
        ["more than 256 opening brackets"],
    ),
    "many knobs": (
        [WholeFile("knobs.yaml", "A: 1\n" * 50_000)],
        ["knobs.yaml would have 250000 bytes", "131072"],
    ),
    "a large file": (
        [WholeFile("a.txt", "a" * (1 << 20) + "\n")],
        ["a.txt would have 1048577 bytes", "1048576"],
    ),
    "large files": ([WholeFile(f"{i}.txt", "a" * 1_000_000) for i in range(5)], ["5000000 bytes in all"]),
    "many files": ([WholeFile(f"{i}.txt", "a\n") for i in range(65)], ["65 files", "64"]),
}


@pytest.mark.parametrize(("changes", "said"), REFUSED.values(), ids=REFUSED)
def test_refused(changes: list[FileChange], said: list[str]) -> None:
    message = _refused(*changes, files={**FILES, "t.cu": "run<<<1>>>();\n"})
    assert [part for part in said if part not in message] == [], message
    assert len(message) < 1500


def test_a_long_block_that_differs_late() -> None:
    lines = [f"{i}\n" for i in range(400)]
    files = {"t": "".join(lines)}
    assert "line 301: the file has '300', SEARCH has 'x'" in _refused(
        SearchReplace("t", "".join([*lines[:300], "x\n"]), ""), files=files
    )


def test_a_replacement_that_cannot_be_shifted() -> None:
    message = _refused(SearchReplace("t", "    a\n", "b\n"), files={"t": "a\n"})
    assert "line 1 with 4 characters less" in message and "indent both" in message


@pytest.mark.parametrize(
    "line", ["x = ...", "    ...", "# ...", "print('...')", "def f(*rest): ...  # same", "# a ... b"]
)
def test_dots_that_leave_nothing_out(line: str) -> None:
    assert apply([WholeFile("t.txt", f"{line}\n")], {})[0].content == f"{line}\n"


def test_dots_that_were_there_before() -> None:
    files = {"t.txt": "# ... existing code ...\nb\n"}
    assert apply([SearchReplace("t.txt", "b\n", "c\n")], files)[0].content == "# ... existing code ...\nc\n"


def test_the_block_of_a_reply() -> None:
    reply = "IDEA: x\nFILE: kernel.py\n```python\n<<<<<<< SEARCH\n  total = 0\n=======\n  total = 1\n>>>>>>> REPLACE\n"
    edits = apply(read_reply(reply).changes, FILES)
    assert edits == (Edit(path="kernel.py", content=KERNEL.replace("total = 0", "total = 1")),)


@given(st.data(), st.lists(TEXTS, min_size=1, max_size=5))
def test_blocks_lead_to_the_file_meant(data: st.DataObject, texts: list[str]) -> None:
    """Cut a file with distinct lines anywhere, say other text for each piece in blocks: that file comes out."""
    kept = [f"line {i}\n" for i in range(len(texts) + 1)]
    news = data.draw(st.lists(TEXTS, min_size=len(texts), max_size=len(texts)))
    before = "".join(f"{line}{old}" for line, old in zip(kept, [*texts, ""], strict=True))
    after = "".join(f"{line}{new}" for line, new in zip(kept, [*news, ""], strict=True))
    blocks = [
        SearchReplace("t", f"{line}{old}{end}", f"{line}{new}{end}")
        for line, end, old, new in zip(kept, kept[1:], texts, news, strict=False)
    ]
    reply = "IDEA: x\nFILE: t\n" + "".join(map(block_of, blocks))
    changes = read_reply(reply).changes
    assert changes == tuple(blocks)
    if before == after:
        assert "nothing changes" in _refused(*changes, files={"t": before})
    else:
        assert apply(changes, {"t": before}) == (Edit(path="t", content=after),)


@given(TEXTS.filter(str.strip), TEXTS, st.sampled_from(["  ", "\t", "    "]))
def test_shifting_is_undone_by_shifting(block: str, instead: str, indent: str) -> None:
    """A block given without the indentation that it has in the file comes out with it."""
    there = "".join(f"{indent}{line}\n" if line.strip() else f"{line}\n" for line in _lines(block))
    result = "".join(f"{indent}{line}\n" if line.strip() else f"{line}\n" for line in _lines(instead))
    if f"\n{block}" in f"\n{there}" or there == result:
        return
    assert apply([SearchReplace("t", block, instead)], {"t": there})[0].content == result


TEXT = TEXTS | st.text(max_size=30) | st.just(KERNEL)
PATH = st.sampled_from(["kernel.py", "knobs.yaml", "docs/notes.md", "n.py", "workspace/kernel.py"]) | st.text(
    max_size=9
)
ANY = (
    st.builds(SearchReplace, PATH, TEXT | st.sampled_from(KERNEL.splitlines(keepends=True)), TEXT)
    | st.builds(WholeFile, PATH, TEXT)
    | st.builds(DeleteFile, PATH)
)


@given(st.lists(ANY, max_size=6))
def test_nothing_but_does_not_apply_is_raised(changes: list[FileChange]) -> None:
    try:
        edits = apply(changes, FILES)
    except InapplicableChange:
        return
    assert all(edit.content != FILES.get(edit.path) for edit in edits)
    assert bool(edits) == bool(changes)


HOSTILE: dict[str, tuple[str, str]] = {
    "one line again and again": ("a\n" * 200_000, "a\n" * 50_000),
    "almost the same line": ("a\n" * 200_000, "a\n" * 50_000 + "b\n"),
    "other indentation": ("  a\n" * 200_000, "a\n" * 20_000 + " b\n"),
    "blank lines": ("\n" * 500_000 + "x", "\n" * 100_000 + "y\n"),
    "long lines": ("ab" * 400_000, "ba" * 400_000 + "\n"),
    "many like it": ("".join(f"value_{i} = {i}\n" for i in range(40_000)), "value_x = 1\nvalue_y = 2\n"),
}


@pytest.mark.parametrize(("there", "search"), HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_block_takes_little_time(there: str, search: str) -> None:
    began = time.process_time()
    assert len(_refused(SearchReplace("t", search, "x\n"), files={"t": there})) < 3000
    assert time.process_time() - began < 20


ALL_KNOBS = parse_knobs(
    KNOBS + "RATE:\n  type: float\n  low: 0\n  high: 1\n  default: 0.5\n"
    "MODE:\n  type: choice\n  choices: [fast, exact]\n  default: fast\n",
    Path("knobs.yaml"),
)


def test_knob_values() -> None:
    raw = {"TILE": "32", "UNROLL": "true", "RATE": "1e-2", "MODE": "exact"}
    assert knob_values(raw, ALL_KNOBS) == {"TILE": 32, "UNROLL": True, "RATE": 0.01, "MODE": "exact"}


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("TILES", "32", ["KNOB: TILES=32", "no such knob", "did you mean TILE?", "MODE, RATE, TILE, UNROLL"]),
        ("tile", "32", ["did you mean TILE?"]),
        ("WARPS", "4", ["no such knob; the knobs are"]),
        ("TILE", "24", ["KNOB: TILE=24", "no such value", "choose one of 8, 16, 32, 64"]),
        ("TILE", "32 (was 16)", ["TILE=32 (was 16)"]),
        ("UNROLL", "yes", ["choose one of 0, 1"]),
        ("RATE", "nan", ["a number from 0"]),
        ("MODE", "slow", ["fast, exact"]),
    ],
)
def test_knob_values_that_there_are_not(name: str, text: str, said: list[str]) -> None:
    with pytest.raises(InapplicableChange) as caught:
        knob_values({name: text}, ALL_KNOBS)
    assert [part for part in said if part not in str(caught.value)] == [], str(caught.value)


def test_no_knobs_at_all() -> None:
    with pytest.raises(InapplicableChange, match="the knobs are none"):
        knob_values({"A": "1"}, {})


HUGE = "p" * (1 << 20)
LONG_PATHS: dict[str, tuple[list[FileChange], dict[str, str]]] = {
    "a gap": ([WholeFile(HUGE, "# ... existing code ...\n")], {}),
    "NUL": ([WholeFile(HUGE, "\0\n")], {}),
    "size": ([WholeFile(HUGE, "x" * (1 << 21))], {}),
    "syntax": ([WholeFile(f"{HUGE}.py", "def f(:\n")], {}),
    "depth": ([WholeFile(f"{HUGE}.py", "-" * 80_000 + "1")], {}),
    "no file": ([DeleteFile(HUGE)], {"q" + HUGE: ""}),
    "folder": ([WholeFile(f"workspace/{HUGE[:200]}", "x")], {HUGE[:200]: ""}),
    "surrogate": ([WholeFile(HUGE, "\ud800")], {}),
    "nothing": ([WholeFile(f"{HUGE}{i}", "x") for i in range(9)], {f"{HUGE}{i}": "x" for i in range(9)}),
    "block": ([SearchReplace(HUGE, "a\n", "b\n")], {HUGE: "c\n"}),
    "empty": ([SearchReplace(HUGE, "", "b\n")], {HUGE: "c\n"}),
    "elsewhere": ([SearchReplace("k", "a\n", "b\n")], {"k": "x\n", HUGE: "a\n"}),
}


@pytest.mark.parametrize("name", LONG_PATHS)
def test_a_message_shows_little_of_a_path(name: str) -> None:
    changes, files = LONG_PATHS[name]
    said = _refused(*changes, files=files)
    assert len(said) <= 4000
    assert "p" * 60 in said
    assert "p" * 81 not in said


def test_a_message_is_bounded_whatever_is_in_it() -> None:
    files = {f"{i:03}{'p' * 300}": "x\n" for i in range(60)}
    assert len(_refused(DeleteFile("q"), files=files)) <= 4000
    knob = _refused(
        WholeFile("knobs.yaml", f"A:\n  ? {'K' * 100_000}\n  : 1\n  type: bool\n  default: true\n")
    )
    assert len(knob) == 4000
    assert knob.endswith("...")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{KNOBS}B: &b {{type: bool, default: true}}\n", "line 9 of the result, has &b"),
        (
            f"{KNOBS}B: {{type: bool, default: &{'d' * 999} true}}\n",
            f"line 9 of the result, has &{'d' * 116}...",
        ),
        ("A: &a {type: bool, default: true}\nB: *a\n", "line 1 of the result, has &a"),
        ("A: {type: bool, default: *a}\n", "line 1 of the result, has *a"),
    ],
)
def test_anchors_and_aliases_of_knobs(text: str, said: str) -> None:
    message = _refused(WholeFile("knobs.yaml", text))
    assert message.startswith(f"knobs.yaml, {said}: YAML anchors (&) and aliases (*) may not be used there;")


@pytest.mark.parametrize("doc", ["a * b & c", "'*a &b'", "|\n    *a\n    &b", "x # &a *b"])
def test_their_marks_may_stand_in_text(doc: str) -> None:
    text = f"A:\n  doc: {doc}\n  type: bool\n  default: true\n"
    assert apply([WholeFile("knobs.yaml", text)], FILES)[0].content == text
