"""The baseline's copy of a source: what the operator needs, and nothing else."""

from __future__ import annotations

import ast

from hillclimb.agent.importers.formats.slicing import slice_operator, used_names, whole_constants
from hillclimb.agent.importers.writing.literals import literal

SOURCE = """
from __future__ import annotations
import torch, helpers
from torch import nn
from helpers import quiet, input_t

SCALE: float = 2.0
rows = 4
unused = 5

def inner(x: input_t) -> input_t:
    with quiet():
        y = x * SCALE
    return y

def operator(data):
    rows = data.shape[0]
    return inner(data) + rows

def draw():
    return torch.randn(rows)
"""


def test_only_what_is_needed_stays() -> None:
    text = slice_operator(SOURCE, ["operator"], {"helpers.py": ""})
    names = [ast.unparse(s).split("\n")[0] for s in ast.parse(text).body]
    assert names == [
        "from __future__ import annotations",
        "SCALE = 2.0",
        "def inner(x):",
        "def operator(data):",
    ]
    assert "quiet" not in text


def test_a_name_that_a_function_binds_is_its_own() -> None:
    assert "rows" not in used_names(ast.parse("def f(rows, *, a=b):\n    c = 1\n    return rows + c + d"))
    assert used_names(ast.parse("def f(x, a=b): return x + d")) == {"b", "d"}


def test_constants_are_bound_once_to_whole_numbers() -> None:
    tree = ast.parse(
        "a = 1\nb = 2\nb = 3\nc = True\nd = 1.5\ne = f = 4\ng = 4 * 2**3\nh = a + 1\ni = (7,)\nj = (7, 8)\n"
    )
    assert whole_constants(tree) == {"a": 1, "g": 32, "i": 7}


def test_literals_read_back() -> None:
    value = {"a": (1,), "b": [{"c" * 30: "d'\"" * 5}, None, True], "e": ()}
    assert ast.literal_eval(literal(value)) == value
    assert max(map(len, literal(value).splitlines())) < 110
