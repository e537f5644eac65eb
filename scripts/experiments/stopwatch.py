"""Where an evaluation's time goes: phases of controller and judge, timed at their borders from outside.

Self time: what a phase spends in phases inside it is theirs. The controller's phases are told apart by wrapping its
modules' public functions, the judge's by running it as `stopwatch.py FD CASE ...`, which wraps the harness's and then
is the judge; every answered question adds a line of JSON to the file that $HILLCLIMB_STOPWATCH names.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

ROWS = "HILLCLIMB_STOPWATCH"
"""The environment variable that names the judge's file of rows."""

CONTROLLER = {
    "propose": (),
    "build": (
        ("hillclimb.agent.climb.candidate", "CandidateBuilder", "build"),
        ("hillclimb.agent.climb.candidate", "CandidateBuilder", "side"),
    ),
    "git": tuple(
        ("hillclimb.agent.git.repository", "Repository", name)
        for name in [
            "run",
            "resolve",
            "read",
            "store",
            "update_tree",
            "changes",
            "commit",
            "update_ref",
            "checked_out_at",
        ]
    ),
    "trees": (
        ("hillclimb.agent.git.trees", "MaterialisedTrees", "workspace"),
        ("hillclimb.agent.git.trees", "MaterialisedTrees", "keep_only"),
    ),
    "ledger": (("hillclimb.agent.record.ledger", "Ledger", "append"),),
    "samples": (("hillclimb.agent.record.run", "Run", "write_samples"),),
    "views": (
        ("hillclimb.agent.record.views", "Views", "update"),
        ("hillclimb.agent.record.views", "Views", "draw"),
    ),
    "hints": (("hillclimb.agent.climb.lookahead", "Lookahead", "send_hints"),),
    "describe": (("hillclimb.harness.judge.pool", "LocalJudge", "describe"),),
    "judge": tuple(
        ("hillclimb.harness.judge.pool", "LocalJudge", name)
        for name in ("screen", "confirm", "gate", "compare", "profile", "prepare")
    ),
}
"""Phase -> (module, class, method) at its borders; `propose` and `events` are wrapped where they are made."""

JUDGE = {
    "policy": (("hillclimb.harness.duel.process.launcher", "", "check_policy"),),
    "start": (("hillclimb.harness.duel.process.launcher", "CandidateLauncher", "launch"),),
    "compile": (
        ("hillclimb.harness.duel.process.precompile", "Precompiler", "kernel_folder"),
        ("hillclimb.harness.duel.duel_factory", "DuelFactory", "compile"),
    ),
    "import": (("hillclimb.harness.duel.process.candidate_process", "CandidateProcess", "await_loaded"),),
    "seal": (("hillclimb.harness.duel.duel_factory", "DuelFactory", "seal"),),
    "gate": (("hillclimb.harness.judge.gate", "ParityGate", "check"),),
    "timing": (
        ("hillclimb.harness.judge.trial", "ScreeningTrial", "run"),
        ("hillclimb.harness.judge.trial", "ConfirmationTrial", "run"),
        ("hillclimb.harness.duel.duel_factory", "DuelFactory", "measure_fresh_pairs"),
    ),
    "sanitizers": (("hillclimb.harness.profile.vendor_tools", "", "sanitize"),),
    "end": (("hillclimb.harness.duel.process.candidate_process", "CandidateProcess", "close"),),
    "canary": (("hillclimb.harness.judge.health", "GpuHealth", "verify"),),
}
"""The same of the judge; a method that is a generator cannot be a border."""

WORK = ("import", "compile", "gate", "timing", "sanitizers")
"""What is no overhead: the candidate is loaded, compiled, checked or timed."""


