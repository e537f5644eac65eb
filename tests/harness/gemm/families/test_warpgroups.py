"""Kernels of our own: which can be built, and how they are run for a shape."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.gemm.families.collective_point import CollectivePoint
from hillclimb.harness.gemm.families.point import SHARED_BYTES, WARPGROUP
from hillclimb.harness.gemm.families.run_option import (
    RunOption,
    as_run,
    compiled_name,
    option_named,
    way_name,
)
from hillclimb.harness.gemm.families.warpgroup_point import REGISTERS, WarpgroupPoint
from hillclimb.harness.gemm.families.warpgroup_rules import steps
from hillclimb.harness.gemm.generator.source import ALIKE, grouped, render
from hillclimb.harness.gemm.generator.types import chosen_points, refusal, way_named
from hillclimb.harness.gemm.providers import ways
from hillclimb.harness.gemm.providers.warpgroup_cost import TileGrid
from hillclimb.harness.gemm.providers.ways import further_options, run_options, sides, way_seconds
from hillclimb.harness.gemm.shape import GemmShape

POINTS = [one for one in chosen_points("warpgroup_gemm", "hopper", "bf16") if isinstance(one, WarpgroupPoint)]
GOOD = [one for one in POINTS if not refusal(one)]
GROUPED = [
    one
    for one in chosen_points("grouped_gemm", "hopper", "bf16")
    if isinstance(one, WarpgroupPoint) and not refusal(one)
]
FLEXIBLE = [
    one
    for one in chosen_points("warpgroup_gemm", "flexible", "bf16")
    if isinstance(one, WarpgroupPoint) and not refusal(one)
]
POINT = WarpgroupPoint(dtype="bf16", tile=(128, 128, 64), consumers=(2, 1))

COLLECTIVE = "simple_gemm_bf16_128x128x64_2x1_cooperative_shared_persistent_tokens"

points = st.sampled_from(GOOD)
sizes = st.sampled_from([1, 16, 100, 512, 4096])


def with_(**changes: object) -> WarpgroupPoint:
    return POINT.model_copy(update=changes)


def shape(m: int, n: int = 4096, k: int = 4096) -> GemmShape:
    return GemmShape("a", m, n, k, "bf16")


def test_names_are_identifiers_and_none_comes_twice() -> None:
    assert all(point.name.isidentifier() for point in POINTS)
    assert len({point.name for point in POINTS}) == len(POINTS) > len(GOOD) > 600


@pytest.mark.parametrize(
    ("point", "told"),
    [
        (with_(tile=(192, 128, 64)), "rows in steps of 128 and columns in steps of 8, not 192x128"),
        (with_(tile=(128, 132, 64)), "not 128x132"),
        (with_(tile=(128, 264, 64)), "TMA brings 256 rows at once, not 264"),
        (with_(tile=(128, 128, 96)), "a step along K has a multiple of 128 bytes, not 96 elements"),
        (with_(dtype="fp8"), "a step along K has a multiple of 128 bytes, not 64 elements"),
        (with_(generator="grouped_gemm"), "how many tiles the groups have is known when it runs"),
        (with_(generator="grouped_gemm", is_persistent=True, splits=2), "blocks that share K take one tile"),
        (with_(splits=3), "K is split in 1, 2, 4, 8, not 3"),
        (with_(splits=2, is_persistent=True), "blocks that share K take one tile"),
        (with_(consumers=(2, 2), tile=(128, 128, 64)), "3 consumers are the most, not 4"),
        (with_(tile=(256, 224, 64)), "224 sums a thread do not fit into its 232 registers"),
        (
            with_(tile=(64, 208, 64), consumers=(1, 1), blocks=2),
            "an instruction of 208 columns takes more than 128",
        ),
        (with_(is_flexible=True, splits=2), "has neither splits nor a number of tiles"),
        (with_(is_flexible=True, is_persistent=True), "has neither splits nor a number of tiles"),
        (with_(is_flexible=True, generator="grouped_gemm"), "a flexible kernel is of single products"),
        (with_(is_flexible=True, tile=(192, 128, 64)), "rows in steps of 128"),
        (with_(is_flexible=True, tile=(256, 160, 64)), "160 sums a thread, and all ways to add them"),
        (
            with_(is_flexible=True, tile=(128, 104, 64), blocks=2),
            "52 sums a thread, and all ways to add them",
        ),
        (with_(is_flexible=True, tile=(128, 256, 192)), "shared memory holds 1 of 2 steps"),
        (with_(tile=(128, 256, 256)), "shared memory holds 1 of 2 steps"),
    ],
)
def test_why_a_point_is_refused(point: WarpgroupPoint, told: str) -> None:
    assert told in refusal(point)


@given(st.sampled_from(POINTS))
def test_what_is_built_fits_into_a_multiprocessor(point: WarpgroupPoint) -> None:
    threads = WARPGROUP * (point.warpgroups + 1)
    assert point.first_registers * threads * point.blocks <= REGISTERS
    if not refusal(point):
        assert steps(point) >= 2 and steps(point) * point.step_bytes * point.blocks <= SHARED_BYTES
        assert point.sums < point.registers <= 255


def test_a_file_has_kernels_that_differ_in_their_columns_only() -> None:
    files = grouped(GOOD)
    assert sorted(point.name for file in files for point in file) == sorted(point.name for point in GOOD)
    assert max(map(len, files)) <= ALIKE
    for file in files:
        text = render(file)
        assert len({(point.tile[0], point.tile[2], point.words) for point in file}) == 1
        for point in file:
            assert text.count(f"int {point.name}(GemmAction action, GemmRequest* request) {{") == 1
            assert text.count(f"struct {point.name}_kernel : Plan<") == 1


@pytest.mark.parametrize(
    ("dtype", "kind", "result"),
    [
        ("bf16", "m64n128k16.f32.bf16.bf16", "__nv_bfloat16"),
        ("f16", "m64n128k16.f32.f16.f16", "__half"),
        ("fp8", "m64n128k32.f32.e4m3.e4m3", "__nv_bfloat16"),
    ],
)
def test_each_dtype_has_its_instruction_and_result(dtype: str, kind: str, result: str) -> None:
    inner = 128 if dtype == "fp8" else 64
    text = render((with_(dtype=dtype, tile=(128, 128, inner)),))
    assert f"wgmma.mma_async.sync.aligned.{kind} {{%0," in text and f"using Result = {result};" in text
    assert ("p, 1, 1, 0, 0;" in text) == (dtype != "fp8")


@given(points, sizes, st.data())
def test_every_way_to_run_it_fits_and_has_its_name(
    point: WarpgroupPoint, m: int, data: st.DataObject
) -> None:
    of = shape(m)
    options = list(run_options(point, of))
    for option in options:
        across = option.cluster[0] * option.cluster[1] * point.splits
        assert (
            across <= 8
            and point.tile[0] % (8 * option.cluster[1]) == point.tile[1] % (8 * option.cluster[0]) == 0
        )
        assert all(
            side == least or side < 2 * max(size, 8)
            for side, least, size in zip(point.tile, (64, 8), sides(option.rows, of), strict=False)
        )
        assert way_seconds(point, option, of) > 3e-6
        assert option.promotion == 1, "small shapes are faster with it, and others about as fast"
    if options:
        option = data.draw(st.sampled_from(options))
        others = [option, *further_options(point, option)]
        assert len({way_name(point, one) for one in others}) == len(others) >= 10
        assert all(one.steps < steps(point) for one in others)


@given(st.sampled_from(FLEXIBLE), sizes)
def test_a_flexible_kernel_is_run_as_the_fixed_ones_that_it_stands_for(point: WarpgroupPoint, m: int) -> None:
    of, expected = shape(m), dict[str, float]()
    for splits, is_persistent in ((1, False), (1, True), (2, False), (4, False)):
        form = point.fixed(splits, is_persistent=is_persistent)
        assert not refusal(form)
        expected |= {way_name(form, one): way_seconds(form, one, of) for one in run_options(form, of)}
    found = {}
    for option in run_options(point, of):
        assert way_named(way_name(point, option)) == (point, option)
        plain = replace(option, splits=1, is_persistent=False)
        found[way_name(as_run(point, option), plain)] = way_seconds(point, option, of)
    assert found == expected


def test_flexible_kernels_are_named_for_what_is_compiled() -> None:
    names = [point.name for point in FLEXIBLE]
    assert len({*names} | {point.name for point in POINTS}) == len(FLEXIBLE) + len(POINTS)
    assert all(WarpgroupPoint.named(point.name) == point for point in (*FLEXIBLE, *POINTS))
    option = RunOption(raster=1, splits=2, is_dependent=True)
    name = way_name(FLEXIBLE[0], option)
    assert name.endswith("_flexible_by1_tokens_1x1_raster1_splits2_pdl")
    assert compiled_name(name) == FLEXIBLE[0].name
    for splits in (3, 8):
        assert way_named(name.replace("splits2", f"splits{splits}")) is None
        assert option_named(FLEXIBLE[0], f"tokens_1x1_raster1_splits{splits}") is None
    assert way_named(name.replace("splits2", "splits2_persistent")) is None
    assert way_named(name.replace("tokens_1x1", "tokens_1x4").replace("splits2", "splits4")) is None
    fixed = way_name(POINT, replace(option, splits=1))
    assert way_named(fixed) and way_named(fixed.replace("raster1", "raster1_persistent")) is None


@given(st.sampled_from([*GOOD, *FLEXIBLE]), sizes)
def test_longer_tiles_are_options_beside_those_worth_a_look(point: WarpgroupPoint, m: int) -> None:
    of = shape(m)
    every = list(run_options(point, of, waste=ways.MOST_WASTE))
    assert {*run_options(point, of)} <= {*every} and len({*every}) == len(every)
    assert all(
        side == least or side < 4 * max(size, 8)
        for one in every
        for side, least, size in zip(point.tile, (64, 8), sides(one.rows, of), strict=False)
    )


def test_longer_tiles_and_both_orders_are_options_of_a_kernel_that_serves_many_shapes() -> None:
    point = with_(tile=(64, 16, 64), consumers=(1, 1))
    few, more = (
        {one.rows for one in run_options(point, shape(1), waste=waste)} for waste in (2, ways.MOST_WASTE)
    )
    assert few == {"tokens"} and more == {"tokens", "features"}
    for m, rasters in ((4096, {1, 2}), (100, {2})):
        one = next(one for one in run_options(POINT, shape(m), waste=ways.MOST_WASTE) if one.rows == "tokens")
        assert {other.raster for other in ways.orders(POINT, one, shape(m))} == rasters
    (collective,) = (one for one in chosen_points("simple_gemm", "hopper", "bf16") if one.name == COLLECTIVE)
    one = next(run_options(collective, shape(4096), waste=ways.MOST_WASTE))
    assert list(ways.orders(collective, one, shape(4096))) == [one]


@given(st.sampled_from(GROUPED), st.sampled_from([1, 9, 128, 1000, 65536]), st.sampled_from([2, 128, 512]))
def test_tiles_of_groups_fit_those_and_not_all_tokens(point: WarpgroupPoint, m: int, groups: int) -> None:
    of = replace(shape(m), groups=groups)
    for option in run_options(point, of):
        tokens = point.tile[0 if option.rows == "tokens" else 1]
        least = 64 if option.rows == "tokens" else 8
        assert tokens == least or tokens < 2 * max(of.one_group.m, 8)
        assert way_seconds(point, option, of) > of.bytes / 4.5e12


def test_two_blocks_that_share_a_port_take_longer() -> None:
    """Of 64 features each, for three tokens: 66 have a port of their own. 128 blocks of 48 beat 96 of 64."""
    narrow, wide = (with_(tile=(64, width, 128), consumers=(1, 1)) for width in (16, 48))
    features = RunOption(rows="features")
    one_each, two, more = (way_seconds(narrow, features, shape(3, 64 * blocks)) for blocks in (66, 72, 80))
    assert two / one_each > 1.15 > 1.1 > more / two
    of = shape(3, 6144)
    assert way_seconds(wide, RunOption(), of) < 0.97 * way_seconds(narrow, features, of)
    assert RunOption() in [replace(one, raster=0, promotion=0) for one in run_options(wide, of, pdl=False)]


def test_groups_take_as_long_as_their_weights() -> None:
    """Of 128 groups 16 are met by 16 tokens; each of them is a product of one token."""
    option = RunOption(rows="features", is_dependent=True)
    few, all_of_them = (replace(shape(m), groups=128) for m in (16, 128))
    (narrow,) = (
        one for one in GROUPED if one.name.startswith("grouped_gemm_bf16_64x8x64_1x1_split1_persistent_by1")
    )
    assert 6 < way_seconds(narrow, option, all_of_them) / way_seconds(narrow, option, few) < 8
    for m in (1, 16, 128, 8192):
        assert any(list(run_options(point, replace(shape(m), groups=128))) for point in GROUPED)


def test_tiles_are_those_of_each_group() -> None:
    """Of 128 groups eight have 65 tokens and the others 64, so but eight of them have one tile of tokens."""
    (narrow,) = (
        one for one in GROUPED if one.name.startswith("grouped_gemm_bf16_64x64x64_1x1_split1_persistent_by1")
    )
    of, option = replace(shape(128 * 64 + 8, 1536), groups=128), RunOption(rows="features")
    assert TileGrid.of(narrow, option, of).clusters == 24 * (120 + 2 * 8)
    assert TileGrid.of(narrow, option, replace(of, m=40)).clusters == 24 * 40
    for m in (63, 64, 1024):
        assert any(list(run_options(point, replace(shape(m, 32), groups=128))) for point in GROUPED)


def test_a_file_is_grouped_or_not() -> None:
    """Both are of one template, in which what the other needs is left out."""
    of_groups = [one for one in GROUPED if one.tile == (64, 8, 64)]
    for words, points in (("group_ends", of_groups), ("work.tiles", GOOD[:1])):
        assert words in render(points)
    assert "work.tiles" not in render(of_groups) and "Groups" not in render(GOOD[:1])
    assert len({steps(one) for one in of_groups if one.blocks == 1}) == 1
    single = of_groups[0].model_copy(update={"generator": "warpgroup_gemm"})
    assert steps(of_groups[0]) <= steps(single)


@given(points, sizes, st.data())
def test_a_name_tells_how_it_is_run(point: WarpgroupPoint, m: int, data: st.DataObject) -> None:
    options = list(run_options(point, shape(m)))
    if options:
        option = data.draw(st.sampled_from(options))
        for one in (option, *further_options(point, option)):
            assert option_named(point, way_name(point, one)[len(point.name) + 1 :]) == one
            assert compiled_name(way_name(point, one)) == point.name


@given(st.sampled_from(chosen_points("simple_gemm", "hopper", "bf16")), sizes)
def test_so_does_that_of_a_collective(point: CollectivePoint, m: int) -> None:
    for option in run_options(point, shape(m)):
        assert option_named(point, way_name(point, option)[len(point.name) + 1 :]) == option
        assert compiled_name(way_name(point, option)) == point.name


@pytest.mark.parametrize(
    "words",
    [
        "",
        "raster1",
        "raster1_splits1",
        "tokens_1x1",
        "tokens_1x1_raster1_splits2",
        "tokens_1x1_raster1_usual_usual",
        "tokens_1x1_raster1_swizzle1",
        "tokens_1x1_raster1_pdl_pdl",
        "tokens_1x1_raster1_first",
        "rows_1x1_raster1",
    ],
)
def test_what_is_no_way_to_run_it_is_none(words: str) -> None:
    assert option_named(POINT, words) is None
    assert compiled_name(POINT.name) == POINT.name


@pytest.mark.parametrize(("m", "n"), [(32, 32), (16, 16), (8, 8), (31, 32), (1, 8)])
def test_the_smallest_products_have_some_way(m: int, n: int) -> None:
    assert any(list(run_options(point, shape(m, n, 64))) for point in GOOD)


def test_a_model_prefers_what_fills_the_card() -> None:
    """128 tiles of one wave, against as many products in two waves or on half of the card."""
    of = shape(512, 4096, 14336)
    option = RunOption(raster=2, is_dependent=True)
    best = way_seconds(with_(tile=(128, 128, 64)), option, of)
    assert best < way_seconds(with_(tile=(128, 96, 64)), option, of)
    assert best < way_seconds(with_(tile=(128, 256, 64)), option, of)
    assert way_seconds(with_(splits=2), option, of) > best
    assert way_seconds(with_(tile=(128, 256, 64), splits=2), option, of) < way_seconds(
        with_(tile=(128, 256, 64)), option, of
    )
    assert way_seconds(POINT, replace(option, rows="features"), of) == best


def test_more_tokens_take_longer() -> None:
    times = [way_seconds(POINT, RunOption(), shape(m)) for m in (128, 512, 2048, 8192)]
    assert times == sorted(times) and times[-1] > 4 * times[0]
