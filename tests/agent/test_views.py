from __future__ import annotations

import csv
from pathlib import Path

import pytest

from agent.disk import Disk
from agent.ledger import Ledger
from agent.views import COLUMNS, Views, draw_progress, row, table
from tests.agent.test_ledger import ENTRIES, written
from tests.fakes.night import Night, make_repository


def test_one_row_a_settled_candidate(tmp_path: Path) -> None:
    rows = list(csv.DictReader(table(written(tmp_path / "l", ENTRIES)).splitlines(), delimiter="\t"))
    assert [(row["n"], row["verdict"], row["reason"], row["cumulative"]) for row in rows] == [
        ("1", "kept", "", "1.5000"),
        ("2", "rejected", "slower", ""),
    ]
    assert tuple(rows[0]) == COLUMNS


def test_the_table_grows_into_what_a_rebuild_gives(tmp_path: Path) -> None:
    night = Night(make_repository(tmp_path / "repo"))
    night.climb()
    assert (night.folder / "results.tsv").read_text() == table(night.ledger)


def test_a_view_that_cannot_be_written_is_noticed_and_made_whole_later(tmp_path: Path) -> None:
    ledger = written(tmp_path / "ledger.jsonl", ENTRIES)
    notices: list[str] = []
    (tmp_path / "results.tsv").mkdir()
    views = Views(tmp_path, Disk(), lambda folder: "", notices.append)
    views.rebuild_table(ledger)
    assert len(notices) == 1 and "results.tsv could not be written" in notices[0]
    (tmp_path / "results.tsv").rmdir()
    views.update(ledger, ledger.candidates[1])
    assert (tmp_path / "results.tsv").read_text() == table(ledger)


def test_a_picture_that_fails_never_ends_a_run(tmp_path: Path) -> None:
    night = Night(make_repository(tmp_path / "repo"), draw=lambda folder: "no fonts")
    assert night.climb().wins == 3
    assert night.troubles and all(
        "progress.png could not be drawn (no fonts)" in said for said in night.troubles
    )


def test_the_program_that_draws_says_what_is_wrong(tmp_path: Path) -> None:
    assert draw_progress(tmp_path / "nothing here")


def test_a_row_needs_a_verdict(tmp_path: Path) -> None:
    ledger = Ledger.read(tmp_path / "none")
    assert table(ledger).split("\n") == ["\t".join(COLUMNS), ""]
    pending = written(tmp_path / "l", ENTRIES).candidates[-1]
    with pytest.raises(ValueError, match="candidate 3 has no verdict"):
        row(pending)
