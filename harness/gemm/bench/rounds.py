"""One shape, timed: every kernel of every provider is checked and looked at once, and the best of each meet in rounds.

In a round all finalists are timed in an order that is drawn anew, so a clock that drifts meets all alike. Who is in the
rounds was chosen by other times than theirs, so a lucky look wins nothing.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import comb

from hillclimb.harness.gemm.bench.messages import WorkerAnswer
from hillclimb.harness.gemm.bench.remote import ProviderProcess
from hillclimb.harness.gemm.results import FailureStatus, Product
from hillclimb.harness.records.record import Record

Entrant = tuple[str, str]
"""Provider and kernel."""

WHOLE_NEAR = 2.0
REFINEMENTS = 2
"""Times that a provider is asked for more near its best kernels."""

MAX_HANGS = 3
"""Of a provider's kernels for one shape, each of which costs a minute and a new process."""


class BenchPlan(Record):
    """How a shape is timed."""

    rounds: int = 13
    """Half of them choose the best of a provider's finalists, and the others tell its time."""
    finalists: int = 3
    """Of each provider."""
    near: float = 1.1
    """How many times the provider's best time a finalist may take."""
    whole: str = ""
    """Provider all of whose kernels are finalists, but for those that take twice as long as its best."""
    calls: int = 0
    """In one graph; 0 for as many as take long enough."""
    operand_sets: int = 0
    """0 for as many as do not fit into the cache."""
    pdl: bool = True
    """Whether generated kernels may begin while the one before them ends."""


class KernelTimes(Record):
    """One finalist."""

    provider: str
    kernel: str
    seconds: tuple[float, ...]
    """Of one call, by round."""


class KernelFault(Record):
    """One that is not among them. Without a kernel: the provider as a whole."""

    provider: str
    kernel: str = ""
    status: FailureStatus
    reason: str


class GpuReading(Record):
    """What the driver said during the rounds, the median of each; None where it does not tell."""

    sm_mhz: float | None = None
    memory_mhz: float | None = None
    watts: float | None = None
    celsius: float | None = None


class ShapeTimes(Record):
    """All of one shape."""

    product: Product
    looks: dict[str, dict[str, float]]
    """By provider and kernel, the seconds of those that were right, timed once."""
    times: tuple[KernelTimes, ...]
    control: KernelTimes | None
    """One of them, timed in the same rounds a second time: what two equal kernels differ by."""
    faults: tuple[KernelFault, ...]
    gpu: GpuReading


ReadGpu = Callable[[], GpuReading]


