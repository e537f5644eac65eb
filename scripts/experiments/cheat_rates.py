#!/usr/bin/env python3
"""How many cheats does the judge reject, for the right reason, and how many honest candidates does it keep?

Every candidate of tests/cheats for one surface goes the whole way, as a climb would send it: gate, screening and, where
it is promising, confirmation at the run's spent alpha, against its case's slow start. A cheat that the reading of the
source refuses is judged once more by a judge that does not read.

    scripts/experiments/cheat_rates.py                       # a CPU's, nothing saved
    scripts/experiments/cheat_rates.py --only less-work      # a family, or a candidate
    scripts/experiments/cheat_rates.py cpu --load 1.5 --output docs/evidence/cheat_rates_cpu.json
    scripts/experiments/cheat_rates.py gpu --output docs/evidence/cheat_rates_gpu.json

Every candidate is a part. At the end a table has both rates with their exact limits, for every family of cheats; --json
prints the same for programs. Leaves with status 1 where a cheat was kept.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from hillclimb.harness.errors import CandidateFault  # noqa: E402
from hillclimb.harness.statistics.evidence import alpha_share  # noqa: E402
from scripts.experiments import cheat_table, frame  # noqa: E402
from tests.cheats import cases  # noqa: E402
from tests.cheats.court import Answer, Court  # noqa: E402
from tests.cheats.declared import Candidate, Stage, Verdict, find, matches  # noqa: E402

ALPHA = 0.01

NOT_EXPRESSED = {
    "6": "the pool of slots and what evicts the cache are the judge's; tests/harness/duel/test_sizing.py",
    "48": "the judge holds its GPU by UUID; tests/harness/device/test_guard.py",
    "49": "a side's own events decide only inside the judge's clock; here as 3",
}
"""Entries of the catalogue that no candidate can bring about, or that another stands for."""

PLACES = {sys.prefix: ".venv", sys.base_prefix: "python", f"{ROOT}/": ""}
"""Folders of this machine, and what is written in their place: those inside others come first."""

ONLY_ON_A_GPU = {
    "5": "a CPU has no persisting L2",
    "50": "a fresh process compiles anew; edits_its_workspace is near",
}


@dataclass(frozen=True)
class Job:
    """One judging: of a candidate, with or without the reading of its source."""

    candidate: Candidate
    is_honest: bool
    unread: bool
    expected: Verdict

    @property
    def is_timed(self) -> bool:
        return self.is_honest or self.expected.stage != "gate"

    @property
    def key(self) -> str:
        return f"{'honest/' if self.is_honest else ''}{self.candidate.name}{' unread' if self.unread else ''}"


def plan(surface: str, only: Sequence[str] = ()) -> list[Job]:
    """Every judging of a surface: what a gate can tell before what takes a clock, so that a busy machine can begin.

    `only` are names of candidates or families; none: all.
    """
    cheats, honest = (
        [one for one in find(place) if not only or {one.name, one.declared.family}.intersection(only)]
        for place in (surface, f"honest/{surface}")
    )
    jobs = [Job(one, False, False, one.declared) for one in cheats]
    jobs += [Job(one, False, True, one.declared.unread) for one in cheats if one.declared.unread]
    jobs += [Job(one, True, False, one.declared) for one in honest]
    return sorted(jobs, key=lambda job: (job.is_timed, job.unread, job.candidate.declared.case, job.key))


def main() -> None:
    options = _parse()
    limited = {"only": options.only} if options.only else {}
    output = frame.Output(options.output, {"surface": options.surface, **limited})
    output.found["surface"] = options.surface
    rows: list[dict[str, Any]] = output.found.setdefault("rows", [])
    have = {row["key"] for row in rows}
    jobs = [job for job in plan(options.surface, options.only) if job.key not in have]
    with tempfile.TemporaryDirectory(prefix="hillclimb-cheats-") as folder:
        Path(folder).chmod(0o755)
        with closing(Court(Path(folder))) as court:
            for number, job in enumerate(jobs, start=1):
                if job.is_timed:
                    await_quiet(options.load)
                row = judge_one(court, job, sum(row["stage"] == "confirm" for row in rows))
                rows.append(row)
                judge = court.describe()
                output.provenance |= judge.model_dump() if judge else {}
                output.save(
                    summary=summarise(rows),
                    families=[vars(row) for row in cheat_table.families(rows)],
                    not_expressed=not_expressed(options.surface),
                )
                told = "" if row["as_expected"] else f"   EXPECTED {row['expected']}"
                print(
                    f"{number}/{len(jobs)} {job.key}: {row['got']} at {row['stage']}, {row['seconds']} s{told}",
                    file=sys.stderr,
                    flush=True,
                )
    summary = summarise(rows)
    if options.json:
        found = [vars(row) for row in cheat_table.families(rows)]
        print(json.dumps({"summary": summary, "families": found}, indent=1))
    else:
        print(cheat_table.render(rows))
    if summary["cheats_kept"]:
        raise SystemExit(f"kept: {', '.join(summary['cheats_kept'])}")


def await_quiet(most: float) -> None:
    """Wait for the load average to fall: what others do decides nothing, but it hides what a clock would show."""
    while os.getloadavg()[0] > most:
        time.sleep(5)


def judge_one(court: Court, job: Job, confirmations: int) -> dict[str, Any]:
    """One judging, and everything worth keeping of it."""
    until: Stage = "gate" if job.is_honest and _untimed(job) else "confirm"
    answer = court.judge(job.candidate, alpha_share(ALPHA, confirmations + 1), unread=job.unread, until=until)
    return {
        "key": job.key,
        "does": job.candidate.does,
        "family": job.candidate.declared.family,
        "entries": job.candidate.declared.entries,
        "case": job.candidate.declared.case,
        "honest": job.is_honest,
        "unread": job.unread,
        "read_alone": is_refused_by_reading(job.candidate),
        "expected": [str(reason) for reason in job.expected.reason] or ["kept"],
        "says": job.expected.says,
        "got": str(answer.reason or ("kept" if answer.stage == "confirm" else "passed")),
        "detail": _without_places(answer.detail)[-300:],
        "stage": answer.stage,
        "speedup": answer.speedup,
        "as_expected": _is_expected(job, answer),
        "load": round(os.getloadavg()[0], 2),
        "seconds": round(answer.seconds, 2),
    }


def _without_places(detail: str) -> str:
    for place, name in PLACES.items():
        detail = detail.replace(place, name)
    return detail


def is_refused_by_reading(candidate: Candidate) -> bool:
    """Whether the reading of its source refuses it, with nothing else behind."""
    with tempfile.TemporaryDirectory(prefix="hillclimb-cheats-") as folder:
        try:
            cases.read_source(Path(folder), candidate)
        except CandidateFault:
            return True
    return False


def summarise(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Both rates, and by name whatever is not as it should be."""
    cheats, honest = [r for r in rows if not r["honest"]], [r for r in rows if r["honest"]]
    read = [r for r in cheats if not r["unread"]]
    unread = [r for r in cheats if r["unread"]]
    return {
        "cheats": len(read),
        "rejected": sum(_is_rejected(r) for r in read),
        "for_their_own_reason": sum(r["as_expected"] for r in read),
        "unread": len(unread),
        "unread_rejected": sum(_is_rejected(r) for r in unread),
        "unread_for_their_own_reason": sum(r["as_expected"] for r in unread),
        "honest": len(honest),
        "honest_accepted": sum(r["as_expected"] for r in honest),
        "entries": sorted({entry for r in cheats for entry in r["entries"]}),
        "cheats_kept": [r["key"] for r in cheats if not _is_rejected(r)],
        "for_another_reason": [
            f"{r['key']}: {r['got']}" for r in cheats if _is_rejected(r) and not r["as_expected"]
        ],
        "honest_rejected": [f"{r['key']}: {r['got']}" for r in honest if not r["as_expected"]],
        "seconds": round(sum(r["seconds"] for r in rows)),
    }


def not_expressed(surface: str) -> dict[str, str]:
    return NOT_EXPRESSED | (ONLY_ON_A_GPU if surface == "cpu" else {})


def _is_rejected(row: dict[str, Any]) -> bool:
    return row["got"] not in ("kept", "passed")


def _is_expected(job: Job, answer: Answer) -> bool:
    return matches(job.expected, answer.reason, answer.detail)


def _untimed(job: Job) -> bool:
    """Launched one by one on a GPU: too noisy for a confirmation, so passing the gate is all that is asked."""
    return job.candidate.declared.case.endswith("_eager")


def _parse() -> argparse.Namespace:
    parser = frame.make_parser(__doc__)
    parser.add_argument("surface", nargs="?", choices=("cpu", "gpu"), default="cpu")
    parser.add_argument(
        "--only", nargs="+", metavar="NAME", default=[], help="these candidates or families alone"
    )
    parser.add_argument("--json", action="store_true", help="print JSON for programs instead of the table")
    parser.add_argument(
        "--load", type=float, default=float("inf"), help="begin nothing that is timed above this load average"
    )
    return parser.parse_args()


if __name__ == "__main__":
    main()
