"""From files of times to a few kernels, and to the dispatch among them."""

from __future__ import annotations

import importlib.util
import math
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.portfolio.choosing import Wish, choose_kernels, matching
from hillclimb.harness.gemm.portfolio.dispatch import Dispatch, KnownWeight, dispatch, reached
from hillclimb.harness.gemm.portfolio.dispatch_source import as_cpp, as_python
from hillclimb.harness.gemm.portfolio.portfolio import Portfolio, gather
from hillclimb.harness.gemm.portfolio.selection import Selection
from hillclimb.harness.gemm.results import GpuCard, Measured, ProviderResults
from hillclimb.harness.gemm.shape import GemmShape

CARD = GpuCard(name="a card")


def results(provider: str, *times: tuple[str, int, float], **more: Any) -> ProviderResults:
    """Of kernel, m and milliseconds."""
    measured = tuple(
        Measured(name=f"m{m}", m=m, n=1024, k=1024, dtype="bf16", kernel=kernel, runtime_ms=ms)
        for kernel, m, ms in times
    )
    return ProviderResults(provider=provider, results=measured, **{"gpu": CARD, **more})


def by_tiles(ms: list[int], tiles: list[int]) -> Portfolio:
    """Each kernel computes whole tiles of its own height; low ones take longer for a row."""
    times = [[math.ceil(m / tile) * (tile + 16) + 8 for tile in tiles] for m in ms]
    shapes = tuple(GemmShape(f"m{m}", m, 4096, 4096, "bf16") for m in ms)
    kernels = tuple(f"t{tile}" for tile in tiles)
    return Portfolio(shapes, kernels, np.array(times, float), np.zeros((len(ms), len(tiles))))


def test_files_are_gathered_by_shape_and_kernel() -> None:
    found = gather([
        results("a", ("x", 1, 2.0), ("y", 1, 1.0), ("x", 2, 3.0), ("x", 1, 4.0)),
        results("b", ("", 2, 1.5)),
    ])  # fmt: skip
    assert found.kernels == ("a:x", "a:y", "b")
    assert [shape.name for shape in found.shapes] == ["m1", "m2"]
    assert np.array_equal(found.milliseconds, [[2, 1, np.nan], [3, np.nan, 1.5]], equal_nan=True)
    assert found.efficiency.tolist() == [[0.5, 1, 0], [0.5, 0, 1]]


def in_ways(*times: tuple[str, int, float, float]) -> ProviderResults:
    """Of a way to run a tile of so many columns, m, and the milliseconds that choose and that tell."""
    measured = tuple(
        Measured(
            name=f"m{m}", m=m, n=1024, k=1024, dtype="bf16", runtime_ms=told, choosing_ms=chosen,
            kernel=f"warpgroup_gemm_bf16_64x{way.partition('_')[0]}x64_1x1_split1_once_by1_{way.partition('_')[2]}",
        )
        for way, m, chosen, told in times
    )  # fmt: skip
    return ProviderResults(provider="generated", gpu=CARD, results=measured)


WAYS = in_ways(
    ("8_tokens_1x1_raster1", 1, 1.0, 1.25),
    ("8_features_1x2_raster2_swizzle4_pdl", 1, 2.0, 1.0),
    ("16_tokens_1x1_raster1", 1, 1.25, 1.0),
    ("8_tokens_1x1_raster1", 2, 4.0, 4.0),
    ("8_features_1x2_raster2_swizzle4_pdl", 2, 2.0, 2.0),
    ("16_tokens_1x1_raster1", 2, 2.5, 2.5),
)


def test_a_kernel_is_one_in_all_its_ways() -> None:
    found = gather([WAYS])
    stem = "generated:warpgroup_gemm_bf16_64x"
    assert found.kernels == (f"{stem}8x64_1x1_split1_once_by1", f"{stem}16x64_1x1_split1_once_by1")
    assert found.efficiency.tolist() == [[1, 0.8], [1, 0.8]], "of the best way of each, by the choosing times"
    assert found.kernel_milliseconds.tolist() == [[1.25, 1], [2, 2.5]]
    assert found.best_ways([0]) == [0, 1] and found.best_ways([1]) == [2]
    assert found.best_ways([0, 1]) == [0, 1, 2], "one that is never the best has a way, too"


