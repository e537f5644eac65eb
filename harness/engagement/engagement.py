"""The proof of engagement: the kernels that a workspace claims to run were seen to run in the path that is timed.

A gain whose kernel never ran is another change's, or noise. So is one of a fallback that took over in silence.

What ran is told by a profiler in the candidate's own process: by CUPTI on a GPU, and else by counters of every call of
a function of Python, and of a compiled library that Python calls. Not covered: a process that lies about it, and how
much of the work a kernel does; the share of the time stands beside each one.
"""

from __future__ import annotations

import filecmp
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath
from typing import NoReturn

from hillclimb.harness.channel.row_names import WORKERS, library_name, row_name
from hillclimb.harness.engagement.kernel_manifest import (
    MANIFEST_FILE,
    ChosenOps,
    read_chosen,
    regular_files,
)
from hillclimb.harness.engagement.kernel_names import CUTE, DefinedNames, defined_names, qualified_name
from hillclimb.harness.errors import CandidateFault, CaseError
from hillclimb.harness.records import Bucket, Reason, Side

NATIVE_SOURCES = (".c", ".cc", ".cpp", ".cxx")

MAX_DETAIL = 1000

SHOWN = 6
"""Of what ran instead."""


def chosen_ops(side: Side) -> ChosenOps | None:
    """What a side claims to run; None where it has no manifest. Raises CandidateFault for one that is wrong."""
    try:
        return read_chosen(Path(side.tree), side.knobs)
    except CaseError as error:
        _refuse(str(error))


def require_engaged(side: Side, rows: Sequence[Bucket]) -> tuple[Bucket, ...]:
    """What ran of the kernels that a side claims, by the rows of its profile; nothing where it has no manifest.

    Raises CandidateFault where one of them did not run.
    """
    ops = chosen_ops(side)
    if ops is None:
        return ()
    seen = _seen(Path(side.tree), ops, rows)
    if missing := [name for name in ops.kernels if name not in seen]:
        named = ", ".join(f"{name} of {ops.kernels[name]}" for name in missing)
        others = ", ".join(row.name for row in rows[:SHOWN]) or "nothing"
        told = f"{MANIFEST_FILE} says that this runs, and it did not in what is timed"
        _refuse(f"{named}: {told}; there ran {others}")
    return tuple(seen[name] for name in ops.kernels)


def require_changes_engaged(candidate: Side, incumbent: Side) -> None:
    """Raises CandidateFault where all files that differ belong to implementations that do not run.

    The same where the incumbent has a manifest, and the candidate none.
    """
    ops = chosen_ops(candidate)
    if ops is None:
        if (Path(incumbent.tree) / MANIFEST_FILE).exists():
            _refuse(f"{MANIFEST_FILE} is gone, and says which kernels run")
        return
    changed = changed_files(Path(candidate.tree), Path(incumbent.tree))
    if changed and all(ops.has_idle(path) for path in changed):
        told = ", ".join(changed[:SHOWN])
        _refuse(f"{told} changed, and {MANIFEST_FILE} says that none of it runs with these knobs")


def changed_files(one: Path, other: Path) -> list[str]:
    """Files that only one of two workspaces has, or that differ."""
    ours, theirs = (
        {file.relative_to(place).as_posix(): file for file in regular_files(place)} for place in (one, other)
    )
    return sorted(
        path
        for path in ours.keys() | theirs.keys()
        if path not in ours or path not in theirs or not filecmp.cmp(ours[path], theirs[path], shallow=False)
    )


def _seen(workspace: Path, ops: ChosenOps, rows: Sequence[Bucket]) -> Mapping[str, Bucket]:
    """Rows of the kernels that are claimed, in files of the implementations that run. Of two of a name, the larger."""
    found: dict[str, Bucket] = {}
    ascending = sorted(rows, key=lambda row: row.share)
    for family, chosen in ops.chosen.items():
        files = ops.files_of(family)
        defined = defined_names(workspace, files)
        on_cpu = {name: kernel for kernel in chosen.kernels for name in _cpu_rows(files, kernel)}
        for row in ascending:
            name = on_cpu.get(row.name.removesuffix(WORKERS)) or _gpu_kernel(
                row.name, chosen.kernels, defined
            )
            if name is not None:
                found[name] = row
    return found


def _cpu_rows(files: Iterable[str], kernel: str) -> Iterator[str]:
    """What a row of a kernel is called that one of these files defines."""
    for file in map(PurePath, files):
        if file.suffix == ".py":
            yield row_name(file.as_posix(), kernel)
        elif file.suffix in NATIVE_SOURCES:
            yield row_name(library_name(file), kernel)


def _gpu_kernel(row: str, kernels: Iterable[str], defined: DefinedNames) -> str | None:
    if row.startswith(CUTE):
        known = (name for name in kernels if name in defined.functions)
        return next((name for name in known if row.startswith(f"{CUTE}{name}_")), None)
    name = qualified_name(row)[-1]
    return name if name in kernels and defined.has(row) else None


def _refuse(detail: str) -> NoReturn:
    shown = "".join(c if c.isprintable() else "?" for c in detail[:MAX_DETAIL])
    raise CandidateFault(Reason.NOT_ENGAGED, shown)
