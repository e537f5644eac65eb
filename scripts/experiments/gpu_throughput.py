#!/usr/bin/env python3
"""How many candidates an hour, against whom, and what does the GPU wait for?  On cases/demo/triton_softmax.

    scripts/experiments/gpu_throughput.py --minutes 2 --output docs/evidence/gpu_throughput.json

Parts, in this order, each saved when it is done and not repeated with the same output:
  knobs     a climb by the sweep: gated and duelled candidates an hour, the share of the time that the GPU is measuring,
            overhead an evaluation
  sources   the same with edits of the source: comments and a constant, by turns
  contest   our sweep, kernel_tuner and a plain Optuna loop (a fresh process a trial, do_bench) on contest_case's space
            for so many minutes each, as many at the same time as --gpus names, output checked by all; the best of each
            timed by the same judge afterwards
  two       the same list of candidates, edits and some knobs, on one GPU alone, then on two of this host at once

kernel_tuner needs a Python that has it (--tuner-python). --dry tries every part on the CPU that can be tried there.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(ROOT)]

import contest_case  # noqa: E402
import overhead  # noqa: E402
import stopwatch  # noqa: E402

PARTS = ("knobs", "sources", "contest", "two")
GOALS = {
    "knobs_per_hour": 1000,
    "sources_per_hour": 400,
    "measuring_share": 0.6,
    "overhead_ms": 60,
    "two_gpus": 1.9,
}
MEASURING = ("gate", "timing")
"""Phases of the judge in which the GPU works on a verdict; drawing inputs is a part of them."""

STRATEGY = "adaptive_tabu_greywolf"
"""kernel_tuner's best on recorded spaces."""

KNOB_EVERY = 4
"""Of the list that two GPUs go through."""

TRIAL_SECONDS = 120.0
"""Of a plain trial, after which it counts as failed."""


def main() -> None:
    options = _parse()
    if options.child:
        print(json.dumps(_climb_here(json.loads(options.child))))
        return
    found = json.loads(options.output.read_text()) if options.output.exists() else {"goals": GOALS}
    found["dry"] = options.dry
    for part in options.parts:
        if part in found:
            continue
        found[part] = _done(PART[part], options)
        options.output.write_text(json.dumps(found, indent=1) + "\n")
        print(part, json.dumps(_short(found[part])), flush=True)


def _done(
    part: Callable[[argparse.Namespace], dict[str, Any]], options: argparse.Namespace
) -> dict[str, Any]:
    started = time.perf_counter()
    found = part(options)
    return {**found, "part_seconds": round(time.perf_counter() - started, 1)}


def _short(found: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in found.items() if not isinstance(value, list | dict)}


# --- climbs ---------------------------------------------------------------------------------------------------------


def knobs(options: argparse.Namespace) -> dict[str, Any]:
    return summarise(_climb_apart(options, proposer="sweep", seconds=60 * options.minutes))


def sources(options: argparse.Namespace) -> dict[str, Any]:
    return summarise(_climb_apart(options, proposer="edits", seconds=60 * options.minutes))


def two(options: argparse.Namespace) -> dict[str, Any]:
    """Candidates an hour of two climbs at once over those of one, of the candidates that all three came to."""
    gpus = options.gpus
    if len(gpus) < 2:
        return {"skipped": "give two GPUs with --gpus 0 1"}
    seconds = 60 * options.minutes
    (alone,) = _together(options, gpus[:1], seconds)
    climbs = [alone, *_together(options, gpus[:2], seconds)]
    return side_by_side(climbs)


