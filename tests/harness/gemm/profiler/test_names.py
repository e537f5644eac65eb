"""Names of CUTLASS operations."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.gemm.profiler.names import KernelName, parse_name

TYPES = "bf16_bf16_f32_bf16_bf16"


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        (
            f"cutlass3x_sm90_tensorop_gemm_{TYPES}_128x256x64_1x2x1_0_tnn_align8_warpspecialized_pingpong_epi_tma",
            KernelName(90, (128, 256, 64), (1, 2, 1), None, "tnn", 8, "warpspecialized_pingpong", "tma"),
        ),
        (
            f"cutlass3x_sm90_tensorop_gemm_{TYPES}_256x128x64_2x1x1_4_tnt_align8_stream_k_warpspecialized_cooperative"
            "_epi_nosmem",
            KernelName(
                90, (256, 128, 64), (2, 1, 1), 4, "tnt", 8, "warpspecialized_cooperative", "nosmem", is_stream_k=True
            ),
        ),
        (
            "cutlass3x_sm90_tensorop_s64x128x16gemm_f16_f16_f32_f16_f16_128x128x64_2x1x1_0_tnt_align8",
            KernelName(90, (128, 128, 64), (2, 1, 1), None, "tnt", 8),
        ),
        (
            "cutlass3x_sm90_tensorop_gemm_e4m3_e4m3_f32_bf16_bf16_64x16x128_1x1x1_0_tnn_align16_warpspecialized_fp8_fastaccum"
            "_epi_tma",
            KernelName(90, (64, 16, 128), (1, 1, 1), None, "tnn", 16, "warpspecialized_fp8_fastaccum", "tma"),
        ),
        (
            f"cutlass3x_sm100_tensorop_gemm_{TYPES}_128x128x64_0x0x1_0_tnn_align8_warpspecialized_1sm_epi_tma",
            KernelName(100, (128, 128, 64), None, None, "tnn", 8, "warpspecialized_1sm", "tma"),
        ),
        (
            "cutlass_tensorop_f16_s16816gemm_f16_256x64_32x4_nt_align8",
            KernelName(None, (256, 64, 32), (1, 1, 1), 4, "nt", 8),
        ),
        ("cutlass_tensorop_h16816gemm_128x64_64x3_tn_align4", KernelName(None, (128, 64, 64), (1, 1, 1), 3, "tn", 4)),
    ],
)  # fmt: skip
def test_names_of_every_kind_are_read(operation: str, expected: KernelName) -> None:
    assert parse_name(operation) == expected
    assert parse_name(operation).is_known


@pytest.mark.parametrize(
    "operation",
    [
        "", "gemm", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1",
        f"cutlass3x_sm90_tensorop_gemm_{TYPES}_128x256_1x2x1_0_tnn_align8",
        f"cutlass3x_sm90_tensorop_gemm_{TYPES}_128x256x64_1x2x1_0_tnn_align8_warpspecialized!",
        "cutlass_tensorop_s1688fprop_optimized_tf32_128x128_16x4_nhwc",
    ],
)  # fmt: skip
def test_of_other_names_nothing_is_guessed(operation: str) -> None:
    assert parse_name(operation) == KernelName()
    assert not parse_name(operation).is_known


sizes = st.tuples(*[st.integers(1, 512)] * 3)


@given(
    sizes, sizes, st.integers(0, 12), st.sampled_from(["tnn", "ntn", "ttt"]), st.sampled_from([1, 4, 8, 16])
)
def test_what_is_in_a_name_comes_back(
    tile: tuple[int, int, int], cluster: tuple[int, int, int], stages: int, layout: str, align: int
) -> None:
    both = ("x".join(map(str, three)) for three in (tile, cluster))
    sizes_of_both = "_".join(both)
    rest = f"{stages}_{layout}_align{align}_cpasync_epi_nosmem"
    operation = f"cutlass3x_sm90_tensorop_gemm_{TYPES}_{sizes_of_both}_{rest}"
    found = parse_name(operation)
    assert (found.tile, found.cluster, found.stages) == (tile, cluster, stages or None)
    assert (found.layout, found.align, found.schedule, found.epilogue) == (layout, align, "cpasync", "nosmem")


@given(st.text())
def test_no_name_is_too_odd(operation: str) -> None:
    parse_name(operation)