def test_what_is_reached_is_told_by_times_that_chose_nothing() -> None:
    found = gather([WAYS])
    choice = choose_kernels(found, Wish(count=1, forbidden=(found.kernels[0],)))
    assert len(choice.kernels) == len(choice.dispatch.kernels) == 1
    assert choice.on_shapes.mean == pytest.approx((1.25 / 1.0 + 2.0 / 2.5) / 2)
    choice = choose_kernels(found, Wish(count=1), most=2)
    assert (len(choice.kernels), len(choice.dispatch.kernels)) == (1, 2)
    assert choice.on_shapes.mean == choice.curve[0].mean == 1
    shape = GemmShape("", 2, 1024, 1024, "bf16")
    assert choice.dispatch.choose(shape).endswith("_features_1x2_raster2_swizzle4_pdl")


def test_noise_is_that_of_both_times() -> None:
    one = Measured(
        name="m1", m=1, n=64, k=64, dtype="bf16", kernel="x", runtime_ms=2, low_ms=1.9, high_ms=2.1
    )
    two = Measured(
        name="m1", m=1, n=64, k=64, dtype="bf16", kernel="y", runtime_ms=1, low_ms=0.98, high_ms=1.02
    )
    found = gather([ProviderResults(provider="a", gpu=CARD, results=(one, two))])
    assert found.noise[0, 0] == pytest.approx(0.5 * (0.05 + 0.02))
    assert found.noise[0, 1] == 0, "the best is the best"


