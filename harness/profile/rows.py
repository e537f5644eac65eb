"""Rows that a profiler answers, as buckets. Only their form is looked at, for a candidate may answer anything."""

from __future__ import annotations

from collections.abc import Sequence

from hillclimb.harness.channel.profile_limits import MAX_NAME_CHARS, MAX_ROWS, UNNAMEABLE
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Bucket, Reason

MAX_SECONDS, MAX_ENTRIES, MAX_DETAIL = 1e6, 1e12, 1000


def parse_rows(told: object, most: int = MAX_ROWS) -> list[Bucket]:
    """What a candidate's profiler answered, taken at its form only. Raises CandidateFault for any other form."""
    if not isinstance(told, list) or len(told) > most:
        raise _malformed("rows", told)
    return [_parse_row(row) for row in told]


def _parse_row(row: object) -> Bucket:
    if not isinstance(row, list) or len(row) != 4:
        raise _malformed("a row", row)
    name, *figures = row
    if not isinstance(name, str) or not 0 < len(name) <= MAX_NAME_CHARS or UNNAMEABLE.search(name):
        raise _malformed("a name", name)
    for figure, most in zip(figures, (1.0, MAX_SECONDS, MAX_ENTRIES), strict=True):
        if type(figure) not in (int, float) or not 0 <= figure <= most:
            raise _malformed("a figure", figure)
    share, seconds, calls = (float(figure) for figure in figures)
    return Bucket(name=name, share=share, seconds_per_call=seconds, calls=calls)


def _malformed(what: str, seen: object) -> CandidateFault:
    kind = f"{type(seen).__name__} of {len(seen)}" if isinstance(seen, list | str) else type(seen).__name__
    return CandidateFault(Reason.BROKE_PROTOCOL, f"its profile holds as {what} something else ({kind})")


def whole(table: Sequence[Bucket]) -> float:
    """Seconds of one call as the profiler saw it, itself included: what the largest bucket has a share of."""
    largest = max(table, key=lambda bucket: bucket.share, default=None)
    return largest.seconds_per_call / largest.share if largest and largest.share else 0.0


def combine(tables: Sequence[Sequence[Bucket]]) -> tuple[Bucket, ...]:
    """Means over the problems, which count alike as in the objective; largest share first."""
    by_name: dict[str, list[Bucket]] = {}
    for table in tables:
        for bucket in table:
            by_name.setdefault(bucket.name, []).append(bucket)
    means = (_mean(name, buckets, len(tables)) for name, buckets in by_name.items())
    return tuple(sorted(means, key=lambda bucket: -bucket.share)[:MAX_ROWS])


def _mean(name: str, buckets: Sequence[Bucket], problems: int) -> Bucket:
    return Bucket(
        name=name,
        share=min(1.0, sum(b.share for b in buckets) / problems),
        seconds_per_call=sum(b.seconds_per_call for b in buckets) / problems,
        calls=sum(b.calls for b in buckets) / problems,
    )


def printable(text: str) -> str:
    """A paragraph at the most, without anything that could move a cursor; an error's last words are kept."""
    if len(text) > MAX_DETAIL:
        text = f"{text[: MAX_DETAIL // 4]} ... {text[-MAX_DETAIL * 3 // 4 :]}"
    return "".join(c if c.isprintable() or c == "\n" else "?" for c in text)
