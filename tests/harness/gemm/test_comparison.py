"""Providers beside a baseline, and everything that keeps two times apart."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.comparison import BEST, ProviderComparison, compare
from hillclimb.harness.gemm.results import (
    Failed,
    GpuCard,
    Measured,
    ProviderResults,
    only,
    read_all,
    read_results,
)
from hillclimb.harness.gemm.tables import as_markdown, as_text

H200 = GpuCard(name="NVIDIA H200", driver="580.159.04")
SIZES: dict[str, Any] = {"m": 4096, "n": 4096, "k": 4096, "dtype": "bf16"}


def measured(ms: float, name: str = "square", **more: Any) -> Measured:
    return Measured(**{**SIZES, "name": name, "runtime_ms": ms, "is_checked": True, **more})


def provider(name: str, *results: Measured, **more: Any) -> ProviderResults:
    known: dict[str, Any] = {"gpu": H200, "software": {"cuda": "13.0"}, "cache": "cold", **more}
    return ProviderResults(provider=name, results=results, **known)


def against(base: ProviderResults, *others: ProviderResults) -> ProviderComparison:
    return compare(base, others)


def test_a_speedup_is_the_baselines_time_over_the_best_kernels() -> None:
    base = provider("cublas", measured(0.2))
    other = provider("triton", measured(0.25, kernel="slow"), measured(0.16, kernel="fast"))
    (row,) = against(base, other).shapes
    assert row.cells["triton"].kernel == "fast"
    assert row.cells["triton"].speedup == pytest.approx(1.25)
    assert row.cells["triton"].tflops == pytest.approx(2 * 4096**3 / 0.16 / 1e9)
    assert row.cells["cublas"].speedup == 1
    assert against(base, other).summary.geometric_means["triton"] == pytest.approx(1.25)
    assert against(base, other).gaps == ()


def test_shapes_without_a_time_of_the_baseline_are_in_no_mean() -> None:
    base = provider("cublas", measured(0.2))
    other = provider("triton", measured(0.16), measured(0.1, "lone", m=64))
    found = against(base, other)
    assert [row.name for row in found.shapes] == ["square", "lone"]
    assert found.summary.shapes == 1 and [band.shapes for band in found.bands] == [1]


times = st.floats(0.15, 10)


@given(times, times, st.floats(0, 0.2), st.floats(0, 0.2))
def test_a_verdict_is_what_both_intervals_allow(
    base_ms: float, own_ms: float, base_part: float, own_part: float
) -> None:
    def of(ms: float, part: float) -> Measured:
        return measured(ms, low_ms=ms * (1 - part), high_ms=ms * (1 + part))

    base, own = of(base_ms, base_part), of(own_ms, own_part)
    cell = against(provider("base", base), provider("own", own)).shapes[0].cells["own"]
    assert cell.low <= cell.speedup <= cell.high
    is_apart = own.interval_ms[1] < base.interval_ms[0], base.interval_ms[1] < own.interval_ms[0]
    assert (cell.verdict == "faster", cell.verdict == "slower") == is_apart


@given(st.lists(times, min_size=1, max_size=6))
def test_the_mean_is_geometric(runtimes: list[float]) -> None:
    shapes = [{"name": f"s{at}", "m": 4096 + at} for at in range(len(runtimes))]
    base = provider("base", *(measured(1.0, **shape) for shape in shapes))
    own = provider("own", *(measured(ms, **shape) for ms, shape in zip(runtimes, shapes, strict=True)))
    mean = against(base, own).summary.geometric_means["own"]
    assert mean == pytest.approx(math.prod(1 / ms for ms in runtimes) ** (1 / len(runtimes)))


def test_the_best_of_all_is_chosen_by_other_rounds_than_it_is_told_of() -> None:
    base = provider("base", measured(1.0, choosing_ms=1.0))
    own = provider("own", measured(1.1, choosing_ms=0.9))
    found = against(base, own)
    assert found.shapes[0].best == "own"
    assert found.summary.geometric_means[BEST] == pytest.approx(1 / 1.1), "its luck is not counted twice"


def test_means_are_told_by_m_and_the_smallest_of_all() -> None:
    sizes = {1: 0.5, 64: 0.5, 65: 0.8, 1024: 1.25, 1025: 2.0}
    base = provider("base", *(measured(1.0, f"m{m}", m=m) for m in sizes))
    own = provider("own", *(measured(ms, f"m{m}", m=m) for m, ms in sizes.items()))
    found = against(base, own)
    told = [(band.least_m, band.most_m, band.shapes) for band in found.bands]
    assert told == [(1, 64, 2), (65, 1024, 2), (1025, None, 1)]
    assert [band.geometric_means["own"] for band in found.bands] == pytest.approx([2, 1, 0.5])
    assert [band.geometric_means[BEST] for band in found.bands] == pytest.approx([2, 1.25**0.5, 1])
    assert (found.summary.smallest["own"], found.summary.smallest[BEST]) == (0.5, 1)
    lines = as_text(found, means_only=True).splitlines()
    assert lines[0].split() == ["own", "best", "of", "all"]
    assert lines[2].split() == ["m", "1", "to", "64,", "2", "shapes", "2.000x", "2.000x"]
    assert "| m from 1025, 1 shape | 0.500x | 1.000x |" in as_markdown(found, means_only=True)
    assert "m from 1025, 1 shape" in as_text(found)


def test_a_band_without_shapes_is_left_out() -> None:
    found = against(provider("base", measured(1.0)), provider("own", measured(0.5)))
    assert [(band.least_m, band.most_m) for band in found.bands] == [(1025, None)]
    assert found.bands[0].geometric_means == found.summary.geometric_means


def kinds(comparison: ProviderComparison) -> list[tuple[str, str, str]]:
    return [(one.provider, one.kind, one.shape) for one in comparison.gaps]


def test_what_one_of_them_lacks_is_named() -> None:
    base = provider("base", measured(0.2), measured(0.1, "tall", m=8192, n=1024))
    other = provider("other", measured(0.2), measured(0.1, "wide", n=8192, m=1024))
    found = against(base, other)
    assert kinds(found) == [("other", "missing", "tall"), ("base", "missing", "wide")]
    assert [sorted(row.cells) for row in found.shapes] == [["base", "other"], ["base"], []]


def test_a_wrong_kernel_is_a_failure_and_told_with_its_reason() -> None:
    failed = Failed(**SIZES, name="square", kernel="k1", status="incorrect", reason="element 7 is off")
    other = provider("other", failed=(failed,))
    found = against(provider("base", measured(0.2)), other)
    assert kinds(found) == [("other", "failed", "square")]
    assert found.gaps[0].detail == "k1 incorrect element 7 is off"


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"gpu": GpuCard(name="NVIDIA H100 80GB HBM3", driver=H200.driver)}, "GPU is NVIDIA H100 80GB HBM3"),
        ({"gpu": GpuCard(name=H200.name, driver="570.1")}, "driver is 570.1, the baseline's 580.159.04"),
        ({"software": {"cuda": "12.8"}}, "cuda is 12.8"),
        ({"software": {}}, "cuda is not given"),
    ],
)  # fmt: skip
def test_a_file_of_other_surroundings_is_stale(more: dict[str, Any], told: str) -> None:
    found = against(provider("base", measured(0.2)), provider("other", measured(0.1), **more))
    assert kinds(found) == [("other", "stale", "")]
    assert told in found.gaps[0].detail
    assert list(found.shapes[0].cells) == ["base"]
    assert found.providers == ("base", "other")


def test_times_of_another_kind_are_not_compared() -> None:
    base = provider("base", measured(0.2))
    least = against(base, provider("other", measured(0.16, statistic="min")))
    assert kinds(least) == [("other", "unlike", "square")]
    assert list(least.shapes[0].cells) == ["base"]
    hot = against(base, provider("other", measured(0.16), cache="hot"))
    assert kinds(hot) == [("other", "unlike", "")]


def test_what_no_card_can_do_is_left_out_and_named() -> None:
    fast = measured(0.1, kernel="impossible")
    found = against(provider("base", measured(0.2)), provider("other", fast, measured(0.19, kernel="real")))
    assert found.shapes[0].cells["other"].kernel == "real"
    assert kinds(found) == [("other", "impossible", "square")]
    alone = against(provider("base", measured(0.2)), provider("other", fast))
    assert ("other", "impossible", "square") in kinds(alone)
    assert "other" not in alone.shapes[0].cells
    unknown = GpuCard(name="a card of next year")
    assert against(*(provider(n, fast, gpu=unknown) for n in ("a", "b"))).gaps == ()


def test_a_cold_time_is_not_below_what_memory_takes() -> None:
    """Of one token the FLOPs alone would allow nearly any time; a hot cache allows this one."""
    decode = measured(0.006, "decode", m=1, n=4096, k=4096)
    found = against(*(provider(name, decode, cache="cold") for name in ("a", "b")))
    told = [gap.detail for gap in found.gaps if (gap.provider, gap.kind) == ("b", "impossible")]
    assert len(told) == 1
    assert told[0].endswith("0.006 ms are 5593.77 GB/s read from memory; the card has 4800")
    assert against(*(provider(name, decode, cache="hot") for name in ("a", "b"))).gaps == ()


def test_slower_ones_are_listed() -> None:
    found = against(
        provider("base", measured(0.2)), provider("a", measured(0.3)), provider("b", measured(0.2))
    )
    assert found.slower() == [("a", "square")]


def test_shapes_are_the_same_by_their_sizes() -> None:
    found = against(provider("base", measured(0.2, "one name")), provider("a", measured(0.2, "another")))
    assert [row.name for row in found.shapes] == ["one name"]
    assert found.gaps == ()
    both = against(provider("base", measured(0.2)), provider("a", measured(0.2, dtype="f16")))
    assert len(both.shapes) == 2


def test_tables_have_every_cell_and_every_problem() -> None:
    base = provider("cublas", measured(0.2), measured(0.1, "tall", m=8192, n=1024))
    found = against(base, provider("triton", measured(0.25, is_checked=False)))
    text = as_text(found).splitlines()
    assert text[0].split() == ["shape", "cublas", "TFLOP/s", "triton", "TFLOP/s", "speedup", "95", "%"]
    assert text[1].split() == ["square", "687.2", "549.8?", "0.800x-", "0.800", "to", "0.800"]
    assert "geometric mean" in text[3] and "0.800x" in text[3]
    assert "missing: triton, tall: no record; measure it" in text
    assert text[-1] == "2 shapes, 1 gap"
    markdown = as_markdown(found).splitlines()
    assert markdown[1] == "| --- | ---: | ---: | ---: | ---: |"
    assert markdown[2] == "| square | 687.2 | 549.8? | 0.800x- | 0.800 to 0.800 |"


def written(folder: Path, name: str, **changes: Any) -> Path:
    file = json.loads(provider(name, measured(0.2)).model_dump_json(by_alias=True))
    path = folder / f"{name}.json"
    path.write_text(json.dumps({**file, **changes}))
    return path


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"schema": 2}, "schema: Input should be 1"),
        ({"provider": ""}, "provider: "),
        ({"speed": 1}, "speed: Extra inputs"),
        ({"results": [{**SIZES, "name": "x", "runtime_ms": 0}]}, "results.0.runtime_ms: Input should be greater than"),
        ({"results": [{**SIZES, "name": "x", "runtime_ms": "nan"}]}, "results.0"),
        ({"results": [{**SIZES, "name": "x", "runtime_ms": 0.2, "tflops": 900}]}, "tflops 900.0 is not 2mnk"),
        ({"results": [{**SIZES, "name": "x", "runtime_ms": 0.2, "low_ms": 0.3}]}, "is not between low_ms and high_ms"),
        ({"results": [{**SIZES, "dtype": "fp7", "name": "x", "runtime_ms": 0.2}]}, "(it is 'fp7')"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_as_it_should_be_is_refused(
    tmp_path: Path, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError) as caught:
        read_results(written(tmp_path, "cublas", **changes))
    assert told in str(caught.value)
    assert "gemm-results.json" in str(caught.value)


def test_files_are_read_one_a_provider(tmp_path: Path) -> None:
    one, two = written(tmp_path, "a"), written(tmp_path, "b")
    assert [file.provider for file in read_all([one, two])] == ["a", "b"]
    with pytest.raises(UsageError, match="both of 'a'"):
        read_all([one, written(tmp_path / "..", "again", provider="a")])
    with pytest.raises(UsageError, match="No such file"):
        read_results(tmp_path / "none.json")
    (tmp_path / "torn.json").write_text('{"schema": 1')
    with pytest.raises(UsageError, match="Invalid JSON"):
        read_results(tmp_path / "torn.json")


def test_a_compressed_file_is_read_as_the_plain_one(tmp_path: Path) -> None:
    plain = written(tmp_path, "a")
    packed = tmp_path / "a.json.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    assert read_results(packed) == read_results(plain)
    for content in (packed.read_bytes()[:-9], plain.read_bytes(), packed.read_bytes()[:12] + b"\xff" * 30):
        packed.write_bytes(content)
        with pytest.raises(UsageError, match="not what gzip writes"):
            read_results(packed)


def test_shapes_are_chosen_by_name() -> None:
    files = [
        provider("a", measured(0.2), measured(0.1, "tall", m=8192, n=1024)),
        provider("b", measured(0.2)),
    ]
    assert [[one.name for one in file.results] for file in only(files, ["tall"])] == [["tall"], []]
    assert only(files, []) == files
    with pytest.raises(UsageError, match="no file has a shape 'tal': did you mean 'tall'"):
        only(files, ["tal"])
