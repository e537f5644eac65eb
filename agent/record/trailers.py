"""Commit messages that carry a verdict as trailers, and the way back: all that a clone knows of a climb.

    MM_ORDER=ikj, MM_TILE_N=64 (1.834x)

    Hillclimb-Run: demo/cpu_matmul/nov21
    Hillclimb-Candidate: 12
    Hillclimb-Verdict: kept
    Hillclimb-Speedup: 1.8340 [1.8210, 1.8470] confidence=0.95 pairs=5
    ...

docs/reference/records.md lists the names. Values are one line each. What a proposal says is flattened first, so
that no idea can forge a trailer.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from hillclimb.agent.proposal import Proposal
from hillclimb.agent.record.entries import CalledEntry, ConfirmingEntry, JudgedEntry, OpenedEntry
from hillclimb.harness.case.settings import Settings
from hillclimb.harness.records import Estimate, GateReport, Interval, Provenance

_MAX_SUBJECT_CHARACTERS = 100
_MAX_VALUE_CHARACTERS = 500
_TRAILER = re.compile(r"\s*([A-Za-z][A-Za-z0-9-]*): (.*)")


@dataclass(frozen=True)
class CommittedWin:
    """One kept candidate as its commit tells it."""

    n: int
    commit: str
    time: int
    """Seconds since the epoch."""
    author: str
    idea: str
    speedup: Interval
    """Over the incumbent of then."""
    cumulative: Interval | None
    """Over the baseline."""
    trailers: Mapping[str, str]
    """All of them, without `Hillclimb-`; repeated ones joined by line breaks."""
    is_taken_back: bool = False
    """Whether a later commit reverts it."""


@dataclass(frozen=True)
class VerdictRecord:
    """Everything about one judged candidate that its commit states."""

    run: str
    """`<family>/<case>/<tag>`."""
    opened: OpenedEntry
    settings: Settings
    provenance: Provenance
    """Of the judge that gave the verdict."""
    proposal: Proposal
    call: CalledEntry | None
    """The model call it came from."""
    judged: JudgedEntry
    confirming: ConfirmingEntry | None


def write_message(record: VerdictRecord) -> str:
    """The commit message: a subject that reads well in `git log --oneline`, then the trailers."""
    judged = record.judged
    # some tools take a leading '-' for a patch and a '#' for a comment
    idea = to_one_line(record.proposal.idea, _MAX_SUBJECT_CHARACTERS).lstrip("-# ")
    outcome = f"{judged.speedup.estimate:.3f}x" if judged.speedup else str(judged.reason or "kept")
    trailers = "\n".join(
        f"Hillclimb-{name}: {to_one_line(value)}" for name, value in _trailers(record) if value
    )
    return f"{idea or 'no idea given'} ({outcome})\n\n{trailers}\n"


def read_win(commit: str, time: int, trailers: Mapping[str, str]) -> CommittedWin | None:
    """The win that one block of a commit's trailers tells of; None where it tells of none."""
    speedup = read_interval(trailers.get("Speedup", ""))
    if (
        trailers.get("Verdict") != "kept"
        or speedup is None
        or not re.fullmatch("[0-9]{1,9}", trailers.get("Candidate", ""))
    ):
        return None
    return CommittedWin(
        n=int(trailers["Candidate"]),
        commit=commit,
        time=time,
        author=trailers.get("Author", ""),
        idea=trailers.get("Idea", ""),
        speedup=speedup,
        cumulative=read_interval(trailers.get("Cumulative", "")),
        trailers=trailers,
    )


def read_blocks(message: str) -> list[dict[str, str]]:
    """The `Hillclimb-` trailers of a message, by name without that prefix, a block for each candidate.

    A squash holds those of all the commits that went into it, as git indents them or as they stand in a pull request. A
    block begins with `Hillclimb-Run` and ends with the first line that is no trailer.
    """
    blocks: list[dict[str, str]] = []
    is_inside = False
    for line in message.split("\n"):
        found = _TRAILER.fullmatch(line)
        if found is None:
            is_inside = False
        elif found[1].startswith("Hillclimb-"):
            name, value = found[1].removeprefix("Hillclimb-"), found[2]
            if name == "Run":
                is_inside = True
                blocks.append({})
            if is_inside:
                block = blocks[-1]
                block[name] = f"{block[name]}\n{value}" if name in block else value
    return blocks


def show_interval(interval: Interval) -> str:
    """`1.8340 [1.8210, 1.8470] confidence=0.95 pairs=5`"""
    low, high = f"{interval.low:.4f}", f"{interval.high:.4f}"
    return (
        f"{interval.estimate:.4f} [{low}, {high}] confidence={interval.confidence:g} pairs={interval.pairs}"
    )


