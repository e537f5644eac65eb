"""What of a GPU as a device can be tried without one: its nodes, and ceilings kept on disk."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import torch

from hillclimb.harness.device.affinity import pinned
from hillclimb.harness.device.gpu.gpu import CudaDevice, device_nodes
from hillclimb.harness.device.gpu.gpu_ceilings import array_bytes, load_or_measure
from hillclimb.harness.device.gpu.state_files import state_folder
from hillclimb.harness.errors import MachineError, StorageError
from hillclimb.harness.records import Ceilings, Environment


def made(rate: float) -> Ceilings:
    return Ceilings(flops=rate, bytes=rate, how="made up", flops_by_dtype={"bfloat16": rate})


def never() -> Ceilings:
    pytest.fail("measured again")


def test_only_the_gpus_own_node_and_the_shared_ones_are_granted(tmp_path: Path) -> None:
    (tmp_path / "nvidia-caps").mkdir()
    for name in (
        "nvidia0",
        "nvidia1",
        "nvidiactl",
        "nvidia-uvm",
        "nvidia-uvm-tools",
        "nvidia-caps/nvidia-cap2",
    ):
        (tmp_path / name).symlink_to("/dev/null")
    (tmp_path / "nvidia-modeset").symlink_to("/dev/null")
    names = [Path(node).relative_to(tmp_path).as_posix() for node in device_nodes(1, tmp_path)]
    assert names == ["nvidia1", "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-caps/nvidia-cap2"]
    with pytest.raises(MachineError, match="nvidia7 is missing"):
        device_nodes(7, tmp_path)


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to make device nodes")
def test_nodes_that_configure_instances_are_kept_back(tmp_path: Path) -> None:
    (tmp_path / "nvidia-caps").mkdir()
    (tmp_path / "nvidia0").symlink_to("/dev/null")
    try:
        os.mknod(tmp_path / "nvidia-caps/nvidia-cap1", 0o020400, os.makedev(1, 3))
        os.mknod(tmp_path / "nvidia-caps/nvidia-cap2", 0o020444, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("this root may not make device nodes")
    assert device_nodes(0, tmp_path) == (
        str(tmp_path / "nvidia0"),
        str(tmp_path / "nvidia-caps/nvidia-cap2"),
    )


def test_ceilings_are_kept_until_gpu_driver_or_torch_differ(tmp_path: Path) -> None:
    path = tmp_path / "ceilings.json"
    assert load_or_measure(path, "GPU-1", "580", lambda: made(1e12)) == made(1e12)
    assert load_or_measure(path, "GPU-1", "580", never) == made(1e12)
    assert load_or_measure(path, "GPU-1", "590", lambda: made(2e12)) == made(2e12)
    assert load_or_measure(path, "GPU-2", "590", lambda: made(3e12)) == made(3e12)
    path.write_text(path.read_text().replace(torch.__version__, "1.0"))
    assert load_or_measure(path, "GPU-2", "590", lambda: made(4e12)) == made(4e12)


@pytest.mark.parametrize("text", ["", "{", '{"version": 1}', "[1]", "\x00"])
def test_a_broken_file_is_measured_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "ceilings.json"
    path.write_text(text)
    assert load_or_measure(path, "GPU-1", "580", lambda: made(1e12)) == made(1e12)
    assert load_or_measure(path, "GPU-1", "580", never) == made(1e12)


def test_a_file_that_others_may_change_is_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "ceilings.json"
    load_or_measure(path, "GPU-1", "580", lambda: made(1e12))
    path.chmod(0o666)
    assert load_or_measure(path, "GPU-1", "580", lambda: made(2e12)) == made(2e12)


def test_a_disk_that_refuses_costs_a_measurement_and_no_more(tmp_path: Path) -> None:
    missing = tmp_path / "missing" / "ceilings.json"
    assert load_or_measure(missing, "GPU-1", "580", lambda: made(1e12)) == made(1e12)


def test_the_state_folder_is_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert state_folder() == tmp_path / "state" / "hillclimb"
    assert state_folder().stat().st_mode & 0o077 == 0
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    with pytest.raises(StorageError, match="set XDG_STATE_HOME"):
        state_folder()


def test_arrays_outgrow_the_cache_and_leave_room() -> None:
    assert array_bytes(60 << 20, 139 << 30) == 960 << 20
    assert array_bytes(6 << 20, 139 << 30) == 256 << 20
    assert array_bytes(60 << 20, 2 << 30) == 128 << 20
    assert array_bytes(60 << 20, 10**9) % 1024 == 0


def test_a_seat_of_its_own_makes_the_judge_no_smaller_machine() -> None:
    """In a duel it may use one core; how busy the host may be hangs on all that it had before."""
    cpus = os.sched_getaffinity(0)
    if len(cpus) < 2:
        pytest.skip("needs two CPUs")
    device = object.__new__(CudaDevice)  # what is asked needs no GPU
    device._cpus = set(range(16))
    with pinned([(cpu,) for cpu in sorted(cpus)], []):
        assert len(os.sched_getaffinity(0)) == 1
        assert device.disturbances(Environment(others=12.0)) == ()
        assert device.disturbances(Environment(others=14.0)) == ("other processes",)
