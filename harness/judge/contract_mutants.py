"""Puts a contract to the test: results that are wrong on purpose, of which its budget should accept none.

Each has to be rejected in one drawn input of one small problem, fewer bits in every timed problem. What is accepted is
no fault of the contract for certain: an input may not matter at its end, and a result in fewer bits than its inputs
may hide what they lost. So it is told, and a person decides.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from hillclimb.harness.case.contract import Contract, Tensors
from hillclimb.harness.case.sizes import sizes_of
from hillclimb.harness.duel.gated_problems import MAX_NEIGHBOUR_BYTES, draw_gated_problems
from hillclimb.harness.duel.mixing import can_mix, mix
from hillclimb.harness.errors import CaseError
from hillclimb.harness.judge.mutants.drawn import DrawnCall, Mutant
from hillclimb.harness.judge.mutants.spoiled_inputs import NARROW_BITS, narrowed_inputs, spoiled_inputs
from hillclimb.harness.judge.mutants.tally import MutantTally, excused, expect_needed
from hillclimb.harness.judge.mutants.wrong_outputs import wrong_outputs
from hillclimb.harness.records import OracleReport, Progress, Watch

SMALL_BYTES = 1 << 20
"""Most that a problem may move for every wrong result to be tried on it."""

MIN_NARROWED_PROBLEMS = 2
"""Problems that are looked at in fewer bits where none that is timed can be."""

SEED = 1

MIXED = ", mixed"

LISTED = "nothing written for sizes that are not listed"


@dataclass(frozen=True)
class ContractMutants:
    """What a contract says is right, and wrong results for it."""

    contract: Contract
    error_budget: float
    torch_device: str
    """torch's name of the device the tensors are on."""
    file: Path | str = "contract.py"
    """The contract's, for what is told of it."""

    def try_all(self, name: str, tally: MutantTally) -> bool:
        """Every wrong result on every drawn input of a problem, until one shows it.

        Whether the problem proves nothing: its outputs are the same, whatever is computed. Without outputs it has
        nothing to prove.
        """
        is_dependent = is_empty = False
        for call in self._drawn(name):
            is_empty = not call.specs
            for mutant in _mutants(call):
                is_wanted = mutant.shows_dependence and not is_dependent
                if tally.is_rejected(mutant.name) and not is_wanted:
                    continue
                share = call.share(mutant)
                if share is not None:
                    tally.note(mutant.name, share, call.place)
                    is_dependent |= mutant.shows_dependence and share > 0
        return not is_dependent and not is_empty

    def try_narrowed(self, problem: str, tally: MutantTally) -> None:
        """All inputs in fewer bits, each in units of its own size."""
        for distribution in self.contract.distributions:
            call = self._call(problem, distribution, self._inputs(problem, distribution, SEED))
            mutant = narrowed_inputs(call, narrowed_name(problem))
            share = call.share(mutant)
            if share is not None:
                tally.note(mutant.name, share, call.place)

    def try_listed_sizes(self, problems: Sequence[str], tally: MutantTally) -> bool:
        """A result that is right for the listed sizes alone; whether any of the problems has others like it."""
        most = MAX_NEIGHBOUR_BYTES
        is_varied = bool(draw_gated_problems(self.contract, problems, random.Random(SEED), most).neighbours)
        tally.note(LISTED, float("inf") if is_varied else 0.0)
        return is_varied

    def has_narrowable_inputs(self, problem: str) -> bool:
        """Whether any input has bits to lose: whole numbers and float8 have not."""
        return any(tensor.dtype in NARROW_BITS for tensor in self._first_inputs(problem).values())

    def without_domain(self, problem: str) -> tuple[str, ...]:
        """Inputs of numbers that are computed with, of which the contract does not say how large they may be."""
        inputs = self._first_inputs(problem)
        return tuple(
            key
            for key, tensor in inputs.items()
            if tensor.is_floating_point() and key not in self.contract.domains
        )

    def _drawn(self, name: str) -> Iterator[DrawnCall]:
        """Everything that the gate may draw for a problem: of each distribution, as it is and mixed with others."""
        secret = random.Random(SEED)
        for distribution in self.contract.distributions:
            inputs = self._inputs(name, distribution, SEED)
            yield self._call(name, distribution, inputs)
            if can_mix(self.contract):
                mixed = mix(self.contract, inputs, self._donor(name, distribution, secret), secret)
                yield self._call(name, distribution, mixed, MIXED)

    def _call(self, name: str, distribution: str, inputs: Tensors, kind: str = "") -> DrawnCall:
        others = partial(self._inputs, name, distribution, SEED + 1)
        problem, place = self.contract.problems[name], f"{name}/{distribution}{kind}"
        return DrawnCall(self.contract, problem, place, inputs, self.error_budget, others)

    def _donor(self, name: str, distribution: str, secret: random.Random) -> Tensors | None:
        """A draw of another distribution; None where none may be mixed in."""
        others = [other for other in self.contract.distributions if other != distribution]
        if self.contract.unmixed or not others:
            return None
        return self._inputs(name, secret.choice(others), SEED)

    def _first_inputs(self, name: str) -> Tensors:
        return self._inputs(name, self.contract.distributions[0], SEED)

    def _inputs(self, name: str, distribution: str, seed: int) -> Tensors:
        generator = torch.Generator(self.torch_device).manual_seed(seed)
        return self.contract.inputs(self.contract.problems[name], distribution, generator)


