#!/usr/bin/env python3
"""A night of poison: `python -m scripts.experiments.poison_night cpu` (or gpu).

A climb through the controller and the real judge whose proposer alternates poisoned candidates (tests/poison) with
honest ones, which differ from the incumbent by a comment. Asked of every poisoned one: is it called what it is, does
the night go on, what is left of it 10 s later? Of every honest one: how long does a call take, against the honest ones
that were judged before any poison? The state is the run's own: the same command goes on where it was stopped. The
output is written when the night is over.

    python -m scripts.experiments.poison_night cpu --folder /tmp/night --output docs/evidence/poison_cpu.json
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.climb.climb import climb
from hillclimb.agent.climb.request import ClimbRequest, Tools
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.record.entries import Samples
from hillclimb.agent.record.ledger import Candidate, Ledger
from hillclimb.agent.screen.events import Event, JudgedEvent, OpenedEvent, ProposedEvent, TroubleEvent
from hillclimb.harness.device.gpu.nvml import Nvml, process_name
from hillclimb.harness.duel.pairs import log_ratios, mean_speedup, seconds_per_call
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Pair, Reason
from scripts.experiments import frame
from tests.poison.hundred import poisons, representatives
from tests.poison.poison import Poison, Surface, honest_source
from tests.poison.ward import (
    adopt_orphans,
    came_to_stay,
    marked,
    marked_processes,
    shared_files,
    write_ward_case,
)

TAG = "poison"

ORPHAN_SECONDS = 10.0
FOREVER = 10**6
UNTAKEN = (None, Reason.SLOWER, Reason.NO_PROVEN_GAIN)
"""Where poison waits for the clock, a duel on a busy machine may be over before it is taken."""


@dataclass(frozen=True)
class Step:
    """One candidate of the night."""

    n: int
    poison: Poison | None
    """None: an honest one."""

    def proposal(self, surface: Surface) -> Proposal:
        salt = f"candidate {self.n}"
        files, idea = {"kernel.py": honest_source(surface, salt)}, f"honest {self.n}"
        if self.poison is not None:
            files, idea = {"kernel.py": self.poison.source(salt), **self.poison.files}, self.poison.name
        edits = tuple(Edit(path=path, content=text) for path, text in files.items())
        return Proposal(author="human", idea=idea, edits=edits)


def choose(surface: Surface, kinds: Sequence[str], after: int) -> list[Poison]:
    """One of each kind before the others, so that a night that is cut short has seen every kind; without the first
    `after`, which an earlier night took, and of these kinds alone, where some are named."""
    first = representatives(surface)
    taken = [*first, *(poison for poison in poisons(surface) if poison not in first)][after:]
    return [poison for poison in taken if not kinds or poison.kind in kinds]


def plan(taken: Sequence[Poison], clean: int) -> list[Step]:
    """Honest ones first, then poison and honest in turns."""
    order: list[Poison | None] = [None] * clean
    for poison in taken:
        order += [poison, None]
    return [Step(n, poison) for n, poison in enumerate(order, start=1)]


class Scripted:
    """A proposer that goes through the plan; what comes next follows from the ledger's length alone."""

    def __init__(self, steps: Sequence[Step], surface: Surface) -> None:
        self._steps, self._surface = steps, surface

    def propose(self, ledger: Ledger) -> Proposal | None:
        done = len(ledger.candidates)
        return self._steps[done].proposal(self._surface) if done < len(self._steps) else None

    def importances(self, ledger: Ledger) -> dict[str, float]:
        return {}

    def finish(self, ledger: Ledger) -> None:
        """Nothing is ever under way."""


