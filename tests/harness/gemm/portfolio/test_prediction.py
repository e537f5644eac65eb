"""Choices between measured m: by the cost model, as far as the measured times agree with it."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hillclimb.harness.gemm.families.run_option import RunOption, way_name
from hillclimb.harness.gemm.generator.types import chosen_points, refusal
from hillclimb.harness.gemm.portfolio.learned import LearnedTimes
from hillclimb.harness.gemm.portfolio.prediction import STEPS, MeasuredWeight, WaySpan, fastest_spans
from hillclimb.harness.gemm.providers.ways import way_seconds
from hillclimb.harness.gemm.shape import GemmShape

POINTS = [one for one in chosen_points("warpgroup_gemm", "hopper", "bf16") if not refusal(one)][::97]
OPTIONS = [RunOption(raster=1, rows=rows, is_dependent=True) for rows in ("tokens", "features")]  # type: ignore[arg-type]
KERNELS = [(point, option) for point in POINTS for option in OPTIONS]
WAYS = [f"generated:{way_name(point, option)}" for point, option in KERNELS]
N, K = 6144, 4096


def shape(m: int) -> GemmShape:
    return GemmShape(f"m{m}", m, N, K, "bf16")


def weight(ms: list[int], times: list[list[float]], ways: list[str]) -> MeasuredWeight:
    shapes, matrix = [shape(m) for m in ms], np.array(times, float)
    return MeasuredWeight(shapes, ways, matrix, LearnedTimes(shapes, ways, matrix))


def chosen(spans: list[WaySpan], m: int) -> int:
    return [span for span in spans if span.start <= m][-1].way


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.floats(0.5, 2), min_size=len(WAYS), max_size=len(WAYS)),
    st.sets(st.sampled_from([1, 4, 16, 64, 128, 512, 2048, 8192]), min_size=2),
)
def test_where_measured_times_are_the_models_times_a_factor_every_choice_is_the_best(
    factors: list[float], measured: set[int]
) -> None:
    """So between two measured m it is the model that tells when another kernel is faster."""

    def seconds(m: int) -> list[float]:
        return [
            factor * way_seconds(point, option, shape(m))
            for factor, (point, option) in zip(factors, KERNELS, strict=True)
        ]

    ms = sorted(measured)
    spans = fastest_spans(weight(ms, [seconds(m) for m in ms], WAYS))
    assert spans[0].start == 1 and all(
        one.start < two.start and one.way != two.way for one, two in pairwise(spans)
    )
    for m in {*ms, *(at for end, step in STEPS for at in (end - step, end) if ms[0] <= at <= ms[-1])}:
        times = seconds(m)
        assert times[chosen(spans, m)] == pytest.approx(min(times), rel=1e-9)
    assert chosen(spans, 1 << 30) == int(np.argmin(seconds(ms[-1])))


def test_a_measured_time_counts_for_more_than_the_model() -> None:
    ms = [1, 16, 17, 64]
    times = [[1.0, 2.0, 3.0], [2.0, 1.0, 3.0], [3.0, 2.0, 1.0], [1.0, 3.0, 2.0]]
    spans = fastest_spans(weight(ms, times, WAYS[:3]))
    assert [chosen(spans, m) for m in ms] == [0, 1, 2, 0]


def test_kernels_that_the_model_does_not_know_are_interpolated() -> None:
    """Both are straight lines of log time over log m, which meet at m = 32."""
    spans = fastest_spans(weight([16, 64], [[1.0, 2.0], [4.0, 2.0]], ["cutlass:a", "triton:b"]))
    assert spans == [WaySpan(1, 0), WaySpan(33, 1)]


def test_a_time_that_is_there_on_one_side_only_is_taken_to_be_longer() -> None:
    nan = float("nan")
    ways = ["cutlass:a", "cutlass:b"]
    assert fastest_spans(weight([16, 64], [[1.0, nan], [1.0, 1.0]], ways)) == [WaySpan(1, 0)]
    spans = fastest_spans(weight([16, 64], [[1.0, nan], [1.0, 0.9]], ways))
    assert spans == [WaySpan(1, 0), WaySpan(25, 1)], (
        "it is taken to be 1 at m = 29, which is in the step to 32"
    )
    assert fastest_spans(weight([16, 64], [[1.0, nan], [nan, 1.0]], ways))[0] == WaySpan(1, 0)


@pytest.mark.parametrize(
    "way",
    [
        "warpgroup_gemm_bf16_64x64x64_1x1_split3_once_by1_tokens_1x1_raster1",
        "warpgroup_gemm_bf16_64x64x64_1x1_split1_once_by0_tokens_1x1_raster1",
        "warpgroup_gemm_bf16_0x64x64_1x1_split1_once_by1_tokens_1x1_raster1",
        "warpgroup_gemm_bf16_64x64x64_1x1_split8_once_by1_tokens_9x9_raster1",
        "warpgroup_gemm_bf16_64x64x64_1x1_split1_once_by1_tokens_0x1_raster1",
        "simple_gemm_bf16_64x64x64_20x20_pingpong_single_persistent_tokens_raster0_splits1",
        "simple_gemm_bf16_128x64x64_1x1_cooperative_shared_stream_k_tokens_raster0_splits0",
        f"warpgroup_gemm_bf16_64x{'9' * 5000}x64_1x1_split1_once_by1_tokens_1x1_raster1",
    ],
)
def test_names_that_only_look_like_kernels_are_interpolated(way: str) -> None:
    spans = fastest_spans(weight([16, 64], [[1.0, 2.0], [4.0, 2.0]], [f"generated:{way}", "triton:b"]))
    assert spans == [WaySpan(1, 0), WaySpan(33, 1)]


def test_a_weight_with_one_shape_has_one_kernel() -> None:
    assert fastest_spans(weight([64], [[2.0, 1.0]], WAYS[:2])) == [WaySpan(1, 1)]
