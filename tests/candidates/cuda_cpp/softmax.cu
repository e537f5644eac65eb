// y = softmax(x) along rows of bfloat16: one block a row, x read twice, the second time out of a cache.
#include <cuda_bf16.h>

constexpr int THREADS = 256;
constexpr float LOWEST = -3.0e38f;

struct Partial {
    float top;    // largest element seen
    float total;  // sum of exp(element - top)
};

__device__ Partial combine(Partial a, Partial b) {
    float top = fmaxf(a.top, b.top);
    return {top, a.total * __expf(a.top - top) + b.total * __expf(b.top - top)};
}

__device__ Partial combine_warp(Partial mine) {
    for (int distance = 16; distance > 0; distance /= 2) {
        Partial other = {__shfl_xor_sync(~0u, mine.top, distance), __shfl_xor_sync(~0u, mine.total, distance)};
        mine = combine(mine, other);
    }
    return mine;
}

extern "C" __global__ void __launch_bounds__(THREADS) softmax(const __nv_bfloat16* x, __nv_bfloat16* y, int columns) {
    __shared__ Partial warps[THREADS / 32];
    const __nv_bfloat16* in = x + static_cast<long long>(blockIdx.x) * columns;
    __nv_bfloat16* out = y + static_cast<long long>(blockIdx.x) * columns;

    Partial mine = {LOWEST, 0.0f};
    for (int column = threadIdx.x; column < columns; column += THREADS)
        mine = combine(mine, {__bfloat162float(in[column]), 1.0f});
    mine = combine_warp(mine);
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    __syncthreads();
    Partial row = warps[0];
    for (int warp = 1; warp < THREADS / 32; ++warp) row = combine(row, warps[warp]);

    float factor = 1.0f / row.total;
    for (int column = threadIdx.x; column < columns; column += THREADS)
        out[column] = __float2bfloat16(__expf(__bfloat162float(in[column]) - row.top) * factor);
}