@dataclass
class ShapeBench:
    """One shape on its way."""

    product: Product
    processes: Mapping[str, ProviderProcess]
    plan: BenchPlan
    read_gpu: ReadGpu
    order: random.Random
    watch: Callable[[str], None] = lambda _: None
    _faults: list[KernelFault] = field(default_factory=list)
    _hangs: Counter[str] = field(default_factory=Counter)
    """By provider, kernels that were waited for in vain."""

    def run(self) -> ShapeTimes:
        """Looks, rounds, and a last check of what was timed."""
        looks = {name: self._look(process) for name, process in self.processes.items()}
        finalists = [(name, kernel) for name, look in looks.items() for kernel in self._entering(name, look)]
        samples, control, readings = self._rounds(finalists)
        for entrant in list(samples):
            if not self._is_right(entrant):
                del samples[entrant]
        times = [_kernel_times(entrant, seconds) for entrant, seconds in samples.items()]
        is_controlled = bool(finalists) and finalists[0] in samples
        return ShapeTimes(
            product=self.product,
            looks=looks,
            times=tuple(times),
            control=_kernel_times(finalists[0], control) if is_controlled else None,
            faults=tuple(self._faults),
            gpu=_median_reading(readings),
        )

    def _look(self, process: ProviderProcess) -> dict[str, float]:
        """Seconds of every kernel that is right."""
        answer = process.prepare(self.product, self.plan.operand_sets)
        if answer.fault:
            self._blame((process.name, ""), answer.fault, answer.detail)
            return {}
        seconds, tried = self._look_at(process, answer.kernels), set(answer.kernels)
        for _ in range(REFINEMENTS):
            best = self._finalists(seconds)
            if best and self._hangs[process.name] < MAX_HANGS:
                answer = process.refine(best)
                self._note((process.name, ""), answer)
                further = [kernel for kernel in answer.kernels if kernel not in tried]
                seconds |= self._look_at(process, further)
                tried.update(further)
        return seconds

    def _look_at(self, process: ProviderProcess, kernels: Sequence[str]) -> dict[str, float]:
        seconds = {}
        for at, kernel in enumerate(kernels):
            if self._hangs[process.name] == MAX_HANGS:
                why = f"{MAX_HANGS} of its kernels did not end; {len(kernels) - at} were not tried"
                self._blame((process.name, ""), "timed_out", why)
                break
            self.watch(f"{process.name}: {at} of {len(kernels)} kernels")
            if self._is_right((process.name, kernel)):
                found = self._time((process.name, kernel))
                if found:
                    seconds[kernel] = found
        return seconds

    def _entering(self, provider: str, look: Mapping[str, float]) -> list[str]:
        return _nearest(look, WHOLE_NEAR) if provider == self.plan.whole else self._finalists(look)

    def _finalists(self, look: Mapping[str, float]) -> list[str]:
        return _nearest(look, self.plan.near)[: self.plan.finalists]

    def _rounds(
        self, finalists: list[Entrant]
    ) -> tuple[dict[Entrant, list[float]], list[float], list[GpuReading]]:
        """Their times, and those of the first of them once more."""
        samples: dict[Entrant, list[float]] = {entrant: [] for entrant in finalists}
        control, readings = list[float](), list[GpuReading]()
        for number in range(self.plan.rounds):
            self.watch(f"round {number + 1} of {self.plan.rounds}")
            order = list(samples.items())
            order += [(entrant, control) for entrant in finalists[:1]]
            self.order.shuffle(order)
            for entrant, seconds in order:
                if entrant not in samples:
                    continue
                found = self._time(entrant)
                if found:
                    seconds.append(found)
                    readings.append(self.read_gpu())
                else:
                    del samples[entrant]
        return samples, control, readings

    def _is_right(self, entrant: Entrant) -> bool:
        answer = self.processes[entrant[0]].ask("check", entrant[1])
        self._note(entrant, answer)
        return answer.fault is None

    def _time(self, entrant: Entrant) -> float | None:
        answer = self.processes[entrant[0]].ask("time", entrant[1], self.plan.calls)
        self._note(entrant, answer)
        return None if answer.fault else answer.seconds

    def _note(self, entrant: Entrant, answer: WorkerAnswer) -> None:
        if answer.fault:
            self._blame(entrant, answer.fault, answer.detail)
        if answer.fault == "timed_out" and answer.is_broken:
            self._hangs[entrant[0]] += 1

    def _blame(self, entrant: Entrant, status: FailureStatus, reason: str) -> None:
        provider, kernel = entrant
        self._faults.append(KernelFault(provider=provider, kernel=kernel, status=status, reason=reason))


def _nearest(look: Mapping[str, float], near: float) -> list[str]:
    """Those that take at most so many times the best time, the best first."""
    best = min(look.values(), default=0.0)
    return sorted(
        (kernel for kernel, seconds in look.items() if seconds <= near * best), key=look.__getitem__
    )


def _kernel_times(entrant: Entrant, seconds: list[float]) -> KernelTimes:
    return KernelTimes(provider=entrant[0], kernel=entrant[1], seconds=tuple(seconds))


def median_interval(values: tuple[float, ...], confidence: float = 0.95) -> tuple[float, float, float]:
    """Median, and the order statistics between which the true one lies with this confidence, whatever the distribution.

    Of fewer than six values no two do, and the ends are taken.
    """
    ordered = sorted(values)
    n = len(ordered)
    left_out = 0
    while (
        sum(comb(n, k) for k in range(left_out + 2)) / 2**n <= (1 - confidence) / 2 and left_out < n // 2 - 1
    ):
        left_out += 1
    return statistics.median(ordered), ordered[left_out], ordered[n - 1 - left_out]


def _median_reading(readings: list[GpuReading]) -> GpuReading:
    fields = {}
    for name in GpuReading.model_fields:
        known = [value for one in readings if (value := getattr(one, name)) is not None]
        fields[name] = statistics.median(known) if known else None
    return GpuReading(**fields)
