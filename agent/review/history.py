"""The wins of a case as a table, read from the trailers of its branches: works on any clone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.record.branch import RunBranch, find_branches
from hillclimb.agent.record.trailers import CommittedWin
from hillclimb.harness.errors import UsageError
from hillclimb.harness.wording import choices, count

COLUMNS = ("#", "commit", "when (UTC)", "speedup", "over baseline", "author", "idea")
IDEA_WIDTH = 60


def pick_branch(repository: Repository, case: str, tag: str | None) -> RunBranch:
    """The run of that tag, else the newest. Raises UsageError naming the tags there are."""
    branches = find_branches(repository, case)
    for branch in branches:
        if tag in (None, branch.tag):
            return branch
    if tag is None or not branches:
        raise UsageError(
            f"no run of {case} has a branch here; start one with 'hillclimb climb', or fetch its branch"
        )
    tags = choices(tag, [branch.tag for branch in branches])
    raise UsageError(f"no run {tag!r} of {case} has a branch here; there are: {tags}")


def show_table(branch: RunBranch, wins: Sequence[CommittedWin]) -> str:
    """Wins in aligned columns under a heading that names the run."""
    if not wins:
        return f"{branch.run}: no wins yet ({branch.ref})"
    rows = [COLUMNS, *(_row(win) for win in wins)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(COLUMNS))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    heading = f"{branch.run}: {count(len(wins), 'win')} ({branch.ref}); over baseline as measured when each was kept"
    return "\n".join([heading, *lines])


def show_json(branch: RunBranch, wins: Sequence[CommittedWin]) -> str:
    """The run and its wins with every trailer, as one JSON document."""
    document = {
        "run": branch.run,
        "ref": branch.ref,
        "commit": branch.commit,
        "wins": [
            {
                "n": win.n,
                "commit": win.commit,
                "time": win.time,
                "author": win.author,
                "idea": win.idea,
                "speedup": win.speedup.model_dump(),
                "cumulative": win.cumulative.model_dump() if win.cumulative else None,
                "trailers": dict(win.trailers),
            }
            for win in wins
        ],
    }
    return json.dumps(document, indent=2)


def _row(win: CommittedWin) -> tuple[str, ...]:
    idea = win.idea if len(win.idea) <= IDEA_WIDTH else win.idea[: IDEA_WIDTH - 1] + "…"
    when = datetime.fromtimestamp(win.time, UTC).strftime("%Y-%m-%d %H:%M")
    over = f"{win.cumulative.estimate:.3f}x" if win.cumulative else ""
    return str(win.n), win.commit[:10], when, str(win.speedup), over, win.author, idea
