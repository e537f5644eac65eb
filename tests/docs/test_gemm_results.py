"""docs/results/gemm.md tells what its evidence holds."""

from __future__ import annotations

import json
from math import inf
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import numpy as np
import pytest

from hillclimb.agent.record.ledger import Ledger
from hillclimb.harness.gemm.comparison import BEST, ProviderComparison, compare
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupPoint
from hillclimb.harness.gemm.generator.types import refusal, way_named
from hillclimb.harness.gemm.portfolio.choosing import Wish, choose_kernels
from hillclimb.harness.gemm.portfolio.portfolio import Portfolio, gather
from hillclimb.harness.gemm.providers.ways import way_seconds
from hillclimb.harness.gemm.results import read_results
from hillclimb.harness.records import Interval

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "results" / "gemm.md").read_text()
CLIMBS = sorted((DOCS.parent / "runs" / "gemm").glob("*/published"))


def interval(found: Interval) -> str:
    """As the page has it."""
    return str(found).replace("x", "")


def compared(folder: str, *providers: str) -> ProviderComparison:
    base, *others = (read_results(DOCS / "evidence" / folder / f"{name}.json") for name in providers)
    return compare(base, others)


@pytest.mark.parametrize(
    ("folder", "providers"),
    [
        ("gemm_grid_h200", ("cublas", "generated", "cublaslt")),
        ("gemm_no_pdl_h200", ("cublas", "generated")),
        ("gemm_fp8_h200", ("cublas", "generated")),
        ("gemm_scaled_fp8_h200", ("cublas", "generated", "cublaslt")),
    ],
)
def test_tables_by_m_are_those_of_the_evidence(folder: str, providers: tuple[str, ...]) -> None:
    found = compared(folder, *providers)
    names = (*providers[1:], BEST)
    for one in (found.summary, *found.bands):
        label = f"{one.least_m} to {one.most_m}" if one.most_m else f"from {one.least_m}"
        label = "all" if one is found.summary else label
        cells = " | ".join(f"{one.geometric_means[name]:.3f}" for name in names)
        assert f"| {label} | {one.shapes} | {cells} |" in PAGE
    smallest = " | ".join(f"{found.summary.smallest[name]:.3f}" for name in names)
    assert f"| smallest | | {smallest} |" in PAGE


def test_another_card_is_as_the_page_says() -> None:
    found = compared("gemm_grid_h200", "cublas_second", "generated_second")
    mean, *by_m = (one.geometric_means["generated"] for one in (found.summary, *found.bands))
    told = "Another card had {:.3f} for own kernels: {:.3f}, {:.3f} and {:.3f} by m, and {:.3f} at worst."
    assert told.format(mean, *by_m, found.summary.smallest["generated"]) in PAGE


def test_own_kernels_are_beside_stock_ones_as_the_page_says() -> None:
    """Both over cuBLAS, each in a run of its own."""
    own, stock = (compared(folder, "cublas", "generated") for folder in ("gemm_grid_h200", "gemm_stock_h200"))
    stock_of = {(row.m, row.n, row.k): row.cells["generated"].speedup for row in stock.shapes}
    ratios = [(row.m, row.cells["generated"].speedup / stock_of[row.m, row.n, row.k]) for row in own.shapes]
    means = [
        geometric_mean(ratio for m, ratio in ratios if least <= m <= most)
        for least, most in ((1, 8192), (1, 64), (65, 1024), (1025, 8192))
    ]
    told = (
        "are {:.3f} times as fast. Up to 64 rows that is\n  {:.3f}, up to 1024 rows {:.3f}, and {:.3f} above"
    )
    assert told.format(*means) in PAGE
    assert f"At worst it is {min(ratio for _, ratio in ratios):.3f}. Both are put together" in PAGE
    assert f"come to {stock.summary.geometric_means['generated']:.3f} of cuBLAS" in PAGE


