"""Reads a run from its folder: candidates, verdicts and timed segments, as dataclasses and as data frames."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import ValidationError

from hillclimb.agent.record.entries import JudgedEntry, Samples
from hillclimb.agent.record.ledger import Candidate, Ledger
from hillclimb.agent.record.run import LEDGER
from hillclimb.harness.errors import UsageError
from hillclimb.harness.records import Estimate, Interval, MetricReport, Pair, Provenance, Reason

if TYPE_CHECKING:
    import pandas
    import polars


@dataclass(frozen=True)
class Verdict:
    """What the judge decided about one candidate."""

    kept: bool
    reason: Reason | None
    """Why it was rejected; None for a win."""
    detail: str
    screened: float | None
    """Point estimate of the screening pair: a lead, never a claim."""
    decided: Estimate | None
    """Over the deciding pairs, whichever way they decided."""
    estimate: Estimate | None
    """What the last stage that timed it saw, and which stage that was; None where none did."""
    speedup: Interval | None
    """Against the incumbent, measured afresh after the decision."""
    cumulative: Interval | None
    """Against the run's first commit, measured."""
    seconds_per_call: float | None
    metrics: tuple[MetricReport, ...]
    """Of a command: what it printed, where that was measured afresh."""
    e_value: float | None
    """Evidence against "not faster"; a win's is at least 1 / (its share of alpha)."""
    commit: str | None
    parent: str
    """The incumbent's commit."""
    judging_seconds: float
    time: float
    """Unix time."""


@dataclass(frozen=True)
class TimedSegment:
    """One timed segment: seconds per call of one side in one block of one pair of processes."""

    n: int
    """The candidate's number."""
    stage: str
    """As in docs/reference/records.md: screen, decide, report, ..."""
    suite: str
    pair: int
    block: int
    segment: int
    """0 to 3, in the order run."""
    side: Literal["A", "B"]
    """A is the candidate, B the one it is compared with."""
    seconds: float
    """By the judge's clock."""
    event_seconds: float | None
    """By the device's own events; None on a CPU."""


_SEGMENT_COLUMNS = tuple(column.name for column in fields(TimedSegment))


@dataclass(frozen=True)
class CandidateRecord:
    """One candidate of a run; `verdict` is None while it has none."""

    n: int
    author: str
    idea: str
    family: str
    knobs: Mapping[str, bool | int | float | str]
    files: tuple[str, ...]
    """Files of the workspace that its edits touch."""
    verdict: Verdict | None


@dataclass(frozen=True)
class RunRecord:
    """A run as its ledger tells it."""

    folder: Path
    case: str
    """`<family>/<case>`."""
    tag: str
    base: str
    """The commit that the run began from."""
    seed: int
    alpha: float
    """Largest probability of even one false win in the run."""
    provenance: Provenance
    """Device, sandbox, versions and digests of the judge that opened it."""
    baseline_seconds_per_call: float | None
    candidates: tuple[CandidateRecord, ...]
    measured: Interval | None
    """Last win against the first commit, measured at the end; None where nothing was measured."""
    ended: str
    """Why it ended; empty while it is open."""

    @property
    def wins(self) -> tuple[CandidateRecord, ...]:
        """The candidates that were kept, in order."""
        return tuple(c for c in self.candidates if c.verdict is not None and c.verdict.kept)

    @cached_property
    def segments(self) -> tuple[TimedSegment, ...]:
        """Every timed segment of every candidate, read from samples/; a file that is missing has none."""
        return tuple(segment for c in self.candidates for segment in _segments(self.folder, c.n))

    def rows(self) -> list[dict[str, Any]]:
        """One flat dict a candidate: for a data frame of any library."""
        return [_row(candidate) for candidate in self.candidates]

    def to_pandas(self) -> pandas.DataFrame:
        """`rows()` as a pandas frame. Raises ImportError where pandas is not installed."""
        import pandas

        return pandas.DataFrame(self.rows() or None, columns=None if self.candidates else _COLUMNS)

    def to_polars(self) -> polars.DataFrame:
        """`rows()` as a polars frame. Raises ImportError where polars is not installed."""
        import polars

        schema = None if self.candidates else _COLUMNS
        return polars.DataFrame(self.rows(), schema=schema, infer_schema_length=None)

    def segments_to_pandas(self) -> pandas.DataFrame:
        """`segments` as a pandas frame, a row each. Raises ImportError where pandas is not installed."""
        import pandas

        return pandas.DataFrame(list(map(asdict, self.segments)), columns=_SEGMENT_COLUMNS)

    def segments_to_polars(self) -> polars.DataFrame:
        """`segments` as a polars frame, a row each. Raises ImportError where polars is not installed."""
        import polars

        columns = {name: [getattr(segment, name) for segment in self.segments] for name in _SEGMENT_COLUMNS}
        return polars.DataFrame(columns)