@dataclass
class Warden:
    """Watches the night from the controller's process: what the judge holds and what is left after each candidate."""

    root: Path
    steps: Sequence[Step]
    notes: Path
    """One JSON line a candidate, beside the run."""
    temporary: Path
    nvml: Nvml | None
    judges: list[LocalJudge] = field(default_factory=list)
    troubles: int = 0
    _inmates: set[int] = field(default_factory=set)
    """What lives while nothing is judged: the judge, and on a GPU the process that candidates are forked from."""
    _files: set[str] = field(default_factory=set)
    _known_judge: int = 0
    _began: float = 0.0

    def make_judge(self, case: Path, log: Path) -> LocalJudge:
        self.judges.append(LocalJudge(case, log))
        return self.judges[-1]

    def see(self, event: Event) -> None:
        """Called by the climb, which waits."""
        if isinstance(event, OpenedEvent):
            print(
                f"{event.folder} {'goes on' if event.resumed else 'begins'} on {event.provenance.device}",
                flush=True,
            )
        if isinstance(event, TroubleEvent):
            self.troubles += 1
            print(f"trouble: {event.message[:500]}", flush=True)
        if isinstance(event, ProposedEvent):
            self._began = time.monotonic()
        if isinstance(event, JudgedEvent):
            self._note(event)

    def _note(self, event: JudgedEvent) -> None:
        seconds, step = time.monotonic() - self._began, self.steps[event.n - 1]
        left, waited = self._await_end(step.poison is None)
        files = self._lying_about()
        line = {
            "n": event.n,
            "seconds": round(seconds, 2),
            "orphans": sorted(left),
            "waited_seconds": round(waited, 2),
            "files_left": sorted(files - self._files) if self._files else [],
            "judges": len(self.judges),
            "troubles": self.troubles,
            "load": round(os.getloadavg()[0], 1),
            **self._memory(),
        }
        if step.poison is None:
            self._files = files
        with self.notes.open("a") as notes:
            notes.write(json.dumps(line) + "\n")
        name = step.poison.name if step.poison else "honest"
        print(f"{event.n}/{len(self.steps)} {name}: {event.reason or 'kept'} in {seconds:.1f} s", flush=True)

    def _await_end(self, is_honest: bool) -> tuple[Set[int], float]:
        """Processes that live 10 s later though nothing is judged, and how long it took until none did."""
        judge = self.judges[-1]._process.pid if self.judges else 0
        if judge != self._known_judge and is_honest:
            time.sleep(0.5)
            self._known_judge, self._inmates = judge, set(marked_processes(self.root))
        if judge != self._known_judge:
            return set(), 0.0  # a judge that has just been started: after the next honest one it is known
        began = time.monotonic()
        while left := came_to_stay(set(marked_processes(self.root)), self._inmates):
            if time.monotonic() - began > ORPHAN_SECONDS:
                break
            time.sleep(0.05)
        return left, time.monotonic() - began

    def await_nobody(self) -> set[int]:
        """Whoever lives 10 s after the judge was closed, the controller's own git aside."""
        deadline = time.monotonic() + ORPHAN_SECONDS
        while left := {pid for pid in marked_processes(self.root) if process_name(pid) != "git"}:
            if time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return left

    def _lying_about(self) -> set[str]:
        return {*map(str, self.temporary.iterdir()), *map(str, shared_files(self.root))}

    def _memory(self) -> dict[str, Any]:
        status = Path(f"/proc/{self.judges[-1]._process.pid}/status").read_text()
        own = {
            line.split(":")[0]: int(line.split()[1]) for line in status.splitlines() if line.startswith("Rss")
        }
        available = next(
            int(line.split()[1])
            for line in Path("/proc/meminfo").read_text().splitlines()
            if "MemAvailable" in line
        )
        found = {
            "judge_mib": round((own["RssAnon"] + own["RssShmem"]) / 1024, 1),
            "judge_descriptors": len(list(Path(f"/proc/{self.judges[-1]._process.pid}/fd").iterdir())),
            "available_mib": available >> 10,
        }
        if self.nvml is not None:
            found["gpu_mib"] = max(gpu.used_bytes for gpu in self.nvml.gpus()) >> 20
        return found


