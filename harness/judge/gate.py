"""The gate: parity over every problem, distribution and secret seed. Pass, or fail with a reason; never a score."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from harness.candidate.arena import Arena, shapes_of
from harness.candidate.layout import lay_out
from harness.candidate.process import CandidateProcess
from harness.case.contract import Contract
from harness.errors import CandidateFault
from harness.judge.parity import expect, worst_error
from harness.judge.protocol import Progress, Watch
from harness.records import GateReport, Reason

SLOTS = 2
"""Call slots per problem, so that pointers change between calls and come back with other contents."""

FEWEST_CALLS = 2 * SLOTS
"""Checked calls per problem at the least, so that every slot is seen with two contents."""

LEAK_ROUNDS = 3
LEAK_CALLS = 40
LEAK_BYTES = 4 << 20
"""Growth of resident memory in every round after the first that counts as a leak."""


@dataclass
class Gate:
    """Checks candidates of one case; holds the secret randomness."""

    contract: Contract
    seeds: int
    error_budget: float
    secret: random.Random
    _worst: float = field(default=0.0, init=False)
    _worst_at: str = field(default="", init=False)
    _runs: int = field(default=0, init=False)

    def check(self, candidate: CandidateProcess, watch: Watch) -> GateReport:
        """Every problem in a random order. A fault of the candidate's becomes a failed report."""
        self._worst, self._worst_at, self._runs = 0.0, "", 0
        names = list(self.contract.problems)
        self.secret.shuffle(names)
        try:
            for done, name in enumerate(names):
                watch(Progress(stage="gate", done=done, of=len(names)))
                self._check_problem(candidate, name)
            with open_arena(self.contract, names[0], SLOTS) as arena:
                check_leak(candidate, arena)
        except CandidateFault as fault:
            return self._report(fault.reason, fault.detail)
        return self._report(None, "")

    def _report(self, reason: Reason | None, detail: str) -> GateReport:
        return GateReport(
            passed=reason is None,
            reason=reason,
            detail=detail,
            runs=self._runs,
            worst=self._worst,
            worst_at=self._worst_at,
        )

    def _check_problem(self, candidate: CandidateProcess, name: str) -> None:
        draws = list(self.contract.distributions) * self.seeds
        draws += self.secret.choices(self.contract.distributions, k=max(0, FEWEST_CALLS - len(draws)))
        self.secret.shuffle(draws)
        with open_arena(self.contract, name, SLOTS) as arena:
            for turn, distribution in enumerate(draws):
                self._check_call(candidate, arena, turn, name, distribution)

    def _check_call(
        self, candidate: CandidateProcess, arena: Arena, turn: int, name: str, distribution: str
    ) -> None:
        slot, problem = turn % SLOTS, self.contract.problems[name]
        inputs = self.contract.inputs(
            problem, distribution, torch.Generator().manual_seed(self.secret.getrandbits(62))
        )
        arena.fill(slot, inputs)
        if turn == 0:
            candidate.begin_compile(arena, slot)
            candidate.finish_compile()
        arena.poison(range(SLOTS))
        candidate.run(arena, slot, 1)
        self._runs += 1
        share = check_outputs(self.contract, name, arena, slot, inputs, self.error_budget, distribution)
        if share > self._worst:
            self._worst, self._worst_at = share, f"{name}/{distribution}"


def check_outputs(
    contract: Contract,
    name: str,
    arena: Arena,
    slot: int,
    inputs: dict[str, torch.Tensor],
    budget: float,
    where: str,
) -> float:
    """Compare one slot with the reference; the error as a share of the budget. Raises CandidateFault."""
    at = f"problem {name}, inputs {where}"
    if any(not torch.equal(_bits(now), _bits(inputs[key])) for key, now in arena.inputs(slot).items()):
        raise CandidateFault(Reason.INPUTS_CHANGED, f"{at}: the kernel wrote to its inputs")
    if not arena.guards_are_intact():
        raise CandidateFault(Reason.WROTE_OUT_OF_BOUNDS, f"{at}: memory beside the arrays was written")
    outputs = arena.outputs(slot)
    for key, value in outputs.items():
        if arena.is_unwritten(slot, key):
            raise CandidateFault(Reason.OUTPUT_NOT_WRITTEN, f"{at}: parts of output {key!r} were not written")
        if not bool(torch.isfinite(value).all()):
            raise CandidateFault(Reason.NOT_FINITE, f"{at}: output {key!r} holds NaN or infinity")
    share = worst_error(outputs, expect(contract, contract.problems[name], inputs, budget))
    if share > 1:
        raise CandidateFault(Reason.WRONG_RESULT, f"{at}: error is {share:.3g} times the budget")
    return share


def check_leak(candidate: CandidateProcess, arena: Arena) -> None:
    """Repeat calls and watch resident memory. Raises CandidateFault(LEAKED) when every round adds to it."""
    sizes = [_resident_after(candidate, arena) for _ in range(LEAK_ROUNDS)]
    growth = [after - before for before, after in pairwise(sizes)]
    if min(growth) > LEAK_BYTES:
        calls = LEAK_CALLS * len(growth)
        raise CandidateFault(Reason.LEAKED, f"memory grew by {sum(growth) >> 20} MiB over {calls} calls")


def _resident_after(candidate: CandidateProcess, arena: Arena) -> int:
    spent, calls = 0.0, 0
    while calls < LEAK_CALLS and spent < 0.05:
        spent += candidate.run(arena, 0, SLOTS)
        calls += SLOTS
    return candidate.resident_bytes()


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)


@contextmanager
def open_arena(contract: Contract, name: str, slots: int) -> Iterator[Arena]:
    """An arena for one problem, closed at the end of the block."""
    problem = contract.problems[name]
    sample = contract.inputs(problem, contract.distributions[0], torch.Generator().manual_seed(0))
    arena = Arena(lay_out(shapes_of(sample), shapes_of(contract.outputs(problem)), slots))
    try:
        yield arena
    finally:
        arena.close()
