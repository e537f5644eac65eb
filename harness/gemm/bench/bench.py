"""Many shapes, timed: each shape has a file, so what stopped a bench costs the shape that it was at.

Providers run in processes of their own on one GPU, which is held against others while they do.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import Distribution
from pathlib import Path
from statistics import median
from typing import Literal

from pydantic import Field, ValidationError

from hillclimb.harness.device.gpu.guard import acquire_gpu
from hillclimb.harness.device.gpu.nvml import Nvml
from hillclimb.harness.device.gpu.state_files import shared_folder
from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.bench.remote import ProviderProcess
from hillclimb.harness.gemm.bench.rounds import (
    BenchPlan,
    GpuReading,
    ReadGpu,
    ShapeBench,
    ShapeTimes,
    median_interval,
)
from hillclimb.harness.gemm.folder import claim, locked, write
from hillclimb.harness.gemm.generator.catalog import catalog_folders, read_catalogs
from hillclimb.harness.gemm.results import (
    GENERATED,
    Failed,
    GpuCard,
    Measured,
    Product,
    ProviderResults,
    beyond_card,
)
from hillclimb.harness.gemm.shape import GemmShape
from hillclimb.harness.records.record import Record
from hillclimb.harness.wording import suggestion

WORKER = "hillclimb.harness.gemm.providers.worker"
PROVIDERS = ("cublas", "cublaslt", "triton", "cute_dsl", GENERATED)
"""Those that this lab has; cublas is what torch calls."""


class BenchSettings(Record):
    """What all times of one folder have in common."""

    schema_version: Literal[3] = Field(3, alias="schema")
    gpu: GpuCard
    plan: BenchPlan
    software: dict[str, dict[str, str]]
    """By provider."""


@dataclass(frozen=True)
class HeldGpu:
    """One GPU that this process has for itself."""

    card: GpuCard
    uuid: str
    read: ReadGpu


@contextmanager
def held_gpu() -> Iterator[HeldGpu]:
    """The GPU that the environment names, or the idlest.

    Raises UsageError where there is none, MachineError where none may be had.
    """
    nvml = Nvml()
    try:
        hold = acquire_gpu(nvml, os.environ, shared_folder())
        try:
            uuid = hold.gpu.uuid
            card = GpuCard(name=hold.gpu.name, driver=nvml.driver())

            def read() -> GpuReading:
                sample = nvml.sample(uuid)
                return GpuReading(
                    sm_mhz=sample.sm_mhz,
                    memory_mhz=sample.memory_mhz,
                    watts=sample.watts,
                    celsius=sample.celsius,
                )

            yield HeldGpu(card, uuid, read)
        finally:
            hold.lock.close()
    finally:
        nvml.close()


def providers_there(kernels: Path) -> list[str]:
    """Those whose kernels are installed, or generated in that folder."""
    absent = set() if any(Distribution.discover(name="quack-kernels")) else {"cute_dsl"}
    if not catalog_folders(kernels):
        absent.add(GENERATED)
    return [name for name in PROVIDERS if name not in absent]


def worker_command(provider: str, kernels: Path, only: Sequence[str] = (), *, pdl: bool = True) -> list[str]:
    """Of its process; `kernels` is the folder of generated ones, of which it may take `only` some.

    Without `pdl` none of these begins before the one before it has ended.

    Raises UsageError for a provider that nobody knows, or where there are no such kernels.
    """
    if provider not in PROVIDERS:
        raise UsageError(f"provider {provider}: {suggestion(provider, PROVIDERS)}")
    command = [sys.executable, "-m", WORKER, provider]
    if provider == GENERATED:
        read_catalogs(kernels)
        command += [str(kernels), *([] if pdl else ["--no-pdl"]), *only]
    return command


class Bench:
    """One folder's bench, of these providers."""

    def __init__(
        self,
        folder: Path,
        commands: Mapping[str, Sequence[str]],
        gpu: HeldGpu,
        plan: BenchPlan,
        seconds_each: float = 60.0,
    ) -> None:
        """Starts every provider's process. `seconds_each` are those after which a kernel counts as hanging.

        Raises UsageError for a folder that is of other providers, another card or another plan.
        """
        self.folder, self.gpu, self.plan = folder, gpu, plan
        folder.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, "CUDA_VISIBLE_DEVICES": gpu.uuid}
        self.processes: dict[str, ProviderProcess] = {}
        try:
            for name, command in commands.items():
                log = folder / f"{name}.log"
                self.processes[name] = ProviderProcess(name, command, environment, log, seconds_each)
            software = {name: process.software for name, process in self.processes.items()}
            self.settings = BenchSettings(schema=3, gpu=gpu.card, plan=plan, software=software)
            claim(folder, "bench.json", self.settings)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the processes."""
        for process in self.processes.values():
            process.close()

    def run(
        self, shapes: Sequence[GemmShape], budget: float, watch: Callable[[GemmShape, str], None]
    ) -> list[GemmShape]:
        """Times those that have no file yet, and returns those that are left when so many seconds are over."""
        until = time.monotonic() + budget
        with locked(self.folder):
            for at, shape in enumerate(shapes):
                if self.find(shape) is not None:
                    continue
                if time.monotonic() >= until:
                    return [one for one in shapes[at:] if self.find(one) is None]
                found = self._time(shape, watch)
                write(self._file(shape), found.model_dump_json(indent=1) + "\n")
        return []

    def find(self, shape: GemmShape) -> ShapeTimes | None:
        """What is kept of it."""
        try:
            return ShapeTimes.model_validate_json(self._file(shape).read_bytes())
        except (OSError, ValidationError):
            return None

    def control(self, shapes: Sequence[GemmShape]) -> dict[GemmShape, float]:
        """How many times as long the same kernel took where it was timed twice."""
        found = {}
        for shape in shapes:
            times = self.find(shape)
            if times and times.control:
                entrant = (times.control.provider, times.control.kernel)
                first = next(one for one in times.times if (one.provider, one.kernel) == entrant)
                found[shape] = median(times.control.seconds) / median(first.seconds)
        return found

    def write_results(self, shapes: Sequence[GemmShape]) -> list[Path]:
        """A file for each provider, of those of these shapes that were timed."""
        found = [(shape, times) for shape in shapes if (times := self.find(shape))]
        paths = []
        for provider in self.processes:
            results = self._results(provider, found)
            paths.append(self.folder / f"{provider}_results.json")
            write(paths[-1], results.model_dump_json(by_alias=True, indent=1) + "\n")
        return paths

    def _time(self, shape: GemmShape, watch: Callable[[GemmShape, str], None]) -> ShapeTimes:
        product = Product.of(shape)
        order = random.Random(self._file(shape).stem)
        told = ShapeBench(
            product, self.processes, self.plan, self.gpu.read, order, lambda text: watch(shape, text)
        )
        return told.run()

    def _results(self, provider: str, found: Sequence[tuple[GemmShape, ShapeTimes]]) -> ProviderResults:
        measured, failed = list[Measured](), list[Failed]()
        for shape, times in found:
            known = Product.of(shape).model_dump()
            for fault in times.faults:
                if fault.provider == provider:
                    failed.append(
                        Failed(**known, kernel=fault.kernel, status=fault.status, reason=fault.reason)
                    )
            for result in _measured(provider, shape, times):
                if why := beyond_card(result, self.gpu.card, is_cold=self.plan.operand_sets == 0):
                    failed.append(Failed(**known, kernel=result.kernel, status="impossible", reason=why))
                else:
                    measured.append(result)
        return ProviderResults(
            schema=1,
            provider=provider,
            gpu=self.gpu.card,
            software=self.settings.software[provider],
            cache="cold" if self.plan.operand_sets == 0 else "unknown",
            results=tuple(measured),
            failed=tuple(failed),
        )

    def _file(self, shape: GemmShape) -> Path:
        return self.folder / f"{shape.dtype}_{shape.sizes}.json"


def _measured(provider: str, shape: GemmShape, times: ShapeTimes) -> Iterator[Measured]:
    """Chosen by every second round, and told from the others."""
    for one in times.times:
        if one.provider == provider:
            middle, low, high = (1e3 * seconds for seconds in median_interval(one.seconds[::2]))
            choosing = one.seconds[1::2]
            yield Measured(
                **Product.of(shape).model_dump(),
                kernel=one.kernel,
                runtime_ms=middle,
                low_ms=low,
                high_ms=high,
                choosing_ms=1e3 * median(choosing) if choosing else None,
                is_checked=True,
            )
