"""CPUs are counted by affinity and by the quota of every cgroup on the way up, whatever its version."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hillclimb.harness.device.cores import count_cpus, cpu_quotas


def make_proc(root: Path, cgroup: str, mounts: str) -> Path:
    proc = root / "proc"
    proc.mkdir()
    (proc / "cgroup").write_text(cgroup)
    (proc / "mountinfo").write_text(mounts)
    return proc


def write(folder: Path, **files: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text + "\n")


def mount(place: Path, kind: str, root: str = "/", options: str = "rw") -> str:
    return f"30 23 0:26 {root} {place} rw,nosuid - {kind} cgroup {options}\n"


@pytest.mark.parametrize(
    ("allowed", "quotas", "expected"),
    [(8, [], 8), (8, [2.0], 2), (8, [3.9], 3), (8, [0.5], 1), (1, [16.0], 1), (8, [4.0, 2.5, 6.0], 2)],
)
def test_the_least_counts_in_whole_cpus_and_is_at_least_one(
    allowed: int, quotas: list[float], expected: int
) -> None:
    assert count_cpus(allowed, iter(quotas)) == expected


def test_every_group_on_the_way_up_counts(tmp_path: Path) -> None:
    place = tmp_path / "unified"
    write(place / "jobs" / "mine", cpu__max="max 100000")
    write(place / "jobs", cpu__max="150000 100000")
    write(place)
    assert list(cpu_quotas(make_proc(tmp_path, "0::/jobs/mine\n", mount(place, "cgroup2")))) == [1.5]


def test_version_1_with_the_root_of_a_container(tmp_path: Path) -> None:
    place = tmp_path / "cpu"
    write(place / "inner", cpu__cfs_quota_us="-1", cpu__cfs_period_us="100000")
    write(place, cpu__cfs_quota_us="300000", cpu__cfs_period_us="100000")
    mounts = mount(tmp_path / "memory", "cgroup", options="rw,memory") + mount(
        place, "cgroup", "/docker/abc", "rw,cpu,cpuacct"
    )
    groups = "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc/inner\n0::/docker/abc\n"
    assert list(cpu_quotas(make_proc(tmp_path, groups, mounts))) == [3.0]


@pytest.mark.parametrize("text", ["", "max", "a b", "1 0", "0 100000"])
def test_what_cannot_be_read_is_no_quota(tmp_path: Path, text: str) -> None:
    place = tmp_path / "unified"
    write(place, cpu__max=text)
    assert list(cpu_quotas(make_proc(tmp_path, "0::/\n", mount(place, "cgroup2")))) == []


def test_no_proc_is_no_quota(tmp_path: Path) -> None:
    assert list(cpu_quotas(tmp_path)) == []


def test_a_process_that_may_use_one_cpu_counts_one() -> None:
    code = "from hillclimb.harness.device.cores import usable_cpus; print(usable_cpus())"
    one = min(os.sched_getaffinity(0))
    done = subprocess.run(
        ["taskset", "-c", str(one), sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "1"
