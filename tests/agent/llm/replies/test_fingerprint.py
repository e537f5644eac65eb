from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.llm.replies.fingerprint import fingerprint

KERNEL = '"""Doc."""\n\n\ndef f(a):\n    """Doc."""\n    return [a, 1]  # why\n\n\nclass C:\n    x = 1\n'
KNOBS = "TILE:\n  type: int\n  low: 1\n  high: 8\n  default: 2\n"
FILES = {"kernel.py": KERNEL, "knobs.yaml": KNOBS, "ops/k.cu": "void f() {\n  g();\n}\n"}

SAME = {
    "comments": {**FILES, "kernel.py": KERNEL.replace("# why", "# because")},
    "docstrings": {**FILES, "kernel.py": KERNEL.replace('"""Doc."""', "'Other.'")},
    "no docstrings": {
        **FILES,
        "kernel.py": KERNEL.replace('    """Doc."""\n', "").replace('"""Doc."""\n', ""),
    },
    "formatting": {**FILES, "kernel.py": KERNEL.replace("[a, 1]", "[\n        a,1,\n    ]")},
    "order of keys": {**FILES, "knobs.yaml": "TILE: {default: 2, high: 8, low: 1, type: int}  # or 4\n"},
    "indentation and blank lines": {**FILES, "ops/k.cu": "\nvoid f() {\r\n\tg();  \n\n}"},
    "documents": {**FILES, "docs/notes.md": "x"},
}
OTHER = {
    "tests, which a kernel may import": {**FILES, "tests/test_kernel.py": "x"},
    "a number": {**FILES, "kernel.py": KERNEL.replace("1]", "2]")},
    "a type": {**FILES, "kernel.py": KERNEL.replace("1]", "1.0]")},
    "a string that is no docstring": {**FILES, "kernel.py": KERNEL.replace("x = 1", 'x = 1\n    "Doc."')},
    "a default": {**FILES, "knobs.yaml": KNOBS.replace("2", "4")},
    "a default's type": {**FILES, "knobs.yaml": KNOBS.replace("default: 2", "default: '2'")},
    "another file": {**FILES, "new.py": ""},
    "no file": {"kernel.py": KERNEL},
    "another name": {**{k: v for k, v in FILES.items() if k != "kernel.py"}, "kernels.py": KERNEL},
    "a folder of that name further in": {**FILES, "ops/docs/a.cu": ""},
    "a line": {**FILES, "ops/k.cu": "void f() {}\n"},
}


@pytest.mark.parametrize("files", SAME.values(), ids=SAME)
def test_the_same_idea(files: dict[str, str]) -> None:
    assert files != FILES
    assert fingerprint(files) == fingerprint(FILES)


@pytest.mark.parametrize("files", OTHER.values(), ids=OTHER)
def test_another_idea(files: dict[str, str]) -> None:
    assert fingerprint(files) != fingerprint(FILES)


def test_the_order_of_the_files_does_not_count() -> None:
    assert fingerprint(dict(reversed(FILES.items()))) == fingerprint(FILES)


BOMB = "a: &a [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{new}: &{new} [{', '.join(9 * [f'*{old}'])}]\n" for old, new in zip("abcdefgh", "bcdefghi", strict=True)
)
HOSTILE = {
    "syntax.py": "def f(:\n",
    "nul.py": "a\0",
    "surrogate.py": "a = '\ud800'",
    "deep.py": "a" + ".b" * 2000,
    "deeper.py": "a" + ".b" * 80_000,
    "memory.py": "-" * 80_000 + "1",
    "escape.py": "'\\d'",
    "bomb.yaml": BOMB,
    "recursive.yaml": "a: &a [*a]\n",
    "deep.yaml": "[" * 50_000,
    "list.yaml": "- 1\n",
    "date.yaml": "a: 2001-13-45\n",
    "keys.yaml": "a: {1: x, b: y}\n",
    "large.yaml": "a: 1\n" * 100_000,
}


@pytest.mark.parametrize("path", HOSTILE)
def test_what_does_not_parse_is_text(path: str) -> None:
    began = time.process_time()
    whole = {path: HOSTILE[path]}
    assert fingerprint(whole) == fingerprint({path: f"\n {HOSTILE[path]}\n".replace("\n ", "\n\n")})
    assert fingerprint(whole) != fingerprint({path: HOSTILE[path] + "\nmore: x"})
    assert time.process_time() - began < 30


@given(st.dictionaries(st.sampled_from(["a.py", "b.yaml", "c.cu"]) | st.text(), st.text()))
def test_any_files_have_one(files: dict[str, str]) -> None:
    assert len(fingerprint(files)) == 64
