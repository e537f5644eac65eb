"""The bench of one case: every candidate process, pair and duel is set up here."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.candidate.process import CandidateProcess, Limits
from harness.case.case import Case
from harness.case.checked import check_contract
from harness.case.contract import Contract
from harness.errors import CaseError
from harness.judge.duel import Duel, blame, clean_blocks, log_ratio, seconds_of
from harness.judge.policy import check_policy
from harness.judge.protocol import Progress, Watch
from harness.records import Block, Pair, Side
from harness.sandbox.rungs import Rung

Stage = Literal["noise", "screen", "decide", "alone", "report", "cumulative", "guardrail"]
Processes = tuple[CandidateProcess, CandidateProcess]
"""A, the candidate, and B, its opponent."""

SOLO_BLOCKS = 8
"""Blocks of single calls in every deciding pair: a few milliseconds each."""

TRUSTED_IMPORTS = frozenset({"numpy", "numba", "yaml"})
"""Imported by the runner before it gives up starting processes, which their own imports may need."""


@dataclass(frozen=True)
class Bench:
    """Raises CandidateFault for what A does, MachineError for what anything else does."""

    case: Case
    contract: Contract
    rung: Rung
    secret: random.Random

    def process(self, side: Side, *, watched: bool = False) -> CandidateProcess:
        """A fresh process of one side, its workspace's source read first; `watched` for a profile."""
        settings, budgets = self.case.settings, self.case.settings.budgets
        check_policy(Path(side.tree), settings.policy)
        limits = Limits(budgets.prepare_seconds, budgets.call_seconds, budgets.memory_mib << 20)
        preload = sorted(TRUSTED_IMPORTS & set(settings.policy.imports))
        return CandidateProcess(self.rung, side, settings.entry, preload, limits, watched=watched)

    @contextmanager
    def pair(self, candidate: Side, opponent: Side) -> Iterator[Processes]:
        """Two fresh processes importing at the same time, born in a coin's order; the opponent is loaded."""
        with ExitStack() as stack:
            born: dict[int, CandidateProcess] = {}
            for side in self.secret.sample((0, 1), 2):
                with blame(side):
                    born[side] = stack.enter_context(self.process((candidate, opponent)[side]))
            with blame(1):
                born[1].await_loaded()
            yield born[0], born[1]

    def duel(self, sides: Processes, suite: str) -> Duel:
        settings = self.case.settings
        segment, budget = settings.duel.segment_ms / 1e3, settings.gate.error_budget
        return Duel(self.contract, self.case.suites[suite], sides, segment, budget, self.secret)

    def measure(self, sides: Processes, stage: Stage, suite: str, blocks: int) -> Pair:
        """A few blocks of one suite on two loaded processes."""
        with self.duel(sides, suite) as duel:
            duel.probe()
            taken = list(clean_blocks(duel.block, blocks))
        return pair_of(stage, suite, taken)

    def deciding_pair(self, sides: Processes, blocks: int) -> tuple[Pair, Pair]:
        """The objective's suite in segments, and again call by call."""
        suite = self.case.settings.objective.suite
        with self.duel(sides, suite) as duel:
            duel.probe()
            taken = list(clean_blocks(duel.block, blocks))
            alone = [(duel.solo_block(), 0) for _ in range(SOLO_BLOCKS)]
        return pair_of("decide", suite, taken), pair_of("alone", suite, alone)

    def fresh_pairs(self, candidate: Side, opponent: Side, stage: Stage, watch: Watch) -> list[Pair]:
        """The pairs from which a speedup is reported; they decide nothing."""
        pairs: list[Pair] = []
        wanted, blocks = self.case.settings.duel.report_pairs, self.case.settings.duel.pair_blocks
        for _ in range(wanted):
            with self.pair(candidate, opponent) as sides:
                sides[0].await_loaded()
                pairs.append(self.measure(sides, stage, self.case.settings.objective.suite, blocks))
            watch(Progress(stage=stage, done=len(pairs), of=wanted, speedup=speedup_of(values_of(pairs))))
        return pairs

    def check_contract(self) -> None:
        """Raises CaseError where the contract breaks a promise, or a suite names what it does not have."""
        check_contract(self.contract, self.case.contract_file)
        self.check_suites()

    def check_suites(self) -> None:
        """Raises CaseError where a suite names what the contract does not have."""
        for name, suite in self.case.suites.items():
            file = self.case.folder / "benchmarks" / f"{name}.yaml"
            for problem in suite.problems:
                _expect_among(file, "problems", problem, list(self.contract.problems))
            _expect_among(file, "distribution", suite.distribution, list(self.contract.distributions))


def pair_of(stage: Stage, suite: str, taken: list[tuple[Block, int]]) -> Pair:
    """Blocks, and how many were dropped before each, as one record."""
    blocks, drops = zip(*taken, strict=True)
    return Pair(stage=stage, suite=suite, blocks=blocks, dropped=sum(drops))


def values_of(pairs: list[Pair]) -> list[float]:
    """Each pair's one value: the median log ratio of its blocks, which a burst of somebody else's work spoils less."""
    return [statistics.median(log_ratio(block) for block in pair.blocks) for pair in pairs]


def speedup_of(values: list[float]) -> float:
    """The geometric mean of log ratios, as a ratio."""
    return math.exp(statistics.fmean(values))


def seconds_per_call(pairs: list[Pair], letter: Literal["A", "B"]) -> float:
    """One side's, geometric mean over all blocks."""
    logs = [math.log(seconds_of(block, letter)) for pair in pairs for block in pair.blocks]
    return math.exp(statistics.fmean(logs))


def _expect_among(file: Path, key: str, value: str, offered: list[str]) -> None:
    if value not in offered:
        choices = ", ".join(offered)
        raise CaseError(file, key, f"value {value!r} is not in contract.py", f"choose among {choices}")