def read_interval(text: str) -> Interval | None:
    """What show_interval wrote; None for anything else."""
    number = r"(\d+(?:\.\d+)?|inf|nan)"
    found = re.fullmatch(rf"{number} \[{number}, {number}\] confidence={number} pairs=(\d+)", text)
    if not found:
        return None
    estimate, low, high, confidence, pairs = found.groups()
    return Interval(
        estimate=float(estimate),
        low=float(low),
        high=float(high),
        confidence=float(confidence),
        pairs=int(pairs),
    )


def to_one_line(text: str, width: int = _MAX_VALUE_CHARACTERS) -> str:
    """One printable line of at most `width` characters."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return line if len(line) <= width else line[: width - 1] + "…"


def _trailers(record: VerdictRecord) -> Iterator[tuple[str, str]]:
    yield from _about_run(record)
    yield from _about_verdict(record.judged, record.confirming)
    yield from _about_proposal(record.proposal)
    yield from _about_call(record.call)
    yield from _about_judge(record.provenance)


def _about_run(record: VerdictRecord) -> Iterator[tuple[str, str]]:
    objective = record.settings.objective
    yield "Run", record.run
    yield "Base", record.opened.base
    yield "Candidate", str(record.judged.n)
    yield "Metric", f"{objective.metric} ({objective.direction} is better), suite {objective.suite}"
    yield "Minimum-Effect", f"{objective.minimum_effect:g}"


def _about_verdict(judged: JudgedEntry, confirming: ConfirmingEntry | None) -> Iterator[tuple[str, str]]:
    yield "Verdict", "kept" if judged.kept else "rejected"
    yield "Reason", str(judged.reason or "")
    yield "Detail", judged.detail
    yield "Speedup", show_interval(judged.speedup) if judged.speedup else ""
    yield "Cumulative", show_interval(judged.cumulative) if judged.cumulative else ""
    yield "Screened", f"{judged.screened:.4f}" if judged.screened is not None else ""
    yield "Decided", _decided(judged.decided) if judged.decided else ""
    yield "Refuted", show_interval(judged.refuted) if judged.refuted else ""
    yield "Seconds-Per-Call", f"{judged.seconds_per_call:.6g}" if judged.seconds_per_call is not None else ""
    yield "E-Value", f"{judged.e_value:.4g}" if judged.e_value is not None else ""
    yield "Alpha", f"{confirming.alpha:.4g} (confirmation {confirming.k})" if confirming else ""
    yield "Gate", _gate(judged.gate)
    for row in judged.gate.engaged if judged.gate else ():
        yield "Ran", f"{row.name} calls={row.calls:g} share={row.share:.4f}"
    for one in judged.metrics:
        yield "Measured", f"{one.suite} {one.metric} {one}"
    for rail in judged.guardrails:
        what = f"{rail.suite} {rail.metric}".strip()
        yield "Guardrail", f"{what} {show_interval(rail.speedup)} max-slowdown={rail.max_slowdown:g}"
    yield "Seconds", f"{judged.seconds:.1f}"


def _decided(decided: Estimate) -> str:
    return show_interval(decided.interval) if decided.interval else f"{decided.speedup:.4f} pairs=1"


def _gate(gate: GateReport | None) -> str:
    if gate is None:
        return ""
    verdict = "passed" if gate.passed else f"failed ({gate.reason})"
    return f"{verdict} runs={gate.runs} worst={gate.worst:.4g} at={gate.worst_at or '-'}"


def _about_proposal(proposal: Proposal) -> Iterator[tuple[str, str]]:
    yield "Author", proposal.author
    yield "Idea", proposal.idea
    yield "Knobs", ", ".join(f"{name}={json.dumps(value)}" for name, value in sorted(proposal.knobs.items()))
    yield "Files", ", ".join(sorted(edit.path for edit in proposal.edits))
    yield "Family", proposal.family
    yield "Undoes", str(proposal.undoes or "")


def _about_call(call: CalledEntry | None) -> Iterator[tuple[str, str]]:
    if call is None:
        return
    yield "Model", call.model
    yield "Call", str(call.k)
    yield "Tokens", f"{call.usage.prompt} prompt, {call.usage.completion} completion"
    yield "Cost", f"{call.cost:.6f} USD" if call.cost is not None else ""


def _about_judge(provenance: Provenance) -> Iterator[tuple[str, str]]:
    yield "Contract", provenance.contract
    yield "Benchmarks", provenance.benchmarks
    yield "Harness", provenance.harness
    yield "Device", provenance.device
    yield "Device-Id", provenance.device_id
    yield "Software", ", ".join(f"{name}={version}" for name, version in sorted(provenance.software.items()))
    yield "Sandbox", provenance.sandbox
    yield "Seed-Commitment", provenance.seed_commitment
