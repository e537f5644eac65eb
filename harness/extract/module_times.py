"""What modules take of a step: each group is timed in a pass of its own, so that no other one's hooks are in it."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from hillclimb.harness.extract.module_groups import ModuleGroup
from hillclimb.harness.extract.profiled import OperatorShare
from hillclimb.harness.extract.stepped_model import SteppedModel

WARM_UP = 3
"""Steps before any is timed, at the least: so many as are timed, for some libraries plan anew for every length."""


class ModuleClock:
    """Adds up what calls take: on a GPU by events on its stream, else by the clock of the process."""

    def __init__(self, on_gpu: bool) -> None:
        self._on_gpu = on_gpu
        self._open: list[Any] = []
        self._spans: list[tuple[Any, Any]] = []

    @contextmanager
    def watching(self, modules: Sequence[torch.nn.Module]) -> Iterator[None]:
        """Calls of these meanwhile are counted."""
        handles = [one.register_forward_pre_hook(self._enter, prepend=True) for one in modules]
        handles += [one.register_forward_hook(self._leave) for one in modules]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def seconds(self) -> float:
        """Of all calls."""
        if not self._on_gpu:
            return float(sum(end - start for start, end in self._spans))
        torch.cuda.synchronize()
        return sum(float(start.elapsed_time(end)) for start, end in self._spans) / 1e3

    def _enter(self, *_: object) -> None:
        self._open.append(self._now())

    def _leave(self, *_: object) -> None:
        self._spans.append((self._open.pop(), self._now()))

    def _now(self) -> Any:
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event


def step_seconds(model: SteppedModel, steps: int, on_gpu: bool) -> list[float]:
    """Of each of some steps, after the model has begun."""
    found = []
    for _ in range(steps):
        if on_gpu:
            torch.cuda.synchronize()
        start = time.perf_counter()
        model.step()
        if on_gpu:
            torch.cuda.synchronize()
        found.append(time.perf_counter() - start)
    return found


def time_groups(
    model: SteppedModel, groups: Sequence[ModuleGroup], steps: int, on_gpu: bool
) -> tuple[float, list[OperatorShare]]:
    """Seconds of a step, and the groups' shares of it, the largest first."""
    model.begin()
    step_seconds(model, max(WARM_UP, steps), on_gpu)
    model.begin()
    whole = statistics.median(step_seconds(model, steps, on_gpu))
    shares = [_share(model, group, steps, on_gpu, whole) for group in groups]
    return whole, sorted(shares, key=lambda one: -one.share)


def _share(model: SteppedModel, group: ModuleGroup, steps: int, on_gpu: bool, whole: float) -> OperatorShare:
    clock = ModuleClock(on_gpu)
    model.begin()
    with clock.watching(group.modules):
        passed = sum(step_seconds(model, steps, on_gpu))
    share = min(1.0, clock.seconds() / passed)
    return OperatorShare(
        name=group.name,
        module=group.kind,
        places=tuple(group.places),
        calls=group.calls,
        seconds=share * whole,
        share=share,
        bound=1 / max(1 - share, 1e-9),
        inputs=group.inputs,
        parameters=group.parameters,
        unfit=group.unfit,
    )
