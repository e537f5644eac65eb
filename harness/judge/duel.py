"""A duel: two processes over the same buffers, timed in ABBA or BAAB blocks by the judge's clock.

Before every segment the judge draws new inputs and poisons all outputs, so a call can neither reuse an earlier
result nor skip its work; every timed call has a slot of its own. After every segment of the candidate's all outputs
must be written, and some slots chosen at random are compared with the reference. The side whose turn it is not is
frozen. All slots of a segment are in memory when it starts, so single calls are timed as well (`solo_block`).
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Literal

import torch

from harness.candidate.arena import Arena
from harness.candidate.process import CandidateProcess
from harness.case.case import Suite
from harness.case.contract import Contract, Tensors
from harness.device import cpu
from harness.errors import CandidateFault, MachineError
from harness.judge.gate import check_outputs, open_arena
from harness.records import Block, Reason

POOL_BYTES = 256 << 20
"""Most memory for one problem's call slots."""

GROWTH = 16
"""Most by which the number of calls grows from one sizing run to the next."""

CHECKED_SLOTS = 2
"""Slots compared with the reference after each of the candidate's segments. A kernel that computes only a share
1 - f of its calls passes n segments with probability (1 - f)^2n: under 1 % for f = 2 % over a deciding ten pairs."""


@dataclass(frozen=True)
class Workload:
    """One timed problem: its slots, and how many calls each side makes in a segment."""

    problem: str
    distribution: str
    arena: Arena
    calls: tuple[int, int]
    """Of A and of B. Equal unless one side is over twice as fast."""


