// norm_gemv in CUDA C++: y = weight @ (x * rsqrt(mean(x^2) + eps) * norm), for one vector x of bfloat16.
//
// A block multiplies ROWS rows of the weight, its threads side by side along k. The norm's factor is the same
// for all elements, so it multiplies the finished sums: nothing waits for it, and the weight is read from the
// start. x and norm come from the L2; the weight is read once and leaves the L2 first.
//
// Rows that do not exist are read as the last one, and not written.
//
// Macros: ROWS of a block, THREADS of a block (a multiple of 32).

typedef unsigned short bf16;  // the upper half of a float32
typedef unsigned long long u64;

constexpr int COLUMNS = 8;  // that a thread loads at a time: 16 bytes
constexpr int WARPS = THREADS / 32;

struct Sums {
  float rows[ROWS];
  float squares;
};

__device__ __forceinline__ u64 address(const bf16* at) { return reinterpret_cast<u64>(at); }
__device__ __forceinline__ float even(unsigned pair) { return __uint_as_float(pair << 16); }
__device__ __forceinline__ float odd(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }
__device__ __forceinline__ float single(bf16 half) { return __uint_as_float((unsigned)half << 16); }

__device__ __forceinline__ u64 leaves_first() {
  u64 policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

__device__ __forceinline__ uint4 load_once(const bf16* at, u64 policy) {
  uint4 value;
  asm("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
      : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
      : "l"(at), "l"(policy));
  return value;
}

__device__ __forceinline__ void unpack(uint4 packed, float* values) {
  const unsigned pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = even(pairs[i]);
    values[2 * i + 1] = odd(pairs[i]);
  }
}

// Eight columns at a time, where every row begins at a multiple of 16 bytes.
__device__ __forceinline__ void add_aligned(Sums& sums, const bf16* x, const bf16* norm,
                                            const bf16* const* rows, int k) {
  const u64 policy = leaves_first();
#pragma unroll 2
  for (int column = COLUMNS * threadIdx.x; column < k; column += COLUMNS * THREADS) {
    uint4 packed[ROWS];
#pragma unroll
    for (int r = 0; r < ROWS; ++r) packed[r] = load_once(rows[r] + column, policy);
    float value[COLUMNS], weighted[COLUMNS], element[COLUMNS];
    unpack(__ldg(reinterpret_cast<const uint4*>(x + column)), value);
    unpack(__ldg(reinterpret_cast<const uint4*>(norm + column)), weighted);
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) {
      sums.squares += value[i] * value[i];
      weighted[i] *= value[i];
    }
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      unpack(packed[r], element);
#pragma unroll
      for (int i = 0; i < COLUMNS; ++i) sums.rows[r] += element[i] * weighted[i];
    }
  }
}

// One column at a time, for every k and every address.
__device__ __forceinline__ void add_any(Sums& sums, const bf16* x, const bf16* norm,
                                        const bf16* const* rows, int k) {
  for (int column = threadIdx.x; column < k; column += THREADS) {
    const float value = single(x[column]);
    const float weighted = value * single(norm[column]);
    sums.squares += value * value;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) sums.rows[r] += single(rows[r][column]) * weighted;
  }
}

__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = 16; distance > 0; distance /= 2) value += __shfl_xor_sync(~0u, value, distance);
  return value;
}

extern "C" __global__ void __launch_bounds__(THREADS)
    norm_gemv_cuda(const bf16* __restrict__ x, const bf16* __restrict__ norm, const bf16* __restrict__ weight,
                   bf16* __restrict__ y, float eps, int n, int k) {
  __shared__ float parts[WARPS][ROWS + 1];
  const int first = blockIdx.x * ROWS;
  const bf16* rows[ROWS];
#pragma unroll
  for (int r = 0; r < ROWS; ++r) rows[r] = weight + (long long)min(first + r, n - 1) * k;

  Sums sums = {};
  if ((address(x) | address(norm) | address(weight)) % 16 == 0 && k % COLUMNS == 0)
    add_aligned(sums, x, norm, rows, k);
  else
    add_any(sums, x, norm, rows, k);

  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) {
    const float sum = warp_sum(sums.rows[r]);
    if (lane == 0) parts[warp][r] = sum;
  }
  const float squares = warp_sum(sums.squares);
  if (lane == 0) parts[warp][ROWS] = squares;
  __syncthreads();

  const int r = threadIdx.x;
  if (r >= ROWS || first + r >= n) return;
  float row = 0, square = 0;
  for (int w = 0; w < WARPS; ++w) {
    row += parts[w][r];
    square += parts[w][ROWS];
  }
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y[first + r]) : "f"(row * rsqrtf(__fdividef(square, k) + eps)));
}
