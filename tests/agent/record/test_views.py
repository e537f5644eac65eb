from __future__ import annotations

import csv
from pathlib import Path

import pytest

from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.record.views import COLUMNS, Views, draw_progress, row, table
from hillclimb.agent.review.rebuilding import mirror_study
from tests.agent.climb.climbed import CASE, climb_toy
from tests.agent.record.test_ledger import ENTRIES, written
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
    views = Views(tmp_path, Disk(), notices.append, draw=lambda folder: "")
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


def test_a_study_that_fails_is_noticed(tmp_path: Path) -> None:
    notices: list[str] = []
    Views(tmp_path, Disk(), notices.append, lambda folder: "", lambda folder: "no space").mirror()
    assert notices == ["study.db could not be written (no space); 'hillclimb rebuild' makes it"]


@pytest.mark.slow(2)
def test_the_study_at_the_end_of_a_climb_never_raises(tmp_path: Path) -> None:
    climb_toy(tmp_path, candidates=4)
    folder = tmp_path / "runs" / CASE / "first"
    assert mirror_study(folder) == "" and (folder / "study.db").is_file()
    (folder / "study.db").unlink()
    (folder / "study.db").mkdir()
    (folder / "study.db" / "in the way").touch()
    assert "study.db" in mirror_study(folder)
    assert not (folder / "study.db.new").exists()


def test_nothing_is_imported_from_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    climb_toy(tmp_path, candidates=2)
    for name in ("json", "yaml", "harness"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')\n")
    monkeypatch.chdir(tmp_path)
    assert draw_progress(tmp_path / "runs" / CASE / "first") == ""


def test_the_program_that_draws_says_what_is_wrong(tmp_path: Path) -> None:
    assert draw_progress(tmp_path / "nothing here")


def test_a_row_needs_a_verdict(tmp_path: Path) -> None:
    ledger = Ledger.read(tmp_path / "none")
    assert table(ledger).split("\n") == ["\t".join(COLUMNS), ""]
    pending = written(tmp_path / "l", ENTRIES).candidates[-1]
    with pytest.raises(ValueError, match="candidate 3 has no verdict"):
        row(pending)
