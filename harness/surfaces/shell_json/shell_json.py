"""The surface shell_json: a fixed command of the case's, run once a side in fresh sandboxes, tells metrics."""

from __future__ import annotations

import random
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.command import Command, Metric
from hillclimb.harness.case.settings import is_unscored
from hillclimb.harness.device.device import Device
from hillclimb.harness.duel.process.conversation import SCRATCH_BYTES, OutputLog, exit_fault
from hillclimb.harness.duel.process.launch_spec import thread_variables
from hillclimb.harness.errors import CandidateFault, CaseError, IncumbentFault
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.records import Block, Environment, Reason, SegmentMetric, Side
from hillclimb.harness.sandbox.rungs.choose import Confinement, ExitStatus, Rung
from hillclimb.harness.surfaces.shell_json.output import read_metrics

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
        self._argv = _resolve(case, self._command.run)

    @property
    def metrics(self) -> Mapping[str, Metric]:
        return self._command.all_metrics

    def check(self, side: Side, suite: str) -> None:
        self._run(side, suite, self._draw_seed())

    @contextmanager
    def open_pair(self, candidate: Side, opponent: Side) -> Iterator[_SidesOfCommand]:
        yield _SidesOfCommand(self, candidate, opponent)

    def time_block(self, candidate: Side, opponent: Side, suite: str) -> Block:
        """One run of each, with the same seed, in an order drawn by lot."""
        order, seed = self._secret.choice(ORDERS), self._draw_seed()
        runs = [
            self._run(candidate, suite, seed) if letter == "A" else self._run_opponent(opponent, suite, seed)
            for letter in order
        ]
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
                [*self._argv, *self._case.command_suites[suite].arguments],
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


def _resolve(case: Case, words: tuple[str, ...]) -> list[str]:
    """The command line, with full paths of its program and of the case's files."""
    program = sys.executable if words[0] == "python" else shutil.which(words[0])
    own = case.folder / words[0]
    if own.is_file():
        program = str(own)
    if program is None:
        problem = f"value {words[0]!r}: there is no such program, and no such file of the case"
        raise CaseError(
            case.folder / "case.yaml", "command.run", problem, "install it, or name a file of the case"
        )
    rest = (str(case.folder / word) if (case.folder / word).is_file() else word for word in words[1:])
    return [program, *rest]


def _fixed_places(case: Case) -> tuple[Path, ...]:
    """What lies in the case's folder beside the workspace, and is part of the case."""
    entries = sorted(case.folder.iterdir())
    return tuple(path for path in entries if not is_unscored(path.relative_to(case.folder)))
