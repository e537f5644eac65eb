"""The GPU as a device, on a real one: what NVML tells, what is refused, ceilings, floors, what a block's reading costs.

Run it alone, with `-n 0 -s` to see what was found. One process takes up the GPU (a judge takes it
for its whole life), others try to.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hillclimb.harness.errors import MachineError
from hillclimb.harness.judge.open_device import open_device

if TYPE_CHECKING:
    from hillclimb.harness.device.gpu.gpu import CudaDevice

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).resolve().parents[2]

TENANT = """
import sys, torch
x = torch.ones(256 << 20, dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("there", flush=True)
sys.stdin.read()
"""

JUDGE = """
import sys, time
from hillclimb.harness.device.gpu import guard
guard.PATIENCE_SECONDS = 1.0
from hillclimb.harness.judge.open_device import open_device
start = time.perf_counter()
device = open_device("cuda")
print("held", device.identity(), f"{time.perf_counter() - start:.2f} s", flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True)
class Done:
    flops: float
    bytes: float


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


def run(code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        _, error = process.communicate()
        return error
    return line


def cost(name: str, act: Callable[[], object], times: int = 20) -> float:
    """Milliseconds, the median and the longest."""
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        act()
        taken.append((time.perf_counter() - start) * 1e3)
    taken.sort()
    print(f"{name}: median {taken[len(taken) // 2]:.3f} ms, longest {taken[-1]:.3f} ms")
    return taken[len(taken) // 2]


def test_a_lock_is_held_once_and_ends_with_kill() -> None:
    with run(JUDGE) as first:
        said = first_line(first)
        print(said)
        assert said.startswith("held GPU-"), said
        with run(JUDGE) as second:
            refusal = first_line(second)
            print(refusal.splitlines()[-1])
            assert "MachineError" in refusal
            assert "another judge holds it" in refusal
            assert str(first.pid) in refusal
            second.kill()
        first.kill()
    with run(JUDGE.replace("1.0", "10.0")) as third:
        assert first_line(third).startswith("held GPU-"), "the lock, or the memory, outlived its process"
        third.kill()


def test_a_busy_gpu_names_who_uses_it() -> None:
    with run(TENANT) as tenant:
        assert first_line(tenant) == "there\n"
        with run(JUDGE) as judge:
            refusal = first_line(judge)
            print(refusal.splitlines()[-1])
            assert "MachineError" in refusal
            assert "in use by" in refusal
            assert f"pid {tenant.pid} (" in refusal or "not visible here" in refusal
            assert " MiB" in refusal
            judge.kill()
        tenant.kill()


def test_quarantine_refuses_until_it_is_lifted() -> None:
    impose = JUDGE.replace("sys.stdin.read()", "device.quarantine('tried by a test', 4194300)")
    with run(impose) as judge:
        uuid = first_line(judge).split()[1]
        judge.wait()
    from hillclimb.harness.device.gpu.state_files import shared_folder

    note = shared_folder() / f"hillclimb-{uuid}.quarantine.json"
    try:
        with run(JUDGE.replace("1.0", "10.0")) as refused:
            said = first_line(refused)
            print(said.splitlines()[-1])
            assert "in quarantine since" in said
            assert f"rm '{note}'" in said
    finally:
        note.unlink()


def test_all_a_judge_asks_of_a_gpu() -> None:
    """In a process of its own: a context, once made, stays as long as its process."""
    code = "from tests.gpu.test_device_gpu import look; look(); print('looked')"
    with run(code) as looking:
        out, error = looking.communicate(timeout=240)
    print(out)
    assert out.endswith("looked\n"), error


def look() -> None:
    """Everything but refusals, in one process that holds the GPU."""
    import torch

    from hillclimb.harness.device.gpu import guard
    from hillclimb.harness.device.gpu.gpu import CudaDevice

    guard.IDLE_TIMEOUT_SECONDS = 15.0
    start = time.perf_counter()
    device = open_device("cuda")
    assert isinstance(device, CudaDevice)
    print(f"{device.name()} {device.identity()} taken up in {time.perf_counter() - start:.2f} s")
    print(device.software())
    print(device.variables(), torch.cuda.device_count())
    assert torch.cuda.device_count() == 1
    print(device.nodes())
    assert all(Path(node).is_char_device() for node in device.nodes())
    print(f"duels are seated on {device.cores()}")
    assert {cpu for core in device.cores() for cpu in core} <= os.sched_getaffinity(0)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == device.identity()

    _look_at_blocks(device)
    _look_at_cache(device)
    _look_at_ceilings(device)

    try:
        open_device("cuda")
    except MachineError as error:
        print(f"a second time: {error}")
    else:
        raise AssertionError("the same process may not take it up twice")
    device.close()


def _look_at_blocks(device: CudaDevice) -> None:
    reading = device.read_state()
    print(reading.gpu)
    assert reading.gpu.sm_mhz is not None, "NVML tells no clock"
    assert reading.gpu.throttle is not None, "NVML tells no clock event reasons"
    cost("start of a block", device.read_state)
    cost("end of a block", lambda: device.environment_since(reading, 0.0))
    for pause in (0.0, 0.005, 0.02, 0.1):
        time.sleep(pause)
        cost(f"end of a block after {pause:g} s", lambda: device.environment_since(reading, 0.0), times=1)
    cost("NVML: processes alone", lambda: device._nvml.occupants(device.identity()))
    cost("NVML: clocks, heat, power alone", lambda: device._nvml.sample(device.identity()))
    environment = device.environment_since(reading, 0.0)
    print(environment.model_dump_json(), len(environment.model_dump_json()), "bytes")
    print("processes:", device._nvml.occupants(device.identity()), "own pid", os.getpid())
    with run(TENANT) as tenant:
        assert first_line(tenant) == "there\n"
        ours = device.environment_since(device.read_state(), 0.0)
        others = device.environment_since(device.read_state(), 0.0, own_pids=[])
        print(f"tenants with a child of ours: {ours.tenants}; when it is not ours: {others.tenants}")
        assert (ours.tenants, others.tenants) in ((0, 1), (None, None))
        tenant.kill()


def _look_at_cache(device: CudaDevice) -> None:
    import torch

    print(f"L2 {device.l2_bytes >> 20} MiB, free {device.free_bytes() >> 20} MiB")
    assert device.l2_bytes > 1 << 20

    def flush() -> None:
        device.flush_cache()
        device.synchronize()

    cost("settings set back", device.reset_settings)
    cost("flush and wait", flush)
    small = torch.rand(device.l2_bytes // 4 // 4, device=device.torch_device)
    out = torch.empty((), device=device.torch_device)

    def read(before: Callable[[], object]) -> float:
        """Microseconds. The flushes keep the device busy until all is queued, so that no launch is counted."""
        taken = []
        for _ in range(20):
            for _ in range(8):
                device.flush_cache()
            before()
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            start.record()
            torch.sum(small, dim=0, out=out)
            end.record()
            torch.cuda.synchronize()
            taken.append(start.elapsed_time(end) * 1e3)
        return float(sorted(taken)[len(taken) // 2])

    hot = read(lambda: torch.sum(small, dim=0, out=out))
    cold = read(device.flush_cache)
    print(f"reading a quarter of the L2: {hot:.1f} us hot, {cold:.1f} us after a flush")
    assert cold > hot


def _look_at_ceilings(device: CudaDevice) -> None:
    start = time.perf_counter()
    first = device.measure()
    seconds = time.perf_counter() - start
    second = device.measure()
    print(f"measured in {seconds:.2f} s: {first.model_dump_json(indent=1)}")
    rates = {
        "copy": (first.bytes, second.bytes),
        "read": (first.read_bytes, second.read_bytes),
        "write": (first.write_bytes, second.write_bytes),
        **{d: (first.flops_by_dtype[d], second.flops_by_dtype[d]) for d in first.flops_by_dtype},
    }
    peak = device.peak
    print(f"on paper: {peak}")
    for name, (one, other) in rates.items():
        print(f"{name}: {one:.4g}/s, again {other:.4g}/s, {abs(one / other - 1):.2%} apart")
    assert peak.bytes > 0, "NVML tells no memory clock or no bus width"
    assert 0.5 * peak.bytes < first.bytes < peak.bytes
    assert 0.5 * peak.bytes < (first.read_bytes or 0) < 1.02 * peak.bytes
    for dtype, rate in first.flops_by_dtype.items():
        assert rate < peak.flops.get(dtype.split("_")[0], float("inf")), dtype
    assert seconds < 5
    for name, (one, other) in rates.items():
        # the power cap moves matrix products by more, so only a lead is asked of them
        assert abs(one / other - 1) < (0.03 if name in ("copy", "read", "write") else 0.10), name
    kept = device.ceilings()
    start = time.perf_counter()
    device._ceilings = None
    assert device.ceilings() == kept, "it was measured again, not read from disk"
    print(f"read from disk in {(time.perf_counter() - start) * 1e3:.1f} ms")
    softmax = Done(flops=5 * 4096**2, bytes=4 * 4096**2)
    for calls in (1, 16, 220):
        floor = device.floor_seconds(softmax, calls)
        print(f"hard floor of softmax 4096x4096 bfloat16 in a segment of {calls}: {floor * 1e6:.2f} us")
