"""Memory of the machine, and what a container leaves of it."""

from __future__ import annotations

import os
from pathlib import Path

from hillclimb.harness.gemm.compiler.machine import default_jobs, free_memory

GIB = 1 << 30


def machine(folder: Path, cgroup: str, mounts: str) -> Path:
    """With 8 GiB available."""
    (folder / "self").mkdir()
    (folder / "meminfo").write_text(f"MemTotal: {16 << 20} kB\nMemAvailable:  {8 << 20} kB\n")
    (folder / "self/cgroup").write_text(cgroup)
    (folder / "self/mountinfo").write_text(mounts)
    return folder / "self"


def group(folder: Path, **files: str | int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_a_group_of_version_2_and_those_above_it_leave_less(tmp_path: Path) -> None:
    place = tmp_path / "cgroup"
    proc = machine(tmp_path, "0::/jobs/mine\n", f"30 23 0:26 / {place} rw - cgroup2 cgroup rw\n")
    group(place / "jobs/mine", memory__max="max", memory__current=GIB, memory__stat="inactive_file 0")
    assert free_memory(proc) == 8 * GIB
    group(
        place / "jobs",
        memory__max=6 * GIB,
        memory__current=3 * GIB,
        memory__stat=f"anon 1\ninactive_file {GIB}",
    )
    assert free_memory(proc) == 4 * GIB
    group(place / "jobs", memory__current=9 * GIB)
    assert free_memory(proc) == 0


def test_a_group_of_version_1(tmp_path: Path) -> None:
    place = tmp_path / "memory"
    mounts = f"30 23 0:26 /docker/a {place} rw - cgroup cgroup rw,memory\n"
    proc = machine(tmp_path, "4:memory:/docker/a\n3:cpu:/\n0::/\n", mounts)
    group(
        place,
        memory__limit_in_bytes=4 * GIB,
        memory__usage_in_bytes=3 * GIB,
        memory__stat="total_inactive_file 0",
    )
    assert free_memory(proc) == GIB


def test_without_groups_it_is_the_machines(tmp_path: Path) -> None:
    proc = machine(tmp_path, "", "")
    assert free_memory(proc) == 8 * GIB


def test_several_jobs_fit_this_machine() -> None:
    assert 1 <= default_jobs() <= (os.cpu_count() or 1)
