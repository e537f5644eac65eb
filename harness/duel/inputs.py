"""Fresh inputs for call slots: what a candidate is handed was never seen by it before."""

from __future__ import annotations

import math
import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from hillclimb.harness.case.contract import Contract, Problem, Tensors
from hillclimb.harness.channel.layout import CallSignature, SlotLayout, call_order, lay_out
from hillclimb.harness.channel.memory import CudaMemory, HostMemory
from hillclimb.harness.duel.batches import InputBatch
from hillclimb.harness.duel.extremes import at_ends
from hillclimb.harness.duel.mixing import can_mix, changeable, except_few, mix, mix_whole, turned
from hillclimb.harness.duel.parity import is_answerable
from hillclimb.harness.duel.process.arena import Arena, shapes_of
from hillclimb.harness.duel.structures import checker_all, structure_some

MIXED_SHARE, MAX_MIXED = 0.25, 8
"""Share of the slots refreshed together whose inputs are mixed, and the most slots. Half of them are among the kept
ones, which are compared: that inputs are mixed says little about whether they are."""

STRUCTURED_SHARE, TWO_KINDS_SHARE = 0.2, 0.1
"""Of mixed inputs, in how many some have a structure as a whole, and in how many some are wholly of another
distribution. Nothing else is changed in them."""

ENDS_SHARE, QUARTERS_SHARE, EXCEPTION_SHARE = 0.15, 0.05, 0.5
"""Of inputs with a structure, how many are at the ends of their domains instead or have shrunk quarters, if they have
an answer then, and of the others how many hold a few elements that do not have it."""

MAX_UNLIKE_BYTES = 4 << 20
"""Most that a problem may move which has such inputs: whether the contract has an answer to them is tried first."""


def call_signature(contract: Contract, name: str, place: str, *, is_run: bool = True) -> CallSignature:
    """What every call of one problem is handed; of one that is not run, nothing is drawn if it can be told without."""
    problem, generator = contract.problems[name], torch.Generator(place).manual_seed(0)
    inputs = None if is_run else _without_contents(contract, problem, generator)
    if inputs is None:
        inputs = contract.inputs(problem, contract.distributions[0], generator)
    arrays = call_order(shapes_of(inputs), shapes_of(contract.outputs(problem)))
    return CallSignature(arrays, contract.attributes(problem))


def _without_contents(contract: Contract, problem: Problem, generator: torch.Generator) -> Tensors | None:
    """Inputs that have shapes and dtypes alone; None where those depend on what is drawn."""
    try:
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            return contract.more_inputs(problem, contract.distributions[0], generator)
    except Exception:  # noqa: BLE001 - a case's code, run as nobody wrote it for; drawn in earnest it says what is wrong
        return None