def test_by_their_times_alone_they_are_as_the_page_says() -> None:
    own, stock, cublas, again = (
        fastest(f"{folder}_h200/{name}.json")
        for name in ("generated", "cublas")
        for folder in ("gemm_grid", "gemm_stock")
    )
    told = f"By their times\n  alone it is {geometric_mean(stock[key] / own[key] for key in own):.3f}"
    assert told in PAGE
    apart = 1 - geometric_mean(again[key] / cublas[key] for key in own)
    assert f"cuBLAS differs by {apart:.1%} between both".replace("%", " %") in PAGE


def fastest(file: str) -> dict[tuple[int, int, int], float]:
    """Milliseconds by m, n and k, of the kernel that other rounds chose."""
    found: dict[tuple[int, int, int], tuple[float, float]] = {}
    for one in read_results(DOCS / "evidence" / file).possible():
        key = (one.m, one.n, one.k)
        found[key] = min(found.get(key, (inf, inf)), (one.rank_ms, one.runtime_ms))
    return {key: told for key, (_, told) in found.items()}


def test_most_of_the_best_ways_are_dependent_launches() -> None:
    names = [
        row.cells["generated"].kernel for row in compared("gemm_grid_h200", "cublas", "generated").shapes
    ]
    ways = [way[1] for way in map(way_named, names) if way]
    dependent, hinted = sum(way.is_dependent for way in ways), sum(way.caches != (0, 0) for way in ways)
    assert f"All {dependent} best ways to run own kernels are dependent launches" in PAGE
    assert len(ways) == len(names) == dependent and f"And {hinted} have hints to the L2 cache" in PAGE


def test_the_cost_model_finds_the_best_early(portfolio: Portfolio) -> None:
    """Among its first 24 of the ways that were timed, for shapes that it was not fitted to."""
    ways = [way for way in (way_named(name.partition(":")[2]) for name in portfolio.ways) if way]
    assert len(ways) == len(portfolio.ways)
    held_out = portfolio.rows(shape.m in thrice(portfolio) for shape in portfolio.shapes)
    losses, counts = [], []
    for shape, times in zip(held_out.shapes, held_out.ranked, strict=True):
        timed = np.flatnonzero(~np.isnan(times))
        first = sorted(timed, key=lambda at: way_seconds(*ways[at], shape))[:24]
        losses.append(float(np.nanmin(times[first]) / np.nanmin(times)) - 1)
        counts.append(len(timed))
    assert f"The best of the model's first 24 takes {np.mean(losses):.2%} longer".replace("%", " %") in PAGE
    assert f"and {max(losses):.1%} at worst".replace("%", " %") in PAGE
    assert f"They have some {round(np.mean(counts), -1):.0f}\ntimed ways each" in PAGE


def test_blocks_that_share_a_port_take_as_long_as_the_page_says(portfolio: Portfolio) -> None:
    names = [shape.name for shape in portfolio.shapes]
    times = dict(zip(portfolio.ways, portfolio.milliseconds[names.index("m3_n6144_k4096")], strict=True))
    forms = (
        "64x48x128_1x1_flexible_by1_tokens_1x1_raster2_splits1",
        "64x16x128_1x1_flexible_by1_features_1x1_raster1_splits1",
        "192x8x64_3x1_flexible_by1_features_1x1_raster1_splits2",
    )
    wide, narrow, split = (
        times[f"generated:warpgroup_gemm_bf16_{form}_fetch128_pdl"] * 1e3 for form in forms
    )
    library = next(
        one.runtime_ms * 1e3
        for one in read_results(PORTFOLIO / "cublas.json").results
        if (one.m, one.n, one.k) == (3, 6144, 4096)
    )
    told = f"take {wide:.1f} us, and 96 blocks of 64 take {narrow:.1f}."
    assert f"and K in two parts, it is {split:.1f}. There cuBLAS takes {library:.1f}." in PAGE
    assert told in PAGE.replace("\n", " ")


