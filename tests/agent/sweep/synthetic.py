"""Runs that never ran: real ledgers, with verdicts out of a formula in place of a judge."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path

from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.proposer import Proposer
from hillclimb.agent.record.entries import JudgedEntry, OpenedEntry, ProposedEntry, SettledEntry
from hillclimb.agent.record.ledger import Ledger
from hillclimb.harness.knobs.knobs import Knobs, KnobValue, defaults, parse_knobs
from hillclimb.harness.records import SCHEMA, Estimate, Interval, Provenance, Reason

Speed = Callable[[Mapping[str, KnobValue]], float | None]
"""Speedup of a configuration over the baseline; None: it fails."""

KNOBS = """
TILE: {type: log-int, low: 8, high: 256, default: 8}
ORDER: {type: choice, choices: [ijk, ikj, kij], default: ijk}
UNROLL: {type: int, low: 1, high: 8, default: 1}
FASTMATH: {type: bool, default: false}
"""

PROVENANCE = Provenance(
    contract="c" * 64,
    benchmarks="b" * 64,
    harness="a" * 64,
    device="a CPU",
    device_id="0",
    sandbox="bubblewrap",
    software={"python": "3.11"},
    seed_commitment="5" * 64,
)


def knobs(text: str = KNOBS) -> Knobs:
    return parse_knobs(text, Path("knobs.yaml"))


def separable(configuration: Mapping[str, KnobValue]) -> float:
    """Speedup over the defaults of KNOBS; the best is TILE=64, ORDER=ikj, UNROLL=4, FASTMATH=1."""
    order = {"ijk": 0.0, "ikj": 0.9, "kij": 0.5}[str(configuration["ORDER"])]
    tile = 0.7 - 0.2 * abs(math.log2(float(configuration["TILE"])) - 6)
    unroll = 0.3 - 0.05 * abs(float(configuration["UNROLL"]) - 4)
    offset = 0.7 - 0.6 + 0.3 - 0.15
    return math.exp(order + tile + unroll + 0.1 * bool(configuration["FASTMATH"]) - offset)


def open_ledger(folder: Path) -> Ledger:
    folder.mkdir(parents=True, exist_ok=True)
    ledger = Ledger.open(folder / "ledger.jsonl", Disk())
    ledger.append(
        OpenedEntry(
            schema_version=SCHEMA,
            time=0.0,
            case="demo/case",
            case_path="cases/demo/case",
            tag="t",
            seed=0,
            alpha=0.01,
            base="0" * 40,
            snapshot=False,
            provenance=PROVENANCE,
        )
    )
    return ledger


def interval(estimate: float) -> Interval:
    return Interval(estimate=estimate, low=estimate * 0.99, high=estimate * 1.01, pairs=5)


def decided_as(estimate: float) -> Estimate:
    return Estimate(stage="decide", speedup=estimate, interval=interval(estimate))


def judge_next(
    ledger: Ledger,
    proposal: Proposal,
    speedup: float | None,
    *,
    reason: Reason | None = None,
    decided: float | None = None,
) -> None:
    """Write candidate n as a judge would: kept when it is over 1 % faster than the incumbent.

    `decided`: what fresh pairs saw, over the baseline too.
    """
    n = len(ledger.candidates) + 1
    kept = reason is None and speedup is not None and speedup > 1.01 * ledger.cumulative
    over_incumbent = None if speedup is None else speedup / ledger.cumulative
    ledger.append(ProposedEntry(n=n, time=float(n), proposal=proposal))
    ledger.append(
        JudgedEntry(
            n=n,
            time=float(n),
            kept=kept,
            reason=None if kept else reason or (Reason.SLOWER if speedup else Reason.RAISED),
            screened=over_incumbent,
            decided=decided_as(decided / ledger.cumulative) if decided else None,
            speedup=interval(over_incumbent) if kept and over_incumbent else None,
            cumulative=interval(speedup) if kept and speedup else None,
            parent="0" * 40,
            commit=f"{n:040x}" if kept else None,
        )
    )
    ledger.append(SettledEntry(n=n))


def climb(ledger: Ledger, proposer: Proposer, start: Knobs, speed: Speed, candidates: int) -> int:
    """Climb a formula; how many candidates were proposed before the ideas ran out or the count was reached."""
    configuration = defaults(start)
    for done in range(candidates):
        proposal = proposer.propose(ledger)
        if proposal is None:
            return done
        tried = {**configuration, **proposal.knobs}
        judge_next(ledger, proposal, speed(tried))
        if ledger.wins and ledger.wins[-1].n == len(ledger.candidates):
            configuration = tried
    return candidates


def edit(path: str, content: str | None) -> Proposal:
    return Proposal(author="llm", idea="another kernel", edits=(Edit(path=path, content=content),))
