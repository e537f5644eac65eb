"""Fresh inputs for call slots: what a candidate is handed was never seen by it before."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch

from harness.candidate.arena import Arena, shapes_of
from harness.candidate.layout import Layout, Signature, lay_out
from harness.candidate.memory import CudaMemory, HostMemory
from harness.case.contract import Contract, Tensors


def signature_of_problem(contract: Contract, name: str, place: str) -> Signature:
    """What every call of one problem is handed."""
    problem, generator = contract.problems[name], torch.Generator(place).manual_seed(0)
    inputs = contract.inputs(problem, contract.distributions[0], generator)
    arrays = [*shapes_of(inputs), *shapes_of(contract.outputs(problem))]
    return Signature(arrays, contract.attributes(problem))


@dataclass(frozen=True)
class Source:
    """Draws one problem's inputs, from secret seeds, where the kernel will find them."""

    contract: Contract
    problem: str
    distribution: str
    secret: random.Random
    place: str
    """torch's name of the device the tensors are on."""

    def draw(self, generator: torch.Generator) -> Tensors:
        return self.contract.inputs(self.contract.problems[self.problem], self.distribution, generator)

    def generator(self) -> torch.Generator:
        """A generator nobody else can repeat."""
        return torch.Generator(self.place).manual_seed(self.secret.getrandbits(62))

    def refresh(self, arena: Arena, slots: range, kept: Collection[int] = ()) -> dict[int, Tensors]:
        """New inputs in every slot, outputs poisoned; the inputs of the slots `kept`, in the judge's own memory.

        All of it is done when this returns: another process's kernels do not wait for this one's.
        """
        generator, remembered = self.generator(), {}
        problem = self.contract.problems[self.problem]
        for slot in slots:
            if slot == slots.start:
                inputs = self.draw(generator)
            else:
                inputs = self.contract.more_inputs(problem, self.distribution, generator)
            arena.fill(slot, inputs)
            if slot in kept:
                remembered[slot] = inputs
        arena.poison(slots)
        self._await_device()
        return remembered

    def _await_device(self) -> None:
        if self.place.startswith("cuda"):
            torch.cuda.synchronize()

    def repeat(self, arena: Arena, slots: range) -> None:
        """The same new inputs in every slot, outputs poisoned: for calls of which nothing is expected but to run."""
        inputs = self.draw(self.generator())
        for slot in slots:
            arena.fill(slot, inputs)
        arena.poison(slots)
        self._await_device()

    def layout(self, slots: int) -> Layout:
        """Where the arrays of so many calls lie."""
        sample = self.draw(torch.Generator(self.place).manual_seed(0))
        problem = self.contract.problems[self.problem]
        outputs, attributes = self.contract.outputs(problem), self.contract.attributes(problem)
        return lay_out(shapes_of(sample), shapes_of(outputs), slots, attributes)

    @contextmanager
    def arena(self, slots: int) -> Iterator[Arena]:
        """An arena with room for `slots` calls, closed at the end of the block."""
        arena = Arena(self.layout(slots), CudaMemory if self.place.startswith("cuda") else HostMemory)
        try:
            yield arena
        finally:
            arena.close()
