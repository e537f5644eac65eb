#!/usr/bin/env python3
"""What does the judge spend a verdict's time on?  cProfile of the judge, in this process, on a kernel of gpu_cases.

First some identical candidates, screened; then one that is faster by planted steps, screened and confirmed. cProfile
itself costs about a tenth. The tables go to the output as text, the seconds to the screen.

    scripts/experiments/gpu_verdict_profile.py softmax --steps 53 --output /tmp/verdict.txt
"""

from __future__ import annotations

import argparse
import cProfile
import io
import pstats
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TextIO

import gpu_cases
import torch
from gpu_error_rates import ALPHA, DUEL, MINIMUM_EFFECT

from harness.case.case import Case
from harness.device.cpu import take_precedence
from harness.judge.__main__ import take_up
from harness.judge.evidence import spend
from harness.judge.judge import CaseJudge
from harness.judge.protocol import Progress
from harness.records import Side

IDENTICAL = 5
ROWS = 80


def main() -> None:
    options = _parse()
    take_precedence()
    torch.set_num_threads(1)  # as the judge's own process does
    with tempfile.TemporaryDirectory(prefix="hillclimb-verdict-") as name, options.output.open("w") as file:
        folder = Path(name)
        folder.chmod(0o755)
        case = gpu_cases.write_case(folder, options.kind, MINIMUM_EFFECT, **DUEL)
        with closing(take_up(Case(case), trust_workspace=False)) as judge:
            look(judge, folder, options.kind, options.steps, file)


def look(judge: CaseJudge, folder: Path, kind: str, steps: int, file: TextIO) -> None:
    """Profile both kinds of verdict, each after one that is not looked at."""

    def tree(number: int, planted: int) -> Side:
        made = gpu_cases.write_workspace(folder / f"tree-{number}", kind, planted, f"tree {number}")
        side = Side(tree=str(made))
        judge.prepare(side, side)
        return side

    plain = tree(0, gpu_cases.NO_TAIL)
    same = [tree(10 + i, gpu_cases.NO_TAIL) for i in range(IDENTICAL + 1)]
    slow = tree(1, gpu_cases.SHORT_TAIL + steps)
    fast = [tree(2 + i, gpu_cases.SHORT_TAIL) for i in range(2)]
    judge.compare(plain, plain, "noise", _ignore)
    judge.screen(same[0], plain, _ignore)
    with profiled(f"{IDENTICAL} identical candidates", file):
        for side in same[1:]:
            judge.screen(side, plain, _ignore)
    judge.screen(fast[0], slow, _ignore)
    with profiled("a faster candidate", file):
        screening = judge.screen(fast[1], slow, _ignore)
        verdict = judge.confirm(fast[1], slow, slow, spend(ALPHA, 1), _ignore)
    found = verdict.reason or f"kept at {verdict.speedup}"
    print(f"screened at {screening.speedup}, {found}, {len(verdict.pairs)} pairs, {verdict.detail}")


@contextmanager
def profiled(what: str, file: TextIO) -> Iterator[None]:
    profile, start = cProfile.Profile(), time.perf_counter()
    profile.enable()
    yield
    profile.disable()
    heading = f"{what}: {time.perf_counter() - start:.2f} s"
    print(heading, flush=True)
    text = io.StringIO()
    for order in ("cumulative", "tottime"):
        pstats.Stats(profile, stream=text).sort_stats(order).print_stats(ROWS)
    file.write(f"{heading}\n{text.getvalue()}\n")


def _ignore(progress: Progress) -> None:
    """Progress is for screens."""


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=gpu_cases.KINDS)
    parser.add_argument("--steps", type=int, default=53, help="planted; 53 make the softmax 1.15 %% slower")
    parser.add_argument("--output", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
