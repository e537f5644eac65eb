"""The gate: parity over every problem, distribution and secret seed. Pass, or fail with a reason; never a score."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import NamedTuple

from hillclimb.harness.case.contract import Contract, Tensors
from hillclimb.harness.duel.gated_problems import GatedProblems
from hillclimb.harness.duel.inputs import InputSource
from hillclimb.harness.duel.parity import check_outputs
from hillclimb.harness.duel.process.arena import Arena
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.duel.process.parameters import bound
from hillclimb.harness.errors import CandidateFault, MachineError
from hillclimb.harness.records import GateReport, Progress, Reason, Watch

SLOTS = 2
"""Call slots per problem, so that pointers change between calls and come back with other contents."""

MIN_CHECKED_CALLS = 2 * SLOTS
"""Checked calls per problem at the least, so that every slot is seen with two contents."""

MIXED_SHARE = 0.5
"""Share of the calls whose inputs hold values of other distributions as well."""

STRUCTURED_SHARE = 0.5
"""Of further calls on mixed inputs, how many have a structure, each in turn."""

MIXED_SECONDS, MIN_MIXED_CALLS = 300.0, 100
"""Processor time of the judge's after which no further call on mixed inputs is made, of all problems together, and the
least that are. Time that passes in the candidate does not count: no kernel shortens its own examination by being slow.
"""

CHAIN_ROUNDS = 2
"""Times that the calls of a chain go from the larger problem to the smaller one."""

TURNED_SHARE = 0.25
"""Share of the further calls on mixed inputs that are followed by one on the same values at other places."""

LEAK_ROUNDS = 3
LEAK_CALLS = 40
LEAK_BYTES = 4 << 20
"""Growth of resident memory in every round after the first that counts as a leak."""

MAX_RETAINED_MEMORY_SHARE = 0.5
"""Share of a GPU's spare memory that a candidate may keep between calls: two of them meet in a duel."""


class CallLimit(NamedTuple):
    """Of the further calls on one problem: at most so many, and fewer after so many seconds."""

    calls: int
    least: int
    seconds: float

    def is_reached(self, done: int, seconds: float) -> bool:
        """After so many calls, and so much of the judge's processor time."""
        return done >= self.least and seconds > self.seconds


