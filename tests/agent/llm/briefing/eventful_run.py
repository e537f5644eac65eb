"""Invented runs for briefings: ledgers with every kind of line, and facts around them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hillclimb.agent.llm.briefing.briefing import CaseTexts, Facts
from hillclimb.agent.llm.gather import facts_of
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.record.entries import (
    BaselinedEntry,
    CalledEntry,
    DroppedEntry,
    Idea,
    JudgedEntry,
    ProfiledEntry,
    ProposedEntry,
    SettledEntry,
)
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.sweep.landscape import build_landscape
from hillclimb.harness.case.case import Case
from hillclimb.harness.records import Bucket, Ceilings, GateReport, ProblemTime, Profile, Reason
from tests.agent.sweep.synthetic import interval, open_ledger
from tests.fakes.toy import write_toy

PROFILE = Profile(
    problems=(ProblemTime(problem="only", seconds_per_call=1e-3, flops=1e6, bytes=1e5),),
    buckets=tuple(
        Bucket(name=f"kernel.py:part_{i}", share=0.5**i, seconds_per_call=1e-3 * 0.5**i, calls=1.0)
        for i in range(1, 9)
    ),
    ceilings=Ceilings(flops=1e10, bytes=1e9, how="simulated"),
)


@dataclass
class Story:
    """A ledger that grows by one candidate a call."""

    ledger: Ledger

    def baseline(self) -> Story:
        gate = GateReport(passed=True, runs=8)
        noise = interval(1.0)
        self.ledger.append(
            BaselinedEntry(
                time=1.0, gate=gate, seconds_per_call=1e-2, pair_sd=0.002, noise=noise, seconds=1.0
            )
        )
        return self

    def profile(self, profile: Profile = PROFILE) -> ProfiledEntry:
        profiled = ProfiledEntry(time=2.0, commit=self.ledger.incumbent, profile=profile)
        self.ledger.append(profiled)
        return profiled

    def keep(self, proposal: Proposal, speedup: float) -> None:
        cumulative = interval(self.ledger.cumulative * speedup)
        self._judge(proposal, kept=True, screened=speedup, speedup=interval(speedup), cumulative=cumulative)

    def reject(
        self, proposal: Proposal, reason: Reason, screened: float | None = None, detail: str = ""
    ) -> None:
        self._judge(proposal, kept=False, reason=reason, screened=screened, detail=detail)

    def begin(self, proposal: Proposal) -> None:
        n = len(self.ledger.candidates) + 1
        self.ledger.append(ProposedEntry(n=n, time=float(n), proposal=proposal))

    def call(self, **said: Any) -> int:
        k = len(self.ledger.calls) + 1
        facts = {"outcome": "proposal", "model": "m", "incumbent": self.ledger.incumbent, **said}
        self.ledger.append(CalledEntry(k=k, time=0.0, seconds=1.0, **facts))
        return k

    def drop(self, k: int, detail: str) -> None:
        self.ledger.append(DroppedEntry(k=k, time=0.0, reason="duplicate", detail=detail))

    def _judge(self, proposal: Proposal, **facts: Any) -> None:
        self.begin(proposal)
        n = len(self.ledger.candidates)
        commit = f"{n:040x}" if facts["kept"] else None
        self.ledger.append(JudgedEntry(n=n, time=float(n), parent="0" * 40, commit=commit, **facts))
        self.ledger.append(SettledEntry(n=n))


def story(folder: Path) -> Story:
    return Story(open_ledger(folder / "run")).baseline()


def idea(text: str, family: str = "tiling", **more: Any) -> Proposal:
    return Proposal(
        author="llm", idea=text, family=family, edits=(Edit(path="kernel.py", content="x"),), **more
    )


def sweep(**knobs: Any) -> Proposal:
    return Proposal(author="sweep", idea="turn a knob", knobs=knobs)


def eventful(folder: Path) -> Facts:
    """A run in which something of every kind has happened."""
    run = story(folder)
    run.reject(sweep(TILE=16), Reason.SLOWER, 0.8)
    run.keep(sweep(TILE=32), 1.4)
    run.reject(sweep(UNROLL=4), Reason.RAISED)
    run.call(
        idea="unroll",
        note="the loop is short\nso unrolling pays",
        ideas=(Idea(family="packing", idea="pack the panels"),),
    )
    run.keep(idea("unroll by four", "unroll", call=1), 1.2)
    trace = (
        "Traceback (most recent call last):\n  File kernel.py, line 3\nNameError: name 'tile' is not defined"
    )
    run.reject(idea("tile twice"), Reason.DOES_NOT_LOAD, detail=trace)
    run.reject(idea("tile once more"), Reason.NO_PROVEN_GAIN, 1.004, "1.004x proves nothing")
    taken_back = Proposal(author="ablation", idea="without TILE=32", undoes=2, knobs={"TILE": 8})
    run.reject(taken_back, Reason.SLOWER, 0.7)
    run.call(outcome="unusable", detail="SEARCH block 1 of kernel.py is not in the file")
    run.drop(run.call(idea="tile once more"), "candidate #6 was the same")
    run.call(idea="prefetch the next tile")
    run.profile()
    return facts(folder, run.ledger, family="packing", reason="9 near-ties in tiling", signals=("near_ties",))


def facts(folder: Path, ledger: Ledger, **more: Any) -> Facts:
    """Around a ledger, the toy case with some files more."""
    settings: dict[str, Any] = {
        "texts": CaseTexts(
            program="Make the number larger.\n", contract="class Contract:\n    problems = {}\n"
        ),
        "files": toy_files(),
        **more,
    }
    case = Case(write_toy(folder))
    return facts_of(ledger, case, build_landscape(case.knobs, ledger), **settings)


def toy_files(more: Mapping[str, str] | None = None) -> dict[str, str]:
    return {
        "kernel.py": "QUALITY = 1.0\n",
        "knobs.yaml": "TILE: {type: log-int, low: 8, high: 64, default: 8}\n",
        "parts.py": "def part(x):\n" + "    x += 1\n" * 30 + "    return x\n",
        "docs/notes.md": "what people know\n",
        **(more or {}),
    }
