#!/usr/bin/env python3
"""How fast is every kernel of the case studies, roughly?  All of them in minutes, where the judge's duels take hours.

Each timed problem of each case, each variant: CUDA graphs over call slots that do not fit into the L2, replayed twice,
the second timed by events, for 80 ms; medians of the later half. Nothing is sandboxed, gated or duelled: figures to
choose by, not to claim by.
`apart` is how far one call's outputs lie from those of the first variant, as a share of the largest of them; where a
kernel hung, from those of the first one after it.
Kernels are compiled first, without a device and each in a process of its own; what is compiled is timed, one case at a
time on each GPU.

    scripts/experiments/study_overview.py --output docs/evidence/study_overview.json
    scripts/experiments/study_overview.py --settings scripts/experiments/study_settings --gpus 0 1

The folder holds lists of {"problems": [...], "knobs": {NAME: value}} as CASE.json, under which `optimized` is timed
as well.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path
from queue import SimpleQueue
from threading import Timer
from typing import Any

from harness.candidate.layout import Signature
from harness.case.case import Case
from harness.studies.study import choose
from harness.studies.variants import YARDSTICK, YARDSTICK_FILE, list_variants, timed_problems

ROOT = Path(__file__).resolve().parents[2]
POOL_BYTES = 400e6
"""Least that the slots of a problem hold together: eight times the L2 of an H200."""

COPIED_BYTES = 1 << 30
"""Of the copy that shares are of."""

MOST_SLOTS = 24
CLOCKED_SECONDS = 0.08
"""For which a kernel is replayed; the later half counts."""

HANG_SECONDS = 20.0
"""After which a kernel is given up, with its process."""

HUNG = 75
"""Status of a process that gave up its last kernel."""

SLOW = ("fused_recurrent_delta", "fused_rwkv6_kernel", "fused_recurrent_retention", "diag_ssm_triton")
"""Cases whose kernels take longest to compile, which are begun first."""

TUNED = "optimized"
"""The variant that settings are tried on."""

Row = dict[str, Any]


def main() -> int:
    options = _parse()
    if options.inside and options.part is not None:
        compile_part(options.inside, options.settings, options.part)
        return 0
    if options.inside:
        inside(options.inside, options.settings, yardstick=not options.no_yardstick, skip=options.skip)
        return 0
    names = [case.name for case in choose(ROOT / "cases") if not options.case or case.name in options.case]
    names.sort(key=lambda name: (name not in SLOW, name))
    free: SimpleQueue[str] = SimpleQueue()
    for gpu in options.gpus:
        free.put(gpu)
    rows: list[Row] = []

    def take(name: str, compiled: Sequence[Future[None]]) -> None:
        wait(compiled)
        gpu = free.get()
        try:
            found = clock_case(options, name, gpu)
        finally:
            free.put(gpu)
        rows.extend(found)
        options.output.write_text(json.dumps(rows, indent=1) + "\n")
        print(*map(show, found), sep="\n", flush=True)

    with ThreadPoolExecutor(options.jobs) as compilers, ThreadPoolExecutor(len(names)) as clocks:
        for name in names:
            parts = range(len(kernels_of(name, options.settings)))
            compiled = [compilers.submit(compile_ahead, options, name, part) for part in parts]
            clocks.submit(take, name, compiled)
    return any("error" in row for row in rows)


def kernels_of(name: str, settings: Path | None) -> list[tuple[str, dict[str, str], list[str]]]:
    """(variant, knobs, problems) of everything that is timed of one case, but the yardstick, which compiles itself."""
    (study,) = choose(ROOT / "cases", name=name)
    case = Case(study.folder)
    found: dict[str, tuple[str, dict[str, str], list[str]]] = {}
    for problem in timed_problems(case):
        for variant, knobs, _ in kernels(case, problem, settings):
            if variant != YARDSTICK:
                found.setdefault(json.dumps([variant, knobs]), (variant, knobs, []))[2].append(problem)
    return list(found.values())


def compile_part(name: str, settings: Path | None, part: int) -> None:
    """Leave one kernel of `kernels_of`, for all its problems, in Triton's cache."""
    from harness.candidate import compiling

    (study,) = choose(ROOT / "cases", name=name)
    case = Case(study.folder)
    variant, knobs, problems = kernels_of(name, settings)[part]
    signatures = signatures_of(case, problems)
    compiling.aim(case.settings.cuda.architecture)
    kernel = load(case, case.workspace, variant, knobs)
    told = compiling.compile_only(kernel, signatures, case.settings.cuda.architecture)
    if not told["ok"]:
        raise SystemExit(str(told)[-500:])


