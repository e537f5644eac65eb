"""The gate: parity over every problem, distribution and secret seed. Pass, or fail with a reason; never a score."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import torch

from harness.candidate.arena import Arena
from harness.candidate.process import CandidateProcess
from harness.case.checked import is_finite
from harness.case.contract import Contract, Tensors
from harness.errors import CandidateFault, MachineError
from harness.judge.fresh import Source
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

MOST_KEPT = 0.5
"""Share of a GPU's spare memory that a candidate may keep between calls: two of them meet in a duel."""


@dataclass
class Gate:
    """Checks candidates of one case; holds the secret randomness."""

    contract: Contract
    problems: tuple[str, ...]
    seeds: int
    error_budget: float
    secret: random.Random
    place: str
    """torch's name of the device the tensors are on."""
    spare_bytes: Callable[[], int]
    """What candidates have left of a GPU's memory; a constant where kernels run on a CPU."""
    _card: Card = field(init=False)
    _worst: float = field(default=0.0, init=False)
    _worst_at: str = field(default="", init=False)
    _runs: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self._card = Card(self.spare_bytes)

    def check(self, candidate: CandidateProcess, watch: Watch) -> GateReport:
        """Every problem in a random order, all compiled before. A fault of the candidate's becomes a failed report."""
        self._worst, self._worst_at, self._runs = 0.0, "", 0
        names = self.secret.sample(self.problems, len(self.problems))
        try:
            for done, name in enumerate(names):
                watch(Progress(stage="gate", done=done, of=len(names)))
                self._check_problem(candidate, name)
            source = self._source(names[0], self.contract.distributions[0])
            with source.arena(SLOTS) as arena:
                source.refresh(arena, range(SLOTS))
                check_leak(candidate, arena, self.spare_bytes)
            self._card.check_hoard(candidate)
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

    def _source(self, name: str, distribution: str) -> Source:
        return Source(self.contract, name, distribution, self.secret, self.place)

    def _check_problem(self, candidate: CandidateProcess, name: str) -> None:
        draws = list(self.contract.distributions) * self.seeds
        draws += self.secret.choices(self.contract.distributions, k=max(0, FEWEST_CALLS - len(draws)))
        self.secret.shuffle(draws)
        with self._source(name, draws[0]).arena(SLOTS) as arena:
            for turn, distribution in enumerate(draws):
                self._check_call(candidate, arena, turn % SLOTS, self._source(name, distribution))

    def _check_call(self, candidate: CandidateProcess, arena: Arena, slot: int, source: Source) -> None:
        arena.poison(range(SLOTS))
        inputs = source.refresh(arena, range(slot, slot + 1), (slot,))[slot]
        candidate.call(arena, slot, 1)
        self._runs += 1
        share = check_outputs(
            self.contract, source.problem, arena, slot, inputs, self.error_budget, source.distribution
        )
        if share > self._worst:
            self._worst, self._worst_at = share, f"{source.problem}/{source.distribution}"


def check_outputs(
    contract: Contract,
    name: str,
    arena: Arena,
    slot: int,
    inputs: Tensors,
    budget: float,
    where: str,
) -> float:
    """As `check_slot`, and nothing beside the arrays of any slot may have been written."""
    check_guards(name, arena, where)
    return check_slot(contract, name, arena, slot, inputs, budget, where)


def check_guards(name: str, arena: Arena, where: str) -> None:
    """Raises CandidateFault where memory between the arrays is not as it was."""
    if not arena.guards_are_intact():
        detail = f"problem {name}, inputs {where}: memory beside the arrays was written"
        raise CandidateFault(Reason.WROTE_OUT_OF_BOUNDS, detail)


def check_slot(
    contract: Contract,
    name: str,
    arena: Arena,
    slot: int,
    inputs: Tensors,
    budget: float,
    where: str,
) -> float:
    """Compare one slot with the reference; the error as a share of the budget. Raises CandidateFault."""
    at = f"problem {name}, inputs {where}"
    if any(not torch.equal(_bits(now), _bits(inputs[key])) for key, now in arena.inputs(slot).items()):
        raise CandidateFault(Reason.INPUTS_CHANGED, f"{at}: the kernel wrote to its inputs")
    if arena.unwritten(range(slot, slot + 1)) is not None:
        raise CandidateFault(Reason.OUTPUT_NOT_WRITTEN, f"{at}: parts of the output were not written")
    outputs = arena.outputs(slot)
    for key, value in outputs.items():
        if not is_finite(value):
            raise CandidateFault(Reason.NOT_FINITE, f"{at}: output {key!r} holds NaN or infinity")
    share = worst_error(outputs, expect(contract, contract.problems[name], inputs, budget))
    if share > 1:
        raise CandidateFault(Reason.WRONG_RESULT, f"{at}: error is {share:.3g} times the budget")
    return share


class Card:
    """A GPU's memory: the most of it that was ever spare, which a candidate's import and first calls cannot lower."""

    def __init__(self, spare_bytes: Callable[[], int]) -> None:
        self._spare_bytes, self._most = spare_bytes, spare_bytes()

    def check_hoard(self, candidate: CandidateProcess) -> None:
        """Raises CandidateFault where a candidate keeps most of the GPU's spare memory, which its opponent may need.

        Whose it is shows when the candidate ends. Raises MachineError where it was somebody else's, once: what is left
        is what later candidates may share.
        """
        after = self._spare_bytes()
        before = self._most = max(self._most, after)
        if after >= (1 - MOST_KEPT) * before:
            return
        candidate.close()
        taken = f"{(before - after) >> 30} of the GPU's {before >> 30} GiB"
        left = self._spare_bytes()
        if left - after < (before - after) / 2:
            self._most = left
            raise MachineError(
                f"something else on this machine took {taken} while a candidate was before the gate"
            )
        detail = f"it keeps {taken} after its calls; at most {MOST_KEPT:.0%} are for one candidate"
        raise CandidateFault(Reason.OUT_OF_MEMORY, detail)


def check_leak(candidate: CandidateProcess, arena: Arena, spare_bytes: Callable[[], int]) -> None:
    """Repeat calls and watch memory, the device's too. Raises CandidateFault(LEAKED) when every round adds to it."""
    called, sizes = [], []
    for _ in range(LEAK_ROUNDS):
        called.append(_call_often(candidate, arena))
        sizes.append(candidate.resident_bytes() - spare_bytes())
    growth = [after - before for before, after in pairwise(sizes)]
    if min(growth) > LEAK_BYTES:
        calls = sum(called[1:])
        raise CandidateFault(Reason.LEAKED, f"memory grew by {sum(growth) >> 20} MiB over {calls} calls")


def _call_often(candidate: CandidateProcess, arena: Arena) -> int:
    """Calls made."""
    spent, calls = 0.0, 0
    while calls < LEAK_CALLS and spent < 0.05:
        spent += candidate.call(arena, 0, SLOTS)
        calls += SLOTS
    return calls


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(torch.uint8)
