// What the kernels ask of a GPU in its own instructions, a part of decode.cu.

#define DEVICE __device__ __forceinline__
#define KERNEL extern "C" __global__ void __launch_bounds__(THREADS)

// The next kernel may begin as soon as all blocks of this one have said so.
DEVICE void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// Until all kernels before this one are over, and what they wrote can be read.
DEVICE void await_last() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEVICE uint4 load_weights(const bf16* at) {  // volatile: before the wait, where it was written so
  uint4 r;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "l"(at));
  return r;
}
DEVICE void fetch(const bf16* at) { asm volatile("prefetch.global.L2 [%0];" ::"l"(at)); }
DEVICE bf16 rounded(float x) {
  bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
DEVICE float shuffle_xor(float x, int lanes) { return __shfl_xor_sync(~0u, x, lanes); }
// sum += a * b of 16 rows, 16 columns and 8 sequences
DEVICE void multiply_add(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                         unsigned b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
