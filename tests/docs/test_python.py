"""The Python examples of docs/guides/use-from-python.md run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.api.real_case import make_real_repository

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "use-from-python.md"


@pytest.mark.clock
@pytest.mark.slow(20)
def test_the_examples_run_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    make_real_repository(tmp_path)
    monkeypatch.chdir(tmp_path)
    read, judge, climb = [part.split("```")[0] for part in GUIDE.read_text().split("```python\n")[1:]]
    for example in (judge, climb, read.replace("/night", "/halving")):
        exec(compile(example, str(GUIDE), "exec"), {})
    said = capsys.readouterr().out.splitlines()
    assert said[0].startswith("True None 7.") or said[0].startswith("True None"), said
    assert [line.split()[:2] for line in said[1:3]] == [["1", "True"], ["2", "True"]]
    assert len(said) == 6, said
