"""Which of the kernels that ran on a GPU are the workspace's own; the list itself is made in tests/gpu."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.harness.engagement.kernel_names import (
    DefinedNames,
    defined_names,
    foreign_kernels,
    qualified_name,
)

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
namespace mine { namespace inner { template <class P> __global__ void multiply(P p) {} } }
namespace a::inline b // of a version
{
__global__ __attribute__((noinline)) void __launch_bounds__(max(128, int(N)), (1 + (2))) deep(float*) {}
}
namespace pytorch_flash { __global__ void flash_fwd_kernel(float*) {} }
namespace { __global__ void nameless(float*) {} }
namespace at { namespace native { __global__ void reduce_kernel(float*) {} } }
namespace internal { namespace gemvx { __global__ void kernel(float*) {} } }
__global__ void nvjet_tst_64x8_64x16_1x4_v_bz_TNT(float*) {}
__global__ void sm90_xmma_gemm_bf16bf16(float*) {}
__global__ void splitKreduce_kernel(float*) {}
__global__ void gemv_kernel(float*) {}
__global__ void sm90_gemm(float*) {}
""",
    "mangled.ptx": ".visible .entry _ZN6plates3lowEPf(.param .u64 a)\n{ ret; }\n",
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
    "gemv_kernel(float*)",
    "sm90_gemm(float*)",
    "void mine::inner::multiply<mine::Plan<3>, (bool)1>(CUtensorMap, mine::Work)",
    "_ZN4mine5inner8multiplyINS_4PlanEEEvT_",
    "a::b::deep(float*)",
    "void b::multiply<a::X>(int)",
    "_ZN6plates3lowEPf",
    "plates::low(float*)",
    "_ZL5alonePf",
    "void tiled<cute::Layout<cute::tuple<cute::C<4...C<64> > >(cute::Layout<int>, mine::Work)",
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
    "void other::alone(float*)",
    "_ZN5other5aloneEPf",
    "void tiled<4>::type other::alone<float>(float*)",
    "void (anonymous namespace)::nameless(float*)",
    "at::native::reduce_kernel(float*)",
    "std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float>(float)",
    "void internal::gemvx::kernel<int>(float*)",
    "nvjet_tst_64x8_64x16_1x4_v_bz_TNT",
    "sm90_xmma_gemm_bf16bf16",
    "splitKreduce_kernel(float*)",
    "mine::inner",
    "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64>, false>(Flash_fwd_params)",
    "kernel_cutlass_softmax_kernels_of_others_0",
    "other functions",
    "",
    "not_source",
    "helper_of_others",
    "kernel_cutlass_gemm_of_others_0",
    "_Z8not_minePf",
    "?",
]


@pytest.fixture
def own(tmp_path: Path) -> DefinedNames:
    for name, text in WORKSPACE.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return defined_names(tmp_path)


@pytest.mark.parametrize("kernel", OWN)
def test_what_the_workspace_defines_and_memory_is_its_own(own: DefinedNames, kernel: str) -> None:
    assert list(foreign_kernels([kernel], own)) == []


@pytest.mark.parametrize("kernel", FOREIGN)
def test_what_it_does_not_define_is_foreign(own: DefinedNames, kernel: str) -> None:
    assert list(foreign_kernels([kernel], own)) == [kernel]


def test_files_that_are_no_text_are_looked_over(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_bytes(b"\xff\xfe def f(): pass\n")
    assert defined_names(tmp_path).functions == {"f"}


@pytest.mark.parametrize(
    ("kernel", "parts"),
    [
        ("f", ["f"]),
        ("void a::f<b::c<1>, (int)2>(x<3>)", ["a", "f"]),
        ("f<1", ["f"]),
        ("a<1>::f(int)", [""]),
        ("<1>", [""]),
        ("_Z", [""]),
        ("_Z99f", ["f"]),
        ("_ZN1a1fE", ["a", "f"]),
        ("_Z1fN1b1cE", ["f"]),
    ],
)
def test_names_are_taken_apart(kernel: str, parts: list[str]) -> None:
    assert qualified_name(kernel) == parts
