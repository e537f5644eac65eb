"""Where candidate processes come from: dressed for the device, in the sandbox, with what was compiled ahead."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from harness.candidate.layout import Signature
from harness.candidate.process import CandidateProcess, Dress, Limits
from harness.case.case import Case
from harness.device.cpu import Interpreter
from harness.device.device import Device
from harness.judge.ahead import Ahead
from harness.judge.policy import check_policy
from harness.records import Side
from harness.sandbox.rungs import Rung

TRUSTED_IMPORTS = frozenset({"numpy", "numba", "yaml", "torch", "triton"})
"""Imported by the runner before it gives up starting processes, which their own imports may need."""


class Stable:
    """Starts processes of one case's sides. Raises CandidateFault for what a workspace's source says."""

    def __init__(self, case: Case, rung: Rung, device: Device, signatures: Mapping[str, Signature]) -> None:
        """`signatures` say of each problem what is compiled ahead."""
        self.rung, self._case, self._device = rung, case, device
        self._ahead = Ahead(self._compiler, dict(signatures), max(1, (os.cpu_count() or 1) // 2))

    def close(self) -> None:
        self._ahead.close()

    def process(self, side: Side, *, watched: bool = False, from_source: bool = False) -> CandidateProcess:
        """A fresh process, its import begun; `watched` for a profile.

        On a GPU it finds what was compiled ahead for it; `from_source`, by a compilation that began from nothing.
        """
        settings, device = self._case.settings, self._device
        dress = Dress(
            tensors=device.tensors,
            launch=settings.cuda.launch,
            preload=self._preload(),
            devices=device.nodes(),
            kernels=self._ahead.kernels(side, alone=from_source) if device.kind == "cuda" else None,
            environment=self._variables(),
        )
        return self._start(side, dress, watched=watched)

    def interpreting(self, side: Side) -> CandidateProcess:
        """A fresh process in which Triton interprets a side's kernels on the CPU, whatever the device."""
        dress = Dress(tensors="torch", preload=self._preload(), environment=Interpreter().variables())
        return self._start(side, dress)

    def canary(self, workspace: Path) -> CandidateProcess:
        """A process of the lab's own kernel, `kernel.py:run` in `workspace`, dressed like a candidate's."""
        device = self._device
        dress = Dress(
            tensors=device.tensors, preload=("torch",), devices=device.nodes(), environment=self._variables()
        )
        side = Side(tree=str(workspace))
        return CandidateProcess(self.rung, side, "kernel.py:run", dress, self._limits())

    def prepare(self, side: Side, parent: Side | None = None) -> None:
        """Begin what can be done for a side before its turn; returns at once."""
        if self._device.kind == "cuda":
            self._ahead.prepare(side, parent)

    def tend(self) -> None:
        """End what takes too long ahead of its turn."""
        self._ahead.tend()

    def compile(self, side: Side) -> None:
        """Compile a side without a GPU. Raises CandidateFault where the compiler refuses it."""
        self._ahead.kernels(side)

    def _compiler(self, side: Side, kernels: Path | None) -> CandidateProcess:
        architecture = self._case.settings.cuda.architecture
        dress = Dress(tensors="meta", architecture=architecture, preload=self._preload(), kernels=kernels)
        return self._start(side, dress)

    def _start(self, side: Side, dress: Dress, *, watched: bool = False) -> CandidateProcess:
        settings = self._case.settings
        check_policy(Path(side.tree), settings.policy)
        return CandidateProcess(self.rung, side, settings.entry, dress, self._limits(), watched=watched)

    def _variables(self) -> dict[str, str]:
        """The device's. A CUDA context has few queues besides: they are most of what it costs to make and to end."""
        if self._device.kind != "cuda":
            return self._device.variables()
        connections = str(self._case.settings.cuda.connections)
        queues = {"CUDA_DEVICE_MAX_CONNECTIONS": connections, "CUDA_DEVICE_MAX_COPY_CONNECTIONS": "1"}
        return {**self._device.variables(), **queues}

    def _limits(self) -> Limits:
        budgets = self._case.settings.budgets
        call_seconds = budgets.call_seconds * self._device.leniency
        return Limits(budgets.prepare_seconds, call_seconds, budgets.memory_mib << 20)

    def _preload(self) -> tuple[str, ...]:
        return tuple(sorted(TRUSTED_IMPORTS & set(self._case.settings.policy.imports)))