class Stopwatch:
    """Seconds of self time by phase; one thread."""

    def __init__(self) -> None:
        self._seconds: Counter[str] = Counter()
        self._cpu: Counter[str] = Counter()
        self._open = ["rest"]
        self._since = time.perf_counter()
        self._cpu_since = time.process_time()
        self.cpu: dict[str, float] = {}
        """CPU seconds of this process in the last lap, by phase."""

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """All that happens inside, but for phases inside it."""
        self._charge()
        self._open.append(name)
        try:
            yield
        finally:
            self._charge()
            self._open.pop()

    def lap(self) -> dict[str, float]:
        """The phases' seconds since the last lap; together they are the wall time."""
        self._charge()
        seconds, self._seconds = dict(self._seconds), Counter()
        self.cpu, self._cpu = dict(self._cpu), Counter()
        return seconds

    def around(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        """The function as a phase."""

        @functools.wraps(function)
        def timed(*arguments: Any, **options: Any) -> Any:
            with self.phase(name):
                return function(*arguments, **options)

        return timed

    def wrap(self, borders: dict[str, tuple[tuple[str, str, str], ...]]) -> None:
        """Time every border from now on; one that is not there any more is passed over."""
        for name, places in borders.items():
            for module, owner, attribute in places:
                place: Any = __import__(module, fromlist=["_"])
                place = getattr(place, owner) if owner else place
                if hasattr(place, attribute):
                    setattr(place, attribute, self.around(getattr(place, attribute), name))

    def _charge(self) -> None:
        now, cpu = time.perf_counter(), time.process_time()
        self._seconds[self._open[-1]] += now - self._since
        self._cpu[self._open[-1]] += cpu - self._cpu_since
        self._since, self._cpu_since = now, cpu


@contextmanager
def watched_judges(rows: Path) -> Iterator[None]:
    """While entered, judges that are started write what they spend their time on to `rows`."""
    from hillclimb.harness.judge import pool

    plain, before = pool._start, os.environ.get(ROWS)

    def start(arguments: list[str], theirs: Any, log_file: Path) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-P", str(Path(__file__).resolve()), *arguments]
        with log_file.open("ab") as log:
            return subprocess.Popen(
                command,
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    os.environ[ROWS] = str(rows)
    pool._start = start
    try:
        yield
    finally:
        pool._start = plain
        if before is None:
            del os.environ[ROWS]
        else:
            os.environ[ROWS] = before


def read_rows(path: Path) -> list[dict[str, Any]]:
    """What the judges wrote: a row for every answered question, oldest first."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def git_cpu_seconds() -> float:
    """CPU time of this process's git processes: those that ended, and those that live."""
    gone = os.times()
    total = gone.children_user + gone.children_system
    for child in Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split():
        try:
            if Path(f"/proc/{child}/comm").read_text().strip() == "git":
                total += int(Path(f"/proc/{child}/schedstat").read_text().split()[0]) / 1e9
        except (OSError, IndexError):
            continue  # it has just ended, or the kernel keeps no such account
    return total


def spread(values: list[float], scale: float = 1e3) -> dict[str, float]:
    """Mean, median and 90th percentile, in milliseconds."""
    if not values:
        return {}
    ordered = sorted(values)
    figures = {
        "mean": statistics.fmean(values),
        "median": statistics.median(values),
        "p90": ordered[int(0.9 * (len(ordered) - 1))],
    }
    return {name: round(scale * value, 2) for name, value in figures.items()}


def overhead(laps: list[dict[str, Any]]) -> dict[str, Any]:
    """What evaluations cost besides import, compilation, gate and timing, by who spends it; milliseconds.

    A lap is {"wall", "git_cpu", "controller", "judge", "controller_cpu", "judge_cpu"} in seconds;
    the last four are by phase.
    """
    rows = [_accounts(lap["controller"], lap["judge"]) for lap in laps]
    cpus = [_accounts(lap["controller_cpu"], lap["judge_cpu"]) for lap in laps]
    parts = {
        name: {
            **spread([row.get(name, 0.0) for row in rows]),
            "cpu": spread([cpu.get(name, 0.0) for cpu in cpus]).get("median"),
        }
        for name in sorted({name for row in rows for name in row})
    }
    return {
        "evaluations": len(laps),
        "wall": spread([lap["wall"] for lap in laps]),
        "work": spread([_work(lap) for lap in laps]),
        "overhead": spread([lap["wall"] - _work(lap) for lap in laps]),
        "cpu": spread([sum(cpu.values()) + lap["git_cpu"] for cpu, lap in zip(cpus, laps, strict=True)]),
        "controller_cpu": spread([sum(lap["controller_cpu"].values()) for lap in laps]),
        "git_cpu": spread([lap["git_cpu"] for lap in laps]),
        "parts": dict(sorted(parts.items(), key=lambda item: -item[1]["mean"])),
    }


def _work(lap: dict[str, Any]) -> float:
    return sum(lap["judge"].get(name, 0.0) for name in WORK)


def _accounts(controller: dict[str, float], judge: dict[str, float]) -> dict[str, float]:
    """Overhead by part. What the controller waits for the judge beyond what that accounts for is their talk."""
    mine = dict(controller)
    talk = mine.pop("judge", 0.0) - sum(judge.values())
    found = {f"controller: {name}": seconds for name, seconds in mine.items()}
    found |= {f"judge: {name}": seconds for name, seconds in judge.items() if name not in WORK}
    return found | {"protocol": max(0.0, talk)}


def _judge() -> None:
    """Be the judge, with a stopwatch."""
    _parse()
    from hillclimb.harness.judge import __main__ as judge

    watch, file = Stopwatch(), Path(os.environ.pop(ROWS))
    watch.wrap(JUDGE)
    answer = judge.answer_one

    def answer_one(case_judge: Any, op: str, arguments: dict[str, Any], progress: Any) -> Any:
        watch.lap()
        began = time.time()
        try:
            return answer(case_judge, op, arguments, progress)
        finally:
            row = {"op": op, "began": began, "phases": watch.lap(), "cpu": watch.cpu}
            with file.open("a") as rows:
                rows.write(json.dumps(row) + "\n")

    judge.answer_one = answer_one
    judge.main()


def _parse() -> None:
    """Only --help is acted on: the judge reads the same arguments itself.

    No `frame` here, since the judge is started with -P and finds nothing that lies beside this file.
    """
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("descriptor", type=int, metavar="FD", help="of the socket to the controller")
    parser.add_argument("case", type=Path, metavar="CASE", help="the case's folder")
    parser.add_argument("--trust-workspace", action="store_true", help="judge without a sandbox")
    parser.parse_known_args()


if __name__ == "__main__":
    _judge()