def signatures_of(case: Case, problems: Sequence[str]) -> dict[str, Signature]:
    """What each problem's calls are handed: shapes without the gigabytes, where they hang on no random number."""
    from harness.case.contract import load_contract
    from harness.dtypes import TORCH_DTYPES
    from harness.judge.fresh import signature_of_problem

    contract = load_contract(case.contract_file, "cpu", TORCH_DTYPES)
    return {problem: signature_of_problem(contract, problem, "cpu", is_run=False) for problem in problems}


def settings_of(name: str, settings: Path | None) -> list[dict[str, Any]]:
    """What is to be tried on one case besides its variants."""
    file = settings / f"{name}.json" if settings else None
    found: list[dict[str, Any]] = json.loads(file.read_text()) if file and file.exists() else []
    return found


def clock_case(options: argparse.Namespace, name: str, gpu: str) -> list[Row]:
    """The rows of one case, on one GPU; a kernel that hangs costs a process and hides none that comes after it."""
    rows: list[Row] = []
    while True:
        status, found = run_inside(options, name, gpu, "--skip", str(len(rows)))
        rows += found
        if status != HUNG:
            return rows


def compile_ahead(options: argparse.Namespace, name: str, part: int) -> None:
    """One kernel of a case, in a process of its own; where it fails, it is compiled when it is timed."""
    _, rows = run_inside(options, name, options.gpus[0], "--part", str(part))
    for row in rows:
        print(f"{name}, kernel {part}, is not compiled ahead: {row['error']}", file=sys.stderr)


def run_inside(options: argparse.Namespace, name: str, gpu: str, *more: str) -> tuple[int, list[Row]]:
    """This script in a process of its own: its status, its rows and one of its own failure."""
    command = [sys.executable, __file__, "--inside", name, *more]
    command += ["--settings", str(options.settings)] if options.settings else []
    command += ["--no-yardstick"] if options.no_yardstick else []
    paths = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu, "PYTHONPATH": paths}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    if done.returncode not in (0, HUNG):
        rows.append({"case": name, "error": done.stderr[-500:]})
    return done.returncode, rows