def main() -> None:
    options = _parse()
    surface: Surface = options.surface
    steps = plan(choose(surface, options.kinds, options.after), options.clean)
    root = (options.folder or Path(tempfile.gettempdir()) / f"hillclimb-poison-{surface}").resolve()
    wanted = {"surface": surface, "kinds": options.kinds, "after": options.after, "clean": options.clean}
    output = frame.Output(options.output, {**wanted, "folder": root})
    case = _repository(root, surface)
    temporary = root / "tmp"
    nvml = Nvml() if surface == "gpu" else None
    warden = Warden(root, steps, root / "notes.jsonl", temporary, nvml)
    began = time.monotonic()
    with adopt_orphans(), marked(root, temporary):
        finished = climb(
            ClimbRequest(
                case,
                TAG,
                budgets=BudgetOverrides(seconds=1e7, candidates=options.candidates, patience=FOREVER),
            ),
            warden.make_judge,
            lambda background: Scripted(steps, surface),
            Tools(emit=warden.see, draw=lambda folder: ""),
        )
        outlived = warden.await_nobody()
    found = report(Path(finished.folder), steps, warden.notes)
    found["summary"] |= {"end": finished.reason, "alive_after_the_end": sorted(map(process_name, outlived))}
    found["summary"]["last_session_seconds"] = round(time.monotonic() - began, 1)
    output.provenance |= found.pop("provenance")
    output.save(note=options.note, **found)
    print(json.dumps(found["summary"], indent=1))


def report(run: Path, steps: Sequence[Step], notes: Path) -> dict[str, Any]:
    """Everything the evidence holds, from the run's ledger and samples and the warden's notes."""
    ledger = Ledger.read(run / "ledger.jsonl")
    assert ledger.opened is not None
    noted = {note["n"]: note for note in map(json.loads, notes.read_text().splitlines())}
    rows = [
        _row(candidate, steps[candidate.n - 1], noted.get(candidate.n, {}), run)
        for candidate in ledger.candidates
        if candidate.judged
    ]
    first = next((step.n for step in steps if step.poison), len(steps))
    clean = [row["us"] for row in rows[: first - 1] if row.get("us")]
    for row in rows:
        if row.get("us") and clean:
            row["against_clean"] = round(row["us"] / statistics.median(clean), 4)
    return {
        "provenance": ledger.opened.provenance.model_dump(),
        "summary": summarise(rows, first),
        "candidates": rows,
    }


def _row(candidate: Candidate, step: Step, note: dict[str, Any], run: Path) -> dict[str, Any]:
    judged, poison = candidate.judged, step.poison
    assert judged is not None
    row: dict[str, Any] = {"n": candidate.n, "kind": poison.kind if poison else "honest"}
    if poison is None:
        row |= {"got": judged.reason or "kept", **_times(run / "samples" / f"{candidate.n}.json")}
    else:
        row |= {
            "variant": poison.variant,
            "when": poison.when,
            "expected": sorted(poison.expected),
            "got": judged.reason or "kept",
            "right": judged.reason in poison.expected,
            "untaken": poison.is_taken_while_timed and judged.reason in UNTAKEN,
            "detail": judged.detail[-160:],
        }
    return row | {name: value for name, value in note.items() if name != "n"}


def _times(samples: Path) -> dict[str, float]:
    """Of an honest candidate: microseconds a call in the screening pair, and its speedup over the incumbent there."""
    screening = Samples.model_validate_json(samples.read_text()).screening
    pairs = screening.pairs[:1] if screening else ()  # the others are of guardrails
    if not pairs:
        return {}
    return {
        "us": round(1e6 * statistics.median(_each_block(pairs)), 4),
        "beside_incumbent": round(mean_speedup(log_ratios(pairs)), 4),
    }


def _each_block(pairs: Sequence[Pair]) -> list[float]:
    return [
        seconds_per_call([pair.model_copy(update={"blocks": (block,)})], "A")
        for pair in pairs
        for block in pair.blocks
    ]


