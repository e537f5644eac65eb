"""A candidate that cannot run otherwise than its incumbent is told, and nothing that might is taken for one."""

from __future__ import annotations

import pytest

from hillclimb.agent.climb.unchanged import why_unchanged

KNOBS = "TILE: {type: int, low: 1, high: 8, default: 2}\n"
NEVER = "NEVER: {type: bool, default: false}\n"
BEFORE = {
    "kernel.py": "import os\nimport tiles\nT = os.environ.get('TILE')\n",
    "tiles.py": "SIZE = 4\n",
    "spare.py": "SIZE = 4\n",
    "data.bin": "\u00ff",
    "knobs.yaml": KNOBS + NEVER,
    "docs/notes.md": "x",
}


def why(changes: dict[str, str | None], before: dict[str, str] = BEFORE) -> str:
    after = {path: text for path, text in {**before, **changes}.items() if text is not None}
    old, new = ({path: text.encode("latin-1") for path, text in files.items()} for files in (before, after))
    return why_unchanged(old, new, "kernel.py")


def test_a_command_may_run_and_read_anything() -> None:
    files = {"kernel.py": b"x = 1\n", "docs/a.md": b"old"}
    for name, text in (
        ("kernel.py", b"x = 1  # one\n"),
        ("other.py", b"y = 2\n"),
        ("knobs.yaml", b"A: {}\n"),
    ):
        assert why_unchanged(files, {**files, name: text}, None) == ""
    assert why_unchanged(files, {**files, "docs/a.md": b"new"}, None) == "it changes nothing but docs/"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"kernel.py": BEFORE["kernel.py"] + "# faster\n"},
            "kernel.py differs in comments or formatting only",
        ),
        ({"tiles.py": "SIZE   =   4\n\n"}, "tiles.py differs in comments or formatting only"),
        ({"spare.py": "SIZE = 8\n"}, "no file imports or names spare.py"),
        ({"spare.py": None}, "no file imports or names spare.py"),
        ({"tests/test_more.py": "X = 1\n"}, "no file imports or names tests/test_more.py"),
        ({"knobs.yaml": KNOBS + NEVER.replace("false", "true")}, "no file reads the knob NEVER"),
        ({"knobs.yaml": KNOBS}, "no file reads the knob NEVER"),
        ({"knobs.yaml": KNOBS + NEVER + NEVER.replace("NEVER", "MORE")}, "no file reads the knob MORE"),
        ({"knobs.yaml": KNOBS.replace("}", ", doc: words}") + NEVER}, "knobs.yaml differs in words only"),
        ({"docs/notes.md": "y"}, "it changes nothing but docs/"),
        (
            {"docs/notes.md": "y", "spare.py": "SIZE = 8\n", "tiles.py": "SIZE = 4  # four\n"},
            "no file imports or names spare.py; tiles.py differs in comments or formatting only",
        ),
    ],
)
def test_what_cannot_matter_is_named(changes: dict[str, str | None], said: str) -> None:
    assert why(changes) == said


@pytest.mark.parametrize(
    "changes",
    [
        {"kernel.py": "import os\nT = 2\n"},
        {"tiles.py": "SIZE = 8\n"},
        {"tiles.py": "SIZE = 'a' # b\n", "spare.py": "SIZE = 8\n"},
        {"data.bin": "\u00fe"},
        {"README.md": "words"},
        {"knobs.yaml": KNOBS.replace("default: 2", "default: 4") + NEVER},
        {"knobs.yaml": "TILE: [\n"},
        {"kernel.py": "def broken(:\n"},
        {"__init__.py": "X = 1\n"},
        {"sitecustomize.py": "X = 1\n"},
        {"yaml.py": "X = 1\n", "tiles.py": "import yaml\n"},
    ],
)
def test_what_might_matter_is_duelled(changes: dict[str, str | None]) -> None:
    assert why(changes) == ""


@pytest.mark.parametrize(
    "kernel",
    [
        "NAME = 'spare'\n",
        "from pack import spare\n",
        "import spare.more\n",
        "import importlib\n",
        "from pathlib import Path\nFILES = list(Path('.').glob('*'))\n",
        "# spare is loaded by hand\n",
    ],
)
def test_a_file_that_may_be_loaded_counts(kernel: str) -> None:
    before = {**BEFORE, "kernel.py": kernel}
    assert why({"spare.py": "SIZE = 8\n"}, {k: v for k, v in before.items() if k != "data.bin"}) == ""


def test_a_knob_that_may_be_read_by_a_computed_name_counts() -> None:
    before = {**BEFORE, "kernel.py": "import os\nALL = dict(os.environ)\n"}
    assert why({"knobs.yaml": KNOBS}, before) == ""
