"""What `from hillclimb import ...` gives: a run read, a tree judged, a climb with a proposer of one's own."""

from __future__ import annotations

import csv
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import hillclimb
from hillclimb import CandidateRecord, Edit, Incumbent, Proposal, UsageError, judge_tree, read_run
from hillclimb.agent import api
from tests.agent.climb.climbed import CASE, climb_toy
from tests.api import real_case
from tests.api.real_case import make_real_repository


def test_a_run_is_read_as_its_ledger_tells_it(tmp_path: Path) -> None:
    climb_toy(tmp_path, candidates=12)
    folder = tmp_path / "runs" / CASE / "first"
    run = read_run(folder)
    with (folder / "results.tsv").open() as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    assert (run.case, run.tag) == (CASE, "first")
    assert [c.n for c in run.candidates] == [int(row["n"]) for row in table if row["n"] != "0"]
    assert [c.n for c in run.wins] == [
        c.n for c in run.candidates if c.verdict and c.verdict.commit and c.verdict.kept
    ]
    assert run.wins and all(c.verdict and c.verdict.speedup for c in run.wins)
    assert "budget" in run.ended


def test_every_candidate_is_one_row_of_a_frame(tmp_path: Path) -> None:
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    climb_toy(tmp_path, candidates=6)
    run = read_run(tmp_path / "runs" / CASE / "first")
    for frame in (run.to_pandas(), run.to_polars()):
        assert list(frame["n"]) == [1, 2, 3, 4, 5, 6]
        assert list(frame["kept"]) == [c.verdict.kept for c in run.candidates if c.verdict]
    assert isinstance(run.to_pandas(), pandas.DataFrame)
    assert isinstance(run.to_polars(), polars.DataFrame)


def test_a_run_without_candidates_has_the_same_columns(tmp_path: Path) -> None:
    pytest.importorskip("pandas"), pytest.importorskip("polars")
    climb_toy(tmp_path, candidates=1)
    run = read_run(tmp_path / "runs" / CASE / "first")
    empty = replace(run, candidates=())
    expected = [name for name in run.to_pandas().columns if not name.startswith("knob_")]
    for frame in (empty.to_pandas(), empty.to_polars()):
        assert len(frame) == 0
        assert list(frame.columns) == expected


def test_every_timed_segment_is_one_row_of_a_frame(tmp_path: Path) -> None:
    pytest.importorskip("pandas"), pytest.importorskip("polars")
    climb_toy(tmp_path, candidates=3)
    run = read_run(tmp_path / "runs" / CASE / "first")
    assert run.segments
    for frame in (run.segments_to_pandas(), run.segments_to_polars()):
        assert list(frame["seconds"]) == [segment.seconds for segment in run.segments]
        assert list(frame["side"]) == [segment.side for segment in run.segments]
        assert len(frame.columns) == 9


def test_a_run_without_samples_has_frames_without_rows(tmp_path: Path) -> None:
    pytest.importorskip("pandas"), pytest.importorskip("polars")
    climb_toy(tmp_path, candidates=1)
    folder = tmp_path / "runs" / CASE / "first"
    shutil.rmtree(folder / "samples")
    run = read_run(folder)
    assert len(run.segments_to_pandas()) == len(run.segments_to_polars()) == 0
    assert list(run.segments_to_pandas().columns) == list(run.segments_to_polars().columns)


def test_the_package_lists_what_it_has(tmp_path: Path) -> None:
    assert {*api.__all__, "__version__"} <= set(dir(hillclimb))
    assert hillclimb.__version__.count(".") == 2


@pytest.mark.parametrize("made", ["nothing", "an empty ledger"])
def test_a_folder_without_a_run_is_a_clear_error(tmp_path: Path, made: str) -> None:
    if made == "an empty ledger":
        (tmp_path / "ledger.jsonl").write_text("")
    with pytest.raises(UsageError, match=r"ledger\.jsonl"):
        read_run(tmp_path)


class Halving:
    """Halves the knob until it is 1; remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[CandidateRecord] = []
        self.seen: list[Incumbent] = []

    def ask(self, incumbent: Incumbent) -> Proposal | None:
        self.seen.append(incumbent)
        times = int(incumbent.knobs["TIMES"])
        if times == 1:
            return None
        return Proposal(author="agent", idea=f"{times // 2} times", knobs={"TIMES": times // 2})

    def tell(self, candidate: CandidateRecord) -> None:
        self.told.append(candidate)


@pytest.mark.clock
@pytest.mark.slow(20)
def test_a_proposer_of_ones_own_climbs_a_real_case(tmp_path: Path) -> None:
    case, proposer = make_real_repository(tmp_path), Halving()
    run = hillclimb.climb(case, proposer, tag="mine", candidates=1)
    assert [c.n for c in proposer.told] == [1] == [c.n for c in run.candidates]
    assert [c.verdict.detail for c in proposer.told if c.verdict and not c.verdict.kept] == []
    assert [i.knobs["TIMES"] for i in proposer.seen] == [64]
    assert "def run" in proposer.seen[0].files["kernel.py"]
    sides = {(s.stage, s.side) for s in run.segments if s.n == 1}
    assert {("screen", "A"), ("screen", "B"), ("decide", "A"), ("decide", "B")} <= sides
    again = Halving()
    longer = hillclimb.climb(case, again, tag="mine", candidates=2)
    assert [c.n for c in again.told] == [1, 2], "a proposer that is new is told of all of the run"
    assert [i.knobs["TIMES"] for i in again.seen] == [32]
    assert len(longer.candidates) == 2


@pytest.mark.clock
@pytest.mark.slow(20)
def test_a_tree_is_judged_from_python(tmp_path: Path) -> None:
    case = make_real_repository(tmp_path)
    verdict = judge_tree(case, knobs={"TIMES": 1})
    assert verdict.kept and verdict.confirmation and verdict.confirmation.speedup
    assert verdict.confirmation.speedup.low > 1.5
    wrong = tmp_path / "wrong"
    wrong.mkdir()
    (wrong / "kernel.py").write_text("def run(x, y):\n    y[:] = 1\n")
    (wrong / "knobs.yaml").write_text(real_case.KNOBS)
    assert judge_tree(case, wrong).reason == "wrong_result"


def test_the_stub_names_what_the_package_gives() -> None:
    stub = (Path(hillclimb.__path__[0]) / "__init__.pyi").read_text()
    named = {
        line.split(" as ")[1].split(",")[0].strip()
        for line in stub.replace(",", "\n,").split("\n")
        if " as " in line
    }
    assert named == set(api.__all__)
    assert all(getattr(hillclimb, name) is getattr(api, name) for name in api.__all__)


def test_an_unknown_name_is_an_error_that_lists_the_known_ones() -> None:
    with pytest.raises(AttributeError, match=r"no 'reed_run'.*read_run"):
        hillclimb.reed_run  # type: ignore[attr-defined]  # noqa: B018


def test_the_package_runs_as_the_command_does() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hillclimb", "--help"], capture_output=True, text=True, check=True
    )
    assert "new-case" in done.stdout


def test_a_proposal_can_be_written_down() -> None:
    proposal = Proposal(author="agent", idea="x", edits=(Edit(path="kernel.py", content="pass\n"),))
    assert Proposal.model_validate_json(proposal.model_dump_json()) == proposal
