"""In what order the bench gets processes ready."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

import pytest

from hillclimb.harness.duel.duel_factory import DuelFactory
from hillclimb.harness.duel.gated_problems import GatedProblems
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.errors import CandidateFault, MachineError
from hillclimb.harness.records import Reason


@dataclass
class Logged:
    """A process that writes down what becomes of it."""

    name: str
    log: list[str]
    breaks_seal: bool = False

    def await_loaded(self) -> None:
        self.log.append(f"{self.name} is loaded")

    def take_parameters(self) -> None:
        """It has none."""

    def seal(self) -> None:
        if self.breaks_seal:
            raise CandidateFault(Reason.STARTED_PROCESS, "has company")
        self.log.append(f"{self.name} is sealed")


@dataclass(frozen=True)
class Bench(DuelFactory):
    """Which compiles nothing."""

    log: list[str] = field(default_factory=list)

    def compile(
        self, sides: Sequence[tuple[int, CandidateProcess]], problems: Sequence[str], *rest: object
    ) -> None:
        self.log.append(f"{len(sides)} compile {', '.join(problems)}")

    def timed_problems(self) -> list[str]:
        return ["odd"]

    def compile_gated(
        self, candidate: object, gated: GatedProblems, watch: object, done: Iterable[str] = ()
    ) -> None:
        self.log.append("the gate's are compiled")


def prepared(**broken: bool) -> list[str]:
    bench = Bench(*(cast("object", None),) * 5)  # type: ignore[arg-type]
    pair = Logged("A", bench.log), Logged("B", bench.log, **broken)
    processes = cast(tuple[CandidateProcess, CandidateProcess], pair)
    bench.prepare_pairs([processes], lambda progress: None, (), cast(GatedProblems, object()))
    return bench.log


def test_both_sides_are_sealed_once_all_is_compiled() -> None:
    """What could still start a process when it is timed could work beside the clock."""
    assert prepared() == [
        "A is loaded",
        "2 compile odd",
        "the gate's are compiled",
        "A is sealed",
        "B is sealed",
    ]


def test_an_incumbent_that_cannot_be_sealed_is_the_machines_fault() -> None:
    with pytest.raises(MachineError):
        prepared(breaks_seal=True)