def side_by_side(climbs: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The first one's rate against the sum of the others', each over the candidates that all of them came to."""
    common = min(len(climb["laps"]) for climb in climbs)
    alone, *both = (_rate(climb["laps"][:common]) for climb in climbs)
    return {
        "candidates": [len(climb["laps"]) for climb in climbs],
        "alone_per_hour": alone,
        "both_per_hour": both,
        "factor": round(sum(both) / alone, 3) if alone else None,
        "devices": [climb["device"] for climb in climbs],
        "overhead_ms": [stopwatch.overhead(climb["laps"])["overhead"] for climb in climbs],
        "verdicts": compare_verdicts([climb["verdicts"] for climb in climbs]),
        "milliseconds": [[_phases(lap) for lap in climb["laps"]] for climb in climbs],
    }


def _phases(lap: dict[str, Any]) -> dict[str, int]:
    """Of one candidate: all of it, and what its work took by phase."""
    work = {name: lap["judge"].get(name, 0.0) for name in stopwatch.WORK}
    return {name: round(1e3 * seconds) for name, seconds in {"wall": lap["wall"], **work}.items() if seconds}


def compare_verdicts(runs: Sequence[Sequence[str]]) -> dict[str, Any]:
    """How many candidates that all runs came to were kept by all or by none; and those that were not."""
    rows = list(zip(*runs, strict=False))
    odd = [
        {"n": n, "verdicts": list(row)}
        for n, row in enumerate(rows, 1)
        if len({verdict == "kept" for verdict in row}) > 1
    ]
    return {"compared": len(rows), "kept_by_some_only": odd}


def summarise(climb: dict[str, Any]) -> dict[str, Any]:
    """Rates and shares of one climb's evaluations."""
    laps = climb["laps"]
    wall = sum(lap["wall"] for lap in laps)
    measuring = sum(lap["judge"].get(name, 0.0) for lap in laps for name in MEASURING)
    timing = sum(lap["judge"].get("timing", 0.0) for lap in laps)
    return {
        "candidates": len(laps),
        "kept": sum(lap["kept"] for lap in laps),
        "seconds": round(wall, 1),
        "per_hour": round(3600 * len(laps) / wall, 1) if wall else 0.0,
        "rejected_per_hour": _rate([lap for lap in laps if not lap["kept"]]),
        "measuring_share": round(measuring / wall, 3) if wall else 0.0,
        "timing_share": round(timing / wall, 3) if wall else 0.0,
        "device": climb["device"],
        "speedup": climb["speedup"],
        "verdicts": {verdict: climb["verdicts"].count(verdict) for verdict in sorted(set(climb["verdicts"]))},
        "evaluations": stopwatch.overhead(laps),
        "rejected": stopwatch.overhead([lap for lap in laps if not lap["kept"]]),
    }


def _rate(laps: list[dict[str, Any]]) -> float:
    """Candidates an hour, had there been no others."""
    wall = sum(lap["wall"] for lap in laps)
    return round(3600 * len(laps) / wall, 1) if wall else 0.0


def _climb_apart(options: argparse.Namespace, **order: Any) -> dict[str, Any]:
    """One climb in a process of its own."""
    gpu = options.gpus[0] if options.gpus else None
    with _started(_order(options, **order), gpu) as process:
        return _result(process)


def _together(options: argparse.Namespace, gpus: Sequence[str], seconds: float) -> list[dict[str, Any]]:
    """The scripted climb on each of these GPUs at the same time."""
    order = _order(options, proposer="list", seconds=seconds)
    processes = [_start(order, gpu) for gpu in gpus]
    try:
        return [_result(process) for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def _order(options: argparse.Namespace, **order: Any) -> dict[str, Any]:
    most = options.candidates
    return {"case": "demo", "dry": options.dry, "seed": options.seed, "candidates": most, **order}


def _start(order: dict[str, Any], gpu: str | None) -> subprocess.Popen[str]:
    chosen = {"HILLCLIMB_GPU": gpu} if gpu else {}
    return subprocess.Popen(
        [sys.executable, __file__, "--output", os.devnull, "--child", json.dumps(order)],
        env={**os.environ, **chosen, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.PIPE,
        text=True,
    )


@contextmanager
def _started(order: dict[str, Any], gpu: str | None) -> Iterator[subprocess.Popen[str]]:
    process = _start(order, gpu)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _result(process: subprocess.Popen[str]) -> dict[str, Any]:
    output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"a climb ended with status {process.returncode}; what it said stands above")
    climb: dict[str, Any] = json.loads(output.splitlines()[-1])
    return climb


def _climb_here(order: dict[str, Any]) -> dict[str, Any]:
    """In a process of its own: a repository, a climb, its laps and verdicts."""
    watch = stopwatch.Stopwatch()
    watch.wrap(stopwatch.CONTROLLER)
    with tempfile.TemporaryDirectory(prefix="hillclimb-throughput-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        case = write_repository(folder / "repository", order)
        laps = overhead.Laps(watch, folder / "rows.jsonl")
        with stopwatch.watched_judges(folder / "rows.jsonl"):
            ledger = laps.climb(
                case,
                proposer=PROPOSERS[order["proposer"]],
                seconds=order["seconds"],
                candidates=order["candidates"],
            )
        opened = ledger.opened
        return {
            "laps": laps.taken,
            "device": f"{opened.provenance.device} {opened.provenance.device_id}" if opened else "",
            "verdicts": [verdict for c in ledger.candidates if (verdict := _verdict(c))],
            "speedup": ledger.cumulative,
            "knobs": _wins(ledger),
        }


def _verdict(candidate: Any) -> str:
    judged = candidate.judged
    return "" if judged is None else "kept" if judged.kept else str(judged.reason)


def _wins(ledger: Any) -> dict[str, Any]:
    """The knob values that the wins left as defaults."""
    values: dict[str, Any] = {}
    for win in ledger.wins:
        values |= win.proposal.knobs
    return values


def write_repository(root: Path, order: dict[str, Any]) -> Path:
    """A repository with the case that is climbed, and its folder."""
    if order["dry"]:
        return overhead.write_case(root)
    if order["case"] == "contest":
        case = contest_case.write_case(root)
    else:
        case = root / "cases" / "demo" / "triton_softmax"
        ignore = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / "cases" / "demo" / "triton_softmax", case, ignore=ignore)
    overhead.commit(root)
    return case


class Edits:
    """Edits kernel.py: a comment, then a constant that is compiled in, by turns; knows what it will propose."""

    def __init__(self, background: Any) -> None:
        self._files = background.files

    def propose(self, ledger: Any) -> Any:
        return self._edit(ledger, len(ledger.candidates) + 1)

    def peek(self, ledger: Any, count: int) -> list[Any]:
        after = len(ledger.candidates) + 1
        return [self._edit(ledger, n) for n in range(after, after + count)]

    def _edit(self, ledger: Any, n: int) -> Any:
        from agent.proposal import Edit, Proposal

        text = self._files(ledger.incumbent)["kernel.py"].split("\n# edit ")[0]
        if n % 2 == 0:
            text = text.replace("-2e38", f"-1.{n:04d}e38")
        edit = Edit(path="kernel.py", content=f"{text}\n# edit {n}\n")
        return Proposal(author="agent", idea=f"edit {n}", edits=(edit,))

    def importances(self, ledger: Any) -> dict[str, float]:
        return {}

    def reads_profile(self, ledger: Any) -> bool:
        """Never: what comes next is known."""
        return False

    def finish(self, ledger: Any) -> None:
        """Nothing is ever under way."""


class Listed(Edits):
    """Edits, and every fourth time a knob's value, out of a list that is the same for everyone, whatever comes of it.

    Of the start's knobs every other value may win, and a win takes ten times as long as what is rejected.
    """

    def __init__(self, background: Any) -> None:
        super().__init__(background)
        self._knobs = background.case.knobs
        self._seed = background.seed

    def _edit(self, ledger: Any, n: int) -> Any:
        from agent.proposal import Proposal
        from harness.case.knobs import draw

        if n % KNOB_EVERY:
            return super()._edit(ledger, n)

        rng = random.Random(f"{self._seed}/{n}")
        name = rng.choice(sorted(self._knobs))
        knob = self._knobs[name]
        value = next(v for v in iter(lambda: draw(knob, rng), None) if v != knob.default)
        return Proposal(author="sweep", idea=f"{n}: {name}={value}", knobs={name: value})


def _sweep(background: Any) -> Any:
    from agent.config import Config
    from agent.proposers.choice import Kind, Wishes, choose

    wishes = Wishes(Kind.SWEEP, None, None, None, None, None, None)
    return choose(wishes, Config(), background.case.settings, lambda action: None)(background)


PROPOSERS: dict[str, Callable[[Any], Any]] = {"sweep": _sweep, "edits": Edits, "list": Listed}


# --- the contest ----------------------------------------------------------------------------------------------------


def contest(options: argparse.Namespace) -> dict[str, Any]:
    """Each contender for the same time, on the first GPU that is free; then the same judge times the best of each."""
    free: Queue[list[str]] = Queue()
    for share in [[gpu] for gpu in options.gpus] or [[]]:
        free.put(share)
    start = time.perf_counter()
    with ThreadPoolExecutor(free.qsize()) as pool:
        going = {
            name: pool.submit(_compete, contender, options, free, start)
            for name, contender in CONTENDERS.items()
        }
        contenders = {name: future.result() for name, future in going.items()}
    return {
        "seconds_each": 60 * options.contest_minutes,
        "at_the_same_time": min(len(CONTENDERS), max(1, len(options.gpus))),
        "contenders": contenders,
        "retimed": _retime(options, contenders),
    }


def _compete(
    contender: Contender, options: argparse.Namespace, free: Queue[list[str]], start: float
) -> dict[str, Any]:
    """One contender's result, on a GPU that is free; who ran beside it shows in its `began` and `wall`."""
    gpus = free.get()
    began = time.perf_counter()
    try:
        result = contender(
            argparse.Namespace(**{**vars(options), "gpus": gpus}), 60 * options.contest_minutes
        )
    finally:
        free.put(gpus)
    result |= {"began": round(began - start, 1), "wall": round(time.perf_counter() - began, 1)}
    if result.get("candidates"):
        result["per_hour"] = round(3600 * result["candidates"] / result["wall"], 1)
    return result


def ours(options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    climb = _climb_apart(options, case="contest", proposer="sweep", seconds=seconds)
    return {"knobs": climb["knobs"], **summarise(climb)}


def kernel_tuner(options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    if options.dry:
        return {"skipped": "it tunes CUDA C++, and this is a dry run"}
    arguments = [str(seconds), options.strategy, str(options.seed)]
    done = subprocess.run(
        [options.tuner_python, str(HERE / "contest_tuner.py"), *arguments],
        env=_environment(options),
        capture_output=True,
        text=True,
        timeout=2 * seconds + 300,
    )
    if done.returncode:
        return {"failed": (done.stderr or done.stdout)[-1500:]}
    return {"strategy": options.strategy, **json.loads(done.stdout.splitlines()[-1])}


def plain_optuna(options: argparse.Namespace, seconds: float) -> dict[str, Any]:
    """TPE with categorical suggestions; every trial a fresh process that imports, compiles, checks and times."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    space, start = (_dry_space(), {}) if options.dry else (contest_case.SPACE, contest_case.START)
    study = optuna.create_study(sampler=optuna.samplers.TPESampler(seed=options.seed))
    if start:
        study.enqueue_trial(start)
    failed, deadline = 0, time.perf_counter() + seconds
    with tempfile.TemporaryDirectory(prefix="hillclimb-plain-") as name:
        workspace = _plain_workspace(Path(name), dry=options.dry)
        while time.perf_counter() < deadline:
            trial = study.ask()
            knobs = {knob: trial.suggest_categorical(knob, values) for knob, values in space.items()}
            milliseconds = _plain_trial(options, workspace, knobs)
            if milliseconds is None:
                failed += 1
                study.tell(trial, state=optuna.trial.TrialState.FAIL)
            else:
                study.tell(trial, milliseconds)
    told: dict[str, Any] = {"candidates": len(study.trials), "failed": failed}
    if failed < len(study.trials):
        told |= {"knobs": study.best_params, "own_us": 1e3 * study.best_value}
    return told


def _plain_workspace(folder: Path, *, dry: bool) -> Path:
    if not dry:
        return contest_case.write_workspace(folder / "workspace")
    return overhead.write_case(folder / "repository") / "workspace"


def _dry_space() -> dict[str, list[int]]:
    return {"RS_ROWS": [1, 2, 4, 8, 32, 256], "RS_PASSES": [1, 2, 3, 4]}


def _plain_trial(options: argparse.Namespace, workspace: Path, knobs: dict[str, Any]) -> float | None:
    """Milliseconds; None where it failed or was wrong."""
    environment = _environment(options) | {name: str(value) for name, value in knobs.items()}
    try:
        done = subprocess.run(
            [sys.executable, str(HERE / "contest_trial.py"), str(workspace)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=TRIAL_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        return None
    milliseconds: float | None = json.loads(done.stdout.splitlines()[-1])["ms"]
    return milliseconds


def _environment(options: argparse.Namespace) -> dict[str, str]:
    """For programs that know nothing of HILLCLIMB_GPU."""
    chosen = {"CUDA_VISIBLE_DEVICES": options.gpus[0]} if options.gpus else {}
    return {**os.environ, **chosen, "CUDA_DEVICE_ORDER": "PCI_BUS_ID", "PYTHONDONTWRITEBYTECODE": "1"}


def _retime(options: argparse.Namespace, contenders: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Speedup of everyone's best over the start, and of ours over theirs, by fresh pairs of one judge.

    On the last of the GPUs, where the last contender ran if the first ones took their whole time.
    """
    from harness.judge.pool import LocalJudge
    from harness.records import Side

    if options.gpus:
        os.environ["HILLCLIMB_GPU"] = options.gpus[-1]
    with tempfile.TemporaryDirectory(prefix="hillclimb-retimed-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        case = write_repository(folder / "repository", {"dry": options.dry, "case": "contest"})
        best = {
            contender: Side(tree=str(case / "workspace"), knobs=_texts(result["knobs"]))
            for contender, result in contenders.items()
            if result.get("knobs")
        }
        start = Side(tree=str(case / "workspace"))
        with closing(LocalJudge(case, folder / "judge.log")) as judge:
            judge.compare(start, start, "noise", _ignore)
            rows = {contender: _speedup(judge, start, side) for contender, side in best.items()}
            ours = best.pop("hillclimb", start)
            against = {contender: _speedup(judge, side, ours) for contender, side in best.items()}
    return {"over_the_start": rows, "ours_over": against}


def _speedup(judge: Any, first: Any, last: Any) -> dict[str, Any]:
    if first == last:
        return {"estimate": 1.0, "same": True}
    found = judge.compare(first, last, "cumulative", _ignore)
    return {**found.speedup.model_dump(), "us": 1e6 * found.seconds_per_call[1]}


def _texts(values: dict[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _ignore(progress: Any) -> None:
    """Progress is for screens."""


Contender = Callable[[argparse.Namespace, float], dict[str, Any]]
CONTENDERS: dict[str, Contender] = {"hillclimb": ours, "kernel_tuner": kernel_tuner, "optuna": plain_optuna}

PART = {"knobs": knobs, "sources": sources, "contest": contest, "two": two}


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--minutes", type=float, default=3.0, help="of each climb but the contest's")
    parser.add_argument("--contest-minutes", type=float, default=10.0, help="of each contender")
    parser.add_argument(
        "--gpus", nargs="+", default=[], help="indices or UUIDs; without: as HILLCLIMB_GPU says"
    )
    parser.add_argument("--candidates", type=int, default=10**6, help="of each climb, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--strategy", default=STRATEGY, help="of kernel_tuner")
    parser.add_argument("--tuner-python", default=sys.executable, help="a Python that has kernel_tuner")
    parser.add_argument("--dry", action="store_true", help="a small case on the CPU instead")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
