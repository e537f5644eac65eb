"""The wins of a case as a table, read from the trailers of commits: works on any clone."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.record.recorded_runs import RecordedRun, find_runs
from hillclimb.agent.record.trailers import CommittedWin
from hillclimb.harness.errors import UsageError
from hillclimb.harness.records import Interval, Record
from hillclimb.harness.wording import choices, count

COLUMNS = ("#", "commit", "when (UTC)", "speedup", "over baseline", "author", "idea")
IDEA_WIDTH = 60
SHALLOW = "this clone is shallow, and there may be more wins: git fetch --unshallow"
TAKEN_BACK = "taken back: "


class WinView(Record):
    """A win as its commit tells it."""

    n: int
    commit: str
    time: int
    """Seconds since the epoch."""
    author: str
    idea: str
    speedup: Interval
    """Over the incumbent of then."""
    cumulative: Interval | None
    """Over the baseline."""
    taken_back: bool
    """Whether a later commit reverts it."""
    trailers: dict[str, str]
    """All of them, without `Hillclimb-`."""


class HistoryView(Record):
    """The wins of a run, oldest first."""

    run: str
    """`<family>/<case>/<tag>`."""
    ref: str | None
    """Its branch; null where there is none any more."""
    commit: str
    """That the branch stands at, or its last win where there is no branch."""
    shallow: bool
    """Whether commits are missing here that may hold more wins."""
    wins: tuple[WinView, ...]


def pick_run(repository: Repository, case: str, tag: str | None) -> RecordedRun:
    """The run of that tag, else the newest. Raises UsageError naming the tags there are."""
    runs = find_runs(repository, case)
    for run in runs:
        if tag in (None, run.tag):
            return replace(run, others=sum(other.tag == run.tag for other in runs) - 1)
    if tag is None or not runs:
        raise UsageError(
            f"no run of {case} has a branch or a win here; start one with 'hillclimb climb', or fetch its branch"
        )
    tags = choices(tag, [run.tag for run in runs])
    raise UsageError(f"no run {tag!r} of {case} has a branch or a win here; there are: {tags}")


def show_table(run: RecordedRun, is_shallow: bool = False) -> str:
    """Wins in aligned columns under a heading that names the run; what was taken back is marked and not counted."""
    part = f"\n{SHALLOW}" if is_shallow else ""
    place = run.ref or "its branch is gone"
    if not run.wins:
        return f"{run.run}: no wins yet ({place}){part}"
    rows = [COLUMNS, *(_row(win) for win in run.wins)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    back = sum(win.is_taken_back for win in run.wins)
    counted = count(len(run.wins) - back, "win") + (f", {back} taken back" if back else "")
    others = f"; {count(run.others, 'other run')} of this name" if run.others else ""
    heading = f"{run.run}: {counted} ({place}){others}; over baseline as measured when each was kept{part}"
    return "\n".join([heading, *lines])


def show_json(run: RecordedRun, is_shallow: bool = False) -> str:
    """The run and its wins with every trailer, as one JSON document."""
    wins = tuple(
        WinView(
            n=win.n,
            commit=win.commit,
            time=win.time,
            author=win.author,
            idea=win.idea,
            speedup=win.speedup,
            cumulative=win.cumulative,
            taken_back=win.is_taken_back,
            trailers=dict(win.trailers),
        )
        for win in run.wins
    )
    view = HistoryView(run=run.run, ref=run.ref or None, commit=run.commit, shallow=is_shallow, wins=wins)
    return view.model_dump_json(indent=2)


def _row(win: CommittedWin) -> tuple[str, ...]:
    idea = (TAKEN_BACK if win.is_taken_back else "") + win.idea
    idea = idea if len(idea) <= IDEA_WIDTH else idea[: IDEA_WIDTH - 1] + "…"
    when = datetime.fromtimestamp(win.time, UTC).strftime("%Y-%m-%d %H:%M")
    over = f"{win.cumulative.estimate:.3f}x" if win.cumulative else ""
    return str(win.n), win.commit[:10], when, str(win.speedup), over, win.author, idea
