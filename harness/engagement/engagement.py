"""The proof of engagement: the kernels that a workspace claims to run were seen to run in the path that is timed.

A gain whose kernel never ran is another change's, or noise. So is one of a fallback that took over in silence.

What ran is told by a profiler in the candidate's own process: by CUPTI on a GPU, and else by counters of every call of
a function of Python, and of a compiled library that Python calls. Not covered: a process that lies about it, and how
much of the work a kernel does; the share of the time stands beside each one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hillclimb.harness.engagement.kernel_manifest import MANIFEST_FILE, ChosenOps, read_chosen
from hillclimb.harness.engagement.kernel_names import CUTE, DefinedNames, defined_names, qualified_name
from hillclimb.harness.errors import CandidateFault, CaseError
from hillclimb.harness.records import Bucket, Reason, Side

CALLED = re.compile(r"(?P<place>[^:]+\.(?:py|so)):(?P<name>\w+)(?: \(worker threads\))?", re.ASCII)
"""A row of a function that ran on the CPU."""

SHOWN = 6
"""Of what ran instead."""


def chosen_ops(side: Side) -> ChosenOps | None:
    """What a side claims to run; None where it has no manifest. Raises CandidateFault for one that is wrong."""
    try:
        return read_chosen(Path(side.tree), side.knobs)
    except CaseError as error:
        raise CandidateFault(Reason.NOT_ENGAGED, str(error)) from error


def require_engaged(side: Side, rows: Sequence[Bucket]) -> tuple[Bucket, ...]:
    """What ran of the kernels that a side claims, by the rows of its profile; nothing where it has no manifest.

    Raises CandidateFault where one of them did not run.
    """
    ops = chosen_ops(side)
    if ops is None:
        return ()
    seen = _own_functions(Path(side.tree), rows)
    if missing := [name for name in ops.kernels if name not in seen]:
        named = ", ".join(f"{name} of {ops.kernels[name]}" for name in missing)
        others = ", ".join(row.name for row in rows[:SHOWN]) or "nothing"
        raise CandidateFault(
            Reason.NOT_ENGAGED,
            f"{named}: {MANIFEST_FILE} says that this runs, and it did not in what is timed; there ran {others}",
        )
    return tuple(seen[name] for name in ops.kernels)


def require_changes_engaged(candidate: Side, incumbent: Side) -> None:
    """Raises CandidateFault where all files that differ belong to implementations that do not run.

    The same where the incumbent has a manifest, and the candidate none.
    """
    ops = chosen_ops(candidate)
    if ops is None:
        if (Path(incumbent.tree) / MANIFEST_FILE).exists():
            raise CandidateFault(Reason.NOT_ENGAGED, f"{MANIFEST_FILE} is gone, and says which kernels run")
        return
    changed = changed_files(Path(candidate.tree), Path(incumbent.tree))
    if changed and all(ops.has_idle(path) for path in changed):
        told = ", ".join(changed[:SHOWN])
        detail = f"{told} changed, and {MANIFEST_FILE} says that none of it runs with these knobs"
        raise CandidateFault(Reason.NOT_ENGAGED, detail)


def changed_files(one: Path, other: Path) -> list[str]:
    """Files that only one of two workspaces has, or that differ."""
    ours, theirs = (_contents(place) for place in (one, other))
    return sorted(path for path in ours.keys() | theirs.keys() if ours.get(path) != theirs.get(path))


def _contents(workspace: Path) -> Mapping[str, bytes]:
    files = (file for file in workspace.rglob("*") if file.is_file() and not file.is_symlink())
    return {file.relative_to(workspace).as_posix(): file.read_bytes() for file in files}


def _own_functions(workspace: Path, rows: Iterable[Bucket]) -> Mapping[str, Bucket]:
    """Rows of the workspace's own functions, by name. Of two of a name, that with the larger share."""
    defined = defined_names(workspace)
    found: dict[str, Bucket] = {}
    for row in sorted(rows, key=lambda row: row.share):
        for name in _names(row.name, workspace, defined):
            found[name] = row
    return found


def _names(row: str, workspace: Path, defined: DefinedNames) -> Sequence[str]:
    """What the workspace's own function is called that a row stands for; nothing for anyone else's."""
    if called := CALLED.fullmatch(row):
        place = called["place"]
        return [called["name"]] if place.endswith(".so") or (workspace / place).is_file() else []
    if row.startswith(CUTE):
        return [name for name in defined.functions if row.startswith(f"{CUTE}{name}_")]
    return [qualified_name(row)[-1]] if defined.has(row) else []
