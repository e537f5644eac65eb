"""One judge a GPU: which is chosen, which is refused and with what words."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hillclimb.harness.device.gpu.guard import choose_gpus, describe_use, refuse_mode
from hillclimb.harness.device.gpu.lock import GpuLock
from hillclimb.harness.device.gpu.nvml import Gpu, Occupant
from hillclimb.harness.errors import MachineError, UsageError
from tests.harness.device.conftest import H200, FakeDriver

HOLD = """
import os, sys
from pathlib import Path
from hillclimb.harness.device.gpu import guard
from hillclimb.harness.device.gpu.nvml import Nvml
guard.PATIENCE_SECONDS = 0.5
print(guard.acquire_gpu(Nvml(), os.environ, Path({folder!r})).gpu.uuid)
"""


def gpu(index: int, uuid: str = "", **changes: object) -> Gpu:
    facts = {
        "minor": index,
        "name": "NVIDIA H200",
        "used_bytes": 0,
        "utilization": 0,
        "compute_mode": "default",
        "has_mig": False,
    }
    return Gpu(index=index, uuid=uuid or f"GPU-{index}aaa", **{**facts, **changes})  # type: ignore[arg-type]


GPUS = [
    gpu(0, "GPU-aaaa-1111", utilization=90),
    gpu(1, "GPU-bbbb-2222", used_bytes=40),
    gpu(2, "GPU-bbcc-3333"),
]


@pytest.mark.parametrize(
    ("environment", "chosen"),
    [
        ({}, [2, 1, 0]),
        ({"HILLCLIMB_GPU": "1"}, [1]),
        ({"HILLCLIMB_GPU": "GPU-aaaa-1111"}, [0]),
        ({"HILLCLIMB_GPU": "GPU-bbb"}, [1]),
        ({"HILLCLIMB_GPU": "0", "CUDA_VISIBLE_DEVICES": "1"}, [0]),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, [1, 0]),
        ({"CUDA_VISIBLE_DEVICES": " GPU-bb , 0 "}, [2, 1, 0]),
        ({"HILLCLIMB_GPU": "", "CUDA_VISIBLE_DEVICES": "GPU-aaaa"}, [0]),
    ],
)
def test_the_choice_is_that_of_the_environment_idlest_first(
    environment: dict[str, str], chosen: list[int]
) -> None:
    assert [gpu.index for gpu in choose_gpus(GPUS, environment)] == chosen


@pytest.mark.parametrize("wanted", ["7", "GPU-dddd", "first", "aaaa"])
def test_an_unknown_gpu_is_named_with_the_choices(wanted: str) -> None:
    with pytest.raises(UsageError, match=f"HILLCLIMB_GPU='{wanted}'.*GPU-bbcc-3333"):
        choose_gpus(GPUS, {"HILLCLIMB_GPU": wanted})


def test_a_prefix_of_two_and_a_mig_instance_are_refused() -> None:
    with pytest.raises(UsageError, match="write more of it"):
        choose_gpus(GPUS, {"HILLCLIMB_GPU": "GPU-bb"})
    with pytest.raises(UsageError, match="choose a whole GPU"):
        choose_gpus(GPUS, {"CUDA_VISIBLE_DEVICES": "MIG-1234"})


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"has_mig": True}, "MIG"),
        ({"compute_mode": "prohibited"}, "prohibited"),
        ({"compute_mode": "exclusive_process"}, "a duel takes three"),
    ],
)
def test_modes_in_which_no_duel_can_be_fought(changes: dict[str, object], said: str) -> None:
    with pytest.raises(MachineError, match=said):
        refuse_mode(gpu(0, "", **changes))
    refuse_mode(gpu(0))


def test_a_busy_gpu_names_who_uses_it() -> None:
    assert describe_use(gpu(0), []) == ""
    assert describe_use(gpu(0), None) == ""
    said = describe_use(gpu(0), [Occupant(os.getpid(), 3 << 20), Occupant(2**22 + 1, None)])
    name = Path("/proc/self/comm").read_text().strip()
    assert f"pid {os.getpid()} ({name}, 3 MiB)" in said
    assert f"pid {2**22 + 1} (not visible here, unknown memory)" in said
    assert "4096 MiB of it are in use by processes that are not visible here" in describe_use(
        gpu(0, used_bytes=4 << 30), []
    )


@pytest.mark.slow(2)
def test_the_idlest_free_gpu_is_held(fake_driver: FakeDriver, tmp_path: Path) -> None:
    fake_driver.gpus = [
        {**H200, "uuid": "GPU-locked", "utilization": "0"},
        {**H200, "uuid": "GPU-free", "utilization": "5"},
    ]
    code = HOLD.format(folder=str(tmp_path))
    first = subprocess.Popen(
        [sys.executable, "-c", code + "sys.stdout.flush()\nsys.stdin.read()"],
        env=fake_driver.environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with first:
        assert first.stdout is not None
        assert first.stdout.readline() == "GPU-locked\n"
        second = fake_driver.run(code)
        assert (second.returncode, second.stdout) == (0, "GPU-free\n"), second.stderr
        only = fake_driver.run(code, {"HILLCLIMB_GPU": "0"})
        assert "MachineError" in only.stderr
        assert f"pid {first.pid}" in only.stderr
        first.kill()
    again = fake_driver.run(code, {"HILLCLIMB_GPU": "0"})
    assert again.stdout == "GPU-locked\n", "the lock ended with its process"


@pytest.mark.slow(6)
def test_a_busy_gpu_is_refused_with_pid_name_and_memory(fake_driver: FakeDriver, tmp_path: Path) -> None:
    with subprocess.Popen(["sleep", "60"]) as tenant:
        fake_driver.gpus[0]["compute"] = f"{tenant.pid}:512"
        done = fake_driver.run(HOLD.format(folder=str(tmp_path)))
        tenant.kill()
    assert f"in use by pid {tenant.pid} (sleep, 512 MiB); a judge needs a GPU to itself" in done.stderr
    GpuLock(H200["uuid"], tmp_path).close()


def test_a_gpu_that_becomes_idle_is_waited_for(fake_driver: FakeDriver, tmp_path: Path) -> None:
    fake_driver.gpus[0]["compute"] = "77:512"
    code = "import threading\n" + HOLD.format(folder=str(tmp_path)).replace("0.5", "10")
    change = (
        "threading.Timer(0.5, lambda: Path(os.environ['FAKE_NVML']).write_text("
        "Path(os.environ['FAKE_NVML']).read_text().replace('77:512', ''))).start()\n"
    )
    done = fake_driver.run(code.replace("print(", change + "print("))
    assert done.stdout == f"{H200['uuid']}\n", done.stderr


def test_quarantine_is_refused_and_lifted(fake_driver: FakeDriver, tmp_path: Path) -> None:
    code = HOLD.format(folder=str(tmp_path))
    impose = code.replace("print(", "held = (").replace(
        ".gpu.uuid)", ")\nheld.quarantine.impose('its process could not be ended', 4194300)"
    )
    assert fake_driver.run(impose).returncode == 0
    refused = fake_driver.run(code)
    assert "in quarantine since" in refused.stderr
    assert "its process could not be ended (pid 4194300, gone by now)" in refused.stderr
    note = tmp_path / f"hillclimb-{H200['uuid']}.quarantine.json"
    assert f"rm '{note}'" in refused.stderr
    note.unlink()
    assert fake_driver.run(code).returncode == 0
