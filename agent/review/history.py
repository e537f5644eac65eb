"""The wins of a case as a table, read from the trailers of commits: works on any clone."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.record.recorded_runs import RecordedRun, find_runs
from hillclimb.agent.record.trailers import CommittedWin
from hillclimb.harness.errors import UsageError
from hillclimb.harness.wording import choices, count

COLUMNS = ("#", "commit", "when (UTC)", "speedup", "over baseline", "author", "idea")
IDEA_WIDTH = 60
SHALLOW = "this clone is shallow, and there may be more wins: git fetch --unshallow"
TAKEN_BACK = "taken back: "


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
    document = {
        "run": run.run,
        "ref": run.ref or None,
        "commit": run.commit,
        "shallow": is_shallow,
        "wins": [
            {
                "n": win.n,
                "commit": win.commit,
                "time": win.time,
                "author": win.author,
                "idea": win.idea,
                "speedup": win.speedup.model_dump(),
                "cumulative": win.cumulative.model_dump() if win.cumulative else None,
                "taken_back": win.is_taken_back,
                "trailers": dict(win.trailers),
            }
            for win in run.wins
        ],
    }
    return json.dumps(document, indent=2)


def _row(win: CommittedWin) -> tuple[str, ...]:
    idea = (TAKEN_BACK if win.is_taken_back else "") + win.idea
    idea = idea if len(idea) <= IDEA_WIDTH else idea[: IDEA_WIDTH - 1] + "…"
    when = datetime.fromtimestamp(win.time, UTC).strftime("%Y-%m-%d %H:%M")
    over = f"{win.cumulative.estimate:.3f}x" if win.cumulative else ""
    return str(win.n), win.commit[:10], when, str(win.speedup), over, win.author, idea
