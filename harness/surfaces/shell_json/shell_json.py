"""The surface shell_json: a fixed command of the case's, run once a side in fresh sandboxes, tells metrics."""

from __future__ import annotations

import os
import random
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.metrics import Command, Metric
from hillclimb.harness.case.settings import is_inside, is_unscored
from hillclimb.harness.device.device import Device
from hillclimb.harness.duel.process.conversation import SCRATCH_BYTES, OutputLog, exit_fault
from hillclimb.harness.duel.process.launch_spec import thread_variables
from hillclimb.harness.errors import CandidateFault, CaseError, IncumbentFault
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.records import Block, Environment, Reason, SegmentMetric, Side
from hillclimb.harness.sandbox.rungs.bubblewrap_process import INSIDE
from hillclimb.harness.sandbox.rungs.choose import Confinement, ExitStatus, Rung
from hillclimb.harness.surfaces.shell_json.output import read_metrics
from hillclimb.harness.surfaces.surface import CheckedSide

WORKSPACE_FROM_SCRATCH = "../workspace"
"""Of every rung: a command starts in its scratch folder, which lies beside the workspace."""

ORDERS = ("AB", "BA")


@dataclass(frozen=True)
class CommandRun:
    """One run that went well."""

    seconds: float
    """By the judge's clock, from before the start until everything that was started had ended."""
    metrics: Mapping[str, float]


class ShellJson:
    """Implements hillclimb.harness.surfaces.surface.Surface."""

    pair_blocks = 1

    def __init__(self, case: Case, rung: Rung, device: Device, secret: random.Random) -> None:
        """Raises CaseError for a program that is not there."""
        assert case.settings.command is not None
        self._command: Command = case.settings.command
        self._case, self._rung, self._device, self._secret = case, rung, device, secret
        _require_visible(case)
        self._argv = [_find_program(case, self._command.run[0]), *self._paths(self._command.run[1:])]

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return self._command.all_metrics

    def check(self, side: Side, suites: Sequence[str]) -> CheckedSide:
        for suite in suites:
            self._run(side, suite, self._draw_seed())
        return CheckedSide()

    @contextmanager
    def open_pair(self, candidate: Side, opponent: Side) -> Iterator[_SidesOfCommand]:
        yield _SidesOfCommand(self, candidate, opponent)

    def time_block(self, candidate: Side, opponent: Side, suite: str) -> Block:
        """One run of each, with the same seed, in an order drawn by lot.

        The opponent is run before each, which is not timed: what a run leaves behind in the machine's caches, or takes
        out of them, meets both sides alike.
        """
        order, seed = self._secret.choice(ORDERS), self._draw_seed()
        runs = []
        for letter in order:
            self._run_opponent(opponent, suite, self._draw_seed())
            is_candidate = letter == "A"
            runs.append(
                self._run(candidate, suite, seed)
                if is_candidate
                else self._run_opponent(opponent, suite, seed)
            )
        return Block(
            order="AB" if order == "AB" else "BA",
            seconds=tuple(run.seconds for run in runs),
            metrics=tuple(
                SegmentMetric(metric=name, values=tuple(run.metrics[name] for run in runs))
                for name in self._command.metrics
            ),
            environment=Environment(),
        )

    def _run_opponent(self, side: Side, suite: str, seed: int) -> CommandRun:
        try:
            return self._run(side, suite, seed)
        except CandidateFault as fault:
            raise IncumbentFault(f"the incumbent failed, having passed before: {fault}") from fault

    def _run(self, side: Side, suite: str, seed: int) -> CommandRun:
        """Run it in a sandbox of its own. Raises CandidateFault."""
        check_policy(Path(side.tree), self._case.settings.policy)
        with closing(OutputLog()) as log:
            began = time.perf_counter()
            confined = self._rung.spawn(
                [*self._argv, *self._paths(self._case.command_suites[suite].arguments)],
                self._confinement(side, suite, seed, log),
            )
            try:
                ended = confined.wait(self._command.seconds)
                seconds = time.perf_counter() - began
            finally:
                confined.kill()
            self._require_good_end(ended, log)
            return CommandRun(seconds, read_metrics(log.written(), self._command.metrics))

    def _require_good_end(self, ended: ExitStatus | None, log: OutputLog) -> None:
        said = f"; it printed: {log.tail().strip()[-500:]}" if log.tail().strip() else ""
        if log.is_full:
            raise CandidateFault(Reason.FLOODED_OUTPUT, f"the command printed too much{said}")
        if ended is None:
            raise CandidateFault(Reason.HUNG, f"the command did not end in {self._command.seconds:g} s{said}")
        if ended.signal is not None:
            reason, detail = exit_fault(ended)
            raise CandidateFault(reason, f"the command {detail}{said}")
        if ended.code != 0:
            raise CandidateFault(Reason.RAISED, f"the command ended with status {ended.code}{said}")

    def _confinement(self, side: Side, suite: str, seed: int, log: OutputLog) -> Confinement:
        return Confinement(
            workspace=Path(side.tree),
            memory_bytes=self._case.settings.budgets.memory_mib << 20,
            scratch_bytes=SCRATCH_BYTES,
            environment={
                **thread_variables(),
                **self._device.variables(),
                **side.knobs,
                "HILLCLIMB_WORKSPACE": WORKSPACE_FROM_SCRATCH,
                "HILLCLIMB_SUITE": suite,
                "HILLCLIMB_SEED": str(seed),
            },
            output=log.descriptor,
            devices=self._device.nodes(),
            readable=_fixed_places(self._case),
        )

    def _paths(self, words: tuple[str, ...]) -> list[str]:
        """Words of the command line, with full paths of those that name what the case has."""
        return [str(self._case.folder / word) if _is_of_case(self._case, word) else word for word in words]

    def _draw_seed(self) -> int:
        return self._secret.getrandbits(31)


