"""Points, their names, and what the rules say of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.families.collective_point import CollectivePoint
from hillclimb.harness.gemm.families.collective_sets import COLLECTIVE_SETS
from hillclimb.harness.gemm.generator.types import (
    GENERATOR_TYPES,
    SCALED_MM,
    SIMPLE_GEMM,
    chosen_points,
    point_named,
    refusal,
)

POINT = CollectivePoint(
    generator="simple_gemm",
    dtype="bf16",
    tile=(128, 128, 64),
    cluster=(2, 1),
    schedule="cooperative",
    epilogue="shared",
    scheduler="persistent",
)


def with_(**changes: object) -> CollectivePoint:
    return POINT.model_copy(update=changes)


def test_the_grid_of_the_seed_has_3888_points_of_each_dtype() -> None:
    for kind in (SIMPLE_GEMM, SCALED_MM):
        for dtype in kind.dtypes:
            points = chosen_points(kind.name, "seed002", dtype)
            assert len({point.name for point in points}) == len(points) == 3888
            assert {point.generator for point in points} == {kind.name}


def test_a_dtype_has_scales_or_not() -> None:
    assert not {*SIMPLE_GEMM.dtypes} & {*SCALED_MM.dtypes}
    with pytest.raises(UsageError, match="scaled_mm has no dtype fp8; it has scaled_fp8, scaled_int8"):
        chosen_points("scaled_mm", "hopper", "fp8")


@pytest.mark.parametrize(("name", "least"), [("seed002", 400), ("hopper", 400), ("stock", 30)])
def test_every_set_has_some_to_build_and_names_that_are_identifiers(name: str, least: int) -> None:
    points = chosen_points("simple_gemm", name, "fp8")
    assert all(point.name.isidentifier() for point in points)
    assert least < sum(not refusal(point) for point in points) < len({point.name for point in points})
    assert len({point.name for point in points}) == len(points)


def test_no_set_is_left_out_above() -> None:
    assert {*COLLECTIVE_SETS} == {"seed002", "hopper", "stock"}


def test_stock_kernels_are_those_that_cutlass_library_has_by_default() -> None:
    """Its sides, clusters and schedules, with either operand on M."""
    points = chosen_points("simple_gemm", "stock", "bf16")
    able = [one for one in points if isinstance(one, CollectivePoint) and not refusal(one)]
    assert {one.tile for one in able} == {(64, 256, 64), (128, 128, 64), (128, 256, 64), (256, 128, 64)}
    assert {one.cluster for one in points if isinstance(one, CollectivePoint)} == {(1, 2), (2, 1)}
    assert len(able) == 40 and sum(one.rows == "features" for one in able) == 20


@pytest.mark.parametrize("kind", GENERATOR_TYPES)
def test_a_point_is_found_by_its_name(kind: str) -> None:
    own = ("warpgroup_gemm", "grouped_gemm")
    for dtype in GENERATOR_TYPES[kind].dtypes:
        for name in GENERATOR_TYPES[kind].parameter_sets:
            for point in chosen_points(kind, name, dtype):
                assert point_named(point.name) == point
                longer = point_named(f"{point.name}0")
                assert longer is None or (kind in own and longer.blocks == 10 * point.blocks)
    other = {"simple_gemm": "scaled_int8", "scaled_mm": "bf16", **dict.fromkeys(own, "int8")}[kind]
    assert point_named(point.model_copy(update={"dtype": other}).name) is None
    assert point_named(point.name.replace(kind, "other_gemm")) is None


def test_both_operands_and_steps_of_16_columns_are_in_ours() -> None:
    points = chosen_points("simple_gemm", "hopper", "int8")
    assert {point.rows for point in points} == {"tokens", "features"}
    assert {point.tile[1] for point in points} >= {16, 48, 112, 176, 224}
    assert {point.tile[2] for point in points} == {128}


def test_what_there_is_not_is_told() -> None:
    for words, told in [
        (("simple_gem", "hopper", "bf16"), "generator type simple_gem: .*simple_gemm"),
        (("simple_gemm", "hoper", "bf16"), "set of parameters hoper: .*hopper"),
    ]:
        with pytest.raises(UsageError, match=told):
            chosen_points(*words)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("point", "told"),
    [
        (with_(tile=(128, 320, 64)), "TMA brings 256 rows at once, not 320"),
        (with_(tile=(128, 24, 64)), "columns in steps of 16, not 128x24"),
        (with_(tile=(96, 64, 64)), "rows in steps of 64"),
        (with_(tile=(64, 64, 64)), "two warpgroups cannot share 64 rows"),
        (
            with_(schedule="pingpong", epilogue="single", scheduler="stream_k"),
            "stream-K needs the cooperative",
        ),
        (with_(epilogue="single"), "one warpgroup cannot write what two have"),
        (with_(tile=(256, 128, 256)), "shared memory holds 1 of 2 steps of 196608 bytes"),
        (with_(schedule="basic"), "it would be wrong"),
        (with_(cluster=(4, 4)), "a cluster has 8 thread blocks at the most"),
        (with_(tile=(256, 256, 64)), "256 sums a thread do not fit"),
        (with_(dtype="int8", tile=(256, 192, 256)), "shared memory holds 1 of 2 steps"),
    ],
)
def test_why_a_point_is_refused(point: CollectivePoint, told: str) -> None:
    assert told in refusal(point)


@given(st.sampled_from(chosen_points("simple_gemm", "seed002", "bf16")))
def test_more_steps_never_help_a_tile_that_fits(point: CollectivePoint) -> None:
    """A point that is built could also be built with half the step, or with a cluster of one."""
    rows, columns, inner = point.tile
    if not refusal(point):
        assert not refusal(point.model_copy(update={"tile": (rows, columns, inner // 2)}))
        assert not refusal(point.model_copy(update={"cluster": (1, 1)}))
