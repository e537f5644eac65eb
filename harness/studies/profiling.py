"""Times every kernel of every case on each of its timed problems, alone and in duels against the others.

A variant's kernels are what a profiler inside its sandbox tells; the time of a call and the speedups are the judge's.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.digest import digest_files
from hillclimb.harness.errors import HillclimbError, UsageError
from hillclimb.harness.judge.protocol import Judge
from hillclimb.harness.records import (
    Bucket,
    Ceilings,
    Comparison,
    Interval,
    LaneReport,
    Profile,
    Provenance,
    Record,
    Side,
    Watch,
)
from hillclimb.harness.studies import times
from hillclimb.harness.studies.judging import RestartingJudge, staged_judge
from hillclimb.harness.studies.study import BASELINE, StudyCase
from hillclimb.harness.studies.times import TimesRow
from hillclimb.harness.studies.variants import YARDSTICK, StagedCase, timed_problems
from hillclimb.harness.studies.yardstick import with_yardstick_compiled

DIGITS = 12
"""Of a digest, in the table."""

OPPONENT_COLUMNS = {BASELINE: "speedup", YARDSTICK: "over_torch"}
"""Whom every other variant is duelled with, and what of its row that gives."""


UNCOUNTED_NOTE = "masked lanes were not counted"
"""Begins the note that says why."""


class VariantTimes(Record):
    """One problem of one case, or a case that could not be timed at all."""

    study: str
    case: str
    problem: str = ""
    rows: tuple[TimesRow, ...] = ()
    """Empty where the table already had them."""
    error: str = ""
    """Also why the yardstick could not be compiled, where the table had the rest."""

    @property
    def passed(self) -> bool:
        return not self.error and all(row.state for row in self.rows)


@dataclass(frozen=True)
class TimingOptions:
    """What of each case is to be timed."""

    suites: Collection[str] = ()
    """Only the problems of these suites; empty: of all."""
    resume: bool = False
    """Leave out what the table has of the same state."""
    lanes: bool = True
    """Count masked lanes too, on the largest problem that can be interpreted: some seconds a kernel."""
    trust_workspace: bool = False


def profile_cases(
    cases: Iterable[StudyCase], wish: TimingOptions, watch: Watch, tell: Callable[[VariantTimes], None]
) -> tuple[VariantTimes, ...]:
    """Time the cases and bring each study's table up to date after every problem.

    A case that is broken is told of and hides no other. Raises UsageError, before anything is timed, where what lies
    in a table's place is none.
    """
    cases, results = list(cases), []
    for folder in {case.folder.parent for case in cases}:
        times.read(folder / times.TABLE_FILE)
    for case in cases:
        for profiled in _profile_case(case, wish, watch):
            results.append(profiled)
            tell(profiled)
    return tuple(results)


def _profile_case(case: StudyCase, wish: TimingOptions, watch: Watch) -> Iterator[VariantTimes]:
    told = VariantTimes(study=case.study, case=case.name)
    try:
        wanted = _wanted(Case(case.folder), wish)
        with staged_judge(case, timed=wanted, trust_workspace=wish.trust_workspace) as (read, staged, judges):
            copy = staged if wish.resume else with_yardstick_compiled(staged, watch)
            provenance = judges.ask(lambda judge: judge.describe())
            session = _Session(case, copy, judges, provenance, _state(read, provenance), watch)
            counts = wish.lanes and read.can_count_lanes
            if counts and not (wish.resume and all(map(session.has_counted, wanted))):
                session.count_lanes()
            if wish.resume and not all(map(session.has_times, wanted)):
                judges.close()
                session.copy = with_yardstick_compiled(copy, watch)
            for problem in wanted:
                if wish.resume and session.has_times(problem):
                    session.add_lanes(problem)
                    yield told.model_copy(update={"problem": problem, "error": session.copy.yardstick_error})
                else:
                    yield told.model_copy(
                        update={"problem": problem, "rows": tuple(session.measure(problem))}
                    )
    except HillclimbError as error:
        yield told.model_copy(update={"error": str(error)})


def _wanted(case: Case, wish: TimingOptions) -> tuple[str, ...]:
    """The problems to be timed, the objective's first."""
    for suite in wish.suites:
        if suite not in case.suites:
            raise UsageError(f"{case.name} has no suite {suite!r}; it has {', '.join(case.suites)}")
    chosen = {name for suite in wish.suites or case.suites for name in case.suites[suite].problems}
    return tuple(problem for problem in timed_problems(case) if problem in chosen)