def read_run(folder: str | Path) -> RunRecord:
    """The run in a folder such as runs/demo/cpu_matmul/first. Only files are read; a climb at work is not disturbed.

    Raises UsageError where the folder holds no run, or its ledger is damaged.
    """
    path = Path(folder)
    if not (path / LEDGER).is_file():
        raise UsageError(f"{path} has no {LEDGER}; name a run's folder, runs/<family>/<case>/<tag>")
    ledger = Ledger.read(path / LEDGER)
    opened = ledger.opened
    if opened is None:
        raise UsageError(f"{path / LEDGER} has no line yet that opens the run; the climb had not begun")
    return RunRecord(
        folder=path,
        case=opened.case,
        tag=opened.tag,
        base=opened.base,
        seed=opened.seed,
        alpha=opened.alpha,
        provenance=opened.provenance,
        baseline_seconds_per_call=ledger.baselined.seconds_per_call if ledger.baselined else None,
        candidates=tuple(map(to_record, ledger.candidates)),
        measured=ledger.remeasured.speedup if ledger.remeasured else None,
        ended=ledger.finished.reason if ledger.finished else "",
    )


def to_record(candidate: Candidate) -> CandidateRecord:
    """A candidate of an open ledger in the form that is told outside."""
    proposal = candidate.proposal
    return CandidateRecord(
        n=candidate.n,
        author=proposal.author,
        idea=proposal.idea,
        family=proposal.family,
        knobs=dict(proposal.knobs),
        files=tuple(edit.path for edit in proposal.edits),
        verdict=_verdict(candidate.judged) if candidate.judged and candidate.settled else None,
    )


def _verdict(judged: JudgedEntry) -> Verdict:
    return Verdict(
        kept=judged.kept,
        reason=judged.reason,
        detail=judged.detail,
        screened=judged.screened,
        decided=judged.decided,
        estimate=judged.estimate,
        speedup=judged.speedup,
        cumulative=judged.cumulative,
        seconds_per_call=judged.seconds_per_call,
        metrics=judged.metrics,
        e_value=judged.e_value,
        commit=judged.commit,
        parent=judged.parent,
        judging_seconds=judged.seconds,
        time=judged.time,
    )


def _row(candidate: CandidateRecord) -> dict[str, Any]:
    verdict = candidate.verdict
    row: dict[str, Any] = {
        "n": candidate.n,
        "author": candidate.author,
        "family": candidate.family,
        "idea": candidate.idea,
        "files": ", ".join(candidate.files),
        "kept": verdict.kept if verdict else None,
        "reason": str(verdict.reason) if verdict and verdict.reason else None,
        "screened": verdict.screened if verdict else None,
        "decided": verdict.decided.speedup if verdict and verdict.decided else None,
        **_estimate_cells(verdict.estimate if verdict else None),
    }
    for name in ("speedup", "cumulative"):
        interval: Interval | None = getattr(verdict, name, None)
        row[name] = interval.estimate if interval else None
        row[f"{name}_low"] = interval.low if interval else None
        row[f"{name}_high"] = interval.high if interval else None
    row["seconds_per_call"] = verdict.seconds_per_call if verdict else None
    row["e_value"] = verdict.e_value if verdict else None
    row |= {f"{one.suite}.{one.metric}": one.value for one in verdict.metrics} if verdict else {}
    row["commit"] = verdict.commit if verdict else None
    return row | {f"knob_{name}": str(value) for name, value in candidate.knobs.items()}


def _estimate_cells(seen: Estimate | None) -> dict[str, Any]:
    interval = seen.interval if seen else None
    return {
        "stage": seen.stage if seen else None,
        "estimate": seen.speedup if seen else None,
        "estimate_low": interval.low if interval else None,
        "estimate_high": interval.high if interval else None,
    }


_COLUMNS = tuple(_row(CandidateRecord(0, "", "", "", {}, (), None)))
"""Of a run without candidates."""


def _segments(folder: Path, n: int) -> Iterator[TimedSegment]:
    path = folder / "samples" / f"{n}.json"
    try:
        samples = Samples.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return
    except ValidationError as error:
        raise UsageError(
            f"{path} is damaged ({error.error_count()} errors); remove it to go on without"
        ) from error
    pairs = [pair for part in (samples.screening, samples.confirmation) if part for pair in part.pairs]
    for number, pair in enumerate(pairs):
        yield from _segments_of(pair, n, number)


def _segments_of(pair: Pair, n: int, number: int) -> Iterator[TimedSegment]:
    for k, block in enumerate(pair.blocks):
        for i, side in enumerate(block.order):
            yield TimedSegment(
                n=n,
                stage=pair.stage,
                suite=pair.suite,
                pair=number,
                block=k,
                segment=i,
                side="A" if side == "A" else "B",
                seconds=block.seconds[i],
                event_seconds=block.events[i] if block.events else None,
            )