def test_flexible_kernels_take_as_long_as_the_evidence_says() -> None:
    rows = evidence("gemm_flexible_h200")
    of_forms: dict[str, list[float]] = {}
    for row in rows:
        way = way_named(row["kernel"])
        assert way and isinstance(way[0], WarpgroupPoint)
        twin = way[0].fixed(1, is_persistent=False).model_copy(update={"is_flexible": True})
        assert not refusal(twin)
        of_forms.setdefault(way[0].words[1], []).append(row["flexible_us"] / row["fixed_us"])
    mean = geometric_mean(ratio for ratios in of_forms.values() for ratio in ratios)
    assert f"It takes {mean:.3f}\n  times as long" in PAGE and f"the mean of {len(rows)} pairs:" in PAGE
    plain, split, longer = (of_forms[form] for form in ("split1_once", "split2_once", "split1_persistent"))
    assert f"{len(plain)} plain, {len(split)} with K in two parts, and {len(longer)} whose blocks" in PAGE
    assert f"take more tiles, at {geometric_mean(longer):.3f}" in PAGE and len(of_forms) == 3


def test_starts_are_as_fast_as_the_evidence_says() -> None:
    rows = evidence("gemm_starts_h200")
    means = [
        geometric_mean(one for row in rows if least <= row["m"] <= most for one in row["speedups"])
        for least, most in ((1, 64), (65, 1024), (1025, 8192))
    ]
    told = "is {:.3f} times as fast up to 64 rows, {:.3f} up to 1024, and {:.3f} at 2048"
    assert told.format(*means) in PAGE and f"That is over {len(rows)}\n  shapes, of each six ways" in PAGE
    assert {len(row["speedups"]) for row in rows} == {6} and max(row["m"] for row in rows) == 2048


def evidence(name: str) -> list[dict[str, Any]]:
    """The rows of a file that the lab did not write by itself."""
    rows: list[dict[str, Any]] = json.loads((DOCS / "evidence" / f"{name}.json").read_text())["rows"]
    return rows


def test_the_table_of_experts_is_that_of_the_evidence() -> None:
    endings = ("", "_no_pdl", "_scaled_fp8")
    found = [compared("gemm_grouped_h200", f"cublas{end}", f"generated{end}") for end in endings]
    by_tokens: dict[float, list[list[float]]] = {}
    for rows in zip(*(one.shapes for one in found), strict=True):
        assert len({(row.m, row.n, row.k, row.groups) for row in rows}) == 1
        speedups = [row.cells["generated"].speedup for row in rows]
        by_tokens.setdefault(rows[0].m / rows[0].groups, []).append(speedups)
    for tokens, of_shapes in by_tokens.items():
        cells = " | ".join(f"{geometric_mean(values):.3f}" for values in zip(*of_shapes, strict=True))
        assert f"| {tokens:g} | {len(of_shapes)} | {cells} |" in PAGE
    means = " | ".join(f"{one.summary.geometric_means['generated']:.3f}" for one in found)
    assert f"| all | 24 | {means} |" in PAGE
    smallest = " | ".join(f"{one.summary.smallest['generated']:.3f}" for one in found)
    assert f"| smallest | | {smallest} |" in PAGE


PORTFOLIO = DOCS / "evidence" / "gemm_portfolio_h200"


@pytest.fixture(scope="module")
def portfolio() -> Portfolio:
    """All shapes, of which those with three times a power of two for m were held out."""
    return gather([read_results(PORTFOLIO / "generated.json.gz")])


def thrice(found: Portfolio) -> set[int]:
    """The m that were held out."""
    return {shape.m for shape in found.shapes if shape.m % 3 == 0}


def test_a_portfolio_reaches_what_the_page_says(portfolio: Portfolio) -> None:
    choice = choose_kernels(portfolio, Wish(count=10), held_out_m=thrice(portfolio))
    known, out = choice.on_shapes, choice.held_out
    assert out and f"| 10 | {known.mean:.3f} | {known.worst:.3f} |" in PAGE
    timed = out.shapes - out.untimed
    told = f"timed for {timed} of the {out.shapes}. It reaches {out.mean:.3f}, at worst {out.worst:.3f}. The"
    assert f"{told} other {out.untimed} have" in PAGE
    held_out = portfolio.rows(shape.m in thrice(portfolio) for shape in portfolio.shapes)
    shares = held_out.reached([portfolio.kernels.index(name) for name in choice.kernels])
    assert f"ten kernels reach {shares.mean():.3f}, at worst {shares.min():.3f}. Each" in PAGE
    assert (shares < 0.95).sum() == 4 and "The best ways are below 0.95 for four sizes." in PAGE