def find_surviving_mutants(
    mutants: ContractMutants,
    gated: Sequence[str],
    timed: Sequence[str],
    is_narrow_forbidden: bool,
    watch: Watch,
) -> OracleReport:
    """Which wrong results of the `gated` problems are accepted: of all kinds, and in those `timed`, fewer bits.

    Raises CaseError for a problem that proves nothing, and for an excuse of what is not accepted.
    """
    contract, tally = mutants.contract, MutantTally()
    sizes = {name: contract.work(contract.problems[name]).bytes for name in gated}
    by_size = sorted(gated, key=sizes.__getitem__)
    small = [name for name in by_size if sizes[name] <= SMALL_BYTES] or by_size[:1]
    judged = [name for name in timed if name in sizes] or by_size[-MIN_NARROWED_PROBLEMS:]
    narrowed = [name for name in judged if is_narrow_forbidden and mutants.has_narrowable_inputs(name)]
    done, steps, vacuous = 0, len(small) + len(narrowed), []
    for name in small:
        watch(Progress(stage="oracle", done=done, of=steps))
        vacuous += [name] if mutants.try_all(name, tally) else []
        done += 1
    for name in narrowed:
        watch(Progress(stage="oracle", done=done, of=steps))
        mutants.try_narrowed(name, tally)
        done += 1
    _expect_none_vacuous(
        [name for name in vacuous if vacuous_name(name) not in contract.excused], mutants.file
    )
    for name in vacuous:
        tally.note(vacuous_name(name), 0.0)
    is_varied = mutants.try_listed_sizes(gated, tally)
    unseen = [vacuous_name(name) for name in contract.problems if name not in small]
    expect_needed(tally, contract.excused, [*map(narrowed_name, contract.problems), *unseen], mutants.file)
    accepted = tally.accepted()
    return OracleReport(
        tried=len(tally.nearest),
        accepted=tuple(found for found in accepted if found.mistake not in contract.excused),
        excused=excused(accepted, contract.excused),
        is_varied=is_varied,
        has_empty=any(0 in sizes_of(problem).values() for problem in contract.problems.values()),
        unmixed=contract.unmixed,
        without_domain=mutants.without_domain(small[0]),
    )


def _expect_none_vacuous(problems: Sequence[str], file: Path | str) -> None:
    """Raises CaseError for problems that prove nothing."""
    if problems:
        raise CaseError(
            file,
            "Contract.problems",
            f"the outputs of {', '.join(map(repr, problems))} are the same whatever is computed, which proves nothing",
            "leave such problems out or give them other sizes and inputs; where one is an edge that kernels get wrong, "
            f"say so in Contract.excused[{vacuous_name(problems[0])!r}]",
        )


def vacuous_name(problem: str) -> str:
    """What a problem that proves nothing is called: a person may excuse it."""
    return f"outputs that nothing changes in problem {problem}"


def narrowed_name(problem: str) -> str:
    """What the result in fewer bits is called: a person may excuse it problem by problem."""
    return f"inputs in fewer bits in problem {problem}"


def _mutants(call: DrawnCall) -> Iterator[Mutant]:
    """Those that cost little first."""
    yield from wrong_outputs(call)
    yield from spoiled_inputs(call)