class Duel:
    """Two loaded processes, A the candidate and B its opponent, over one suite of problems.

    Raises CandidateFault for what A does wrong; the same of B, which has passed all this before, is a MachineError.
    """

    def __init__(
        self,
        contract: Contract,
        suite: Suite,
        sides: tuple[CandidateProcess, CandidateProcess],
        segment_seconds: float,
        error_budget: float,
        secret: random.Random,
    ) -> None:
        self.contract, self.suite, self.sides, self.secret = contract, suite, sides, secret
        self.segment_seconds, self.error_budget = segment_seconds, error_budget
        self._stack = ExitStack()
        self.workloads: list[Workload] = []

    def __enter__(self) -> Duel:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def probe(self) -> float:
        """Compile, and size the segments; A's speed relative to B's, roughly."""
        ratios = []
        for problem in self.suite.problems:
            self._compile_both(problem)
            a, b = self._fit(problem)
            ratios.append(math.log(b / a))
        return math.exp(statistics.fmean(ratios))

    def block(self) -> Block:
        """One block of whole segments."""
        return self._block(self.workloads)

    def solo_block(self) -> Block:
        """One block of single calls, in which nothing can be done for the next call beforehand."""
        return self._block([replace(workload, calls=(1, 1)) for workload in self.workloads])

    def _block(self, workloads: Sequence[Workload]) -> Block:
        order: Literal["ABBA", "BAAB"] = self.secret.choice(("ABBA", "BAAB"))
        start, own = cpu.read_counters(), self._own_cpu_seconds()
        logs = [0.0] * 4
        for workload in workloads:
            for turn, letter in enumerate(order):
                logs[turn] += math.log(self._segment(workload, "AB".index(letter)))
        environment = cpu.environment_since(start, self._own_cpu_seconds() - own)
        a, b, c, d = (math.exp(log / len(workloads)) for log in logs)
        return Block(order=order, seconds=(a, b, c, d), environment=environment)

    def _compile_both(self, problem: str) -> None:
        """The first call of each side, at the same time, on slots of their own: nothing is timed yet."""
        with open_arena(self.contract, problem, 2) as arena:
            self._refresh(arena, problem, 2)
            for side in (0, 1):
                with blame(side):
                    self.sides[side].begin_compile(arena, side)
            for side in (0, 1):
                with blame(side):
                    self.sides[side].finish_compile()

    def _fit(self, problem: str) -> list[float]:
        """Grow the number of calls until each side's segment is long enough; seconds per call of both.

        Sizing runs are checked like timed ones, and have walked the memory once before anything is timed.
        """
        calls = (1, 1)
        while True:
            with ExitStack() as stack:
                arena = stack.enter_context(open_arena(self.contract, problem, max(calls)))
                workload = Workload(problem, self.suite.distribution, arena, calls)
                seconds = [self._segment(workload, side) for side in (0, 1)]
                wanted = self._calls(seconds, arena.layout.stride)
                if all(w < 1.5 * c for w, c in zip(wanted, calls, strict=True)):
                    self._stack.push(stack.pop_all())
                    self.workloads.append(workload)
                    return seconds
            calls = (min(wanted[0], GROWTH * calls[0]), min(wanted[1], GROWTH * calls[1]))

    def _calls(self, seconds: Sequence[float], slot_bytes: int) -> tuple[int, int]:
        """How many calls fill a segment; the same for both sides unless one is over twice as fast."""
        most = max(1, POOL_BYTES // slot_bytes)
        a, b = (min(most, max(1, round(self.segment_seconds / s))) for s in seconds)
        return (a, b) if max(a, b) > 2 * min(a, b) else (max(a, b), max(a, b))

    def _segment(self, workload: Workload, side: int) -> float:
        """Seconds per call of one side's calls over fresh inputs."""
        calls, arena = workload.calls[side], workload.arena
        seeds = self._refresh(arena, workload.problem, calls)
        with blame(side):
            seconds = self.sides[side].run(arena, 0, calls)
            if side == 0:
                self._check(workload, seeds)
        return seconds / calls

    def _refresh(self, arena: Arena, problem: str, slots: int) -> list[int]:
        """New inputs and poisoned outputs; the seed of every slot."""
        seeds = [self.secret.getrandbits(62) for _ in range(slots)]
        for slot, seed in enumerate(seeds):
            arena.fill(slot, self._draw(problem, seed))
        arena.poison(range(slots))
        return seeds

    def _draw(self, problem: str, seed: int) -> Tensors:
        generator = torch.Generator().manual_seed(seed)
        return self.contract.inputs(self.contract.problems[problem], self.suite.distribution, generator)

    def _check(self, workload: Workload, seeds: list[int]) -> None:
        """Every slot must be written, and a few chosen at random must be right."""
        arena, where = workload.arena, f"{workload.distribution} (while timed)"
        for slot in range(len(seeds)):
            if any(arena.is_unwritten(slot, output.name) for output in arena.layout.outputs):
                detail = f"problem {workload.problem}: call {slot + 1} of {len(seeds)} timed ones wrote no whole output"
                raise CandidateFault(Reason.OUTPUT_NOT_WRITTEN, detail)
        for slot in self.secret.sample(range(len(seeds)), min(CHECKED_SLOTS, len(seeds))):
            inputs = self._draw(workload.problem, seeds[slot])
            check_outputs(self.contract, workload.problem, arena, slot, inputs, self.error_budget, where)

    def _own_cpu_seconds(self) -> float:
        return time.process_time() + sum(side.cpu_seconds() for side in self.sides)


@contextmanager
def blame(side: int) -> Iterator[None]:
    """A fault of side B is not the candidate's: B won its place by passing the same checks."""
    try:
        yield
    except CandidateFault as fault:
        if side == 0:
            raise
        raise MachineError(f"the incumbent failed in a duel, having passed before: {fault}") from fault


def clean_blocks(take: Callable[[], Block], count: int) -> Iterator[tuple[Block, int]]:
    """`count` blocks, each with how many contaminated ones were dropped before it; at most `count` drops in all.

    A machine that is never quiet is measured as it is: the environment stands in the record.
    """
    drops_left = count
    for _ in range(count):
        dropped = 0
        block = take()
        while drops_left and cpu.is_contaminated(block.environment):
            drops_left, dropped = drops_left - 1, dropped + 1
            block = take()
        yield block, dropped


def log_ratio(block: Block) -> float:
    """log(B's time / A's time) of a block: positive when the candidate is faster."""
    logs = [math.log(s) for s in block.seconds]
    signs = [1 if letter == "B" else -1 for letter in block.order]
    return sum(sign * log for sign, log in zip(signs, logs, strict=True)) / 2


def seconds_of(block: Block, letter: Literal["A", "B"]) -> float:
    """One side's seconds per call in a block."""
    return math.exp(
        statistics.fmean(
            math.log(s) for s, turn in zip(block.seconds, block.order, strict=True) if turn == letter
        )
    )
