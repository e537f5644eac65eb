"""A run as its commits tell it, for a clone that does not have its ledger: the wins by their trailers, no more."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.record.recorded_runs import RecordedRun
from hillclimb.agent.record.trailers import CommittedWin, read_interval
from hillclimb.harness.records import Interval
from hillclimb.harness.report.page_ledger import CandidateHistory, LedgerObject, RunHistory

_KNOB = re.compile(r"(?:, )?([A-Za-z_][A-Za-z0-9_]*)=")
_PROVENANCE = (
    "contract",
    "benchmarks",
    "harness",
    "device",
    "device_id",
    "sandbox",
    "software",
    "seed_commitment",
)


def read_commits(repository: Repository, run: RecordedRun) -> RunHistory:
    """The wins of a run in their order, each with its speedups, idea, author and commit; the judge is the last win's.

    Rejected candidates, samples, phases, model calls and the end of the run stand in the ledger alone.
    """
    chronicle = RunHistory(candidates=[_candidate(repository, win) for win in run.wins])
    if run.wins:
        case = run.run.rpartition("/")[0]
        chronicle.opened = _opened(
            run.wins[-1], case, run.tag, _find_case(repository, case, run.wins[-1].commit)
        )
    incumbent = 1.0
    for candidate in chronicle.candidates:
        candidate.incumbent = incumbent
        incumbent = candidate.over_baseline or incumbent
    return chronicle


def _opened(last: CommittedWin, case: str, tag: str, path: str) -> LedgerObject:
    told = last.trailers
    provenance: LedgerObject = {name: told.get(_trailer_name(name), "") for name in _PROVENANCE}
    provenance["software"] = dict(
        entry.split("=", 1) for entry in provenance["software"].split(", ") if "=" in entry
    )
    return {
        "case": case,
        "tag": tag,
        "base": told.get("Base", ""),
        "case_path": path,
        "provenance": provenance,
    }


def _trailer_name(name: str) -> str:
    """`device_id` -> `Device-Id`"""
    return name.replace("_", "-").title()


def _find_case(repository: Repository, case: str, commit: str) -> str:
    """Where the commit has the case, relative to the repository's root; empty where it has it nowhere."""
    tree = repository.resolve(f"{commit}^{{tree}}")
    files = repository.list_files(tree) if tree else {}
    found = (str(PurePosixPath(name).parent) for name in files if f"/{name}".endswith(f"/{case}/case.yaml"))
    return min(found, key=lambda path: (path != f"cases/{case}", len(path)), default="")


def _candidate(repository: Repository, win: CommittedWin) -> CandidateHistory:
    told = win.trailers
    return CandidateHistory(
        win.n,
        time=float(win.time),
        proposal={
            "author": win.author,
            "idea": win.idea,
            "family": told.get("Family", ""),
            "knobs": dict(_read_knobs(told.get("Knobs", ""))),
            "edits": [{"path": path} for path in told.get("Files", "").split(", ") if path],
            "undoes": _read_figure(told.get("Undoes", "")),
        },
        judged={
            "kept": True,
            "detail": told.get("Detail", ""),
            "time": float(win.time),
            "speedup": win.speedup.model_dump(),
            "cumulative": win.cumulative.model_dump() if win.cumulative else None,
            "screened": _read_figure(told.get("Screened", "")),
            "decided": _read_decided(told.get("Decided", "")),
            "seconds_per_call": _read_figure(told.get("Seconds-Per-Call", "")),
            "seconds": _read_figure(told.get("Seconds", "")),
            "e_value": _read_figure(told.get("E-Value", "")),
            "commit": win.commit,
            "parent": repository.resolve(f"{win.commit}^1^{{commit}}"),
        },
    )


def _read_knobs(told: str) -> Iterator[tuple[str, object]]:
    """Values are JSON; a list that was cut ends with the last whole one."""
    at, decoder = 0, json.JSONDecoder()
    while found := _KNOB.match(told, at):
        try:
            value, at = decoder.raw_decode(told, found.end())
        except ValueError:
            return
        yield found[1], value


def _read_decided(told: str) -> LedgerObject | None:
    interval: Interval | None = read_interval(told)
    return {"speedup": interval.estimate, "interval": interval.model_dump()} if interval else None


def _read_figure(told: str) -> float | None:
    try:
        return float(told)
    except ValueError:
        return None
