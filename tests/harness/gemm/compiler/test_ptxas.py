"""What ptxas says of kernels, as nvcc 13.0 writes it, and as the nvcc of this environment does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.gemm.compiler.parallel import CompileRun
from hillclimb.harness.gemm.compiler.ptxas import KernelFacts, read_kernels
from hillclimb.harness.gemm.compiler.store import BuildStore, CompileJob
from hillclimb.harness.gemm.compiler.toolkit import find_toolkit, of_wheels

TOLD = """ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are serialized due to \
insufficient register resources for the wgmma pipeline in the function '_Z6spillyPfi'
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function '_Z4tinyILi32EEvPf' for 'sm_90a'
ptxas info    : Function properties for _Z4tinyILi32EEvPf
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 12 registers, used 1 barriers, 128 bytes smem
ptxas info    : Compile time = 29.795 ms
ptxas info    : Compiling entry function '_Z6spillyPfi' for 'sm_90a'
ptxas info    : Function properties for _Z6spillyPfi
    880 bytes stack frame, 1216 bytes spill stores, 1260 bytes spill loads
ptxas info    : Function properties for _Z6helperv
    8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads
ptxas info    : Used 32 registers, used 1 barriers, 880 bytes cumulative stack size
"""

SOURCE = """
__global__ void __launch_bounds__(1024, 2) spills(float* a, int n) {
  float x[64];
  for (int i = 0; i < 64; i++) x[i] = a[i * n + threadIdx.x];
  for (int j = 0; j < n; j++)
    for (int i = 0; i < 64; i++) x[i] += x[(i * 7 + 3) % 64] * a[j];
  for (int i = 0; i < 64; i++) a[i * n + threadIdx.x] = x[i];
}
template <int N> __global__ void shares(float* a) {
  __shared__ float s[N];
  s[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  a[0] = s[N - 1];
}
template __global__ void shares<32>(float*);
"""


def test_facts_are_each_kernels_own() -> None:
    tiny, spilly = read_kernels(TOLD)
    assert tiny == KernelFacts(symbol="_Z4tinyILi32EEvPf", registers=12, shared_bytes=128)
    assert (spilly.symbol, spilly.spill_bytes, spilly.losses) == ("_Z6spillyPfi", 2476, ("C7510",))


def test_a_loss_without_a_kernel_is_everybodys() -> None:
    told = TOLD.replace(" in the function '_Z6spillyPfi'", "")
    assert [kernel.losses for kernel in read_kernels(told)] == [("C7510",), ("C7510",)]


@given(st.lists(st.sampled_from(TOLD.splitlines()) | st.text()).map("\n".join))
def test_nothing_that_a_compiler_writes_is_an_error(told: str) -> None:
    assert len({kernel.symbol for kernel in read_kernels(told)}) == len(read_kernels(told))


@pytest.mark.slow(6)
def test_a_real_compiler_is_understood(tmp_path: Path) -> None:
    store = BuildStore(tmp_path, find_toolkit(of_wheels()[0]))
    flags = ("-gencode=arch=compute_90a,code=sm_90a", "-Xptxas=-v")
    right, wrong = CompileRun(store, 2)(
        [CompileJob("a", SOURCE, flags, "cubin"), CompileJob("b", "int x = y;\n", flags, "cubin")]
    )
    spills, shares = sorted(right.record.kernels, key=lambda kernel: kernel.shared_bytes)
    assert spills.symbol.endswith("spillsPfi") and spills.spill_bytes > 0 and spills.registers == 32
    assert shares.shared_bytes == 128 and shares.spill_bytes == 0
    assert wrong.record.outcome == "failed" and 'identifier "y" is undefined' in wrong.diagnostics
