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
from harness.case.contract import Contract, Problem, Tensors
from harness.judge.batches import Batch


def signature_of_problem(contract: Contract, name: str, place: str, *, is_run: bool = True) -> Signature:
    """What every call of one problem is handed; of one that is not run, nothing is drawn if it can be told without."""
    problem, generator = contract.problems[name], torch.Generator(place).manual_seed(0)
    inputs = None if is_run else _without_contents(contract, problem, generator)
    if inputs is None:
        inputs = contract.inputs(problem, contract.distributions[0], generator)
    arrays = [*shapes_of(inputs), *shapes_of(contract.outputs(problem))]
    return Signature(arrays, contract.attributes(problem))


def _without_contents(contract: Contract, problem: Problem, generator: torch.Generator) -> Tensors | None:
    """Inputs that have shapes and dtypes alone; None where those depend on what is drawn."""
    try:
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode():
            return contract.more_inputs(problem, contract.distributions[0], generator)
    except Exception:  # noqa: BLE001 - a case's code, run as nobody wrote it for; drawn in earnest it says what is wrong
        return None


@dataclass(frozen=True)
class Source:
    """Draws one problem's inputs, from secret seeds, where the kernel will find them."""

    contract: Contract
    problem: str
    distribution: str
    secret: random.Random
    place: str
    """torch's name of the device the tensors are on."""
    batch: Batch | None = None
    """By which many calls' inputs are drawn sooner than call by call."""

    def draw(self, generator: torch.Generator) -> Tensors:
        return self.contract.inputs(self.contract.problems[self.problem], self.distribution, generator)

    def draw_more(self, generator: torch.Generator) -> Tensors:
        """As `draw`, just after which it is not checked again."""
        return self.contract.more_inputs(self.contract.problems[self.problem], self.distribution, generator)

    def generator(self) -> torch.Generator:
        """A generator nobody else can repeat."""
        return torch.Generator(self.place).manual_seed(self.secret.getrandbits(62))

    def refresh(self, arena: Arena, slots: range, kept: Collection[int] = ()) -> dict[int, Tensors]:
        """New inputs in every slot, outputs poisoned; the inputs of the slots `kept`, in the judge's own memory.

        All of it is done when this returns: another process's kernels do not wait for this one's.
        """
        remembered, rest = {}, slots
        while self.batch is not None and len(rest) >= self.batch.count:
            some, rest = rest[: self.batch.count], rest[self.batch.count :]
            drawn = self.batch.draw(self.secret.getrandbits(62))
            arena.fill_all(some, drawn)
            for slot in sorted(set(some).intersection(kept)):
                remembered[slot] = {name: rows[slot - some.start].clone() for name, rows in drawn.items()}
        generator = self.generator()
        for slot in rest:
            inputs = self.draw(generator) if slot == rest.start else self.draw_more(generator)
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
