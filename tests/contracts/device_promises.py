"""The promises of hillclimb.harness.device.device.Device, one function each, and the process that holds a device.

A GPU that was taken up stays with its process, so every kind is looked at in a process of its own:
`python -m tests.contracts.device_promises KIND` opens the device and says what it is, then keeps, for each line it
reads, the promise of that name, and answers with a line of JSON: null, or what was broken.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
import traceback
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import torch

from hillclimb.harness.case.contract import Work
from hillclimb.harness.device.affinity import MIN_CORES
from hillclimb.harness.device.device import Device
from hillclimb.harness.errors import MachineError
from hillclimb.harness.judge.open_device import open_device
from hillclimb.harness.records import Environment

PATIENCE_SECONDS = 20.0
"""Until the driver has let go of what the process before this one had."""
BURNT_SECONDS = 0.2
GPU_FIELDS = ("sm_mhz", "memory_mhz", "celsius", "watts", "throttle", "tenants")


def its_kinds_fit_together(device: Device) -> None:
    assert (device.kind, device.tensors) in {("cpu", "numpy"), ("cpu", "torch"), ("cuda", "cuda")}
    assert torch.empty(1, device=device.torch_device).device.type == device.kind


def its_dtypes_are_torchs(device: Device) -> None:
    assert {"float32", "int64"} <= set(device.dtypes)
    for name in device.dtypes:
        dtype = getattr(torch, name)
        assert isinstance(dtype, torch.dtype), name
        assert torch.empty(3, dtype=dtype, device=device.torch_device).dtype == dtype


def its_limits_are_numbers_that_can_hold(device: Device) -> None:
    assert device.max_problem_bytes > 1 << 16
    assert math.isfinite(device.call_time_factor) and device.call_time_factor >= 1
    assert isinstance(device.l2_bytes, int) and device.l2_bytes >= 0
    is_interpreted = device.tensors == "torch"
    assert (device.call_time_factor > 1) == (device.max_problem_bytes < math.inf) == is_interpreted
    assert (device.l2_bytes > 0) == (device.kind == "cuda")


def its_name_and_identity_are_one_line_each(device: Device) -> None:
    for text, again in ((device.name(), device.name()), (device.identity(), device.identity())):
        assert text == again
        assert text.strip() == text and text.isprintable() and text
    assert " " not in device.identity()


def its_software_is_named_with_versions(device: Device) -> None:
    found = device.software()
    assert {"python", "kernel", "torch"} <= found.keys()
    assert found["python"] == sys.version.split()[0]
    assert ("driver" in found) == (device.kind == "cuda")
    assert all(isinstance(text, str) and text for text in found.values())
    expected = dict(found)
    found.clear()
    assert device.software() == expected, "what was handed out is the caller's own"


def its_nodes_are_device_nodes(device: Device) -> None:
    nodes = device.nodes()
    assert isinstance(nodes, tuple)
    assert all(Path(node).is_absolute() and Path(node).is_char_device() for node in nodes)
    assert bool(nodes) == (device.kind == "cuda")


def its_variables_name_no_other_device(device: Device) -> None:
    variables = device.variables()
    assert all(isinstance(text, str) for pair in variables.items() for text in pair)
    expected = {"numpy": None, "torch": "", "cuda": device.identity()}[device.tensors]
    assert variables.get("CUDA_VISIBLE_DEVICES") == expected
    variables["CUDA_VISIBLE_DEVICES"] = "all"
    assert device.variables().get("CUDA_VISIBLE_DEVICES") == expected


def its_cores_are_apart_and_may_be_used(device: Device) -> None:
    cores = list(device.cores())
    assert not cores or len(cores) >= MIN_CORES
    cpus = [cpu for core in cores for cpu in core]
    assert all(cores) and len(set(cpus)) == len(cpus)
    assert set(cpus) <= os.sched_getaffinity(0)


def a_reading_goes_forwards(device: Device) -> None:
    first, second = device.read_state(), device.read_state()
    assert first.host.clock < second.host.clock
    assert 0 < first.host.busy <= second.host.busy
    assert 0 <= first.host.steal <= second.host.steal
    assert (first.gpu is None) == (device.kind == "cpu")


def what_happened_since_just_now_is_sound(device: Device) -> None:
    for _ in range(50):
        found = device.environment_since(device.read_state(), 0.0)
        assert 0 <= found.steal <= 1
        assert math.isfinite(found.others) and found.others >= 0
        assert Environment.model_validate_json(found.model_dump_json()) == found
        if device.kind == "cpu":
            assert [name for name in GPU_FIELDS if getattr(found, name) is not None] == []
        else:
            assert found.sm_mhz and all(0 < mhz < 10_000 for mhz in found.sm_mhz)
            assert found.celsius is not None and 0 < found.celsius < 120
            assert not found.tenants, "this process has the GPU to itself"


def its_own_work_is_not_held_against_it(device: Device) -> None:
    reading, started = device.read_state(), time.process_time()
    while time.process_time() - started < BURNT_SECONDS:
        pass
    elapsed = time.perf_counter() - reading.host.clock
    blind, knowing = device.environment_since(reading, 0.0), device.environment_since(reading, BURNT_SECONDS)
    assert blind.others > 0.5 * BURNT_SECONDS / elapsed, "it does not see work at all"
    assert knowing.others <= blind.others - 0.5 * min(BURNT_SECONDS / elapsed, blind.others)


def a_calm_block_is_not_disturbed_and_a_busy_one_is(device: Device) -> None:
    assert device.disturbances(Environment()) == ()
    for busy in (Environment(steal=0.5), Environment(others=4.0 * (os.cpu_count() or 1))):
        causes = device.disturbances(busy)
        assert isinstance(causes, tuple) and len(causes) == 1
        assert causes[0].isprintable() and 0 < len(causes[0]) < 60
    throttled = Environment(sm_mhz=(1980, 990), throttle=("hw_thermal",), tenants=1)
    assert len(device.disturbances(throttled)) == (3 if device.kind == "cuda" else 0)


def nothing_disturbs_while_nothing_happens(device: Device) -> None:
    """Where the CPUs were idle meanwhile, as their own counters say; where they never were, it is told so."""
    seen = [_idle_share_and_causes(device) for _ in range(10)]
    calm = [causes for idle, causes in seen if idle > 0.95]
    assert not calm or () in calm
    assert calm or any(causes for _, causes in seen)


def _idle_share_and_causes(device: Device) -> tuple[float, tuple[str, ...]]:
    reading, began = device.read_state(), _idle_seconds()
    time.sleep(0.2)
    found = device.environment_since(reading, 0.0)
    elapsed = time.perf_counter() - reading.host.clock
    return (_idle_seconds() - began) / elapsed / (os.cpu_count() or 1), device.disturbances(found)


def _idle_seconds() -> float:
    """Of all CPUs since boot."""
    return float(Path("/proc/uptime").read_text().split()[1])


def its_ceilings_are_rates_measured_once(device: Device) -> None:
    found = device.ceilings()
    assert 1e8 < found.flops < 1e17 and 1e8 < found.bytes < 1e14
    assert found.how
    started = time.perf_counter()
    assert device.ceilings() == found
    assert time.perf_counter() - started < 0.05
    assert all(rate > 0 for rate in found.flops_by_dtype.values())


def no_real_work_is_faster_than_its_floor(device: Device) -> None:
    assert device.floor_seconds(Work(0, 0)) == 0.0
    for (work, run), calls in product(_jobs(device), (1, 16)):
        run()
        device.synchronize()
        seconds = min(_seconds_per_call(device, run, calls) for _ in range(5))
        for cache in ("cold", "hot"):
            floor = device.floor_seconds(work, calls, cache)  # type: ignore[arg-type]
            assert 0 <= floor <= seconds, (work, calls, cache)


def _jobs(device: Device) -> list[tuple[Work, Callable[[], object]]]:
    """A matrix product and a copy, of sizes that a GPU or a CPU takes milliseconds for."""
    size, count = (4096, 1 << 27) if device.kind == "cuda" else (256, 1 << 21)
    a, b = (torch.rand(size, size, device=device.torch_device) for _ in range(2))
    source = torch.rand(count, device=device.torch_device)
    out, target = torch.empty_like(a), torch.empty_like(source)
    return [
        (Work(flops=2 * size**3, bytes=3 * 4 * size**2), lambda: torch.mm(a, b, out=out)),
        (Work(flops=0, bytes=2 * 4 * count), lambda: target.copy_(source)),
    ]


def _seconds_per_call(device: Device, run: Callable[[], object], calls: int) -> float:
    started = time.perf_counter()
    for _ in range(calls):
        run()
    device.synchronize()
    return (time.perf_counter() - started) / calls


def its_free_memory_can_be_had(device: Device) -> None:
    free, spare = device.free_bytes(), device.available_bytes()
    assert isinstance(free, int) and free > 1 << 20
    assert isinstance(spare, int) and (spare >= free if device.kind == "cuda" else spare == 0)
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if device.kind == "cuda":
        total = torch.cuda.get_device_properties(0).total_memory
    assert free < total
    held = torch.ones(min(free // 4, 64 << 20), dtype=torch.uint8, device=device.torch_device)
    assert int(held.sum()) == held.numel()


def to_wait_to_rest_and_to_flush_can_be_repeated_and_harm_no_result(device: Device) -> None:
    values = torch.arange(1 << 20, device=device.torch_device)
    doubled = 2 * values
    for act in (device.synchronize, device.reset_settings, device.flush_cache) * 3:
        act()
    device.synchronize()
    assert torch.equal(doubled, torch.arange(0, 2 << 20, 2, device=device.torch_device))


def to_close_twice_does_no_harm(device: Device) -> None:
    """It comes last."""
    device.close()
    device.close()


PROMISES: dict[str, Callable[[Device], None]] = {
    promise.__name__: promise
    for promise in (
        its_kinds_fit_together,
        its_dtypes_are_torchs,
        its_limits_are_numbers_that_can_hold,
        its_name_and_identity_are_one_line_each,
        its_software_is_named_with_versions,
        its_nodes_are_device_nodes,
        its_variables_name_no_other_device,
        its_cores_are_apart_and_may_be_used,
        a_reading_goes_forwards,
        what_happened_since_just_now_is_sound,
        its_own_work_is_not_held_against_it,
        a_calm_block_is_not_disturbed_and_a_busy_one_is,
        its_ceilings_are_rates_measured_once,
        no_real_work_is_faster_than_its_floor,
        its_free_memory_can_be_had,
        to_wait_to_rest_and_to_flush_can_be_repeated_and_harm_no_result,
        to_close_twice_does_no_harm,
    )
}
QUIET_PROMISES = {nothing_disturbs_while_nothing_happens.__name__: nothing_disturbs_while_nothing_happens}


def describe(device: Device) -> dict[str, Any]:
    """What a second opening has to say too."""
    return {
        "class": type(device).__name__,
        "name": device.name(),
        "identity": device.identity(),
        "software": device.software(),
        "nodes": device.nodes(),
        "dtypes": sorted(device.dtypes),
        "l2_bytes": device.l2_bytes,
    }


def open_patiently(kind: Any) -> Device:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return open_device(kind)
        except MachineError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.5)


def main() -> None:
    torch.set_num_threads(1)
    device = open_patiently(sys.argv[1])
    print(json.dumps(describe(device)), flush=True)
    for line in sys.stdin:
        broken = None
        try:
            (PROMISES | QUIET_PROMISES)[line.strip()](device)
        except Exception:  # noqa: BLE001 - told to the test, which fails with it
            broken = traceback.format_exc()
        print(json.dumps(broken), flush=True)


if __name__ == "__main__":
    main()
