#!/usr/bin/env python3
"""Runs every GPU experiment and the GPU tests in one go: in order, within a time, on so many GPUs.

    scripts/experiments/gpu_everything.py --minutes 28 --gpus 4 --output /tmp/everything
    scripts/experiments/gpu_everything.py --plan --minutes 9 --only throughput tests aa_softmax

`--only tests` means every entry whose name begins with `tests_`. Every entry has its own time limit and its own GPUs,
the first free ones; what needs more GPUs than there are is left out. A failure ends only itself. Logs, JSON and
summary.json lie in the output folder; run again with it, what is done there is not repeated. Order is priority: near
the end, what has not time enough is not begun.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = "scripts/experiments"
GRACE_SECONDS = 10.0
"""Between asking an entry to end and killing it."""

WORTHWHILE = 1 / 3
"""Share of its limit that an entry needs at the least to be begun."""

POLL_SECONDS = 0.1


@dataclass(frozen=True)
class Entry:
    """One command; `{python}`, `{out}` (the entry's JSON), `{seconds}` (its limit, some left for the end), `{minutes}`
    and `{gpus}` are filled in."""

    name: str
    command: tuple[str, ...]
    seconds: float
    """Its limit."""
    gpus: int = 1
    needs: str = ""
    """A file below the repository's root without which it is skipped."""
    least: float = 0.0
    """Seconds without which it is not begun; 0 stands for a third of its limit."""


def script(name: str, file: str, *arguments: str, seconds: float, gpus: int = 1, least: float = 0.0) -> Entry:
    """An entry for a script in scripts/experiments."""
    path = f"{EXPERIMENTS}/{file}.py"
    return Entry(name, ("{python}", path, *arguments), seconds, gpus, path, least)


def gpu_tests(name: str, *words: str, seconds: float) -> Entry:
    """An entry for some of tests/gpu, in this one process: the GPU is theirs."""
    pytest = ("{python}", "-m", "pytest", "-n", "0", "-q", "-rs", "--tb", "short")
    lenient = ("-o", "filterwarnings=default")  # another torch than the pinned one may warn of other things
    return Entry(f"tests_{name}", (*pytest, *lenient, *words), seconds, needs="tests/gpu", least=60)


HILLCLIMB = ("{python}", "-c", "from agent.cli import main; main()")


def study(name: str, *words: str, seconds: float) -> Entry:
    """An entry for `hillclimb study`, which may stand beside others: each case and problem is told when it is done."""
    return Entry(f"study_{name}", (*HILLCLIMB, "study", *words), seconds, needs="cases", least=60)


def rates(name: str, kind: str, *arguments: str, seconds: float = 540) -> Entry:
    """An entry for gpu_error_rates."""
    own = ("--seconds", "{seconds}", "--output", "{out}")
    return script(name, "gpu_error_rates", kind, *arguments, *own, seconds=seconds)


CALIBRATE = """
import subprocess, sys, tempfile
from pathlib import Path
sys.path.insert(0, "scripts/experiments")
import gpu_cases
kind, folder = sys.argv[1], Path(tempfile.mkdtemp()) / "workspace"
gpu_cases.write_workspace(folder, kind, 0, "")
command = [sys.executable, "scripts/experiments/gpu_calibration.py", str(folder), kind, "0", "200", "2000"]
sys.exit(subprocess.run(command).returncode)
"""
"""gpu_calibration on a workspace of gpu_cases; its rows are in the log."""

_NOTHING = ("--aa", "0", "--planted", "0", "--losers", "0")

GPU_TESTS = ("batches", "demos", "cheats", "sandbox", "escapes", "tools", "poison")
"""Besides the judge's own."""

STUDIED = tuple(sorted(file.parents[1].name for file in ROOT.glob("cases/*/*/workspace/baseline.py")))

CLIMBED = ("softmax_optimize", "rmsnorm_fused_llama", "var_len_copy")
"""Cases of unroll_for_loop that are climbed from their baselines, over what was best at CLIMBED_AT, to what is now."""

CLIMBED_AT = "176d7f6"

ENTRIES = (
    gpu_tests(
        "judge",
        *("tests/gpu/test_device_gpu.py", "tests/gpu/test_judge_gpu.py"),
        seconds=300,
    ),
    *(gpu_tests(name, f"tests/gpu/test_{name}_gpu.py", seconds=540) for name in GPU_TESTS),
    script(
        "throughput",
        "gpu_throughput",
        *("--parts", "knobs", "sources", "--minutes", "3", "--output", "{out}"),
        seconds=480,
    ),
    script("cheat_rates", "cheat_rates", "gpu", "--output", "{out}", seconds=540),
    script(
        "poison_night", "poison_night", *("gpu", "--folder", "{folder}", "--output", "{out}"), seconds=540
    ),
    script("escape_counts", "escape_counts", "--output", "{out}", seconds=300),
    script(
        "two_gpus",
        "gpu_throughput",
        *("--parts", "two", "--minutes", "2", "--gpus", "{gpus}", "--output", "{out}"),
        seconds=420,
        gpus=2,
    ),
    script(
        "contest",
        "gpu_throughput",
        *("--parts", "contest", "--contest-minutes", "{contest}", "--gpus", "{gpus}", "--output", "{out}"),
        seconds=1500,
        gpus=2,
        least=480,
    ),
    script("study_overview", "study_overview", "--gpus", "{gpus}", "--output", "{out}", seconds=300),
    script(
        "study_settings",
        "study_overview",
        *("--settings", f"{EXPERIMENTS}/study_settings", "--no-yardstick", "--gpus", "{gpus}"),
        *("--output", "{out}"),
        seconds=540,
        gpus=2,
    ),
    *(study(f"test_{case}", "test", "-c", case, seconds=300) for case in STUDIED),
    *(
        study(f"profile_{case}", "profile", "-c", case, "--suite", "main", "--resume", seconds=540)
        for case in STUDIED
    ),
    *(
        script(
            f"climb_{case}",
            "study_climb",
            *(f"unroll_for_loop/{case}", "--tag", "published"),
            *("--at", CLIMBED_AT, "--seconds", "60", "--output", "{folder}"),
            seconds=420,
        )
        for case in CLIMBED
    ),
    *(
        script(
            f"verdict_{kind}", "gpu_verdict_profile", kind, "--steps", steps, "--output", "{out}", seconds=90
        )
        for kind, steps in (("softmax", "53"), ("small", "8"), ("gemm", "888"))
    ),
    script("drawing", "gpu_drawing", "--output", "{out}", seconds=60),
    script("births", "gpu_births", "--output", "{out}", seconds=60),
    *(
        script(
            f"noise_{kind}", "gpu_noise", "--kinds", kind, "--raw", "{raw}", "--output", "{out}", seconds=240
        )
        for kind in ("softmax", "small", "gemm")
    ),
    *(rates(f"aa_{kind}", kind, "--aa", "1000", *_NOTHING[2:]) for kind in ("softmax", "small", "gemm")),
    *(
        rates(f"planted_{kind}", kind, *_NOTHING[:2], "--planted", "40", "--losers", "10")
        for kind in ("softmax", "small", "gemm")
    ),
    *(
        rates(f"aa_{condition}", "softmax", "--aa", "200", *_NOTHING[2:], "--condition", condition)
        for condition in ("heat", "tenant")
    ),
    *(
        script(
            f"usual_rules_{kind}",
            "gpu_usual_rules",
            *(kind, "--candidates", "60", "--seconds", "{seconds}", "--output", "{out}"),
            seconds=240,
        )
        for kind in ("softmax", "small", "gemm")
    ),
    *(
        Entry(
            f"calibration_{kind}",
            ("{python}", "-c", CALIBRATE, kind),
            120,
            needs=f"{EXPERIMENTS}/gpu_cases.py",
        )
        for kind in ("softmax", "small", "gemm")
    ),
)
"""In order of priority."""


@dataclass
class Going:
    """An entry that has been begun."""

    entry: Entry
    gpus: tuple[str, ...]
    process: subprocess.Popen[bytes]
    began: float
    limit: float
    asked: float = 0.0
    """When it was asked to end; 0 where it was not."""


@dataclass
class Night:
    """The table, worked off."""

    entries: Sequence[Entry]
    gpus: Sequence[str]
    seconds: float
    output: Path
    root: Path = ROOT
    python: str = sys.executable
    rows: list[dict[str, Any]] = field(default_factory=list)

    def run(self) -> list[dict[str, Any]]:
        """A row for each entry: name, status, seconds, GPUs, log. Never raises for what an entry does."""
        self.output.mkdir(parents=True, exist_ok=True)
        end = time.monotonic() + self.seconds
        done = {row["name"]: row for row in self._earlier() if row["status"] == "done"}
        self.rows = list(done.values())
        waiting = [entry for entry in self.entries if entry.name not in done]
        going: list[Going] = []
        try:
            while waiting or going:
                waiting = self._begin(waiting, going, end)
                going = [one for one in going if not self._is_over(one)]
                time.sleep(POLL_SECONDS)
        finally:
            for one in going:
                _end(one, signal.SIGKILL)
        return self.rows

    def _begin(self, waiting: list[Entry], going: list[Going], end: float) -> list[Entry]:
        """Begin what can be begun now; what is still to wait."""
        later = []
        for entry in waiting:
            left = end - time.monotonic()
            reason = self._why_not(entry, left)
            free = [gpu for gpu in self.gpus if all(gpu not in one.gpus for one in going)]
            if reason:
                self._note(entry, reason, 0.0, ())
            elif len(free) < entry.gpus:
                later.append(entry)
            else:
                going.append(self._start(entry, tuple(free[: entry.gpus]), min(entry.seconds, left)))
        return later

    def _why_not(self, entry: Entry, left: float) -> str:
        """Why an entry is not begun at all; empty where it may be."""
        if entry.needs and not (self.root / entry.needs).exists():
            return f"skipped: there is no {entry.needs}"
        if entry.gpus > len(self.gpus):
            return f"skipped: needs {entry.gpus} GPUs, and there are {len(self.gpus)}"
        if left < (entry.least or WORTHWHILE * entry.seconds):
            return f"skipped: {max(0.0, left):.0f} s are left of the time, and it has {entry.seconds:.0f}"
        return ""

    def _start(self, entry: Entry, gpus: tuple[str, ...], limit: float) -> Going:
        command = fill(entry.command, self._values(entry, gpus, limit))
        environment = {
            **os.environ,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": ",".join(gpus),
            "PYTHONPATH": os.pathsep.join([str(self.root), os.environ.get("PYTHONPATH", "")]).rstrip(
                os.pathsep
            ),
        }
        environment.pop("HILLCLIMB_GPU", None)
        if len(gpus) == 1:
            environment["HILLCLIMB_GPU"] = gpus[0]
        with (self.output / f"{entry.name}.log").open("wb") as log:
            log.write(f"$ {show(command)}\n".encode())
            log.flush()
            process = subprocess.Popen(
                command,
                cwd=self.root,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        print(f"began  {entry.name} on {', '.join(gpus)}, at most {limit:.0f} s", flush=True)
        return Going(entry, gpus, process, time.monotonic(), limit)

    def _values(self, entry: Entry, gpus: tuple[str, ...], limit: float) -> dict[str, list[str]]:
        useful = max(1.0, 0.85 * limit - 15)  # a judge has to be started and taught, and to end
        return {
            "python": [self.python],
            "out": [str(self.output / f"{entry.name}.json")],
            "raw": [str(self.output / f"{entry.name}.raw.json.gz")],
            "folder": [str(self.output / entry.name)],
            "seconds": [f"{useful:.0f}"],
            "contest": [f"{min(10.0, (useful - 60) / 120):.2f}"],  # three contenders on two GPUs
            "gpus": list(gpus),
        }

    def _is_over(self, one: Going) -> bool:
        code, now = one.process.poll(), time.monotonic()
        if code is not None:
            _end(one, signal.SIGKILL)  # whatever it left in its session
            status = "over its time" if one.asked else "done" if code == 0 else f"failed ({code})"
            self._note(one.entry, status, now - one.began, one.gpus)
            return True
        if not one.asked and now - one.began > one.limit:
            one.asked = now
            _end(one, signal.SIGTERM)
        elif one.asked and now - one.asked > GRACE_SECONDS:
            _end(one, signal.SIGKILL)
        return False

    def _note(self, entry: Entry, status: str, seconds: float, gpus: tuple[str, ...]) -> None:
        row = {"name": entry.name, "status": status, "seconds": round(seconds, 1), "gpus": list(gpus)}
        self.rows.append(row)
        (self.output / "summary.json").write_text(json.dumps(self.rows, indent=1) + "\n")
        print(f"{status.split(':')[0]:8} {entry.name} {seconds:.0f} s", flush=True)

    def _earlier(self) -> list[dict[str, Any]]:
        """What an earlier call with the same output did."""
        file = self.output / "summary.json"
        rows: list[dict[str, Any]] = json.loads(file.read_text()) if file.exists() else []
        return rows


def choose(entries: Sequence[Entry], only: Sequence[str], without: Sequence[str]) -> list[Entry]:
    """Entries by name, or by the beginning of their names up to an underscore; in the order of `only`, where given.

    Raises SystemExit where a word names none.
    """
    unknown = [word for word in (*only, *without) if not any(_is_named(entry, word) for entry in entries)]
    if unknown:
        names = ", ".join(entry.name for entry in entries)
        raise SystemExit(f"there is no entry {', '.join(unknown)}; choose among {names}")
    wanted = [entry for word in only for entry in entries if _is_named(entry, word)] or entries
    return [entry for entry in dict.fromkeys(wanted) if not any(_is_named(entry, word) for word in without)]


def _is_named(entry: Entry, word: str) -> bool:
    return f"{entry.name}_".startswith(f"{word}_")


def fill(command: Sequence[str], values: dict[str, list[str]]) -> list[str]:
    """The words of a command; a word that is one placeholder becomes as many words as that has values."""
    filled: list[str] = []
    for word in command:
        name = word[1:-1] if word.startswith("{") and word.endswith("}") else ""
        filled += values.get(name, [word])
    return filled


def show(command: Sequence[str]) -> str:
    """A command in one line; what is a program itself is not shown."""
    return " ".join(word if "\n" not in word else "..." for word in command)


def table(rows: Sequence[dict[str, Any]], output: Path) -> str:
    """What became of every entry, and the last words of those that failed."""
    width = max((len(row["name"]) for row in rows), default=0)
    lines = [
        f"{row['name']:{width}}  {row['seconds']:7.1f} s  GPU {','.join(row['gpus']) or '-':8}  {row['status']}"
        for row in rows
    ]
    for row in rows:
        if row["status"].startswith(("failed", "over")):
            words = (output / f"{row['name']}.log").read_text(errors="replace").splitlines()[-3:]
            lines += [f"{row['name']}: {word}" for word in words]
    return "\n".join(lines)


def plan(entries: Sequence[Entry], gpus: int, root: Path) -> str:
    """What would be run, without running it."""
    width = max((len(entry.name) for entry in entries), default=0)
    lines = []
    for entry in entries:
        absent = entry.needs and not (root / entry.needs).exists()
        note = "  (absent)" if absent else "  (too few GPUs)" if entry.gpus > gpus else ""
        lines.append(
            f"{entry.name:{width}}  {entry.seconds:6.0f} s  {entry.gpus} GPU  {show(entry.command)}{note}"
        )
    total = sum(entry.seconds * entry.gpus for entry in entries)
    return "\n".join([*lines, f"at most {total / 60:.0f} minutes of GPU, on {gpus}: {total / gpus / 60:.0f}"])


def _end(one: Going, number: signal.Signals) -> None:
    """Signal everything in the entry's session."""
    try:
        os.killpg(one.process.pid, number)
    except ProcessLookupError:
        return


def _gpus(count: int) -> list[str]:
    """Indices, the first ones of those visible."""
    visible = [name for name in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if name.strip()]
    return (visible or [str(index) for index in range(count)])[:count]


def main() -> int:
    options = _parse()
    chosen = choose(ENTRIES, options.only, options.without)
    if options.plan:
        print(plan(chosen, options.gpus, ROOT))
        return 0
    rows = Night(chosen, _gpus(options.gpus), 60 * options.minutes, options.output.resolve()).run()
    print(table(rows, options.output))
    return 0 if all(row["status"] == "done" or row["status"].startswith("skipped") for row in rows) else 1


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=28.0, help="for all of it")
    parser.add_argument("--gpus", type=int, default=1, help="how many")
    parser.add_argument("--only", nargs="+", metavar="ENTRY", default=[], help="these, in this order")
    parser.add_argument("--without", nargs="+", metavar="ENTRY", default=[])
    parser.add_argument("--output", type=Path, default=Path("everything"), help="folder of logs and JSON")
    parser.add_argument("--plan", action="store_true", help="print what would be run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