def test_a_portfolio_was_timed_as_the_page_says(portfolio: Portfolio) -> None:
    flexible = sum("_flexible_" in name for name in portfolio.kernels)
    told = f"{len(portfolio.ways)} ways to run {len(portfolio.kernels)} kernels, {flexible} of them flexible"
    assert f"{told}, were timed for {len(portfolio.shapes)} shapes" in PAGE
    known, out = (
        [shape.m for shape in portfolio.shapes if (shape.m in thrice(portfolio)) == is_out]
        for is_out in (False, True)
    )
    assert all(m & (m - 1) == 0 for m in known) and all((m // 3) & (m // 3 - 1) == 0 for m in out)
    span = f"from {min(known)} to {max(known)}, and {len(out)} have three times one, from {min(out)} to {max(out)}."
    assert f"{len(known)} shapes have a power of two for m, {span}" in PAGE
    found = compare(read_results(PORTFOLIO / "cublas.json"), [read_results(PORTFOLIO / "generated.json.gz")])
    means = found.summary.geometric_means
    assert f"come to {means['generated']:.3f}, and the best of both to {means[BEST]:.3f}" in PAGE
    assert f"Up to 64 rows they come to {found.bands[0].geometric_means['generated']:.3f}." in PAGE


@pytest.mark.slow(110)
def test_fewer_kernels_and_other_choices_reach_what_the_page_says(portfolio: Portfolio) -> None:
    known = portfolio.rows(shape.m not in thrice(portfolio) for shape in portfolio.shapes)
    for point in choose_kernels(known, Wish(count=1), most=8).curve:
        if point.kernels in (1, 2, 4, 6, 8):
            assert f"| {point.kernels} | {point.mean:.3f} | {point.worst:.3f} |" in PAGE
    every = choose_kernels(portfolio, Wish(count=10)).on_shapes
    assert (
        f"all {every.shapes} shapes, ten kernels reach {every.mean:.3f} of these, at worst {every.worst:.3f}"
        in PAGE
    )
    few = choose_kernels(portfolio, Wish()).kernels
    assert f"at each of the {every.shapes}, within the noise, {len(few)} kernels are needed" in PAGE


def test_tiles_that_begin_earlier_are_as_fast_as_the_evidence_says() -> None:
    rows = evidence("gemm_overhang_h200")
    best = [min(row["before_us"]) / min(row["after_us"]) for row in rows]
    gains = sorted(one for one in best if one > 1.05)
    assert f"Of {len(rows)} shapes the fastest way is {geometric_mean(best):.3f} times as fast in\n" in PAGE
    assert len(gains) == 4 and f"For four it is {gains[0]:.2f} to {gains[-1]:.2f} times as fast" in PAGE


def test_fetches_are_as_fast_as_the_evidence_says() -> None:
    rows = evidence("gemm_fetches_h200")
    means = [
        geometric_mean(row["speedups"]["fetch128"] for row in rows if least <= row["m"] <= most)
        for least, most in ((1, 16), (17, 64), (65, 1024), (1025, 8192))
    ]
    few = "Up to 16 rows, 128 are {:.3f} times as fast, and from 17 to 64\n  {:.3f} times"
    assert few.format(*means[:2]) in PAGE
    assert "With more rows it is {:.3f} and {:.3f}".format(*means[2:]) in PAGE


def test_own_kernels_are_beside_those_in_cute_dsl_as_the_page_says() -> None:
    """Both over cuBLAS, each in a run of its own."""
    own = {
        row.name: row.cells["generated"] for row in compared("gemm_grid_h200", "cublas", "generated").shapes
    }
    others = compared("gemm_cute_dsl_h200", "cublas", "cute_dsl").shapes
    pairs = [(row.m, own[row.name], row.cells["cute_dsl"]) for row in others]
    means = [
        geometric_mean(mine.speedup / other.speedup for m, mine, other in pairs if least <= m <= most)
        for least, most in ((1, 8192), (1, 64), (65, 1024), (1025, 8192))
    ]
    told = (
        "are {:.3f} times as fast.\nThat is {:.3f} up to 64 rows, {:.3f} up to 1024, and {:.3f} for the two"
    )
    assert told.format(*means) in PAGE and f"So {len(pairs)} shapes were timed" in PAGE
    alone = geometric_mean(other.runtime_ms / mine.runtime_ms for _, mine, other in pairs)
    assert f"By times alone it is {alone:.3f}.\n" in PAGE


def test_shapes_below_cublas_are_those_of_the_page() -> None:
    shares = [
        {
            (row.m, row.n, row.k): row.cells["generated"].speedup
            for row in compared("gemm_grid_h200", *names).shapes
        }
        for names in (("cublas", "generated"), ("cublas_second", "generated_second"))
    ]
    low, other = (sorted((share, sizes) for sizes, share in one.items() if share < 0.95) for one in shares)
    told = " and ".join(f"{'x'.join(map(str, sizes))} at {share:.3f}" for share, sizes in low)
    there = " and ".join(f"{shares[1][sizes]:.3f}" for _, sizes in low)
    assert len(low) == 2 and f"Two shapes are below 0.95: {told}. On the other card" in PAGE
    (third,) = [one for one in other if one[1] not in [sizes for _, sizes in low]]
    sizes = "x".join(map(str, third[1]))
    assert f"On the other card they were at {there},\n  and a third, {sizes}, at {third[0]:.3f}." in PAGE


def test_without_dependent_launches_shapes_are_below_cublas_as_the_page_says() -> None:
    shapes = compared("gemm_no_pdl_h200", "cublas", "generated").shapes
    low = sorted((row.cells["generated"].speedup, f"{row.m}x{row.n}x{row.k}") for row in shapes)
    worst = " and ".join(f"{name} at {share:.3f}" for share, name in low[:2])
    assert sum(share < 0.95 for share, _ in low) == 7 and "below 0.95 for seven shapes" in PAGE
    assert f"Without dependent launches the worst were {worst}." in PAGE


def test_requests_are_joined_as_the_evidence_says() -> None:
    rows = [row for row in evidence("gemm_sectors_h200") if row["m"] == 1024]
    library, *own = rows
    assert library["kernel"] == "cublas" and len(own) == 4
    assert len({row["bytes_into_multiprocessors"] for row in rows}) == 1
    assert f"bring\n  {library['bytes_into_multiprocessors'] / 1e6:.0f} MB" in PAGE
    asked, alone = (
        [row[key] / 1e6 for row in own] for key in ("sectors_asked_of_l2", "sectors_of_its_clusters")
    )
    assert f"for {library['sectors_asked_of_l2'] / 1e6:.1f} million sectors, and own kernels" in PAGE
    assert f"in four orders for {min(asked):.1f} to {max(asked):.1f} million" in PAGE
    assert f"by itself would ask for {min(alone):.1f}\n  or {max(alone):.1f} million" in PAGE
    busy = [row["tensor_percent"] for row in own]
    told = f"are busy for {library['tensor_percent']:.0f} % of\n  the time, and with own kernels for {min(busy):.0f} to"
    assert f"{told} {max(busy):.0f} %." in PAGE


def test_no_variant_of_the_template_has_more_requests_joined() -> None:
    rows = [row for row in evidence("gemm_variants_h200") if row["m"] == 1024]
    assert len({row["variant"] for row in rows} - {"base"}) == 10 and "Ten changes of the template" in PAGE
    asked = [
        count / 1e6
        for row in rows
        for kernel, count in row["sectors_asked_of_l2"].items()
        if kernel != "cublas"
    ]
    assert f"still ask for {min(asked):.1f} to {max(asked):.1f} million sectors" in PAGE
    own = [min(us for kernel, us in row["us"].items() if kernel != "cublas") for row in rows]
    library = [row["us"]["cublas"] for row in rows]
    assert f"fastest ways take {min(own):.1f} to {max(own):.1f} us" in PAGE
    assert f"and cuBLAS took\n  {min(library):.1f} to {max(library):.1f} us beside them" in PAGE


def test_orders_of_tiles_are_worth_what_the_page_says() -> None:
    losses: dict[bool, list[float]] = {}
    for row in evidence("gemm_orders_h200"):
        is_one_wave, has_tokens_down = row["waves"] == 1, "_tokens_" in row["kernel"]
        usual = row["us"][f"raster{1 if is_one_wave != has_tokens_down else 2}_swizzle1"]
        assert len(row["us"]) == 8
        losses.setdefault(is_one_wave, []).append(usual / min(row["us"].values()))
    at_once, longer = losses[True], losses[False]
    assert (
        f"Of {len(at_once)} such shapes the fastest of eight orders is\n  {geometric_mean(at_once):.3f} times"
        in PAGE
    )
    assert f"and {max(at_once):.3f} at most. Of {len(longer)} with more waves it is" in PAGE
    assert f"more waves it is {geometric_mean(longer):.3f}\n" in PAGE


def test_streamed_kernels_are_as_slow_as_the_evidence_says() -> None:
    rows = evidence("gemm_streamed_h200")
    longer = sorted(min(row["streamed_us"].values()) / min(row["others_us"].values()) for row in rows)
    kernels = sum(len(row["streamed_us"]) for row in rows)
    assert f"right in all {kernels} cases, of {len(rows)} shapes. None was the fastest" in PAGE
    assert {len(row["streamed_us"]) for row in rows} == {4}
    assert f"took\n{longer[0]:.2f} to {longer[-1]:.2f} times as long" in PAGE and longer[0] > 1


def test_few_tokens_are_on_rows_as_often_as_the_page_says() -> None:
    few = [row for row in compared("gemm_grid_h200", "cublas", "generated").shapes if row.m <= 32]
    on_rows = sum("_tokens_" in row.cells["generated"].kernel for row in few)
    assert f"Of the {len(few)} shapes of the grid\nwith up to 32 tokens {on_rows} have them there" in PAGE


@pytest.mark.parametrize("folder", CLIMBS, ids=lambda folder: folder.parent.name)
def test_published_climbs_are_those_of_the_ledgers(folder: Path) -> None:
    case = folder.parent.name.removesuffix("_bf16")
    ledger = Ledger.read(folder / "ledger.jsonl")
    assert ledger.cumulative_interval is not None
    cells = [f"`{case}`", str(len(ledger.candidates)), interval(ledger.cumulative_interval)]
    for name in ("yardstick", "cublaslt"):
        told = json.loads((folder / f"against_{name}.json").read_text())
        if told["kept"]:
            cells.append(interval(Interval.model_validate(told["confirmation"]["speedup"])))
        else:
            cells.append(f"rejected: {told['screening']['speedup']:.3f}")
    assert f"| {' | '.join(cells)} |" in PAGE


def test_seven_climbs_are_published() -> None:
    assert len(CLIMBS) == 7


@pytest.mark.parametrize(
    ("folder", "provider"),
    [
        ("gemm_bench_h200", "cublaslt"),
        ("gemm_bench_h200", "triton"),
        ("gemm_generated_h200", "generated"),
        ("gemm_cute_dsl_h200", "cute_dsl"),
    ],
)
def test_the_table_of_other_kernels_is_that_of_the_evidence(folder: str, provider: str) -> None:
    found = compared(folder, "cublas", provider)
    shapes = sum(provider in row.cells for row in found.shapes)
    means = [one.geometric_means[provider] for one in (found.summary, *found.bands)]
    cells = " | ".join(f"{value:.3f}" for value in (*means, found.summary.smallest[provider]))
    assert f"(`{folder}`) | {shapes} | {cells} |" in PAGE
