"""What a study's table keeps of earlier measurements, and what --resume takes for complete. Nothing is timed here."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from hillclimb.harness.errors import UsageError
from hillclimb.harness.records import Side
from hillclimb.harness.studies.judging import RestartingJudge
from hillclimb.harness.studies.profiling import UNCOUNTED_NOTE, _matters, _Session
from hillclimb.harness.studies.study import StudyCase
from hillclimb.harness.studies.times import TABLE_FILE, TimesRow, choose_fuller_rows, read, write
from hillclimb.harness.studies.variants import StagedCase
from tests.fakes.judge import PROVENANCE

NOW = "of-now"
SIDES = {name: Side(tree=f"/{name}") for name in ("baseline", "optimized", "torch")}


def row(variant: str, state: str = NOW, **told: float | str) -> TimesRow:
    return TimesRow.model_validate(
        {"study": "s", "case": "c", "problem": "p", "variant": variant, "kernel": "k", "state": state, **told}
    )


WHOLE = [
    row("baseline", call_us=3.0),
    row("optimized", call_us=2.0, speedup=1.5, over_torch=1.1),
    row("torch", call_us=2.2),
]


@pytest.fixture
def session(tmp_path: Path) -> _Session:
    case = StudyCase("s", "c", tmp_path / "c")
    copy = StagedCase(tmp_path, SIDES, {"p": "alone-0"})
    return _Session(case, copy, cast(RestartingJudge, None), PROVENANCE, NOW, lambda progress: None)


def test_a_measurement_that_tells_less_takes_nobodys_place() -> None:
    (whole,) = [r for r in WHOLE if r.variant == "optimized"]
    no_duel = row("optimized", state="", call_us=1.9, note="no duel with baseline")
    no_yardstick = row("optimized", call_us=1.9, speedup=1.6)
    failed = row("optimized", state="", note="was not timed")
    for less in (no_duel, no_yardstick, failed):
        assert choose_fuller_rows("optimized", [whole], [less]) == [whole]
        assert choose_fuller_rows("optimized", [less], [whole]) == [whole]
        assert choose_fuller_rows("optimized", [], [less]) == [less]
    again = row("optimized", call_us=1.8, speedup=1.7, over_torch=1.2)
    assert choose_fuller_rows("optimized", [whole], [again]) == [again]


def test_lanes_that_were_counted_outlast_a_measurement_without() -> None:
    old = row("baseline", call_us=3.0, masked_share=0.25, masked_on="small")
    new = row("baseline", call_us=2.9)
    assert choose_fuller_rows("baseline", [old], [new]) == [
        new.model_copy(update={"masked_share": 0.25, "masked_on": "small"})
    ]
    counted = row("baseline", call_us=2.9, masked_share=0.5, masked_on="odd")
    assert choose_fuller_rows("baseline", [old], [counted]) == [counted]


@pytest.mark.parametrize(
    ("rows", "is_whole"),
    [
        (WHOLE, True),
        (WHOLE[:2], False),
        ([WHOLE[0], row("optimized", call_us=2.0, speedup=1.5), WHOLE[2]], False),
        ([WHOLE[0], row("optimized", call_us=2.0, over_torch=1.1), WHOLE[2]], False),
        ([WHOLE[0], WHOLE[1].model_copy(update={"state": "of-then"}), WHOLE[2]], False),
        ([], False),
    ],
)
def test_a_problem_is_left_out_where_every_time_and_duel_is_there(
    session: _Session, rows: list[TimesRow], is_whole: bool
) -> None:
    write(session.file, {}, rows)
    assert session.has_times("p") is is_whole


def test_without_a_yardstick_its_duels_are_not_asked_for(session: _Session) -> None:
    sides = {name: side for name, side in SIDES.items() if name != "torch"}
    session.copy = replace(session.copy, sides=sides, yardstick_error="it took over 1800 s")
    write(session.file, {}, [WHOLE[0], row("optimized", call_us=2.0, speedup=1.5)])
    assert session.has_times("p")


def test_counted_lanes_are_put_beside_times_that_are_kept(session: _Session) -> None:
    write(session.file, {"device": "here"}, [*WHOLE, row("optimized", state="of-then", call_us=9.0)])
    session.masked_shares = {"optimized": (0.25, "small")}
    session.add_lanes("p")
    known, rows = read(session.file)
    assert known == {"device": "here"}
    assert [(r.variant, r.state, r.masked_share) for r in rows] == [
        ("baseline", NOW, None),
        ("optimized", NOW, 0.25),
        ("torch", NOW, None),
        ("optimized", "of-then", None),
    ]


def test_lanes_are_counted_again_only_where_some_are_missing(session: _Session) -> None:
    counted = [r.model_copy(update={"masked_share": 0.0, "masked_on": "small"}) for r in WHOLE[:2]]
    write(session.file, {}, [*counted, WHOLE[2]])
    assert session.has_counted("p")
    assert not session.has_counted("another")
    write(session.file, {}, [counted[0], *WHOLE[1:]])
    assert not session.has_counted("p")
    write(session.file, {}, [counted[0], counted[1].model_copy(update={"state": "of-then"}), *WHOLE[1:]])
    assert not session.has_counted("p")
    session.uncounted = {"optimized": f"{UNCOUNTED_NOTE}: it waits for others"}
    session.add_lanes("p")
    assert session.has_counted("p"), "what cannot be counted is not tried at every --resume"
    session.add_lanes("p")
    (told,) = [r for r in read(session.file)[1] if r.variant == "optimized" and r.state == NOW]
    assert told.note == f"{UNCOUNTED_NOTE}: it waits for others"


def test_a_time_does_not_hang_on_notes() -> None:
    case = Path("cases/family/case")
    assert not _matters(case / "program.md")
    assert not _matters(case / "workspace" / "docs" / "notes.md")
    assert _matters(case / "workspace" / "knobs.yaml")
    assert _matters(case / "contract.py")


def test_what_is_no_text_ends_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / TABLE_FILE).write_text("study,case\n" + "x" * 200_000 + ",y\n")
    with pytest.raises(UsageError, match="move the file away"):
        read(tmp_path / TABLE_FILE)