@dataclass(frozen=True)
class _SidesOfCommand:
    """Implements hillclimb.harness.surfaces.surface.OpenPair: every run is a process of its own anyway."""

    surface: ShellJson
    candidate: Side
    opponent: Side

    def time_block(self, suite: str) -> Block:
        return self.surface.time_block(self.candidate, self.opponent, suite)


def _find_program(case: Case, name: str) -> str:
    """Its path. Raises CaseError where it is not there, or cannot be run."""
    if name == "python":
        return sys.executable
    program = str(case.folder / name) if _is_of_case(case, name) else shutil.which(name)
    remedy = "install it, or name a file of the case"
    if program is None:
        problem = f"value {name!r}: there is no such program, and no such file of the case"
    elif not os.access(program, os.X_OK):
        problem, remedy = f"value {name!r}: {program} cannot be run", "make it executable"
    else:
        return program
    raise CaseError(case.folder / "case.yaml", "command.run", problem, remedy)


def _is_of_case(case: Case, word: str) -> bool:
    """Whether it names a file or folder of the case, the workspace apart; it may be any text."""
    parts = PurePosixPath(word).parts
    if not parts or parts[0] == "workspace" or not is_inside(PurePosixPath(word)):
        return False
    try:
        return (case.folder / word).exists()
    except OSError:  # longer than any name
        return False


def _require_visible(case: Case) -> None:
    """Raises CaseError for a case where a sandbox has something of its own."""
    for place in (INSIDE.workspace, INSIDE.scratch, INSIDE.python_path, "/proc", "/dev"):
        if case.folder.is_relative_to(place):
            problem = f"is below {place}, where a sandbox has its own"
            raise CaseError(case.folder, "", problem, "put the case elsewhere")


def _fixed_places(case: Case) -> tuple[Path, ...]:
    """What lies in the case's folder beside the workspace, and is part of the case."""
    entries = sorted(case.folder.iterdir())
    return tuple(path for path in entries if not is_unscored(path.relative_to(case.folder)))
