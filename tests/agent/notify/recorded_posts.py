"""Events to tell a notifier, with figures a test need not care about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hillclimb.agent.screen.events import (
    BaselinedEvent,
    CalledEvent,
    FinishedEvent,
    JudgedEvent,
    OpenedEvent,
    ProgressEvent,
    ProposedEvent,
    RemainingBudget,
    TroubleEvent,
    TurnedEvent,
)
from hillclimb.harness.records import Estimate, GateReport, Interval, Provenance, Reason

CASE, TAG, BRANCH = "demo/toy", "night", "hillclimb/demo/toy/night"
PNG = b"\x89PNG\r\n\x1a\n" + b"not much of a picture" + b"IEND\xaeB`\x82"
LEFT = RemainingBudget(seconds=3600, candidates=90, patience=20, share=0.9)
PROVENANCE = Provenance(
    contract="0" * 64,
    benchmarks="1" * 64,
    harness="2" * 64,
    device="Loopback CPU",
    device_id="x",
    sandbox="bubblewrap",
    software={"python": "3.11"},
    seed_commitment="3" * 64,
)


def interval(estimate: float) -> Interval:
    return Interval(estimate=estimate, low=estimate * 0.99, high=estimate * 1.01, pairs=5)


def opened(folder: Path | str = "/nowhere/runs/demo/toy/night", **changes: Any) -> OpenedEvent:
    return OpenedEvent(
        **{
            "time": 1000.0,
            "case": CASE,
            "tag": TAG,
            "branch": BRANCH,
            "folder": str(folder),
            "resumed": False,
            "provenance": PROVENANCE,
            "left": LEFT,
            **changes,
        }
    )


def baselined() -> BaselinedEvent:
    return BaselinedEvent(
        time=1010.0,
        gate=GateReport(passed=True, runs=12),
        seconds_per_call=18.2e-6,
        pair_sd=0.0021,
        noise=interval(1.0),
    )


def proposed(n: int, idea: str = "keep C in registers", family: str = "registers") -> ProposedEvent:
    return ProposedEvent(time=1020.0, n=n, author="llm", idea=idea, family=family)


def judged(
    n: int, *, kept: bool = True, speedup: float = 1.25, wins: int = 1, time: float = 1030.0
) -> JudgedEvent:
    return JudgedEvent(
        time=time,
        n=n,
        kept=kept,
        reason=None if kept else Reason.SLOWER,
        detail="",
        screened=speedup,
        estimate=Estimate(stage="screen", speedup=speedup),
        speedup=interval(speedup) if kept else None,
        cumulative=interval(2 * speedup) if kept else None,
        commit="abcdef0123456789" if kept else None,
        candidates=n,
        wins=wins,
        elapsed=7200.0,
        per_hour=30.0,
        left=LEFT,
    )


def turned(*signals: str, reason: str = "12 sweep candidates moved 0.3 %") -> TurnedEvent:
    return TurnedEvent(time=1040.0, phase="edit", family="tiling", reason=reason, signals=signals)


def called(*, fault: bool = False) -> CalledEvent:
    return CalledEvent(
        time=1045.0,
        k=1,
        outcome="fault" if fault else "proposal",
        fault="timeout" if fault else "",
        detail="",
        idea="",
        seconds=3.0,
        tokens=800,
        cost=0.01,
        run_tokens=800,
        run_cost=0.01,
    )


def trouble(message: str = "the judge died; starting another") -> TroubleEvent:
    return TroubleEvent(time=1050.0, message=message)


def progress() -> ProgressEvent:
    return ProgressEvent(time=1051.0, n=1, stage="screen", done=1, of=9, speedup=None)


def finished(
    *, wins: int = 1, interrupted: bool = False, reason: str = "the budget of 100 candidates is used up"
) -> FinishedEvent:
    return FinishedEvent(
        time=4600.0,
        reason=reason,
        interrupted=interrupted,
        candidates=100,
        wins=wins,
        cumulative=interval(3.5) if wins else None,
        importances={"MM_TILE": 0.7, "MM_UNROLL": 0.3},
        tokens=123456,
        cost=1.5,
        branch=BRANCH,
        folder="/nowhere",
    )
