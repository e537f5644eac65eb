"""How a run of 10,000 candidates resumes: `python -m scripts.experiments.big_ledger`.

Builds a run with 1,000 wins and 9,000 rejected candidates (ledger, commits, refs) in a temporary folder, then
measures fresh processes: resuming up to the first new proposal, and reading the history from trailers alone.
All of it is one part: an output that has the figures is not measured again.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.climb.climb import climb
from hillclimb.agent.climb.request import ClimbRequest, Tools
from hillclimb.agent.git.repository import Repository
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.record.branch import signature
from hillclimb.agent.record.entries import (
    BaselinedEntry,
    ConfirmingEntry,
    Entry,
    JudgedEntry,
    OpenedEntry,
    ProposedEntry,
    SessionEntry,
    SettledEntry,
)
from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.record.recorded_runs import find_runs
from hillclimb.agent.record.trailers import VerdictRecord, write_message
from hillclimb.harness.case.case import Case
from hillclimb.harness.records import SCHEMA, GateReport, Interval, Reason
from scripts.experiments import frame
from tests.fakes.judge import PROVENANCE, SimulatedJudge
from tests.fakes.toy import kernel, write_toy

CANDIDATES, WIN_EVERY, REPEATS = 10_000, 10, 5
LIMITS = {"resume_seconds": 2.0, "history_seconds": 1.0, "controller_mib": 300.0}
START = 1_763_700_000.0
GATE = GateReport(passed=True, runs=56, worst=0.21, worst_at="ragged/offset")


def main() -> int:
    arguments = _arguments()
    if arguments.resume:
        return _resume(Path(arguments.resume))
    if arguments.history:
        return _history(Path(arguments.history))
    output = frame.Output(arguments.output, {})
    if "resume_seconds" not in output.found:
        with tempfile.TemporaryDirectory() as name:
            root = Path(name) / "repository"
            _build(root)
            output.save(**_measure(root))
    print(json.dumps(output.found, indent=2))
    return 0 if all(output.found[name] <= limit for name, limit in LIMITS.items()) else 1


def _arguments() -> argparse.Namespace:
    parser = frame.make_parser(__doc__, default=frame.EVIDENCE / "big_ledger.json")
    parser.add_argument("--resume", help=argparse.SUPPRESS)
    parser.add_argument("--history", help=argparse.SUPPRESS)
    return parser.parse_args()


def _build(root: Path) -> None:
    """A run folder and the refs of a long climb."""
    subprocess.run(["git", "init", "--quiet", "--initial-branch", "main", str(root)], check=True)
    case = Case(write_toy(root))
    repository = Repository.open(root)
    who = ("-c", "user.name=user", "-c", "user.email=user@example.org")
    subprocess.run(["git", "-C", str(root), "add", "."], check=True)
    subprocess.run(["git", "-C", str(root), *who, "commit", "--quiet", "-m", "start"], check=True)
    base = repository.resolve("HEAD") or ""
    opened = OpenedEntry(
        schema_version=SCHEMA,
        time=START,
        case="demo/toy",
        case_path="cases/demo/toy",
        tag="long",
        seed=0,
        alpha=0.01,
        base=base,
        snapshot=False,
        provenance=PROVENANCE,
    )
    folder = root / "runs/demo/toy/long"
    folder.mkdir(parents=True)
    with (folder / "ledger.jsonl").open("w") as ledger:
        ledger.writelines(f"{entry.model_dump_json()}\n" for entry in _entries(repository, case, opened))


def _entries(repository: Repository, case: Case, opened: OpenedEntry) -> Iterator[Entry]:
    """The ledger's lines; the commits they name are written through one fast-import."""
    yield opened
    yield SessionEntry(time=START, pid=1, host="host")
    noise = Interval(estimate=1.0, low=0.999, high=1.001, pairs=5)
    yield BaselinedEntry(
        time=START + 60, gate=GATE, seconds_per_call=1e-3, pair_sd=0.002, noise=noise, seconds=30.0
    )
    importer = subprocess.Popen(
        ["git", "-C", str(repository.root), "fast-import", "--quiet", "--cat-blob-fd=1"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    incumbent, parent, gain = opened.base, opened.base, 1.0
    for n in range(1, CANDIDATES + 1):
        kept = n % WIN_EVERY == 0
        gain *= 1.001 if kept else 1.0
        proposal = _proposal(n)
        yield ProposedEntry(n=n, time=START + 60 + 3 * n, proposal=proposal)
        confirming = ConfirmingEntry(n=n, k=n // WIN_EVERY, alpha=1e-6) if kept else None
        if confirming:
            yield confirming
        judged = _judged(n, kept, gain, incumbent)
        dossier = VerdictRecord(
            "demo/toy/long", opened, case.settings, PROVENANCE, proposal, None, judged, confirming
        )
        ref = "refs/heads/hillclimb/demo/toy/long" if kept else f"refs/hillclimb/demo/toy/long/rejected/{n}"
        commit = _import(importer, n, ref, parent, proposal, judged.time, write_message(dossier))
        yield judged.model_copy(update={"commit": commit, "ref": ref})
        yield SettledEntry(n=n)
        incumbent, parent = (commit, f":{n}") if kept else (incumbent, parent)
    importer.communicate()


def _proposal(n: int) -> Proposal:
    if n % 2:
        return Proposal(author="sweep", idea=f"TILE={n}, UNROLL=2", knobs={"TILE": 16, "UNROLL": 2})
    edits = (Edit(path="kernel.py", content=kernel(1 + n / 100) + "# a line of a kernel\n" * 40),)
    return Proposal(author="llm", idea=f"hoist the loads out of the loop, attempt {n}", edits=edits)


def _judged(n: int, kept: bool, gain: float, parent: str) -> JudgedEntry:
    step = Interval(estimate=1.001, low=1.0005, high=1.0015, pairs=5)
    return JudgedEntry(
        n=n,
        time=START + 62 + 3 * n,
        kept=kept,
        reason=None if kept else Reason.SLOWER,
        gate=GATE,
        screened=1.001 if kept else 0.9,
        speedup=step if kept else None,
        cumulative=Interval(estimate=gain, low=gain * 0.99, high=gain * 1.01, pairs=5) if kept else None,
        seconds_per_call=1e-3 / gain if kept else None,
        e_value=1e7 if kept else None,
        tree=f"{n:040x}",
        parent=parent,
        seconds=2.5,
    )


def _import(
    importer: subprocess.Popen[bytes],
    n: int,
    ref: str,
    parent: str,
    proposal: Proposal,
    time: float,
    text: str,
) -> str:
    """One commit through fast-import; its hash."""
    assert importer.stdin and importer.stdout
    who = signature(proposal.author, time)
    content = (proposal.edits[0].content if proposal.edits else None) or kernel(time)
    stamp = f"{who.name} <{who.email}> {who.time} +0000"
    path = "cases/demo/toy/workspace/kernel.py"
    lines = f"commit {ref}\nmark :{n}\nauthor {stamp}\ncommitter {stamp}\ndata {len(text.encode())}\n{text}\n"
    lines += (
        f"from {parent}\nM 100644 inline {path}\ndata {len(content.encode())}\n{content}\nget-mark :{n}\n"
    )
    importer.stdin.write(lines.encode())
    importer.stdin.flush()
    return importer.stdout.readline().decode().strip()


def _measure(root: Path) -> dict[str, object]:
    resumes = [_timed(root, "--resume") for _ in range(REPEATS)]
    histories = [_timed(root, "--history") for _ in range(REPEATS)]
    return {
        "candidates": CANDIDATES,
        "wins": CANDIDATES // WIN_EVERY,
        "ledger_mib": round((root / "runs/demo/toy/long/ledger.jsonl").stat().st_size / 2**20, 1),
        "resume_seconds": _middle(resumes, "seconds"),
        "resume_seconds_without_imports": _middle(resumes, "after_imports"),
        "ledger_open_seconds": _middle(resumes, "ledger_open"),
        "history_seconds": _middle(histories, "seconds"),
        "controller_mib": round(max(resume["mib"] for resume in resumes), 1),
        "repeats": REPEATS,
        "clock": "wall, process start included; median of repeats, memory the largest",
        "limits": LIMITS,
    }


def _timed(root: Path, what: str) -> dict[str, float]:
    began = time.time()
    command = [sys.executable, "-m", "scripts.experiments.big_ledger", what, str(root)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    answer: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return answer | {"seconds": answer["at"] - began}


def _middle(answers: list[dict[str, float]], name: str) -> float:
    return round(statistics.median(answer[name] for answer in answers), 3)


class _Stopwatch:
    """A proposer that notes when it is first asked, and has no ideas."""

    def __init__(self) -> None:
        self.asked_at = 0.0

    def propose(self, ledger: Ledger) -> None:
        self.asked_at = time.time()

    def importances(self, ledger: Ledger) -> dict[str, float]:
        return {}

    def finish(self, ledger: Ledger) -> None:
        """Nothing is ever under way."""


def _resume(root: Path) -> int:
    """In a process of its own: climb on until the proposer is asked."""
    began = time.time()
    Ledger.read(root / "runs/demo/toy/long/ledger.jsonl")
    opened = time.time() - began
    began, proposer = time.time(), _Stopwatch()
    tools = Tools(emit=lambda event: None, draw=lambda folder: "")
    budgets = BudgetOverrides(seconds=1e12, candidates=10**9, patience=10**9)
    request = ClimbRequest(case=root / "cases/demo/toy", tag="long", budgets=budgets)
    climb(request, lambda case, log: SimulatedJudge(), lambda background: proposer, tools)
    mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    took = proposer.asked_at - began
    print(
        json.dumps(
            {"at": proposer.asked_at - opened, "after_imports": took, "ledger_open": opened, "mib": mib}
        )
    )
    return 0


def _history(root: Path) -> int:
    """In a process of its own: the wins from the branch's trailers."""
    repository = Repository.open(root)
    wins = find_runs(repository, "demo/toy")[0].wins
    assert len(wins) == CANDIDATES // WIN_EVERY, len(wins)
    print(json.dumps({"at": time.time()}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