def _state(case: Case, provenance: Provenance) -> str:
    """Digest of whatever a time depends on."""
    files = [path for path in case.folder.rglob("*") if path.is_file() and _matters(path)]
    parts = [digest_files(case.folder, files), provenance.harness, provenance.device_id, provenance.sandbox]
    parts += [f"{name} {version}" for name, version in sorted(provenance.software.items())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:DIGITS]


def _matters(file: Path) -> bool:
    """Not what is written for people and proposers alone."""
    return file.suffix != ".md" and "__pycache__" not in file.parts


def _joined(*notes: str) -> str:
    """In one line."""
    return "; ".join(" ".join(note.split()) for note in notes if note)


@dataclass
class _Session:
    """One case under its judges."""

    case: StudyCase
    copy: StagedCase
    judges: RestartingJudge
    provenance: Provenance
    state: str
    watch: Watch
    masked_shares: dict[str, tuple[float, str]] = field(default_factory=dict)
    """Of each variant the share of lanes masked off, and the problem on which it was counted."""
    uncounted: dict[str, str] = field(default_factory=dict)
    """Why a variant has no such share."""

    @property
    def file(self) -> Path:
        return self.case.folder.parent / times.TABLE_FILE

    def has_times(self, problem: str) -> bool:
        """Whether the table has times of all variants of the problem as they are now, and each duel of theirs."""
        found = {
            row.variant: times.measured_columns(row)
            for row in times.read(self.file)[1]
            if self._is_current(row, problem)
        }
        return all(found.get(variant, set()) >= self._wanted_of(variant) for variant in self.copy.sides)

    def has_counted(self, problem: str) -> bool:
        """Whether the table has the masked lanes of all the workspace's variants as they are now, or why not."""
        rows = [row for row in times.read(self.file)[1] if self._is_current(row, problem)]
        counted = {row.variant for row in rows if row.masked_share is not None or UNCOUNTED_NOTE in row.note}
        return counted >= self.copy.sides.keys() - {YARDSTICK}

    def _wanted_of(self, variant: str) -> set[str]:
        """What a row of a variant is to tell."""
        return {"call_us", *(name for other, name in OPPONENT_COLUMNS.items() if self._meets(variant, other))}

    def _meets(self, variant: str, other: str) -> bool:
        """Whether the one is duelled with the other."""
        return variant not in OPPONENT_COLUMNS and other in self.copy.sides

    def count_lanes(self) -> None:
        """Of every variant of the workspace; one that cannot be interpreted has none."""
        for variant, side in self.copy.sides.items():
            if variant == YARDSTICK:
                continue
            try:
                lanes = self.judges.ask(partial(_lanes_of, side, self.watch)).problems[:1]
            except HillclimbError as error:
                self.uncounted[variant] = f"{UNCOUNTED_NOTE}: {error}"
                continue
            for counted in lanes:
                if (share := counted.masked_share()) is not None:
                    self.masked_shares[variant] = share, counted.problem

    def add_lanes(self, problem: str) -> None:
        """Put what was counted into the rows that the table has of a problem."""
        known, earlier = times.read(self.file)
        held = [row for row in earlier if row.problem_key == (self.case.name, problem)]
        fresh = [self._with_lanes(row) if row.state == self.state else row for row in held]
        if fresh != held:
            times.update(self.file, known, fresh)

    def _with_lanes(self, row: TimesRow) -> TimesRow:
        """What was counted of its variant put into a row, or why nothing was."""
        if row.variant in self.masked_shares:
            return row.model_copy(
                update=dict(zip(times.LANE_COLUMNS, self.masked_shares[row.variant], strict=True))
            )
        reason = self.uncounted.get(row.variant, "")
        is_new = reason and UNCOUNTED_NOTE not in row.note
        return row.model_copy(update={"note": _joined(row.note, reason)}) if is_new else row

    def measure(self, problem: str) -> list[TimesRow]:
        """All variants; they are in the table when this returns.

        What it has of the same files is not given up for a measurement that tells less.
        """
        suite = self.copy.suites[problem]
        looks = {name: self._look(side, suite) for name, side in self.copy.sides.items()}
        if self.copy.yardstick_error:
            looks[YARDSTICK] = Profile(problems=(), detail=self.copy.yardstick_error)
        rows = [row for name, look in looks.items() for row in self._rows(problem, name, look)]
        ceilings = next((look.ceilings for look in looks.values() if look.ceilings), None)
        known, earlier = times.read(self.file)
        held = [row for row in earlier if self._is_current(row, problem)]
        fresh = [row for name in looks for row in times.choose_fuller_rows(name, held, rows)]
        times.update(self.file, _known(self.provenance, ceilings, known), fresh)
        return rows

    def _is_current(self, row: TimesRow, problem: str) -> bool:
        """Whether a row of the table is a time of this problem, with all as it is now."""
        return (
            row.problem_key == (self.case.name, problem)
            and row.call_us is not None
            and row.state == self.state
        )

    def _look(self, side: Side, suite: str) -> Profile:
        try:
            return self.judges.ask(lambda judge: judge.profile(side, self.watch, suite))
        except UsageError:
            raise
        except HillclimbError as error:
            return Profile(problems=(), detail=str(error))

    def _rows(self, problem: str, variant: str, look: Profile) -> Iterator[TimesRow]:
        row = TimesRow(
            study=self.case.study, case=self.case.name, problem=problem, variant=variant, kernel="", state=""
        )
        timed = next(iter(look.problems), None)
        if timed is None:
            yield row.model_copy(update={"note": _joined(look.detail or "was not timed")})
            return
        over, notes = self._speedups(problem, variant)
        rate = timed.bytes / timed.seconds_per_call
        share, counted_on = self.masked_shares.get(variant, (None, ""))
        made = self.copy.yardstick_note if variant == YARDSTICK else ""
        told = {
            "call_us": timed.seconds_per_call * 1e6,
            "flops": timed.flops,
            "bytes": timed.bytes,
            "gb_per_s": rate / 1e9,
            "copy_share": rate / look.ceilings.bytes if look.ceilings else None,
            "masked_share": share,
            "masked_on": counted_on,
            "note": _joined(look.detail, self.uncounted.get(variant, ""), made, *notes),
            "device": f"{self.provenance.device} {self.provenance.device_id}",
            "state": "" if notes else self.state,
            **over,
        }
        for bucket in look.buckets or (None,):
            yield row.model_copy(update={**told, **_launches(bucket)})

    def _speedups(self, problem: str, variant: str) -> tuple[dict[str, float], list[str]]:
        """Over the baseline and over the yardstick, and what kept one from being measured."""
        told: dict[str, float] = {}
        notes = []
        for other, name in OPPONENT_COLUMNS.items():
            if not self._meets(variant, other):
                continue
            sides = self.copy.sides[other], self.copy.sides[variant]
            try:
                found = self.judges.ask(partial(_duel_of, sides, self.watch, self.copy.suites[problem]))
            except HillclimbError as error:
                notes.append(f"no duel with {other}: {error}")
            else:
                told |= _interval(name, found.speedup)
        return told, notes


