"""What cannot be imported is refused by name, and nothing is left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hillclimb.agent.importers.choose import importer_of, request_of
from hillclimb.agent.importers.import_case import WantedCase, import_case
from hillclimb.agent.importers.probe_process import ask
from hillclimb.harness.errors import UsageError
from tests.agent.importers import sources

WANTED = WantedCase("demo", "made")


def refused(folder: Path, text: str, name: str = "f", examples: tuple[str, ...] = ()) -> str:
    path = folder / "mine.py"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        import_case(folder, [f"{path}:{name}"], examples, WANTED)
    assert not (folder / "cases").exists() or not list((folder / "cases").iterdir())
    return str(caught.value)


def test_an_unknown_format_lists_what_is_known(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text("a = 1")
    with pytest.raises(
        UsageError, match=r"no known format.*GPU MODE.*KernelBench.*flashinfer.*FILE.py.*kernel_tuner"
    ):
        import_case(tmp_path, [str(tmp_path / "x.toml")], (), WANTED)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="name a file or folder that is there"):
        import_case(tmp_path, [str(tmp_path / "none.py")], (), WANTED)


def test_two_operators(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("")
    with pytest.raises(UsageError, match="one operator and one tuning space"):
        import_case(tmp_path, [f"{tmp_path}/a.py:f", f"{tmp_path}/a.py:g"], (), WANTED)


def test_no_such_function(tmp_path: Path) -> None:
    assert "no function or class 'f'; it has g" in refused(tmp_path, "def g(x): return x")


def test_no_examples(tmp_path: Path) -> None:
    assert "has no example_inputs() and no EXAMPLES" in refused(tmp_path, "def f(x): return x")


@pytest.mark.parametrize(
    ("example", "said"),
    [
        ("y=float32[3]", "name each of x at most once"),
        ("x", "has no name and value"),
        ("x=float33[3]", "no array of float33"),
        ("x=float32[0]", "no array of float32"),
        ("x=[1,", "is no array and no number"),
    ],
)
def test_wrong_examples(tmp_path: Path, example: str, said: str) -> None:
    assert said in refused(tmp_path, "def f(x): return x", examples=(example,))


def test_indices_that_a_definition_does_not_explain(tmp_path: Path) -> None:
    definition = json.loads(json.dumps(sources.DEFINITION))
    definition["inputs"]["pages"] = {"shape": ["rows"], "dtype": "int32"}
    path = tmp_path / "d.json"
    path.write_text(json.dumps(definition))
    with pytest.raises(UsageError, match=r"does not say which values pages \(int32\) may have"):
        import_case(tmp_path, [str(path)], (), WANTED)


EXAMPLE = ("x=float32[64]",)


@pytest.mark.slow(5)
@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("raise RuntimeError('broken inside')", "RuntimeError: broken inside"),
        ("import os; os._exit(0)", "it must not end the process by itself"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended the process by signal 11"),
        ("import random; return x + random.random()", "draws random numbers"),
        ("return x * float('nan')", "is not finite"),
        ("return None", "gives no tensor back"),
    ],
)
def test_a_source_that_goes_wrong(tmp_path: Path, body: str, said: str) -> None:
    text = f"import numpy as np\ndef f(x):\n    {body}\n"
    assert said in refused(tmp_path, text, examples=EXAMPLE)


def test_an_endless_source_is_ended(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("while True: pass\ndef f(x): return x\n")
    request = request_of(f"{path}:f", None, EXAMPLE)
    with pytest.raises(UsageError, match="was not done after 2 s"):
        ask(importer_of(request).read(request), path, seconds=2)
