"""Duels whose times are drawn: the real trials over simulated samples, of which it is known what is true."""

from __future__ import annotations

import math
import random
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.contract import Contract
from hillclimb.harness.case.settings import Settings
from hillclimb.harness.device.cpu.cpu import CpuDevice
from hillclimb.harness.duel.duel import ORDERS, CleanBlock, InterleavedDuel
from hillclimb.harness.duel.duel_factory import DuelFactory, Processes
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.duel.process.launcher import CandidateLauncher
from hillclimb.harness.records import Block, Side, Watch
from hillclimb.harness.records.timing import Environment

SECONDS = 1e-3
"""One call of the opponent."""

WALL_SHARE = 0.02
"""What only the judge's clock sees of a segment, as a share of its events."""


@dataclass(frozen=True)
class Truth:
    """How fast the candidate really is, and how much times scatter."""

    speedups: Mapping[str, float] = field(default_factory=lambda: {"main": 1.0})
    """Of each suite."""
    per_call: float | None = None
    """Speedup where each call is timed alone; None: as in segments."""
    claimed: float | None = None
    """Speedup by device events, which the judge's clock does not bear out; None: there are no events."""
    process_scatter: float = 0.005
    """Standard deviation of the log of what a process's whole life is slower or faster by."""
    segment_scatter: float = 0.01
    """The same of one segment."""
    slow_share: float = 0.0
    """Share of the candidate's segments that take ten times as long."""


class DrawnProcess:
    """One life of one side."""

    def __init__(self, offset: float) -> None:
        self.offset = offset

    def require_alone(self) -> None:
        """It leaves nothing running."""


class DrawnDuel:
    """What a trial asks of an InterleavedDuel, without a process."""

    def __init__(self, truth: Truth, suite: str, sides: Processes, rng: random.Random) -> None:
        self._truth, self._suite, self._rng = truth, suite, rng
        self._offsets = [cast(DrawnProcess, side).offset for side in sides]

    def __enter__(self) -> DrawnDuel:
        return self

    def __exit__(self, *exc: object) -> None:
        pass

    def size_segments(self) -> float:
        return self._truth.speedups[self._suite]

    def prepare_segments(self) -> None:
        pass

    def check_distributions(self, distributions: Iterable[str]) -> None:
        list(distributions)

    def time_block(self) -> Block:
        return self._block(self._truth.speedups[self._suite])

    def time_solo_block(self) -> Block:
        return self._block(self._truth.per_call or self._truth.speedups[self._suite])

    def _block(self, speedup: float) -> Block:
        order = self._rng.choice(ORDERS)
        seconds = [self._segment(letter, speedup) for letter in order]
        if self._truth.claimed is None:
            return Block(order=order, seconds=cast(Any, tuple(seconds)), environment=Environment())
        events = tuple(self._segment(letter, self._truth.claimed) for letter in order)
        walls = tuple((1 + WALL_SHARE) * s for s in seconds)
        return Block(order=order, seconds=cast(Any, walls), events=cast(Any, events), whole=cast(Any, walls))

    def _segment(self, letter: str, speedup: float) -> float:
        noise = self._offsets["AB".index(letter)] + self._rng.gauss(0, self._truth.segment_scatter)
        if letter == "B":
            return SECONDS * math.exp(noise)
        slow = 10 if self._rng.random() < self._truth.slow_share else 1
        return slow * SECONDS / speedup * math.exp(noise)


@dataclass(frozen=True)
class DrawnDuels(DuelFactory):
    """The real bench, but for the processes and what a block takes."""

    truth: Truth = field(default_factory=Truth)

    @contextmanager
    def spawn_pair(self, candidate: Side, opponent: Side) -> Iterator[Processes]:
        yield self._pair()

    def prepared_pairs(
        self, candidate: Side, opponent: Side, most: int, watch: Watch, **others: object
    ) -> Generator[Processes, None, None]:
        for _ in range(most):
            yield self._pair()

    def new_duel(self, sides: Processes, suite: str) -> InterleavedDuel:
        return cast(InterleavedDuel, DrawnDuel(self.truth, suite, sides, self.secret))

    def new_comparison(self, sides: Processes, suite: str) -> InterleavedDuel:
        return self.new_duel(sides, suite)

    def new_screening_duel(self, sides: Processes, suite: str) -> InterleavedDuel:
        return self.new_duel(sides, suite)

    def clean_blocks(self, duel: InterleavedDuel, count: int) -> Iterator[CleanBlock]:
        return ((duel.time_block(), []) for _ in range(count))

    def _pair(self) -> Processes:
        a, b = (DrawnProcess(self.secret.gauss(0, self.truth.process_scatter)) for _ in range(2))
        return cast(CandidateProcess, a), cast(CandidateProcess, b)


def drawn_duels(truth: Truth, settings: Settings, seed: int) -> DrawnDuels:
    """A bench of a case of these settings, whose every draw hangs on the seed."""
    launcher = SimpleNamespace(precompile=lambda side: None)
    return DrawnDuels(
        case=cast(Case, SimpleNamespace(settings=settings, suites=_suites(settings))),
        contract=cast(Contract, SimpleNamespace(distributions=("normal", "mixed"))),
        launcher=cast(CandidateLauncher, launcher),
        device=CpuDevice(),
        secret=random.Random(seed),
        truth=truth,
    )


def _suites(settings: Settings) -> dict[str, Any]:
    names: Sequence[str] = (settings.objective.suite, *(g.suite for g in settings.guardrails))
    return {name: SimpleNamespace(problems=("odd",), distribution="normal") for name in names}