def inside(name: str, settings: Path | None, *, yardstick: bool, skip: int) -> None:
    """Print a row of JSON for every problem, variant and setting, but for the first so many."""
    import torch

    from harness.case.contract import load_contract
    from harness.device.gpu_ceilings import memory_rates
    from harness.dtypes import TORCH_DTYPES
    from harness.judge.fixed import arrays_of_call

    (study,) = choose(ROOT / "cases", name=name)
    case = Case(study.folder)
    contract = load_contract(case.contract_file, "cuda:0", TORCH_DTYPES)
    ceiling = memory_rates("cuda:0", COPIED_BYTES)[0]
    distribution = case.suites[case.settings.objective.suite].distribution
    passed = 0
    for problem in timed_problems(case):
        sizes = contract.problems[problem]
        work = contract.work(sizes)
        pool = int(min(MOST_SLOTS, max(3, POOL_BYTES // work.bytes + 1)))
        generator = torch.Generator("cuda:0").manual_seed(1)
        slots = [arrays_of_call(contract, sizes, distribution, generator) for _ in range(pool)]
        attributes = dict(contract.attributes(sizes))
        outputs, expected = slots[0][-len(contract.outputs(sizes)) :], None
        for variant, knobs, load in kernels(case, problem, settings):
            if variant == YARDSTICK and not yardstick:
                continue
            passed += 1
            if passed <= skip:
                continue
            row: Row = {"case": name, "problem": problem, "variant": variant, "knobs": knobs}
            alarm = Timer(HANG_SECONDS, give_up, [row])
            alarm.start()
            try:
                kernel = load()
                kernel(*slots[0], **attributes)
                torch.cuda.synchronize()
                found = [array.double() for array in outputs]
                expected = expected or found
                row["apart"] = max(apart(*both) for both in zip(found, expected, strict=True))
                seconds, how = clock(torch, kernel, slots, attributes)
                row |= {"us": seconds * 1e6, "how": how, "tflops": work.flops / seconds / 1e12}
                row |= {"copy_share": work.bytes / seconds / ceiling, "copy_gb_per_s": ceiling / 1e9}
            except Exception as error:  # noqa: BLE001 - one kernel that fails hides no other
                row["error"] = f"{type(error).__name__}: {error}"[:300]
            finally:
                alarm.cancel()
            print(json.dumps(row), flush=True)
        del slots
        torch.cuda.empty_cache()


def give_up(row: Row) -> None:
    """End this process, with a row for the kernel that does not end."""
    print(json.dumps({**row, "error": f"hung: no end after {HANG_SECONDS:.0f} s"}), flush=True)
    os._exit(HUNG)


def kernels(
    case: Case, problem: str, settings: Path | None
) -> Iterator[tuple[str, dict[str, str], Callable[[], Any]]]:
    """(variant, knobs, how to import its entry): the variants as they are, then one under each setting."""
    for variant in list_variants(case):
        yield variant, {}, lambda variant=variant: load(case, case.workspace, variant, {})
    if (case.folder / YARDSTICK_FILE).is_file():
        yield YARDSTICK, {}, lambda: load(case, case.folder, Path(YARDSTICK_FILE).stem, {})
    for setting in settings_of(case.folder.name, settings):
        if problem in setting["problems"]:
            knobs = {name: str(value) for name, value in setting["knobs"].items()}
            yield TUNED, knobs, lambda knobs=knobs: load(case, case.workspace, TUNED, knobs)


def load(case: Case, folder: Path, module: str, knobs: dict[str, str]) -> Any:
    """The entry's function out of a module imported afresh, since knobs are read at import."""
    for name in [n for n, m in sys.modules.items() if str(case.folder) in str(getattr(m, "__file__", ""))]:
        del sys.modules[name]
    sys.path.insert(0, str(folder))
    before = dict(os.environ)
    os.environ.update(knobs)
    try:
        return getattr(importlib.import_module(module), case.settings.entry.split(":")[1])
    finally:
        sys.path.remove(str(folder))
        os.environ.clear()
        os.environ.update(before)


def clock(torch: Any, kernel: Any, slots: list[Any], attributes: dict[str, Any]) -> tuple[float, str]:
    """Seconds per call, and whether it was a graph's; where it cannot be captured, of launches one by one."""

    def call_each() -> None:
        for arguments in slots:
            kernel(*arguments, **attributes)

    go, how = call_each, "eager"
    graph = torch.cuda.CUDAGraph()
    try:
        with torch.cuda.graph(graph):
            call_each()
        go, how = graph.replay, "graph"
    except Exception:  # noqa: BLE001 - whatever keeps it from being captured
        torch.cuda.synchronize()
    taken: list[float] = []
    began = time.perf_counter()
    while not taken or time.perf_counter() - began < CLOCKED_SECONDS:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        go()
        start.record()
        go()
        end.record()
        torch.cuda.synchronize()
        taken.append(start.elapsed_time(end) / 1e3 / len(slots))
    return statistics.median(taken[len(taken) // 2 :]), how


def apart(found: Any, expected: Any) -> float:
    """The largest difference, as a share of the largest expected magnitude."""
    return float((found - expected).abs().max() / expected.abs().max().clamp_min(1e-30))


def show(row: Row) -> str:
    """One line for people."""
    knobs = " ".join(f"{name}={value}" for name, value in row.get("knobs", {}).items())
    place = f"{row['case']:28} {row.get('problem', ''):30} {row.get('variant', ''):10} {knobs}"
    if "us" not in row:
        return f"{place} {row.get('error', '')}"
    speed = f"{row['us']:10.2f} us {row['copy_share']:6.3f} {row['tflops']:7.1f} TFLOP/s"
    return f"{place} {speed} {row['how']} {row['apart']:.1e}"


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--case", nargs="+", metavar="NAME", help="these alone")
    parser.add_argument("--settings", type=Path, metavar="FOLDER", help="of knob settings to try")
    parser.add_argument("--gpus", nargs="+", default=["0"], metavar="INDEX")
    parser.add_argument("--no-yardstick", action="store_true", help="leave out what torch.compile makes")
    parser.add_argument(
        "--jobs", type=int, default=max(1, 3 * (os.cpu_count() or 2) // 4), help="that compile"
    )
    parser.add_argument("--output", type=Path, default=Path("study_overview.json"))
    parser.add_argument("--inside", metavar="CASE", help=argparse.SUPPRESS)
    parser.add_argument("--part", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--skip", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
