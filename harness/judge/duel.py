"""A duel: two processes over the same buffers, timed in ABBA or BAAB blocks by the judge's clock.

Before every segment the judge draws new inputs and poisons all outputs, so a call can neither reuse an earlier
result nor skip its work; every timed call has a slot of its own. After every segment of the candidate's, one
slot chosen at random is compared with the reference. The side whose turn it is not is frozen.
"""

from __future__ import annotations

import math
import random
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Literal

import torch

from harness.candidate.arena import Arena
from harness.candidate.process import CandidateProcess
from harness.case.case import Suite
from harness.case.contract import Contract, Tensors
from harness.device import cpu
from harness.errors import CandidateFault, MachineError
from harness.judge.gate import check_outputs, open_arena
from harness.records import Block

POOL_BYTES = 256 << 20
"""Most memory for one problem's call slots."""

PROBE_SLOTS = 2


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
        """Size the segments from a few calls of both sides; A's speed relative to B's, roughly."""
        ratios = []
        for problem in self.suite.problems:
            with open_arena(self.contract, problem, PROBE_SLOTS) as arena:
                self._compile_both(arena, problem)
                seconds = [self._probe_side(side, arena) for side in (0, 1)]
                size = arena.layout.stride
            ratios.append(math.log(seconds[1] / seconds[0]))
            calls = self._calls(seconds, size)
            arena = self._stack.enter_context(open_arena(self.contract, problem, max(calls)))
            self.workloads.append(Workload(problem, self.suite.distribution, arena, calls))
            self._touch(self.workloads[-1])
        return math.exp(statistics.fmean(ratios))

    def block(self) -> Block:
        """One block in a coin's order; repeated nowhere, judged by nobody here."""
        order: Literal["ABBA", "BAAB"] = self.secret.choice(("ABBA", "BAAB"))
        start, own = cpu.read_counters(), self._own_cpu_seconds()
        logs = [0.0] * 4
        for workload in self.workloads:
            for turn, letter in enumerate(order):
                logs[turn] += math.log(self._segment(workload, "AB".index(letter)))
        environment = cpu.environment_since(start, self._own_cpu_seconds() - own)
        a, b, c, d = (math.exp(log / len(self.workloads)) for log in logs)
        return Block(order=order, seconds=(a, b, c, d), environment=environment)

    def _touch(self, workload: Workload) -> None:
        """An untimed segment of each side: the first walk over new memory pays for its page faults."""
        for side in (0, 1):
            self._segment(workload, side)

    def _compile_both(self, arena: Arena, problem: str) -> None:
        """The first call of each side, at the same time: it may compile, and nothing is timed yet."""
        self._refresh(arena, problem, PROBE_SLOTS)
        for side in (0, 1):
            with blame(side):
                self.sides[side].begin_compile(arena)
        for side in (0, 1):
            with blame(side):
                self.sides[side].finish_compile()

    def _probe_side(self, side: int, arena: Arena) -> float:
        """Seconds of the fastest of a few single calls."""
        with blame(side):
            return min(self.sides[side].run(arena, slot % PROBE_SLOTS, 1) for slot in range(3))

    def _calls(self, seconds: Sequence[float], slot_bytes: int) -> tuple[int, int]:
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
                self._check_one(workload, seeds)
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

    def _check_one(self, workload: Workload, seeds: list[int]) -> None:
        slot = self.secret.randrange(len(seeds))
        inputs = self._draw(workload.problem, seeds[slot])
        where = f"{workload.distribution} (while timed)"
        check_outputs(self.contract, workload.problem, workload.arena, slot, inputs, self.error_budget, where)

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
