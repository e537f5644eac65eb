"""Whether a server that is stopped has left work on the GPU: told by how long the judge's own work takes then."""

from __future__ import annotations

import time

from hillclimb.harness.device.device import Device
from hillclimb.harness.duel.residual_work import ResidualWorkDetector
from hillclimb.harness.records import Side

LISTENS = 3
"""Passes over the flushed memory, each of which a process that shares the GPU lengthens by its time slices."""


class ResidualWork:
    """Listens after every segment of the pairs of two sides. On a CPU there is nothing to hear."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._sides: tuple[Side, Side] | None = None
        self._detector: ResidualWorkDetector[str] = ResidualWorkDetector()

    def between(self, candidate: Side, opponent: Side) -> ResidualWork:
        """This one, which forgets what it heard of other sides."""
        if (candidate, opponent) != self._sides:
            self._sides, self._detector = (candidate, opponent), ResidualWorkDetector()
        return self

    def listen(self, last: str) -> None:
        """The GPU is the judge's alone, if `last`, whose turn was over, has left nothing there."""
        if self._device.kind != "cuda":
            return
        self._device.reset_settings()
        self._device.synchronize()
        start = time.perf_counter()
        for _ in range(LISTENS):
            self._device.flush_cache()
            self._device.synchronize()
        self._detector.record("flush", time.perf_counter() - start, last)

    def culprit(self) -> str | None:
        """The side after whose turns alone the GPU was busy, if that is plain by now."""
        return self._detector.culprit()
