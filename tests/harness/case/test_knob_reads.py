"""A knob is called unread where the source leaves no doubt, and nothing is said where it does."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.harness.case.knob_reads import unread_knobs
from hillclimb.harness.knobs.knobs import load_knobs

ROOT = Path(__file__).resolve().parents[3]
HELPER = (ROOT / "cases/demo/cpu_matmul/workspace/knobs.py").read_text()
NAMES = ("A_TILE", "A_UNROLL", "B_SPLIT")


@pytest.mark.parametrize(
    ("source", "unread"),
    [
        ("import os\nT = os.environ.get('A_TILE')\nU = os.environ['A_UNROLL']\n", ("B_SPLIT",)),
        ("from os import getenv\nT = getenv('A_TILE', '8')\n", ("A_UNROLL", "B_SPLIT")),
        ("import os\nT = 'A_TILE' in os.environ\n", ("A_UNROLL", "B_SPLIT")),
        ("A_TILE = 8\n", NAMES),
        ("CODE = 'getenv(\"B_SPLIT\")'\n", ("A_TILE", "A_UNROLL")),
        ("from knobs import knob\nT = knob('A_TILE')\n", ("A_UNROLL", "B_SPLIT")),
        ("from knobs import knob\nT, U = (knob(n) for n in ('A_TILE', 'A_UNROLL'))\n", ("B_SPLIT",)),
        ("from knobs import knob\nT, U = (knob(f'A_{n}') for n in ('TILE', 'UNROLL'))\n", ("B_SPLIT",)),
        ("import knobs\nT = knobs.knob('A_TILE')\n", ("A_UNROLL", "B_SPLIT")),
    ],
)
def test_a_knob_that_no_file_names_is_unread(source: str, unread: tuple[str, ...]) -> None:
    files = {"kernel.py": source, "knobs.yaml": "A_TILE: {}\n", "docs/notes.md": "B_SPLIT"}
    assert unread_knobs(files | ({"knobs.py": HELPER} if "knobs" in source else {}), NAMES) == unread


@pytest.mark.parametrize(
    "source",
    [
        "import os\nALL = dict(os.environ)\n",
        "import os\nALL = {n: os.environ[n] for n in list_names()}\n",
        "import os\nT = os.environ.get('A_' + part)\n",
        "from os import environ as e\n",
        "import os\nread = os.getenv\n",
        "from knobs import knob as k\n",
        "from knobs import knob\nT = list(map(knob, NAMES))\n",
        "from knobs import knob\nT = knob(name=N)\n",
        "import yaml\nK = yaml.safe_load(open('knobs.yaml'))\n",
        "def broken(:\n",
    ],
)
def test_where_a_name_may_be_computed_nothing_is_said(source: str) -> None:
    assert unread_knobs({"kernel.py": source, "knobs.py": HELPER}, NAMES) == ()


@pytest.mark.parametrize(
    "workspace",
    sorted(path.parent for path in ROOT.glob("cases/*/*/workspace/kernel.py")),
    ids=lambda path: path.parent.name,
)
def test_every_knob_of_our_cases_is_read_and_one_more_would_not_be(workspace: Path) -> None:
    files = {path.relative_to(workspace).as_posix(): path.read_text() for path in workspace.rglob("*.py")}
    knobs = load_knobs(workspace / "knobs.yaml")
    assert unread_knobs(files, [*knobs, "ZZ_NEVER"]) == ("ZZ_NEVER",)


def test_knobs_of_a_compiled_source_are_its_compilers() -> None:
    assert unread_knobs({"kernel.c": "void run(void) {}", "more.py": ""}, ["FLAGS"]) == ()
