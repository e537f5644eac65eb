"""Which blocks on a GPU are measured again, and whose processes count as others'."""

from __future__ import annotations

import os
import subprocess

import pytest

from hillclimb.harness.device.device import GpuSample
from hillclimb.harness.device.gpu.contamination import block_environment, count_tenants, disturbances
from hillclimb.harness.device.host import HostLoad
from hillclimb.harness.records import Environment

QUIET = {"sm_mhz": (1980, 1980), "memory_mhz": 3201, "throttle": (), "tenants": 0}
CPUS = 16


def block(**changes: object) -> Environment:
    return Environment.model_validate({**QUIET, **changes})


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"sm_mhz": (1605, 1590), "throttle": ("power_cap",), "watts": 700},
        {"sm_mhz": None, "throttle": None, "tenants": None},
        {"sm_mhz": (0, 0)},
        {"others": 8.0},
        {"throttle": ("application_clocks", "sync_boost")},
    ],
)
def test_what_is_usual_or_unknown_is_kept(changes: dict[str, object]) -> None:
    assert disturbances(block(**changes), CPUS) == ()


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"tenants": 1}, ("another process on the GPU",)),
        ({"crowded": 1}, ("GPU busy before a segment",)),
        ({"sm_mhz": (1980, 1800)}, ("clocks moved",)),
        ({"sm_mhz": (345, 1980)}, ("clocks moved",)),
        ({"throttle": ("power_cap", "sw_thermal")}, ("throttled (sw_thermal)",)),
        (
            {"throttle": ("hw_slowdown",), "tenants": 2},
            ("another process on the GPU", "throttled (hw_slowdown)"),
        ),
        ({"steal": 0.2}, ("steal",)),
        ({"others": 14.0}, ("other processes",)),
    ],
)
def test_what_disturbs_is_measured_again(changes: dict[str, object], named: tuple[str, ...]) -> None:
    assert disturbances(block(**changes), CPUS) == named


def test_few_cpus_are_disturbed_by_little() -> None:
    assert disturbances(block(others=0.6), cpus=2) == ("other processes",)


def test_the_record_is_of_both_ends_and_small() -> None:
    start = GpuSample(1980, 3201, 40, 300, ("power_cap",))
    end = GpuSample(1965, 3201, 42, 310, ("sw_thermal", "power_cap"))
    environment = block_environment(HostLoad(0.0, 0.25), start, end, None)
    assert environment.model_dump_json() == (
        '{"steal":0.0,"others":0.25,"sm_mhz":[1980,1965],"memory_mhz":3201,"celsius":42,"watts":310,'
        '"throttle":["power_cap","sw_thermal"]}'
    )
    unknown = GpuSample(None, None, None, None, None)
    assert block_environment(HostLoad(0.0, 0.25), unknown, end, None).sm_mhz is None
    assert block_environment(HostLoad(0.0, 0.0), unknown, unknown, None) == Environment()


def test_old_records_and_those_of_a_cpu_stay_as_they_were() -> None:
    text = '{"steal":0.01,"others":0.2}'
    assert Environment.model_validate_json(text).model_dump_json() == text
    again = Environment.model_validate_json(block().model_dump_json())
    assert again == block()


def test_pids_are_believed_only_with_the_judge_among_them() -> None:
    assert count_tenants(None, 10, None) is None
    assert count_tenants([7, 8], 10, [7]) is None
    assert count_tenants([], 10, None) is None
    assert count_tenants([10, 7, 7, 8], 10, [7]) == 1
    assert count_tenants([10, 7, 8], 10, [7, 8, 9]) == 0


def test_descendants_are_ones_own_and_others_are_not() -> None:
    me = os.getpid()
    with subprocess.Popen(
        ["sh", "-c", "sleep 60 & echo $!; wait"], stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None
        grandchild = int(shell.stdout.readline())
        try:
            assert count_tenants([me, shell.pid, grandchild], me, None) == 0
            assert count_tenants([me, grandchild, os.getppid(), 2**22 + 1], me, None) == 2
        finally:
            os.kill(grandchild, 9)
