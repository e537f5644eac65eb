"""Makes every view of a run anew from its ledger."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.record.run import LEDGER, list_runs, run_folder
from hillclimb.agent.record.views import draw_progress, table
from hillclimb.agent.sweep.importance import compute_importances
from hillclimb.agent.sweep.landscape import build_landscape
from hillclimb.agent.sweep.optuna_study import write_study
from hillclimb.harness.errors import HillclimbError, MachineError, UsageError
from hillclimb.harness.knobs.knobs import KNOBS_FILE, Knobs, parse_knobs
from hillclimb.harness.wording import choices, count

MAX_STUDY_CANDIDATES = 1000
"""Up to this many, a climb ends with study.db up to date, in seconds; beyond, `rebuild` writes it when asked."""


def rebuild_views(repository: Repository, case: str, tag: str | None) -> Iterator[str]:
    """Rebuild results.tsv, progress.png and study.db; yields a line about each.

    Raises UsageError where there is no such run, MachineError where the picture cannot be drawn.
    """
    folder = find_run(repository, case, tag)
    ledger = Ledger.read(folder / LEDGER)
    Disk().replace(folder / "results.tsv", table(ledger).encode())
    yield f"{folder / 'results.tsv'}: {count(ledger.judged, 'candidate')}"
    trouble = draw_progress(folder)
    if trouble:
        raise MachineError(f"{folder / 'progress.png'} could not be drawn: {trouble}")
    yield f"{folder / 'progress.png'}"
    yield from rebuild_study(repository, folder)


def rebuild_study(repository: Repository, folder: Path) -> Iterator[str]:
    """Write study.db of the run in `folder` from its ledger, where the case has knobs; yields a line about it."""
    ledger = Ledger.read(folder / LEDGER)
    landscape = build_landscape(_baseline_knobs(repository, ledger), ledger)
    if landscape.knobs:
        write_study(landscape, folder / "study.db")
        found = compute_importances(landscape)
        told = ", ".join(f"{name} {share:.0%}" for name, share in found.shares.items()) or found.missing
        seen = count(len(landscape.observations), "configuration")
        yield f"{folder / 'study.db'}: {seen}; importances: {told}"


def mirror_study(folder: Path) -> str:
    """Write study.db at the end of a climb, unless the run is long; returns what went wrong, empty if nothing did."""
    try:
        if Ledger.read(folder / LEDGER).judged <= MAX_STUDY_CANDIDATES:
            list(rebuild_study(Repository.open(folder), folder))
    except HillclimbError as error:
        return str(error)
    return ""


def find_run(repository: Repository, case: str, tag: str | None) -> Path:
    """The folder of a run, the newest if no tag is given. Raises UsageError naming those there are."""
    if tag is not None and (run_folder(repository, case, tag) / LEDGER).is_file():
        return run_folder(repository, case, tag)
    found = list_runs(repository, case)
    if tag is None and found:
        return found[0]
    tags = choices(tag or "", [folder.name for folder in found])
    wanted = f" {tag!r}" if tag else ""
    raise UsageError(
        f"no run{wanted} of {case} in {repository.root / 'runs'}; there are: {tags}; start one with "
        f"'hillclimb climb {case}', or read the wins off a branch with 'hillclimb history {case}'"
    )


def _baseline_knobs(repository: Repository, ledger: Ledger) -> Knobs:
    """knobs.yaml as the run's base commit has it; none where the run was not opened or the commit is gone."""
    if ledger.opened is None:
        return {}
    name = f"{ledger.opened.base}:{ledger.opened.case_path}/workspace/{KNOBS_FILE}"
    blob = repository.resolve(name)
    return parse_knobs(repository.read([blob])[0].decode(), Path(name)) if blob else {}
