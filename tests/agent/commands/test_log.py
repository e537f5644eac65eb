"""What a command prints of a record that holds what a candidate wrote."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.commands.log import TimedLog
from hillclimb.agent.screen.escaping import escape_lines
from hillclimb.harness.records import GateReport

DETAIL = "red\x1b[31m, delete\x7f, line\u2028, tag\U000e0001\nnext"


def shown(capsys: pytest.CaptureFixture[str], file: Path, *, as_json: bool) -> str:
    report = GateReport(passed=False, detail=DETAIL)
    log = TimedLog(file)
    log.show(report, lambda found: found.detail, json=as_json)
    assert log._file is not None
    log._file.close()
    return capsys.readouterr().out


def test_json_holds_what_was_written(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = shown(capsys, tmp_path / "log", as_json=True)
    assert out.count("\n") == 1
    assert json.loads(out)["detail"] == DETAIL


def test_lines_spell_out_what_could_steer_a_terminal(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    out = shown(capsys, tmp_path / "log", as_json=False)
    assert out == "red\\x1b[31m, delete\\x7f, line\\u2028, tag\\U000e0001\nnext\n"
    assert "\x1b" not in (tmp_path / "log").read_text()


@given(st.text())
def test_lines_stay_apart_and_are_for_display(text: str) -> None:
    lines = escape_lines(text).split("\n")
    assert len(lines) == text.count("\n") + 1
    assert all(c == "\t" or c.isprintable() or c.isspace() for line in lines for c in line)
