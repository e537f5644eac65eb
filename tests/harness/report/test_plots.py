"""progress.png: drawn from any ledger, whole or not at all, and telling the run's story."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import matplotlib
import pytest
from matplotlib.figure import Figure

from hillclimb.agent.proposal import Proposal
from hillclimb.harness.errors import UsageError
from hillclimb.harness.records import Reason
from hillclimb.harness.report.plots import draw_progress, paint
from hillclimb.harness.report.progress_data import read_progress
from tests.agent.sweep.synthetic import judge_next, open_ledger

matplotlib.use("Agg")
PNG = b"\x89PNG\r\n\x1a\n"


def proposal(idea: str) -> Proposal:
    return Proposal(author="llm", idea=idea)


def make_run(folder: Path, speedups: list[float | None], idea: str = "unroll") -> Path:
    ledger = open_ledger(folder)
    for n, speedup in enumerate(speedups, start=1):
        judge_next(ledger, proposal(f"{idea} {n}"), speedup)
    return folder


def texts(figure: Figure) -> str:
    found = [text.get_text() for axes in figure.axes for text in axes.texts]
    return "\n".join([*found, *(text.get_text() for text in figure.texts)])


def test_the_story_of_a_run(tmp_path: Path) -> None:
    story = read_progress(make_run(tmp_path, [0.5, 2.0, None, 1.0, 4.0]))
    assert (story.case, story.tag, story.device, story.judged) == ("demo/case", "t", "a CPU", 5)
    assert [(win.n, win.estimate) for win in story.wins] == [(2, 2.0), (5, 4.0)]
    assert story.untimed == (3,)
    assert dict(story.screened) == pytest.approx({1: 0.5, 4: 1.0}), "a win is drawn once, as a win"
    assert story.decided == ()
    assert story.best == 4.0


def test_a_dot_is_what_the_last_stage_saw(tmp_path: Path) -> None:
    ledger = open_ledger(tmp_path)
    judge_next(ledger, proposal("won"), 2.0)
    judge_next(ledger, proposal("lucky"), 2 * 1.396, reason=Reason.SLOWER, decided=2 * 0.844)
    story = read_progress(tmp_path)
    assert (story.screened, story.untimed) == ((), ())
    assert dict(story.decided) == pytest.approx({2: 2 * 0.844})
    assert draw_progress(tmp_path).read_bytes().startswith(PNG)


def test_lines_that_are_damaged_or_of_another_version_are_left_aside(tmp_path: Path) -> None:
    folder = make_run(tmp_path, [2.0, 3.0])
    with (folder / "ledger.jsonl").open("a") as ledger:
        for line in (
            '{"kind": "judged"}',
            '{"kind": "judged", "n": 1, "kept": true, "cumulative": 7}',
            "[",
            '{"n": 2}',
        ):
            ledger.write(line + "\n")
    story = read_progress(folder)
    assert [(win.n, win.estimate) for win in story.wins] == [(2, 3.0)]


def test_the_picture_names_case_best_and_wins(tmp_path: Path) -> None:
    said = texts(paint(read_progress(make_run(tmp_path, [2.0, None, 3.0]))))
    for part in ("3.00×  demo/case", "3 candidates", "2 wins", "#1", "#3", "unroll 3"):
        assert part in said


@pytest.mark.slow(2)
def test_no_text_is_clipped_or_runs_into_another(tmp_path: Path) -> None:
    story = read_progress(make_run(tmp_path, [1.1**i for i in range(1, 16)], idea="W" * 90))
    wide = replace(story, case="WWWWWWWWWW/" + "W" * 60, tag="W" * 60, device="NVIDIA " + "W" * 120)
    figure = paint(wide)
    figure.canvas.draw()
    [legend] = figure.legends
    shown = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
    for text in shown:
        box = text.get_window_extent()
        assert box.x0 >= 0 and box.x1 <= figure.bbox.width and box.y0 >= 0 and box.y1 <= figure.bbox.height
        if text is not figure.texts[0]:
            continue
        assert box.x1 < legend.get_window_extent().x0
    assert "…" in figure.texts[0].get_text()


@pytest.mark.parametrize(
    "speedups",
    [[], [None], [0.01], [1.001], [2.0], [1e-9, 1e6], [None] * 50, [1.02**i for i in range(60)]],
    ids=["empty", "refused", "slow", "level", "win", "extreme", "all refused", "many wins"],
)
def test_every_run_can_be_drawn(tmp_path: Path, speedups: list[float | None]) -> None:
    folder = make_run(tmp_path, speedups)
    assert draw_progress(folder).read_bytes().startswith(PNG)
    assert sorted(path.name for path in folder.iterdir()) == ["ledger.jsonl", "progress.png"]


def test_wide_ranges_get_a_logarithmic_axis(tmp_path: Path) -> None:
    assert paint(read_progress(make_run(tmp_path / "wide", [2.0, 50.0]))).axes[0].get_yscale() == "log"
    assert paint(read_progress(make_run(tmp_path / "narrow", [1.2, 1.5]))).axes[0].get_yscale() == "linear"


def test_ideas_are_text_not_markup(tmp_path: Path) -> None:
    draw_progress(make_run(tmp_path, [2.0], idea="use $x_{ \x07 and \\frac{"))


def test_a_torn_tail_is_left_aside(tmp_path: Path) -> None:
    folder = make_run(tmp_path, [2.0])
    with (folder / "ledger.jsonl").open("a") as file:
        file.write('{"kind": "judg')
    assert read_progress(folder).judged == 1


def test_no_ledger_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no ledger"):
        draw_progress(tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "hillclimb.harness.report.plots", str(tmp_path)],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow(2)
def test_the_command_prints_where_the_picture_is(tmp_path: Path) -> None:
    folder = make_run(tmp_path, [2.0])
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "hillclimb.harness.report.plots", str(folder)],
        capture_output=True,
        text=True,
    )
    assert done.stdout.strip() == str(folder / "progress.png"), done.stderr
