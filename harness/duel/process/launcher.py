"""Where candidate processes come from: dressed for the device, in the sandbox, with what was compiled ahead."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.yardstick import MIN_MEMORY_MIB, MIN_PREPARE_SECONDS, YARDSTICK_IMPORTS
from hillclimb.harness.channel.layout import CallSignature
from hillclimb.harness.device.cores import usable_cpus
from hillclimb.harness.device.cpu.cpu import InterpreterDevice
from hillclimb.harness.device.device import Device
from hillclimb.harness.duel.process.arena import shapes_of
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.duel.process.compiler_flags import compiler_flags
from hillclimb.harness.duel.process.launch_spec import LaunchSpec, ProcessLimits
from hillclimb.harness.duel.process.parameters import Parameters
from hillclimb.harness.duel.process.precompile import Precompiler
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.records import Side
from hillclimb.harness.sandbox.rungs.choose import Rung

TRUSTED_IMPORTS = frozenset({"numpy", "numba", "yaml", "torch", "triton"})
"""Imported by the runner before it gives up starting processes, which their own imports may need."""


class CandidateLauncher:
    """Starts processes of one case's sides. Raises CandidateFault for what a workspace's source says."""

    def __init__(
        self,
        case: Case,
        rung: Rung,
        device: Device,
        signatures: Mapping[str, CallSignature],
        parameters: Parameters | None = None,
    ) -> None:
        """`signatures` say of each problem what is compiled ahead; `parameters`, which are the caller's, are those of
        processes that are given no others."""
        self.rung, self.parameters, self._case, self._device = rung, parameters, case, device
        shapes = shapes_of(parameters.tensors) if parameters else ()
        most = max(1, usable_cpus() // 2)
        self._precompiler = Precompiler(self._compiler, dict(signatures), most, shapes)

    def close(self) -> None:
        self._precompiler.close()

    def launch(
        self,
        side: Side,
        *,
        parameters: Parameters | None = None,
        watched: bool = False,
        from_source: bool = False,
    ) -> CandidateProcess:
        """A fresh process, its import begun; `watched` for a profile.

        On a GPU it finds what was compiled ahead for it; `from_source`, by a compilation that began from nothing.
        """
        settings, device = self._case.settings, self._device
        spec = LaunchSpec(
            tensors=device.tensors,
            launch=settings.cuda.launch,
            preload=self._preload(side),
            devices=device.nodes(),
            kernel_folder=self._precompiler.kernel_folder(side, from_source=from_source)
            if device.kind == "cuda"
            else None,
            is_walled=self._is_walled(side),
            compiler_flags=compiler_flags(side) if settings.is_compiled else (),
            environment=self._variables(),
        )
        return self._start(side, spec, parameters or self.parameters, watched=watched)

    def launch_interpreted(self, side: Side, parameters: Parameters | None) -> CandidateProcess:
        """A fresh process in which Triton interprets a side's kernels on the CPU, whatever the device."""
        spec = LaunchSpec(
            tensors="torch",
            preload=self._preload(side),
            environment=InterpreterDevice().variables(),
        )
        return self._start(side, spec, parameters)

    def launch_known_kernel(self, workspace: Path) -> CandidateProcess:
        """A process of the lab's own kernel, `kernel.py:run` in `workspace`, dressed like a candidate's."""
        device = self._device
        spec = LaunchSpec(
            tensors=device.tensors, preload=("torch",), devices=device.nodes(), environment=self._variables()
        )
        side = Side(tree=str(workspace))
        return CandidateProcess(self.rung, side, "kernel.py:run", spec, self._limits(side))

    def precompile(self, side: Side, parent: Side | None = None) -> None:
        """Begin what can be done for a side before its turn; returns at once."""
        if self._device.kind == "cuda":
            self._precompiler.begin(side, parent)

    def poll_precompiles(self) -> None:
        """End what takes too long ahead of its turn."""
        self._precompiler.poll()

    def compile(self, side: Side) -> None:
        """Compile a side without a GPU. Raises CandidateFault where the compiler refuses it."""
        self._precompiler.kernel_folder(side)

    def _compiler(self, side: Side, kernels: Path | None) -> CandidateProcess:
        architecture = self._case.settings.cuda.architecture
        spec = LaunchSpec(
            tensors="meta",
            architecture=architecture,
            preload=self._preload(side),
            kernel_folder=kernels,
        )
        return self._start(side, spec)

    def _start(
        self,
        side: Side,
        spec: LaunchSpec,
        parameters: Parameters | None = None,
        *,
        watched: bool = False,
    ) -> CandidateProcess:
        settings = self._case.settings
        if not side.is_yardstick:
            check_policy(Path(side.tree), settings.policy)
        limits = self._limits(side)
        return CandidateProcess(
            self.rung, side, settings.entry, spec, limits, parameters=parameters, watched=watched
        )

    def _variables(self) -> dict[str, str]:
        """The device's. A CUDA context has few queues besides: they are most of what it costs to make and to end."""
        if self._device.kind != "cuda":
            return self._device.variables()
        connections = str(self._case.settings.cuda.connections)
        queues = {"CUDA_DEVICE_MAX_CONNECTIONS": connections, "CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"}
        return {**self._device.variables(), **queues}

    def _limits(self, side: Side) -> ProcessLimits:
        budgets = self._case.settings.budgets
        prepare_seconds, memory_mib = budgets.prepare_seconds, budgets.memory_mib
        if side.is_yardstick:
            prepare_seconds = max(prepare_seconds, MIN_PREPARE_SECONDS)
            memory_mib = max(memory_mib, MIN_MEMORY_MIB)
        call_seconds = budgets.call_seconds * self._device.call_time_factor
        return ProcessLimits(prepare_seconds, call_seconds, memory_mib << 20)

    def _is_walled(self, side: Side) -> bool:
        """On a CPU: Triton's interpreter multiplies by NumPy, and what a GPU's host computes wins nothing."""
        settings = self._case.settings
        is_free = settings.policy.library_calls or side.is_yardstick
        return settings.device == "cpu" and not is_free

    def _preload(self, side: Side) -> tuple[str, ...]:
        modules = {*self._case.settings.policy.modules, *(YARDSTICK_IMPORTS if side.is_yardstick else ())}
        return tuple(sorted(TRUSTED_IMPORTS & modules))
