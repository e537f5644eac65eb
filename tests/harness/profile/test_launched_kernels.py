"""Which of the kernels that ran on a GPU are the workspace's own; the list itself is made in tests/gpu."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.harness.profile.launched_kernels import defined_functions, foreign_kernels

WORKSPACE = {
    "kernel.py": '''
import triton

@triton.jit
def _softmax_rows(x, y, n: "tl.constexpr"):
    pass

SOURCE = """
extern "C" __global__ void __launch_bounds__(256) scale_rows(const float* x, float* y) { }
"""
''',
    "more/inner.cu": """
template <int N> __global__ void __cluster_dims__(2, 1, 1) tiled(float* y) { other(y); }
__global__
void
alone(float* y) {}
static __device__ float helper(float x) { return x; }
""",
    "raw.ptx": ".visible .entry copy_rows$1(.param .u64 a)\n{ ret; }\n",
    "cute_kernel.py": "def softmax_kernel(x, y):\n    pass\n",
    "notes.md": "def not_source(): pass",
}

OWN = [
    "_softmax_rows",
    "scale_rows",
    "scale_rows(float const*, float*)",
    "void tiled<4>(float*)",
    "_Z10scale_rowsPKfPf",
    "_Z5tiledILi4EEvPf",
    "alone",
    "copy_rows$1",
    "kernel_cutlass_softmax_kernel_tensorptrf32gmemalign16o41921_0",
    "[CUDA memcpy DtoD]",
    "Memcpy DtoD (Device -> Device)",
    "Memset (Device)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>, std::array<char*, 1ul> >(int)",
    "gaps (nothing runs on the device)",
]

FOREIGN = [
    "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT",
    "sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_cublas",
    "ampere_sgemm_128x64_nn",
    "void cutlass::Kernel2<cutlass_80_tensorop_s1688gemm_128x64_16x6_nn_align4>(cutlass_80::Params)",
    "void gemv2T_kernel_val<int, int, float, float, float, float, 128, 16, 4, 4, false>(float)",
    "void splitKreduce_kernel<32, 16, int, float, float>(float)",
    "void at::native::(anonymous namespace)::cunn_SoftMaxForward<4, float>(float*, float const*, int)",
    "void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, false, false>(float*)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float> > >(x)",
    "void at::native::vectorized_elementwise_kernel<4, at::native::exp_kernel_cuda(at::TensorIteratorBase?)>(int)",
    "void cub::DeviceRadixSortOnesweepKernel<int>(int*)",
    "cudnn_generated_fort_native_sdpa_sm90_knob_7",
    "void tiled::alone(float*)",
    "not_source",
    "helper_of_others",
    "kernel_cutlass_gemm_of_others_0",
    "_Z8not_minePf",
    "?",
]


@pytest.fixture
def own(tmp_path: Path) -> frozenset[str]:
    for name, text in WORKSPACE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return defined_functions(tmp_path)


@pytest.mark.parametrize("kernel", OWN)
def test_what_the_workspace_defines_and_memory_is_its_own(own: frozenset[str], kernel: str) -> None:
    assert list(foreign_kernels([kernel], own)) == []


@pytest.mark.parametrize("kernel", FOREIGN)
def test_what_it_does_not_define_is_foreign(own: frozenset[str], kernel: str) -> None:
    assert list(foreign_kernels([kernel], own)) == [kernel]


def test_files_that_are_no_text_are_looked_over(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_bytes(b"\xff\xfe def f(): pass\n")
    assert defined_functions(tmp_path) == {"f"}
