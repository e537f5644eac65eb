"""A bench: what every kernel is said to have done, whatever the others did. Providers are stand-in processes."""

from __future__ import annotations

import json
import math
import os
import random
import sys
from collections import Counter
from math import comb
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.errors import MachineError, UsageError
from hillclimb.harness.gemm.bench.bench import Bench, HeldGpu, worker_command
from hillclimb.harness.gemm.bench.remote import ProviderProcess
from hillclimb.harness.gemm.bench.rounds import BenchPlan, GpuReading, median_interval
from hillclimb.harness.gemm.generator.catalog import KernelCatalog
from hillclimb.harness.gemm.providers.worker import NO_PDL
from hillclimb.harness.gemm.results import GpuCard, read_results
from hillclimb.harness.gemm.shape import GemmShape
from tests import fakes

H200 = HeldGpu(GpuCard(name="NVIDIA H200", driver="580.1"), "GPU-1", lambda: GpuReading(sm_mhz=1980.0))
SHAPE = GemmShape("mlp", 64, 4096, 4096, "bf16")
OTHER = GemmShape("qkv", 16, 6144, 4096, "bf16")
PROVIDER = str(Path(fakes.__file__).with_name("gemm_provider.py"))
QUIET = {"watch": lambda shape, text: None}

Behaviours = dict[str, str | float]


def bench(
    folder: Path, providers: dict[str, Behaviours], plan: BenchPlan | None = None, seconds: float = 30
) -> Bench:
    """Of providers whose kernels behave so."""
    commands = {}
    for name, kernels in providers.items():
        path = folder / f"{name}.kernels"
        path.write_text(json.dumps(kernels))
        commands[name] = [sys.executable, PROVIDER, str(path)]
    return Bench(folder / "out", commands, H200, plan or BenchPlan(), seconds)


def asked(folder: Path, provider: str) -> list[str]:
    return (folder / f"{provider}.asked").read_text().splitlines()


def timed(folder: Path, providers: dict[str, Behaviours], **options: object) -> dict[str, dict[str, str]]:
    """By provider, what each kernel is said to have done."""
    run = bench(folder, providers, **options)  # type: ignore[arg-type]
    try:
        assert run.run([SHAPE], math.inf, **QUIET) == []
        files = [read_results(path) for path in run.write_results([SHAPE])]
    finally:
        run.close()
    return {
        file.provider: {one.kernel: "measured" for one in file.results}
        | {one.kernel: one.status for one in file.failed}
        for file in files
    }


def test_the_best_of_each_provider_are_timed_in_rounds(tmp_path: Path) -> None:
    providers: dict[str, Behaviours] = {
        "one": {"a": 30.0, "b": 31.0, "c": 40.0, "d": 30.5, "e": 30.6},
        "two": {"f": 60.0},
    }
    run = bench(tmp_path, providers, BenchPlan(rounds=7))
    run.run([SHAPE], math.inf, **QUIET)
    run.close()
    found = read_results(run.write_results([SHAPE])[0])
    assert sorted(one.kernel for one in found.results) == ["a", "d", "e"] and not found.failed
    best = min(found.results, key=lambda one: one.runtime_ms)
    assert (best.kernel, best.statistic, best.is_checked) == ("a", "median", True)
    assert best.runtime_ms == pytest.approx(0.03) and found.cache == "cold"
    assert found.software == {"stand-in": "1"} and found.gpu == H200.card
    counts = Counter(asked(tmp_path, "one"))
    assert (
        counts["time a"] == 15 and counts["time b"] == 1 and counts["check a"] == 2 and counts["check b"] == 1
    )
    kept = run.find(SHAPE)
    assert kept and {name: len(look) for name, look in kept.looks.items()} == {"one": 5, "two": 1}
    assert kept.looks["one"]["c"] == pytest.approx(40e-6) and kept.gpu.sm_mhz == 1980.0
    assert {len(one.seconds) for one in kept.times} == {7}
    assert kept.control and (kept.control.kernel, len(kept.control.seconds)) == ("a", 7)
    assert run.control([SHAPE, OTHER]) == {SHAPE: pytest.approx(1.0)}


def test_half_of_the_rounds_choose_and_the_others_tell(tmp_path: Path) -> None:
    run = bench(tmp_path, {"one": {"a": 30.0, "b": 30.1}}, BenchPlan(rounds=5))
    run.run([SHAPE], math.inf, **QUIET)
    run.close()
    kept = run.find(SHAPE)
    assert kept
    seconds = {"a": (9e-5, 4e-5, 9e-5, 4e-5, 9e-5), "b": (5e-5, 6e-5, 5e-5, 6e-5, 5e-5)}
    times = [one.model_copy(update={"seconds": seconds[one.kernel]}) for one in kept.times]
    (tmp_path / "out" / "bf16_m64_n4096_k4096.json").write_text(
        kept.model_copy(update={"times": tuple(times)}).model_dump_json()
    )
    (best,) = read_results(run.write_results([SHAPE])[0]).best().values()
    told = (best.kernel, best.choosing_ms, best.runtime_ms, best.low_ms, best.high_ms)
    assert told == ("a", *map(pytest.approx, (0.04, 0.09, 0.09, 0.09)))


