"""How figures and verdicts are put into words on the page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from hillclimb.harness.records import Reason
from hillclimb.harness.report.page_ledger import finite_number

NO_VALUE = "–"

STOPPED = "stopped"
SLOW = "slow"

REASON_TEXTS: dict[str, tuple[str, str]] = {
    Reason.OUTSIDE_WORKSPACE: (STOPPED, "It touches something outside the mutable files; nothing was run."),
    Reason.DOES_NOT_APPLY: (STOPPED, "It changes nothing, removes what is not there, or was judged already."),
    Reason.BAD_KNOBS: (STOPPED, "A knob or value does not exist, or knobs.yaml cannot be read."),
    Reason.POLICY: (STOPPED, "The source uses what case.yaml forbids."),
    Reason.DOES_NOT_COMPILE: (STOPPED, "The compiler refuses it, or it needs more than the GPU has."),
    Reason.DOES_NOT_LOAD: (STOPPED, "Import or compilation failed, or the entry function is not there."),
    Reason.RAISED: (STOPPED, "A call raised an exception."),
    Reason.WRONG_RESULT: (STOPPED, "An output differs from the reference by more than the error budget."),
    Reason.NOT_FINITE: (STOPPED, "An output holds NaN or infinity where the reference is finite."),
    Reason.OUTPUT_NOT_WRITTEN: (STOPPED, "Part of an output was never written."),
    Reason.INPUTS_CHANGED: (STOPPED, "An input came back with other bits."),
    Reason.WROTE_OUT_OF_BOUNDS: (STOPPED, "A guard zone around an array was overwritten."),
    Reason.MEMORY_ERROR: (
        STOPPED,
        "compute-sanitizer saw it touch memory that is not its own, or never written.",
    ),
    Reason.DATA_RACE: (STOPPED, "compute-sanitizer saw two of its threads race for shared memory."),
    Reason.CRASHED: (STOPPED, "Its process ended by a signal."),
    Reason.EXITED: (STOPPED, "Its process ended by itself."),
    Reason.HUNG: (STOPPED, "It took longer than it may."),
    Reason.OUT_OF_MEMORY: (STOPPED, "It passed its memory limit, or kept most of the GPU's memory."),
    Reason.LEAKED: (STOPPED, "Its memory grew from call to call."),
    Reason.FLOODED_OUTPUT: (STOPPED, "It wrote too much to stdout or stderr."),
    Reason.WROTE_TOO_MUCH: (STOPPED, "It filled its scratch folder."),
    Reason.STARTED_PROCESS: (STOPPED, "It tried to start another process."),
    Reason.BROKE_PROTOCOL: (STOPPED, "Its reply was not of the protocol."),
    Reason.TOKEN_COUNT: (
        STOPPED,
        "An answer has another number of tokens than was asked for, or than it says.",
    ),
    Reason.BROKE_JUDGE: (
        STOPPED,
        "The judge failed over it, in a way that only this candidate brings about.",
    ),
    Reason.SLOWER: (SLOW, "The screening pair shows that it is slower than the incumbent."),
    Reason.NO_PROVEN_GAIN: (SLOW, "It may be faster, but not provably by more than the minimum effect."),
    Reason.NOT_PER_CALL: (SLOW, "The gain is gone where each call is timed alone: it works ahead."),
    Reason.TOO_FAST: (
        STOPPED,
        "It took less time than the device needs to move the bytes: a cheat, or a wrong contract.",
    ),
    Reason.CLOCKS_DISAGREE: (
        STOPPED,
        "The judge's own clock does not bear out the gain that its events show.",
    ),
    Reason.LEFT_WORK_RUNNING: (STOPPED, "The GPU was still at work for it when its turn was over."),
    Reason.GUARDRAIL: (SLOW, "The objective got faster, and a guardrail's suite slower than allowed."),
    Reason.NOT_ENGAGED: (STOPPED, "A kernel that it claims to use did not run in what is timed."),
    Reason.PROMOTION_FAILED: (
        SLOW,
        "It won through the environment; with those source defaults the gate fails.",
    ),
}
"""reason -> (group, what happened)."""

_TIMES = ((1.0, "s", 1.0), (1e-3, "ms", 1e3), (1e-6, "µs", 1e6), (0.0, "ns", 1e9))
_RATES = ((1e12, "T", 1e-12), (1e9, "G", 1e-9), (1e6, "M", 1e-6), (0.0, "", 1.0))


def verdict_group(verdict: str) -> str:
    """kept, slow (ran right, not proven faster), stopped (did not get that far) or pending."""
    return verdict if verdict in ("kept", "pending") else REASON_TEXTS.get(verdict, (STOPPED, ""))[0]


def say_speedup(value: object) -> str:
    """Like `3.42×`; three digits are what a duel resolves, four near 1."""
    speedup = finite_number(value)
    if speedup is None:
        return NO_VALUE
    return f"{speedup:,.{_decimals(speedup)}f}×"


def say_interval(interval: Any) -> str:
    """Like `[3.31, 3.54]`."""
    low, high = (
        (finite_number(interval.get(end)) for end in ("low", "high"))
        if isinstance(interval, dict)
        else (None, None)
    )
    if low is None or high is None:
        return ""
    decimals = _decimals(low)
    return f"[{low:,.{decimals}f}, {high:,.{decimals}f}]"


def _decimals(speedup: float) -> int:
    return 3 if speedup < 2 else 2 if speedup < 10 else 1 if speedup < 100 else 0


def say_seconds(value: object) -> str:
    """A short time, like `1.23 ms`."""
    seconds = finite_number(value)
    if seconds is None:
        return NO_VALUE
    unit, factor = next((unit, factor) for least, unit, factor in _TIMES if abs(seconds) >= least)
    return (
        f"{seconds * factor:.3g} {unit}"
        if abs(seconds * factor) < 1000
        else f"{seconds * factor:,.0f} {unit}"
    )


def say_duration(value: object) -> str:
    """A long time, like `2 h 13 min`."""
    seconds = finite_number(value)
    if seconds is None:
        return NO_VALUE
    if seconds < 90:
        return f"{seconds:.3g} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02} min"


def say_count(value: object) -> str:
    count = finite_number(value)
    return NO_VALUE if count is None else f"{count:,.0f}"


def say_share(value: object) -> str:
    """Like `12 %`."""
    share = finite_number(value)
    if share is None:
        return NO_VALUE
    return f"{100 * share:.2g} %" if abs(share) < 0.1 else f"{100 * share:.0f} %"


def say_money(value: object) -> str:
    """US dollars; `unknown` where no prices were known."""
    dollars = finite_number(value)
    if dollars is None:
        return "unknown"
    return f"${dollars:,.2f}" if dollars >= 0.1 or dollars == 0 else f"${dollars:.4f}"


def say_rate(value: object, unit: str) -> str:
    """Like `31.2 GFLOP/s`."""
    rate = finite_number(value)
    if rate is None:
        return NO_VALUE
    prefix, factor = next((prefix, factor) for least, prefix, factor in _RATES if rate >= least)
    return f"{rate * factor:.3g} {prefix}{unit}"


def say_when(value: object) -> str:
    """UTC to the minute."""
    time = finite_number(value)
    try:
        return NO_VALUE if time is None else f"{datetime.fromtimestamp(time, UTC):%Y-%m-%d %H:%M} UTC"
    except (OverflowError, ValueError, OSError):
        return NO_VALUE
