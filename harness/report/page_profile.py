"""The first and the last look inside: time, work and headroom of each problem, and where the time goes."""

from __future__ import annotations

from dataclasses import dataclass

from hillclimb.harness.report.page_ledger import LedgerObject, as_list, as_object, finite_number, safe_text

MAX_BUCKETS = 12


@dataclass(frozen=True)
class ProblemRow:
    """One problem of the objective's suite, before and after."""

    name: str
    before: float | None
    after: float | None
    """Seconds per call."""
    flops: float | None
    bytes: float | None
    """Done and moved per second, after."""
    headroom: float | None
    """How many times faster the device's measured ceilings would allow, after."""
    headroom_before: float | None
    limit: str
    """Which ceiling binds."""

    @property
    def gain(self) -> float | None:
        return self.before / self.after if self.before and self.after else None


@dataclass(frozen=True)
class BucketRow:
    """One function or kernel: its share of the time before and after."""

    name: str
    before: float | None
    after: float | None


@dataclass(frozen=True)
class ProfilePanel:
    """Both looks side by side."""

    first: LedgerObject
    last: LedgerObject
    problems: tuple[ProblemRow, ...]
    buckets: tuple[BucketRow, ...]
    ceilings: LedgerObject
    is_pair: bool
    """The last look is another one than the first."""
    detail: str


def describe_profiles(profiles: list[LedgerObject]) -> ProfilePanel | None:
    """The first against the last; None where nobody looked."""
    if not profiles:
        return None
    first, last = profiles[0], profiles[-1]
    before, after = as_object(first.get("profile")), as_object(last.get("profile"))
    ceilings = as_object(after.get("ceilings"))
    earlier = _by_name(before, "problems", "problem")
    problems = tuple(
        _problem(name, earlier.get(name, {}), problem, ceilings)
        for name, problem in _by_name(after, "problems", "problem").items()
    )
    return ProfilePanel(
        first,
        last,
        problems,
        _buckets(before, after),
        ceilings,
        is_pair=len(profiles) > 1,
        detail=safe_text(after.get("detail")),
    )


def _by_name(profile: LedgerObject, part: str, key: str) -> dict[str, LedgerObject]:
    return {safe_text(entry.get(key), 200): entry for entry in map(as_object, as_list(profile.get(part)))}


def _problem(name: str, before: LedgerObject, after: LedgerObject, ceilings: LedgerObject) -> ProblemRow:
    seconds = finite_number(after.get("seconds_per_call"))
    flops, moved = finite_number(after.get("flops")), finite_number(after.get("bytes"))
    floor, limit = _floor(flops, moved, ceilings)
    return ProblemRow(
        name,
        finite_number(before.get("seconds_per_call")),
        seconds,
        flops / seconds if flops and seconds else None,
        moved / seconds if moved and seconds else None,
        seconds / floor if seconds and floor else None,
        (finite_number(before.get("seconds_per_call")) or 0) / floor if before and floor else None,
        limit,
    )


def _floor(flops: float | None, moved: float | None, ceilings: LedgerObject) -> tuple[float | None, str]:
    """The least time that the ceilings allow for the work, and which of them says so."""
    times = []
    for work, name, limit in ((flops, "flops", "arithmetic"), (moved, "bytes", "memory")):
        ceiling = finite_number(ceilings.get(name))
        if work and ceiling:
            times.append((work / ceiling, limit))
    return max(times, default=(None, ""), key=lambda pair: pair[0] or 0.0)


def _buckets(before: LedgerObject, after: LedgerObject) -> tuple[BucketRow, ...]:
    """The largest of either look, those of the last one first."""
    old, new = (_by_name(profile, "buckets", "name") for profile in (before, after))
    names = list(dict.fromkeys([*list(new)[:MAX_BUCKETS], *list(old)[: MAX_BUCKETS // 2]]))
    return tuple(
        BucketRow(
            name, finite_number(old.get(name, {}).get("share")), finite_number(new.get(name, {}).get("share"))
        )
        for name in names
    )