def _lanes_of(side: Side, watch: Watch, judge: Judge) -> LaneReport:
    return judge.lanes(side, watch)


def _duel_of(sides: tuple[Side, Side], watch: Watch, suite: str, judge: Judge) -> Comparison:
    return judge.compare(*sides, "cumulative", watch, suite)


def _launches(bucket: Bucket | None) -> dict[str, str | float]:
    if bucket is None:
        return {}
    if not bucket.calls:  # gaps between kernels
        return {"kernel": bucket.name, "launches": 0.0}
    return {
        "kernel": bucket.name,
        "launches": bucket.calls,
        "launch_us": bucket.seconds_per_call / bucket.calls * 1e6,
    }


def _interval(name: str, found: Interval) -> dict[str, float]:
    return {name: found.estimate, f"{name}_low": found.low, f"{name}_high": found.high}


CEILINGS = ("copy_gb_per_s", "tflops", "ceilings")


def _known(provenance: Provenance, ceilings: Ceilings | None, earlier: Mapping[str, str]) -> dict[str, str]:
    """What stands above the table: what measured its newest rows; the ceilings of this device from earlier ones."""
    known = {
        "device": provenance.device,
        "device_id": provenance.device_id,
        "sandbox": provenance.sandbox,
        "harness": provenance.harness[:DIGITS],
        **provenance.software,
        "measured": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }
    if ceilings:
        known |= {"copy_gb_per_s": f"{ceilings.bytes / 1e9:.1f}", "tflops": f"{ceilings.flops / 1e12:.1f}"}
        known |= {"ceilings": ceilings.how}
    elif earlier.get("device_id") == provenance.device_id:
        known |= {name: earlier[name] for name in CEILINGS if name in earlier}
    return known