def summarise(rows: Sequence[dict[str, Any]], first: int) -> dict[str, Any]:
    """The figures that the promises are about; `first` is the number of the first poisoned candidate."""
    poisoned = [row for row in rows if row["kind"] != "honest"]
    taken = [row for row in poisoned if not row["untaken"]]
    wrong = [row for row in taken if not row["right"]]
    honest = [row for row in rows if row["kind"] == "honest"]
    times = [row for row in honest if "against_clean" in row]
    before, after = ([row for row in times if (row["n"] > first) == late] for late in (False, True))
    held = [row["judge_mib"] for row in rows if "judge_mib" in row]
    return {
        "poisoned": len(poisoned),
        "kinds": len({row["kind"] for row in poisoned}),
        "untaken": len(poisoned) - len(taken),
        "called_right": len(taken) - len(wrong),
        "called_wrong": [f"{row['kind']}, {row['variant']} ({row['when']}): {row['got']}" for row in wrong],
        "kept": sum(row["got"] == "kept" for row in rows),
        "reasons": dict(Counter(str(row["got"]) for row in taken).most_common()),
        "honest": len(honest),
        "honest_refused_by_the_gate": sum(
            row["got"] not in ("kept", *map(str, UNTAKEN[1:])) for row in honest
        ),
        "honest_time_before_poison": _spread([row["against_clean"] for row in before]),
        "honest_time_after_poison": _spread([row["against_clean"] for row in after]),
        "honest_beside_incumbent_after_poison": _spread([row["beside_incumbent"] for row in after]),
        "orphans_after_10_s": sum(len(row.get("orphans", ())) for row in rows),
        "longest_wait_for_an_end": max((row.get("waited_seconds", 0.0) for row in rows), default=0.0),
        "files_left": sum(len(row.get("files_left", ())) for row in poisoned),
        "judges": max((row.get("judges", 0) for row in rows), default=0),
        "judge_mib": [held[0], held[-1], max(held)] if held else [],
        "judge_descriptors": sorted({row["judge_descriptors"] for row in rows if "judge_descriptors" in row}),
        "gpu_mib": _ends([row["gpu_mib"] for row in rows if "gpu_mib" in row]),
        "load": _spread_of_load([row["load"] for row in rows if "load" in row]),
        "median_seconds": {
            "poisoned": _median([row["seconds"] for row in poisoned if "seconds" in row]),
            "honest": _median([row["seconds"] for row in honest if "seconds" in row]),
        },
    }


def _spread(ratios: Sequence[float]) -> dict[str, float]:
    """Median, standard deviation of the logs, extremes, and the share within 1 % of 1."""
    if len(ratios) < 2:
        return {}
    return {
        "count": len(ratios),
        "median": round(statistics.median(ratios), 4),
        "sd": round(statistics.stdev(map(math.log, ratios)), 4),
        "lowest": min(ratios),
        "highest": max(ratios),
        "within_1_percent": round(sum(abs(ratio - 1) <= 0.01 for ratio in ratios) / len(ratios), 3),
    }


def _spread_of_load(loads: Sequence[float]) -> list[float]:
    """Smallest, median, largest one-minute load average at the verdicts: what else the machine did."""
    return [min(loads), statistics.median(loads), max(loads)] if loads else []


def _median(values: Sequence[float]) -> float:
    return round(statistics.median(values), 2) if values else 0.0


def _ends(values: Sequence[int]) -> list[int]:
    """First, last, largest."""
    return [values[0], values[-1], max(values)] if values else []


def _repository(root: Path, surface: Surface) -> Path:
    """A git repository with the ward's case in it, made once."""
    case = root / "cases" / "test" / "affine"
    if (root / "ready").exists():
        return case
    root.mkdir(parents=True, exist_ok=True)
    root.chmod(0o755)
    write_ward_case(root, surface)
    temporary = root / "tmp"
    temporary.mkdir()
    temporary.chmod(0o1777)
    (root / ".gitignore").write_text("/runs/\n/tmp/\n/notes.jsonl\n/ready\n")
    who = ("-c", "user.name=night", "-c", "user.email=night@example.org")
    for arguments in (("init", "--quiet"), ("add", "."), ("commit", "--quiet", "--message", "start")):
        subprocess.run(["git", "-C", str(root), *who, *arguments], check=True)
    (root / "ready").touch()
    return case


def _parse() -> argparse.Namespace:
    parser = frame.make_parser(__doc__)
    parser.add_argument("surface", choices=("cpu", "gpu"))
    parser.add_argument("--folder", type=Path, help="where the night lies; the same one goes on with it")
    parser.add_argument("--kinds", nargs="+", default=[], metavar="KIND", help="these alone")
    parser.add_argument(
        "--after", type=int, default=0, metavar="N", help="leave out the first N poisoned ones"
    )
    parser.add_argument(
        "--candidates", type=int, default=FOREVER, help="stop after so many; the same command goes on"
    )
    parser.add_argument("--clean", type=int, default=10, help="honest candidates before the first poison")
    parser.add_argument("--note", default="", help="what a reader has to know of the machine that night")
    return parser.parse_args()


if __name__ == "__main__":
    main()