def test_rounds_are_in_an_order_drawn_anew(tmp_path: Path) -> None:
    timed(tmp_path, {"one": {"a": 30.0, "b": 30.1, "c": 30.2}}, plan=BenchPlan(rounds=12))
    order = [line[-1] for line in asked(tmp_path, "one") if line.startswith("time")][3:]
    rounds = ["".join(order[at : at + 4]) for at in range(0, 48, 4)]
    assert {"".join(sorted(one)) for one in rounds} == {"aabc"} and len(set(rounds)) > 2


def test_more_is_looked_for_near_the_best(tmp_path: Path) -> None:
    """Also behind a kernel that ends the process."""
    kernels: Behaviours = {"a": 30.0, "b": 31.0, "c": 60.0, "_dies": "dies", "_better": 25.0, "_worse": 90.0}
    run = bench(tmp_path, {"one": kernels}, BenchPlan(rounds=2))
    run.run([SHAPE, OTHER], math.inf, **QUIET)
    run.close()
    found = run.find(SHAPE)
    assert found and {one.kernel for one in found.times} == {"_better"}
    assert set(found.looks["one"]) == {"a", "b", "c", "_better", "_worse"}
    assert [(one.kernel, one.status) for one in found.faults] == [("_dies", "aborted")]
    refined = [
        json.loads(line.partition(" ")[2]) for line in asked(tmp_path, "one") if line.startswith("refine")
    ]
    once = [["a", "b"], ["a", "b"], ["_better"]]
    assert refined == [*once, *once]


FAULTS = {
    "wrong": "incorrect",
    "breaks": "failed",
    "dies": "aborted",
    "hangs": "timed_out",
    "babbles": "aborted",
    "wrong at last": "incorrect",
}


@pytest.mark.parametrize("does", FAULTS)
def test_a_fault_costs_its_own_kernel(tmp_path: Path, does: str) -> None:
    told = timed(tmp_path, {"one": {"a": 30.0, "bad": does, "b": 31.0}, "two": {"c": 30.0}}, seconds=2.0)
    assert told == {"one": {"a": "measured", "b": "measured", "bad": FAULTS[does]}, "two": {"c": "measured"}}


@pytest.mark.slow(20)
@given(st.lists(st.sampled_from([*FAULTS.keys() - {"hangs", "wrong at last"}, "fine"]), max_size=5))
def test_any_mixture_of_faults_is_told_by_its_own_kernels(
    tmp_path_factory: pytest.TempPathFactory, does: list[str]
) -> None:
    kernels: Behaviours = {f"k{at}": one if one != "fine" else 30.0 for at, one in enumerate(does)}
    told = timed(tmp_path_factory.mktemp("b"), {"one": kernels}, plan=BenchPlan(rounds=1, finalists=9))
    assert told["one"] == {f"k{at}": FAULTS.get(one, "measured") for at, one in enumerate(does)}


def test_what_hangs_is_not_tried_again_and_many_end_the_look(tmp_path: Path) -> None:
    hanging: Behaviours = dict.fromkeys("abcde", "hangs")
    run = bench(tmp_path, {"one": {"fine": 30.0, **hanging, "last": 30.0}}, seconds=0.5)
    third = GemmShape("o", 32, 4096, 4096, "bf16")
    run.run([SHAPE, OTHER, third], math.inf, **QUIET)
    run.close()
    first, last = run.find(SHAPE), run.find(third)
    assert first and last
    assert [(one.kernel, one.status) for one in first.faults] == [
        *((name, "timed_out") for name in "abc"),
        ("", "timed_out"),
    ]
    assert "3 of its kernels did not end; 3 were not tried" in first.faults[-1].reason
    assert [one.kernel for one in last.faults] == [*"abcde"] and set(last.looks["one"]) == {"fine", "last"}
    assert "did not end for 2 shapes" in last.faults[0].reason
    assert Counter(asked(tmp_path, "one"))["check a"] == 2


def test_a_shape_is_prepared_again_where_that_failed_once(tmp_path: Path) -> None:
    run = bench(tmp_path, {"one": {"a": 30.0, "dies": "dies", "b": 31.0, "c": 32.0}})
    (tmp_path / "one.short").write_text("2")
    run.run([SHAPE], math.inf, **QUIET)
    run.close()
    found = run.find(SHAPE)
    assert found and {one.kernel for one in found.times} == {"a", "c"}
    assert [(one.kernel, one.status) for one in found.faults] == [("dies", "aborted"), ("b", "unsupported")]