@dataclass(frozen=True)
class InputSource:
    """Draws one problem's inputs, from secret seeds, where the kernel will find them."""

    contract: Contract
    problem: str
    distribution: str
    secret: random.Random
    torch_device: str
    """torch's name of the device the tensors are on."""
    batch: InputBatch | None = None
    """By which many calls' inputs are drawn sooner than call by call."""
    mixed_share: float = MIXED_SHARE
    most_mixed: int = MAX_MIXED
    structure_turn: int | None = None
    """Mixed inputs all have a structure, whichever is of this turn; None: some have, drawn by chance."""

    def draw(self, generator: torch.Generator) -> Tensors:
        return self.contract.inputs(self.contract.problems[self.problem], self.distribution, generator)

    def draw_unchecked(self, generator: torch.Generator) -> Tensors:
        """As `draw`, just after which it is not checked again."""
        return self.contract.more_inputs(self.contract.problems[self.problem], self.distribution, generator)

    def generator(self) -> torch.Generator:
        """A generator nobody else can repeat."""
        return torch.Generator(self.torch_device).manual_seed(self.secret.getrandbits(62))

    def refresh(self, arena: Arena, slots: range, kept: Collection[int] = ()) -> dict[int, Tensors]:
        """New inputs in every slot, outputs poisoned; the inputs of the slots `kept`, in the judge's own memory.

        All of it is done when this returns: another process's kernels do not wait for this one's.
        """
        mixed, remembered, rest = self._mixed_slots(slots, kept), {}, slots
        donor = self._donor() if mixed else None
        while self.batch is not None and len(rest) >= self.batch.count:
            some, rest = rest[: self.batch.count], rest[self.batch.count :]
            drawn = self.batch.draw(self.secret.getrandbits(62))
            arena.fill_all(some, drawn)
            for slot in sorted(set(some).intersection({*kept, *mixed})):
                inputs = {name: rows[slot - some.start].clone() for name, rows in drawn.items()}
                if slot in mixed:
                    inputs = self._mixed(inputs, donor)
                    arena.fill(slot, inputs)
                if slot in kept:
                    remembered[slot] = inputs
        generator = self.generator()
        for slot in rest:
            inputs = self.draw(generator) if slot == rest.start else self.draw_unchecked(generator)
            if slot in mixed:
                inputs = self._mixed(inputs, donor)
            arena.fill(slot, inputs)
            if slot in kept:
                remembered[slot] = inputs
        arena.poison(slots)
        self._await_device()
        return remembered

    def _mixed(self, inputs: Tensors, donor: Tensors | None) -> Tensors:
        return self._unlike(inputs) or mix(self.contract, inputs, donor, self.secret)

    def _unlike(self, inputs: Tensors) -> Tensors | None:
        """Changed as a whole; None where it is not their turn, or where the contract has no answer to them."""
        chance = self.secret.random()
        if self.structure_turn is not None or chance < STRUCTURED_SHARE:
            return self._structured(inputs)
        if chance < STRUCTURED_SHARE + TWO_KINDS_SHARE:
            return self._of_two_distributions(inputs)
        return None

    def _structured(self, inputs: Tensors) -> Tensors | None:
        domains = self.contract.domains
        able = [name for name in changeable(self.contract, inputs) if inputs[name].dtype is not torch.uint64]
        if not able or not self._is_small():
            return None
        chance, together = self.secret.random(), None
        if chance < ENDS_SHARE:
            together = at_ends(inputs, domains, able, self.secret)
        elif chance < ENDS_SHARE + QUARTERS_SHARE:
            together = checker_all(inputs, domains, able, self.secret)
        if found := self._if_answerable(together):
            return found
        changed = structure_some(inputs, domains, able, self.secret, self.structure_turn)
        if self.secret.random() < EXCEPTION_SHARE:
            changed = except_few(self.contract, changed, inputs, self.secret)
        return self._if_answerable(changed)

    def _of_two_distributions(self, inputs: Tensors) -> Tensors | None:
        """With a donor of their own: one that many calls share would give the same inputs again."""
        donor = self._donor() if self._is_small() else None
        return self._if_answerable(donor and mix_whole(self.contract, inputs, donor, self.secret))

    def _is_small(self) -> bool:
        return self.contract.work(self.contract.problems[self.problem]).bytes <= MAX_UNLIKE_BYTES

    def _if_answerable(self, inputs: Tensors | None) -> Tensors | None:
        problem = self.contract.problems[self.problem]
        return inputs if inputs and is_answerable(self.contract, problem, inputs) else None

    def turn(self, arena: Arena, slot: int, inputs: Tensors) -> Tensors:
        """What was handed over before, with some of its values at other places, in this slot."""
        moved = self._if_answerable(turned(self.contract, inputs, self.secret)) or inputs
        arena.fill(slot, moved)
        arena.poison(range(slot, slot + 1))
        self._await_device()
        return moved

    def _mixed_slots(self, slots: range, kept: Collection[int]) -> set[int]:
        """Those whose inputs are mixed: as many whichever are kept, about half of them kept ones."""
        if not can_mix(self.contract):
            return set()
        count = min(self.most_mixed, math.floor(self.mixed_share * len(slots) + self.secret.random()))
        among = [slot for slot in kept if slot in slots]
        chosen = self.secret.sample(among, min(-(-count // 2), len(among)))
        return {*chosen, *self.secret.sample(slots, count - len(chosen))}

    def _donor(self) -> Tensors | None:
        """A draw of another distribution; None where none may be mixed in."""
        others = [name for name in self.contract.distributions if name != self.distribution]
        if self.contract.unmixed or not others:
            return None
        problem = self.contract.problems[self.problem]
        return self.contract.inputs(problem, self.secret.choice(others), self.generator())

    def _await_device(self) -> None:
        if self.torch_device.startswith("cuda"):
            torch.cuda.synchronize()

    def fill_same(self, arena: Arena, slots: range) -> None:
        """The same new inputs in every slot, outputs poisoned: for calls of which nothing is expected but to run."""
        inputs = self.draw(self.generator())
        for slot in slots:
            arena.fill(slot, inputs)
        arena.poison(slots)
        self._await_device()

    def layout(self, slots: int) -> SlotLayout:
        """Where the arrays of so many calls lie."""
        generator = torch.Generator(self.torch_device).manual_seed(0)
        sample = self.draw(generator)
        problem = self.contract.problems[self.problem]
        outputs, attributes = self.contract.outputs(problem), self.contract.attributes(problem)
        partial = self.contract.partial(problem, generator)
        return lay_out(shapes_of(sample), shapes_of(outputs), slots, attributes, partial)

    @contextmanager
    def arena(self, slots: int) -> Iterator[Arena]:
        """An arena with room for `slots` calls, closed at the end of the block."""
        arena = Arena(self.layout(slots), CudaMemory if self.torch_device.startswith("cuda") else HostMemory)
        try:
            yield arena
        finally:
            arena.close()
