"""What the driver says, read through the real pynvml from a library that answers out of a file."""

from __future__ import annotations

import os

import pytest

from hillclimb.harness.device.gpu.nvml import process_name, throttle_reasons
from tests.harness.device.conftest import H200, FakeDriver

LOOK = """
from hillclimb.harness.device.gpu.nvml import Nvml
nvml = Nvml()
for gpu in nvml.gpus():
    print(gpu, gpu)
    print(gpu.uuid, gpu.minor, gpu.used_bytes >> 20, gpu.compute_mode, gpu.has_mig)
    print(nvml.occupants(gpu.uuid))
    print(nvml.sample(gpu.uuid))
    print(nvml.limits(gpu.uuid))
print(nvml.driver())
nvml.close()
"""


def test_everything_the_driver_tells_is_read(fake_driver: FakeDriver) -> None:
    fake_driver.gpus[0] |= {
        "reasons": "0x45",
        "compute": "123:500 124",
        "graphics": "9:30",
        "used_mib": "700",
    }
    done = fake_driver.run(LOOK)
    assert done.returncode == 0, done.stderr
    assert f"{H200['uuid']} 0 670 default False" in done.stdout
    assert "(Occupant(pid=123, bytes=524288000), Occupant(pid=124, bytes=None))" in done.stdout
    assert (
        "GpuSample(sm_mhz=1980, memory_mhz=3201, celsius=41, watts=78, throttle=('power_cap', 'hw_thermal'))"
        in done.stdout
    )
    assert "ClockLimits(sm_mhz=1980, memory_mhz=3201, bus_bits=6144)" in done.stdout
    assert done.stdout.endswith("580.159.04\n")


def test_what_a_driver_does_not_tell_is_unknown_and_no_error(fake_driver: FakeDriver) -> None:
    fake_driver.gpus = [{key: H200[key] for key in ("uuid", "name", "minor", "used_mib")}]
    done = fake_driver.run(LOOK)
    assert done.returncode == 0, done.stderr
    assert (
        "GpuSample(sm_mhz=None, memory_mhz=None, celsius=None, watts=None, throttle=None)\n"
        "ClockLimits(sm_mhz=0, memory_mhz=0, bus_bits=0)" in done.stdout
    )
    assert "None\nGpuSample" in done.stdout, "no processes are told, which is not the same as no processes"


@pytest.mark.slow(4, only=["general1-the driver runs, but sees no GPU"])
@pytest.mark.parametrize(
    ("general", "said"),
    [({"init": "9"}, "NVML says: Driver Not Loaded"), ({}, "the driver runs, but sees no GPU")],
)
def test_no_gpu_is_said_with_what_to_do_instead(
    fake_driver: FakeDriver, general: dict[str, str], said: str
) -> None:
    fake_driver.general |= general
    fake_driver.gpus = []
    done = fake_driver.run("from hillclimb.harness.judge.open_device import open_device; open_device('cuda')")
    assert "UsageError: device: cuda needs an NVIDIA GPU; none found" in done.stderr
    assert said in done.stderr
    assert "use `hillclimb check` here, which compiles and interprets" in done.stderr


def test_a_lost_gpu_is_the_machines_failure(fake_driver: FakeDriver) -> None:
    del fake_driver.gpus[0]["minor"]
    done = fake_driver.run(LOOK)
    assert "MachineError: NVML: nvmlDeviceGetMinorNumber" in done.stderr


@pytest.mark.parametrize(
    ("mask", "names"),
    [(0, ()), (1, ()), (4, ("power_cap",)), (0x29, ("hw_slowdown", "sw_thermal")), (0x1000, ("0x1000",))],
)
def test_clock_reasons_have_names_and_idleness_is_none(mask: int, names: tuple[str, ...]) -> None:
    assert throttle_reasons(mask) == names


def test_processes_are_named_where_they_can_be_seen() -> None:
    assert process_name(os.getpid()) not in ("", "unnamed", "not visible here")
    assert process_name(2**22 + 1) == "not visible here"
