"""A vendor's tool over one side's kernel, in a sandbox of its own: set up, run within a limit, heard out.

The tool and the candidate share that sandbox, so the candidate could write into the tool's log or end the tool. What
such a run finds is for honest kernels: nothing is ever kept because of it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from shutil import which

import torch

from hillclimb.harness.duel.inputs import InputSource
from hillclimb.harness.errors import MachineError
from hillclimb.harness.profile.problem_writer import ProblemDraft, write_problem_pack
from hillclimb.harness.sandbox import interpreter
from hillclimb.harness.sandbox.rungs.bubblewrap_process import INSIDE
from hillclimb.harness.sandbox.rungs.choose import Confinement, ExitStatus, Rung

MAX_LOG_BYTES = 4 << 20
"""Bytes of a log that are read."""

MAX_PROBLEM_BYTES = 256 << 20
"""Bytes of inputs and outputs; tools slow a kernel down a hundredfold and more, and keep copies of its memory."""

ToolCommand = Callable[[str], list[str]]
"""The tool's own command line, given the file that it shall write to; the kernel's is put after it."""


@dataclass(frozen=True)
class ToolOutput:
    """How a run ended, and what was left of it."""

    exit: ExitStatus | None
    """None where it was ended because its time was up."""
    log: str
    """The tool's."""
    printed: str
    """By the tool's other half and by the kernel's process."""
    problems_run: tuple[str, ...]
    """Problems the kernel's process says it is done with."""
    seconds: float


@dataclass(frozen=True)
class ToolSandbox:
    """Where one side's kernel is run under a tool.

    `confinement` names its workspace, memory and device nodes, and its knobs among the environment.
    """

    rung: Rung
    confinement: Confinement
    entry: str
    device: str
    """torch's name of the device the tensors are on: cuda, or cpu where kernels are interpreted."""
    parameters: Mapping[str, torch.Tensor] = field(default_factory=dict)
    """What the entry is called with, if there are some."""

    def run(self, command: ToolCommand, drafts: Sequence[ProblemDraft], seconds: float) -> ToolOutput:
        """Run the tool over the drafts, in their order. Raises MachineError where the sandbox fails."""
        log, printed = os.memfd_create("hillclimb-log"), os.memfd_create("hillclimb-printed")
        try:
            with write_problem_pack(drafts, self.device, seconds, self.parameters) as pack:
                started = time.monotonic()
                ending = self._run(command(f"/proc/self/fd/{log}"), (log, pack), printed, seconds)
            told = _read(printed)
            called = _problems_run(told, {draft.problem for draft in drafts})
            return ToolOutput(ending, _read(log), told, called, time.monotonic() - started)
        except OSError as error:
            raise MachineError(f"no run under a tool could be set up: {error}; is memory short?") from error
        finally:
            os.close(log)
            os.close(printed)

    def _run(
        self, command: list[str], descriptors: tuple[int, int], printed: int, seconds: float
    ) -> ExitStatus | None:
        """How it ended; None where it had to be ended."""
        program = [sys.executable, "-m", "hillclimb.harness.candidate.tool_run"]
        confined = self.rung.spawn(
            [*command, *program, INSIDE.workspace, self.entry, str(descriptors[1])],
            replace(
                self.confinement,
                descriptors=descriptors,
                output=printed,
                tools=True,
                readable=(*self.confinement.readable, *_installation(Path(command[0]))),
            ),
        )
        try:
            return confined.wait(seconds)
        finally:
            confined.kill()


def draft_problem(source: InputSource) -> ProblemDraft:
    """One problem with fresh inputs, for a run under a tool."""
    problem = source.contract.problems[source.problem]
    work = source.contract.work(problem)
    return ProblemDraft(
        problem=source.problem,
        weight=float(work.bytes + work.flops),
        inputs=source.draw(source.generator()),
        outputs=source.contract.outputs(problem),
        attributes=source.contract.attributes(problem),
    )


def draft_problems(sources: Sequence[InputSource]) -> tuple[list[ProblemDraft], list[str]]:
    """What can be run, lightest first, and the names of the problems that are too large for it."""
    fitting, large = [], []
    for source in sources:
        drafted = draft_problem(source)
        if _bytes(drafted) <= MAX_PROBLEM_BYTES:
            fitting.append(drafted)
        else:
            large.append(source.problem)
    return sorted(fitting, key=lambda one: one.weight), large


def find_program(name: str, places: Sequence[str]) -> Path | None:
    """A vendor's program on the PATH, or the newest of those that match one of the places' patterns."""
    if found := which(name):
        return Path(found)
    for place in places:
        root = Path(place).anchor
        matching = sorted(
            path for path in Path(root).glob(str(Path(place).relative_to(root))) if path.is_file()
        )
        if matching:
            return matching[-1]
    return None


def _installation(program: Path) -> tuple[Path, ...]:
    """The folder above a program's own, where the rest of the tool lies, unless every sandbox shows the program."""
    if not program.is_file():
        return ()
    found = program.resolve()
    if any(found.is_relative_to(outer.resolve()) for outer in interpreter.readable_paths()):
        return ()
    return (found.parent.parent,)


def _bytes(one: ProblemDraft) -> int:
    inputs = sum(tensor.numel() * tensor.element_size() for tensor in one.inputs.values())
    return inputs + sum(prod(spec.shape) * spec.dtype.itemsize for spec in one.outputs.values())


def _read(descriptor: int) -> str:
    return os.pread(descriptor, MAX_LOG_BYTES, 0).decode(errors="replace")


def _problems_run(printed: str, known: Collection[str]) -> tuple[str, ...]:
    """Names of known problems out of the lines that the program prints; each once."""
    found: dict[str, None] = {}
    for line in printed.splitlines():
        if line.startswith('{"called": '):
            try:
                name = json.loads(line).get("called")
            except (ValueError, RecursionError):
                continue
            if isinstance(name, str) and name in known:
                found[name] = None
    return tuple(found)