def test_a_provider_that_comes_back_as_another_ends_the_bench(tmp_path: Path) -> None:
    run = bench(tmp_path, {"one": {"a": 30.0, "dies": "dies", "b": 31.0}})
    (tmp_path / "one.software").write_text("2")
    with pytest.raises(MachineError, match="other software than before"):
        run.run([SHAPE], math.inf, **QUIET)
    run.close()
    assert run.find(SHAPE) is None


def test_a_provider_that_has_no_kernel_says_so(tmp_path: Path) -> None:
    told = timed(tmp_path, {"one": {"unsupported": "", "a": 30.0}, "two": {"c": 30.0}})
    assert told == {"one": {"": "unsupported"}, "two": {"c": "measured"}}


def test_a_time_that_no_card_can_have_is_a_failure(tmp_path: Path) -> None:
    assert timed(tmp_path, {"one": {"a": 0.5}}) == {"one": {"a": "impossible"}}


def test_what_was_timed_is_not_timed_again(tmp_path: Path) -> None:
    providers: dict[str, Behaviours] = {"one": {"a": 30.0}}
    run = bench(tmp_path, providers, BenchPlan(rounds=1))
    assert run.run([SHAPE, OTHER], 0.0, **QUIET) == [SHAPE, OTHER]
    assert run.run([SHAPE], math.inf, **QUIET) == []
    run.close()
    before = len(asked(tmp_path, "one"))
    run = bench(tmp_path, providers, BenchPlan(rounds=1))
    assert run.run([SHAPE, OTHER], 0.0, **QUIET) == [OTHER]
    assert run.run([SHAPE, OTHER], math.inf, **QUIET) == []
    run.close()
    assert Counter(asked(tmp_path, "one")[before:])["prepare "] == 1
    assert {one.name for one in read_results(run.write_results([SHAPE, OTHER])[0]).results} == {"mlp", "qkv"}
    (tmp_path / "out" / "bf16_m64_n4096_k4096.json").write_text("{")
    assert run.find(SHAPE) is None


def test_a_folder_is_of_one_plan_and_one_set_of_providers(tmp_path: Path) -> None:
    bench(tmp_path, {"one": {}}).close()
    with pytest.raises(UsageError, match="has times of other settings: plan"):
        bench(tmp_path, {"one": {}}, BenchPlan(rounds=3))
    with pytest.raises(UsageError, match="has times of other settings: software"):
        bench(tmp_path, {"one": {}, "two": {}})


def test_a_provider_that_does_not_start_is_the_machines_fault(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with pytest.raises(MachineError, match=r"process of x does not start.*No such device.*read .*log"):
        ProviderProcess("x", ["sh", "-c", "echo No such device >&2; exit 3"], os.environ, log, 5.0)
    with pytest.raises(UsageError, match=r"cublasl.*cublaslt"):
        worker_command("cublasl", Path())


def test_a_kernel_that_there_is_none_of_is_told_before_anything_is_timed(tmp_path: Path) -> None:
    (tmp_path / "kernels.json").write_text(
        KernelCatalog(schema=3, architecture="90a", software={}, kernels=()).model_dump_json(by_alias=True)
    )
    command = worker_command("generated", tmp_path, ["a"])
    with pytest.raises(UsageError, match=rf"^{tmp_path} has no kernel a; `hillclimb gemm generate` writes"):
        ProviderProcess("generated", command, os.environ, tmp_path / "log", 60.0)


def test_a_plan_without_pdl_reaches_the_process(tmp_path: Path) -> None:
    (tmp_path / "kernels.json").write_text(
        KernelCatalog(schema=3, architecture="90a", software={}, kernels=()).model_dump_json(by_alias=True)
    )
    words = [worker_command("generated", tmp_path, ["a"], pdl=pdl)[3:] for pdl in (True, False)]
    assert words == [["generated", str(tmp_path), "a"], ["generated", str(tmp_path), NO_PDL, "a"]]


@given(st.integers(6, 60))
def test_the_interval_of_a_median_covers_what_it_says(n: int) -> None:
    """By the binomial distribution: the true median is below the k-th value as often as k or more are above it."""
    _, low, high = median_interval(tuple(range(n)))
    missed = 2 * sum(comb(n, k) for k in range(int(low) + 1)) / 2**n
    assert high == n - 1 - low and missed <= 0.05
    wider = 2 * sum(comb(n, k) for k in range(int(low) + 2)) / 2**n
    assert wider > 0.05 or low + 1 > n - 2 - low


@given(st.lists(st.floats(1.0, 2.0), min_size=1, max_size=5))
def test_of_few_values_the_ends_are_taken(values: list[float]) -> None:
    _, low, high = median_interval(tuple(random.sample(values, len(values))))
    assert (low, high) == (min(values), max(values))