@dataclass
class ParityGate:
    """Checks candidates of one case; holds the secret randomness."""

    seeds: int
    error_budget: float
    secret: random.Random
    torch_device: str
    """torch's name of the device the tensors are on."""
    spare_bytes: Callable[[], int]
    """What candidates have left of a GPU's memory; a constant where kernels run on a CPU."""
    _card: GpuMemory = field(init=False)
    _worst: float = field(default=0.0, init=False)
    _worst_at: str = field(default="", init=False)
    _runs: int = field(default=0, init=False)
    _called_seconds: float = field(default=0.0, init=False)
    """Processor time of the judge's that passed in the candidate's calls."""

    def __post_init__(self) -> None:
        self._card = GpuMemory(self.spare_bytes)

    def check(self, candidate: CandidateProcess, gated: GatedProblems, watch: Watch) -> GateReport:
        """Every problem in a random order, all compiled before. A fault of the candidate's becomes a failed report."""
        self._worst, self._worst_at, self._runs = 0.0, "", 0
        gated = replace(gated, contract=bound(gated.contract, candidate.parameters))
        contract, steps = gated.contract, self._steps(candidate, gated)
        try:
            for done, step in enumerate(steps):
                watch(Progress(stage="gate", done=done, of=len(steps)))
                step()
            source = self._source(contract, gated.listed[0], contract.distributions[0])
            with source.arena(SLOTS) as arena:
                source.refresh(arena, range(SLOTS))
                check_leak(candidate, arena, self.spare_bytes)
            self._card.check_retained(candidate)
        except CandidateFault as fault:
            return self._report(fault.reason, fault.detail)
        return self._report(None, "")

    def _steps(self, candidate: CandidateProcess, gated: GatedProblems) -> list[Callable[[], None]]:
        """Every problem, some of them on mixed inputs many times, and those that follow each other."""
        contract, names = gated.contract, [*gated.listed, *gated.neighbours]
        often, chains = gated.called_often(), gated.drawn_chains(self.secret)
        steps: list[Callable[[], None]] = []
        for name in self.secret.sample(names, len(names)):
            seeds = (gated.seeds or self.seeds) if name in gated.listed else 0
            draws = list(contract.distributions) * seeds
            steps.append(partial(self._check_problem, candidate, contract, name, draws))
        for name in self.secret.sample(often, len(often)):
            calls, least = (-(-count // len(often)) for count in (gated.mixed_calls, MIN_MIXED_CALLS))
            limit = CallLimit(calls, least, MIXED_SECONDS / len(often))
            steps.append(partial(self._check_mixed, candidate, contract, name, limit))
        return [*steps, *(partial(self._check_chain, candidate, contract, pair) for pair in chains)]

    def _own_seconds(self) -> float:
        """Processor time of the judge's beside the candidate's calls."""
        return time.process_time() - self._called_seconds

    def _report(self, reason: Reason | None, detail: str) -> GateReport:
        return GateReport(
            passed=reason is None,
            reason=reason,
            detail=detail,
            runs=self._runs,
            worst=self._worst,
            worst_at=self._worst_at,
        )

    def _source(
        self, contract: Contract, name: str, distribution: str, mixed_share: float = MIXED_SHARE
    ) -> InputSource:
        place = self.torch_device
        return InputSource(contract, name, distribution, self.secret, place, mixed_share=mixed_share)

    def _check_mixed(
        self, candidate: CandidateProcess, contract: Contract, name: str, limit: CallLimit
    ) -> None:
        """So many further calls, all on mixed inputs: what shows in one of a hundred is seldom seen in the others.

        Half have structures, each in its turn. Some are followed by a call on the same values at other places.
        """
        structure, slots, start = self.secret.getrandbits(30), range(SLOTS), self._own_seconds()
        with self._source(contract, name, contract.distributions[0]).arena(SLOTS) as arena:
            for done in range(limit.calls):
                if limit.is_reached(done, self._own_seconds() - start):
                    return
                source = self._source(contract, name, self.secret.choice(contract.distributions), 1.0)
                if self.secret.random() < STRUCTURED_SHARE:
                    source, structure = replace(source, structure_turn=structure), structure + 1
                slot = self.secret.choice(slots)
                inputs = self._check_call(candidate, arena, slot, source)
                if self.secret.random() < TURNED_SHARE:
                    self._check_call(candidate, arena, slot, source, inputs)

    def _check_chain(self, candidate: CandidateProcess, contract: Contract, pair: tuple[str, str]) -> None:
        """Calls on two problems by turns: what a call on one leaves behind may be wrong for the other."""
        with ExitStack() as stack:
            sources = [self._source(contract, name, contract.distributions[0]) for name in pair]
            arenas = [stack.enter_context(source.arena(SLOTS)) for source in sources]
            for turn in range(CHAIN_ROUNDS):
                for source, arena in zip(sources, arenas, strict=True):
                    drawn = replace(source, distribution=self.secret.choice(contract.distributions))
                    self._check_call(candidate, arena, turn % SLOTS, drawn)
            for arena in arenas:
                candidate.unmap(arena)

    def _check_problem(
        self, candidate: CandidateProcess, contract: Contract, name: str, distributions: Sequence[str]
    ) -> None:
        """A call for each of these distributions, and for others until there are enough, in a random order."""
        missing = max(0, MIN_CHECKED_CALLS - len(distributions))
        draws = [*distributions, *self.secret.choices(contract.distributions, k=missing)]
        self.secret.shuffle(draws)
        with self._source(contract, name, draws[0]).arena(SLOTS) as arena:
            for turn, distribution in enumerate(draws):
                self._check_call(candidate, arena, turn % SLOTS, self._source(contract, name, distribution))

    def _check_call(
        self,
        candidate: CandidateProcess,
        arena: Arena,
        slot: int,
        source: InputSource,
        before: Tensors | None = None,
    ) -> Tensors:
        """On new inputs, or on those of a call `before` with values at other places; the inputs."""
        arena.poison(range(SLOTS))
        if before is None:
            inputs = source.refresh(arena, range(slot, slot + 1), (slot,))[slot]
        else:
            inputs = source.turn(arena, slot, before)
        before_call = time.process_time()
        candidate.call(arena, slot, 1)
        self._called_seconds += time.process_time() - before_call
        self._runs += 1
        if candidate.loan is not None:
            candidate.loan.require_unchanged()
        where = source.distribution if source.mixed_share < 1 else f"{source.distribution}, mixed"
        share = check_outputs(source.contract, source.problem, arena, slot, inputs, self.error_budget, where)
        if share > self._worst:
            self._worst, self._worst_at = share, f"{source.problem}/{source.distribution}"
        return inputs


class GpuMemory:
    """A GPU's memory: the most of it that was ever spare, which a candidate's import and first calls cannot lower."""

    def __init__(self, spare_bytes: Callable[[], int]) -> None:
        self._spare_bytes, self._most = spare_bytes, spare_bytes()

    def check_retained(self, candidate: CandidateProcess) -> None:
        """Raises CandidateFault where a candidate keeps most of the GPU's spare memory, which its opponent may need.

        Whose it is shows when the candidate ends. Raises MachineError where it was somebody else's, once: what is left
        is what later candidates may share.
        """
        after = self._spare_bytes()
        before = self._most = max(self._most, after)
        if after >= (1 - MAX_RETAINED_MEMORY_SHARE) * before:
            return
        candidate.close()
        taken = f"{(before - after) >> 30} of the GPU's {before >> 30} GiB"
        left = self._spare_bytes()
        if left - after < (before - after) / 2:
            self._most = left
            raise MachineError(
                f"something else on this machine took {taken} while a candidate was before the gate"
            )
        detail = (
            f"it keeps {taken} after its calls; at most {MAX_RETAINED_MEMORY_SHARE:.0%} are for one candidate"
        )
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
    """Calls made, each on inputs as they were."""
    spent, calls, slots = 0.0, 0, range(SLOTS)
    kept = arena.keep_changed(slots)
    while calls < LEAK_CALLS and spent < 0.05:
        spent += candidate.call(arena, 0, SLOTS)
        arena.restore_changed(slots, kept)
        calls += SLOTS
    return calls