@pytest.mark.parametrize(
    ("more", "told"), [({"gpu": GpuCard(name="other")}, "GPU of b"), ({"cache": "hot"}, "cache of b")]
)
def test_unlike_files_are_not_gathered(more: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        gather([results("a", ("x", 1, 2.0)), results("b", ("x", 1, 2.0), **more)])
    with pytest.raises(UsageError, match="no times"):
        gather([results("a")])


def test_the_fewest_and_the_best_are_chosen() -> None:
    portfolio = by_tiles([16, 64, 100, 128, 256, 300, 512], [16, 64, 128, 256])
    few = choose_kernels(portfolio, Wish(threshold=0.98))
    assert few.on_shapes.worst >= 0.98
    assert choose_kernels(portfolio, Wish(count=len(few.kernels) - 1)).on_shapes.worst < 0.98
    best = choose_kernels(portfolio, Wish(count=2), most=4)
    assert [point.kernels for point in best.curve] == [1, 2, 3, 4]
    assert best.curve[1].mean == pytest.approx(best.on_shapes.mean)
    assert all(one.mean < two.mean for one, two in zip(best.curve, best.curve[1:], strict=False))
    kept = choose_kernels(portfolio, Wish(count=1, required=("t256",)))
    assert kept.kernels == ("t256",)
    assert "t16" not in choose_kernels(portfolio, Wish(count=3, forbidden=("t16",))).kernels


def test_held_out_sizes_are_not_seen_by_the_choice() -> None:
    ms = [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512]
    portfolio = by_tiles(ms, [16, 64, 128, 256])
    choice = choose_kernels(portfolio, Wish(count=3), held_out_m=ms[1::2])
    assert choice.held_out is not None
    assert (choice.on_shapes.shapes, choice.held_out.shapes) == (6, 5)
    assert [(one.n, one.k) for one in choice.dispatch.known] == [(4096, 4096)]
    assert choice.held_out.worst <= choice.held_out.mean <= 1
    alone = choose_kernels(portfolio.rows(m in ms[::2] for m in ms), Wish(count=3))
    assert alone.kernels == choice.kernels
    for bad in (ms, [7]):
        with pytest.raises(UsageError, match="leaves no shapes on one side"):
            choose_kernels(portfolio, Wish(count=1), held_out_m=bad)


def test_held_out_shapes_without_a_time_of_what_they_get_are_told_and_not_in_the_mean_of_the_others() -> None:
    ms = [16, 24, 64, 96]
    portfolio = by_tiles(ms, [16, 64])
    chosen = choose_kernels(portfolio, Wish(count=1), held_out_m=[24, 96])
    assert chosen.held_out and chosen.held_out.untimed == chosen.on_shapes.untimed == 0
    column = portfolio.kernels.index(chosen.kernels[0])
    for lacking, wanted in (([1], 1), ([1, 3], 2)):
        portfolio.milliseconds[lacking, column] = np.nan
        out = choose_kernels(portfolio.rows([True] * 4), Wish(count=1), held_out_m=[24, 96]).held_out
        assert out and (out.shapes, out.untimed) == (2, wanted)
    assert out.mean == out.worst == 0, "there is no other"
    again = by_tiles(ms, [16, 64])
    again.milliseconds[1, column] = np.nan
    out = choose_kernels(again, Wish(count=1), held_out_m=[24, 96]).held_out
    assert out and out.mean == out.worst > 0 and out.worst_shape == "m96"


def test_shapes_count_as_often_as_they_are_called() -> None:
    portfolio = by_tiles([16, 512], [16, 256])
    few, weights = portfolio.called({"m16": 100.0, "m512": 1.0})
    assert choose_kernels(few, Wish(count=1), weights).kernels == ("t16",)
    few, weights = portfolio.called({"m512": 1.0})
    assert [shape.name for shape in few.shapes] == ["m512"]
    for calls, told in (
        ({"m17": 1.0}, "no shape 'm17'"),
        ({"m16": 0.0}, "no shape is called"),
        ({"m16": -1.0}, "-1.0 times"),
    ):
        with pytest.raises(UsageError, match=told):
            portfolio.called(calls)


def test_kernels_are_named_whole_or_by_patterns() -> None:
    kernels = ["cutlass:a_1", "cutlass:a_2", "triton:a.1"]
    assert matching(["cutlass:*"], kernels) == ("cutlass:a_1", "cutlass:a_2")
    assert matching(["triton:a.1", "*_2"], kernels) == ("triton:a.1", "cutlass:a_2")
    with pytest.raises(UsageError, match=r"no kernel is named 'triton:a_1'"):
        matching(["triton:a_1"], kernels)


def test_a_measured_shape_gets_its_best_chosen_kernel() -> None:
    portfolio = by_tiles([16, 64, 100, 128, 256, 300, 512], [16, 64, 128, 256])
    table = dispatch(portfolio, Selection((0, 2, 3), 0, 0))
    best = portfolio.efficiency[:, [0, 2, 3]].max(axis=1)
    assert reached(table, portfolio) == pytest.approx(best.tolist())


def test_where_no_way_has_all_times_the_fall_back_is_best_in_the_mean() -> None:
    shapes = tuple(GemmShape(f"m{m}", m, 64, 64, "bf16") for m in (1, 2, 4))
    times = np.array([[1, np.nan, np.nan], [np.nan, 1.1, 1], [np.nan, 1, 2]])
    table = dispatch(
        Portfolio(shapes, ("a", "b", "c"), times, np.zeros_like(times)), Selection((0, 1, 2), 0, 0)
    )
    assert table.kernels[table.fall_back] == "b"


def test_what_nothing_is_known_of_gets_the_fall_back() -> None:
    table = dispatch(by_tiles([40, 512], [16, 64]), Selection((0, 1), 0, 0))
    assert table.choose(GemmShape("", 16, 4096, 4096, "fp8")) == table.kernels[table.fall_back]
    assert table.kernels[table.fall_back] == "t64", "its worst shape is better"


sizes = st.integers(1, 1 << 20)
shapes = st.builds(
    GemmShape, st.just(""), sizes, sizes, sizes, st.sampled_from(["bf16", "fp8"]), st.sampled_from([1, 1, 8])
)  # fmt: skip


def random_table(seed: int, count: int, kernels: int) -> Dispatch:
    secret = random.Random(seed)
    known = []
    for _ in range(count):
        starts = sorted({1, *(secret.randint(2, 9000) for _ in range(secret.randrange(6)))})
        known.append(
            KnownWeight(
                n=secret.choice([1024, 6144, 7168]), k=secret.choice([2048, 4096]),
                groups=secret.choice([1, 1, 8]), dtype=secret.choice(["bf16", "f16"]),
                starts=tuple(starts), chosen=tuple(secret.randrange(kernels) for _ in starts),
            )
        )  # fmt: skip
    return Dispatch(
        schema=2, kernels=tuple(f'k"{at}' for at in range(kernels)), fall_back=kernels - 1, known=tuple(known)
    )


@given(st.integers(0, 50), shapes)
def test_any_shape_gets_one_of_the_kernels(seed: int, shape: GemmShape) -> None:
    table = random_table(seed, seed % 12, 1 + seed % 5)
    assert table.choose(shape) in table.kernels
    assert Dispatch.model_validate_json(table.model_dump_json(by_alias=True)) == table


def test_products_of_groups_and_single_ones_are_never_near() -> None:
    known = [
        KnownWeight(n=64, k=64, groups=groups, dtype="bf16", starts=(1,), chosen=(at,))
        for at, groups in enumerate((1, 128))
    ]
    table = Dispatch(schema=2, kernels=("single", "grouped", "other"), fall_back=2, known=tuple(known))
    for groups, kernel in ((1, "single"), (2, "grouped"), (512, "grouped")):
        assert table.choose(GemmShape("", 5, 64, 64, "bf16", groups)) == kernel
    table = table.model_copy(update={"known": table.known[1:]})
    assert table.choose(GemmShape("", 5, 64, 64, "bf16")) == "other"


def asked(seed: int, count: int) -> list[GemmShape]:
    secret = random.Random(seed)
    return [
        GemmShape(
            "", secret.choice([0, secret.randint(1, 9000)]), secret.choice([1024, 2000]), 4096,
            secret.choice(["bf16", "f16", "fp8"]), secret.choice([1, 1, 2, 64]),
        )
        for _ in range(count)
    ]  # fmt: skip


@pytest.mark.parametrize("seed", [1, 2, 3, 12])
def test_python_source_chooses_as_the_table_does(tmp_path: Path, seed: int) -> None:
    table = random_table(seed, 0 if seed == 12 else 40, 5)
    (tmp_path / "chosen.py").write_text(as_python(table))
    spec = importlib.util.spec_from_file_location("chosen", tmp_path / "chosen.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for one in asked(seed, 60):
        assert module.choose(one.dtype, one.m, one.n, one.k, one.groups) == table.choose(one)


def test_cpp_source_chooses_as_the_table_does(tmp_path: Path) -> None:
    compiler = shutil.which("g++") or shutil.which("c++")
    if compiler is None:
        pytest.skip("no C++ compiler")
    wanted = []
    includes, calls = [], []
    for seed in (1, 2, 12):
        table = random_table(seed, 0 if seed == 12 else 40, 5)
        source = as_cpp(table).replace("gemm_dispatch", f"table_{seed}").replace("#pragma once", "")
        includes.append(source)
        for one in asked(seed, 60):
            place = f"table_{seed}"
            sizes = ", ".join(map(str, (one.m, one.n, one.k, one.groups)))
            chosen = f"{place}::choose({place}::Dtype::{one.dtype}, {sizes})"
            calls.append(f"std::puts({place}::kernel_names[{chosen}]);")
            wanted.append(table.choose(one))
    program = "\n".join([*includes, "#include <cstdio>", "int main() {", *calls, "}"])
    (tmp_path / "main.cpp").write_text(program)
    command = [
        compiler,
        "-std=c++17",
        "-Wall",
        "-Werror",
        "-O0",
        str(tmp_path / "main.cpp"),
        "-o",
        str(tmp_path / "main"),
    ]
    subprocess.run(command, check=True)
    printed = subprocess.run([tmp_path / "main"], check=True, capture_output=True, text=True).stdout
    assert printed.splitlines() == wanted


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"fall_back": 2}, "fall_back 2 is none of the 2"),
        ({"kernels": ("one",), "fall_back": 0}, "a span's kernel is none of the 1"),
        ({"starts": (2, 5)}, "does not ascend from 1"),
        ({"starts": (1, 1)}, "does not ascend from 1"),
        ({"starts": ()}, "does not ascend from 1"),
        ({"starts": (1, 2, 3)}, "has not one kernel for each span"),
    ],
)
def test_a_table_that_does_not_fit_together_is_refused(change: dict[str, Any], told: str) -> None:
    weight = {"n": 64, "k": 64, "groups": 1, "dtype": "bf16", "starts": (1, 9), "chosen": (0, 1)}
    of_weight = {key: value for key, value in change.items() if key in weight}
    table = {"schema": 2, "kernels": ("one", "two"), "fall_back": 0, "known": ({**weight, **of_weight},)}
    assert Dispatch.model_validate({**table, "known": (weight,)})
    with pytest.raises(ValueError, match=told):
        Dispatch.model_validate(
            {**table, **{key: value for key, value in change.items() if key not in weight}}
        )
