// One token of one sequence by a Llama: five kernels a layer, one for the logits, one for the token.
//
// A token reads every weight once and does two operations with each, so each kernel streams rows of a matrix.
// A block multiplies a few of them, its threads side by side along the columns, 16 bytes at a time. What they
// are multiplied with is small and comes from the caches. The residual stream `x` is kept in float32. A
// norm's factor is the same for all columns, so it multiplies the finished sums.
//
// A kernel may begin while the one before it ends (programmatic dependent launch). It then loads its first
// weights, which nobody writes, and waits before it reads anything else.
//
// All parameters have eight bytes. Macros are HIDDEN, HEADS, KV_HEADS, HEAD (elements of a head), FFN, VOCAB;
// for each of QKV, O, GATE, DOWN and LOGITS the ROWS and WARPS of a block and the DEPTH, which is how many
// loads of each row a thread has on their way; ATTEND_WARPS; BEGIN_WARPS; EVICT_FIRST.

typedef unsigned short bf16;  // the upper half of a float32
typedef unsigned long long u64;
typedef long long i64;

constexpr int COLUMNS = 8;  // that a thread loads at a time: 16 bytes
constexpr int HALF = HEAD / 2, GROUP = HEADS / KV_HEADS, QUERY = HEADS * HEAD;
constexpr float EPSILON = 1e-5f, NOTHING = -1e30f, LOG2_E = 1.4426950408889634f;

static_assert(HIDDEN % COLUMNS == 0 && FFN % COLUMNS == 0, "rows begin at multiples of 16 bytes");
static_assert(QKV_ROWS % 2 == 0 && GATE_ROWS % 2 == 0 && HALF % (QKV_ROWS / 2) == 0, "pairs of rows");
static_assert(HIDDEN % O_ROWS == 0 && HIDDEN % DOWN_ROWS == 0 && FFN % (GATE_ROWS / 2) == 0, "rows");

#ifdef EMULATE
#include "emulate_blocks.h"
#else
#define DEVICE __device__ __forceinline__
#define KERNEL(warps) extern "C" __global__ void __launch_bounds__(32 * (warps))

// The next kernel may begin as soon as all blocks of this one have said so.
DEVICE void let_next_begin() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// Until all kernels before this one are over, and what they wrote can be read.
DEVICE void await_last() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
DEVICE u64 leaves_first() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
DEVICE uint4 load_once(const bf16* at, u64 policy) {  // volatile: before the wait, where it was written so
  uint4 r;
#if EVICT_FIRST
  asm volatile("ld.global.nc.L1::no_allocate.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "l"(at), "l"(policy));
#else
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "l"(at));
#endif
  return r;
}
DEVICE bf16 rounded(float x) {
  bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
DEVICE float shuffle_xor(float x, int lanes) { return __shfl_xor_sync(~0u, x, lanes); }
#endif

DEVICE float widened(bf16 x) { return __uint_as_float((unsigned)x << 16); }
DEVICE void unpack(const uint4& packed, float (&to)[COLUMNS]) {
  const unsigned pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(pairs[i] << 16), to[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
  }
}
DEVICE void read(const float* at, float (&to)[COLUMNS]) {
  const float4 a = reinterpret_cast<const float4*>(at)[0], b = reinterpret_cast<const float4*>(at)[1];
  to[0] = a.x, to[1] = a.y, to[2] = a.z, to[3] = a.w, to[4] = b.x, to[5] = b.y, to[6] = b.z, to[7] = b.w;
}
DEVICE void read(const bf16* at, float (&to)[COLUMNS]) { unpack(*reinterpret_cast<const uint4*>(at), to); }
DEVICE float dot(const float (&a)[COLUMNS], const float (&b)[COLUMNS], float sum) {
#pragma unroll
  for (int i = 0; i < COLUMNS; ++i) sum = fmaf(a[i], b[i], sum);
  return sum;
}

// ---- rows of a matrix times a vector

struct Vector {
  const float* x;
  DEVICE void take(int column, float (&to)[COLUMNS]) { read(x + column, to); }
};

struct Normed {  // but for the factor, which `squares` give
  const float* x;
  const bf16* norm;
  float squares;
  DEVICE void take(int column, float (&to)[COLUMNS]) {
    float weight[COLUMNS];
    read(x + column, to), read(norm + column, weight);
    squares = dot(to, to, squares);
#pragma unroll
    for (int i = 0; i < COLUMNS; ++i) to[i] *= weight[i];
  }
};

template <int ROWS, int WARPS, int DEPTH, int WIDTH>
struct Product {
  static constexpr int TURN = COLUMNS * 32 * WARPS, TURNS = (WIDTH + TURN - 1) / TURN;
  const bf16* rows[ROWS];
  uint4 loaded[DEPTH][ROWS];
  u64 policy;

  DEVICE static int column(int turn) { return turn * TURN + COLUMNS * (int)threadIdx.x; }
  DEVICE static bool is_real(int turn) { return WIDTH % TURN == 0 || column(turn) < WIDTH; }
  DEVICE void load(int turn) {
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
      loaded[turn % DEPTH][r] = is_real(turn) ? load_once(rows[r] + column(turn), policy) : uint4{0, 0, 0, 0};
    }
  }
  DEVICE void begin() {
    policy = leaves_first();
#pragma unroll
    for (int turn = 0; turn < DEPTH && turn < TURNS; ++turn) load(turn);
  }
  template <class Input>
  DEVICE void multiply(Input& input, float* sums) {
#pragma unroll
    for (int turn = 0; turn < TURNS; ++turn) {
      float x[COLUMNS] = {}, weights[COLUMNS];
      if (is_real(turn)) input.take(column(turn), x);
#pragma unroll
      for (int r = 0; r < ROWS; ++r) {
        unpack(loaded[turn % DEPTH][r], weights);
        sums[r] = dot(weights, x, sums[r]);
      }
      if (turn + DEPTH < TURNS) load(turn + DEPTH);
    }
  }
};

template <int COUNT, int WARPS>
struct Sums {  // over a block, in shared memory
  float parts[WARPS][COUNT];
  DEVICE void join(const float (&own)[COUNT]) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      float sum = own[i];
#pragma unroll
      for (int lanes = 16; lanes; lanes /= 2) sum += shuffle_xor(sum, lanes);
      if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32][i] = sum;
    }
    __syncthreads();
  }
  DEVICE float operator[](int i) const {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) sum += parts[warp][i];
    return sum;
  }
};

// Leaves the sums of the rows; the factor of the norm is returned.
template <int ROWS, int WARPS, int DEPTH, int WIDTH>
DEVICE float multiply_normed(Product<ROWS, WARPS, DEPTH, WIDTH>& product, Normed input,
                             Sums<ROWS + 1, WARPS>& sums) {
  float own[ROWS + 1] = {};
  product.begin();
  let_next_begin();
  await_last();
  product.multiply(input, own);
  own[ROWS] = input.squares;
  sums.join(own);
  return rsqrtf(sums[ROWS] * (1.0f / WIDTH) + EPSILON);
}

// x += matrix * vector
template <int ROWS, int WARPS, int DEPTH, int WIDTH>
DEVICE void add_rows(Sums<ROWS, WARPS>& sums, Vector vector, const bf16* matrix, float* x) {
  const int first = blockIdx.x * ROWS, thread = threadIdx.x;
  Product<ROWS, WARPS, DEPTH, WIDTH> product;
#pragma unroll
  for (int r = 0; r < ROWS; ++r) product.rows[r] = matrix + (i64)(first + r) * WIDTH;
  product.begin();
  let_next_begin();
  await_last();
  const float before = thread < ROWS ? __ldcg(x + first + thread) : 0.0f;
  float own[ROWS] = {};
  product.multiply(vector, own);
  sums.join(own);
  if (thread < ROWS) x[first + thread] = before + sums[thread];
}

// ---- the kernels

DEVICE void take_row(const bf16* row, float* x) {
  for (int i = threadIdx.x; i < HIDDEN; i += 32 * BEGIN_WARPS) x[i] = widened(row[i]);
}

// The embedding of the token that is read first.
KERNEL(BEGIN_WARPS) begin(const i64* token, const bf16* embedding, float* x, u64* best) {
  take_row(embedding + *token * HIDDEN, x);
  if (threadIdx.x == 0) *best = 0;
}

// Some rows of q, k or v of one head: element i and the one half a head further, which are turned together.
KERNEL(QKV_WARPS) project(const float* x, const bf16* norm, const bf16* q, const bf16* k, const bf16* v,
                          const float* frequencies, float* query, bf16* keys, bf16* values,
                          i64 position, i64 capacity) {
  __shared__ Sums<QKV_ROWS + 1, QKV_WARPS> sums;
  constexpr int PAIRS = QKV_ROWS / 2;
  const int pair = blockIdx.x * PAIRS % HALF, thread = threadIdx.x;
  int head = blockIdx.x * PAIRS / HALF;
  const bool is_query = head < HEADS, is_key = !is_query && head < HEADS + KV_HEADS;
  const bf16* matrix = is_query ? q : is_key ? k : v;
  head -= is_query ? 0 : is_key ? HEADS : HEADS + KV_HEADS;

  Product<QKV_ROWS, QKV_WARPS, QKV_DEPTH, HIDDEN> product;
#pragma unroll
  for (int r = 0; r < QKV_ROWS; ++r) {
    product.rows[r] = matrix + (i64)(head * HEAD + pair + r / 2 + r % 2 * HALF) * HIDDEN;
  }
  const float factor = multiply_normed(product, {x, norm, 0}, sums);
  if (thread >= PAIRS) return;
  float a = sums[2 * thread] * factor, b = sums[2 * thread + 1] * factor, sine, cosine;
  if (is_query || is_key) {
    sincosf(frequencies[pair + thread] * (float)position, &sine, &cosine);
    const float first = a;
    a = first * cosine - b * sine, b = b * cosine + first * sine;
  }
  if (is_query) {
    query[head * HEAD + pair + thread] = a, query[head * HEAD + pair + thread + HALF] = b;
    return;
  }
  bf16* place = (is_key ? keys : values) + (head * capacity + position) * HEAD + pair + thread;
  place[0] = rounded(a), place[HALF] = rounded(b);
}

KERNEL(O_WARPS) add_attention(const float* seen, const bf16* o, float* x) {
  __shared__ Sums<O_ROWS, O_WARPS> sums;
  add_rows<O_ROWS, O_WARPS, O_DEPTH, QUERY>(sums, {seen}, o, x);
}

// Rows of both matrices of the gated layer.
KERNEL(GATE_WARPS) gate_up(const float* x, const bf16* norm, const bf16* gate, const bf16* up, float* gated) {
  __shared__ Sums<GATE_ROWS + 1, GATE_WARPS> sums;
  constexpr int PAIRS = GATE_ROWS / 2;
  const int first = blockIdx.x * PAIRS, thread = threadIdx.x;
  Product<GATE_ROWS, GATE_WARPS, GATE_DEPTH, HIDDEN> product;
#pragma unroll
  for (int r = 0; r < GATE_ROWS; ++r) {
    product.rows[r] = (r % 2 ? up : gate) + (i64)(first + r / 2) * HIDDEN;
  }
  const float factor = multiply_normed(product, {x, norm, 0}, sums);
  if (thread >= PAIRS) return;
  const float a = sums[2 * thread] * factor, b = sums[2 * thread + 1] * factor;
  gated[first + thread] = a / (1.0f + exp2f(-LOG2_E * a)) * b;
}

KERNEL(DOWN_WARPS) add_down(const float* gated, const bf16* down, float* x) {
  __shared__ Sums<DOWN_ROWS, DOWN_WARPS> sums;
  add_rows<DOWN_ROWS, DOWN_WARPS, DOWN_DEPTH, FFN>(sums, {gated}, down, x);
}

// A larger logit has a larger rank, and of equal ones that of the first token.
DEVICE u64 ranked(float logit, int token) {
  const unsigned bits = __float_as_uint(logit);
  return (u64)(bits & 0x80000000u ? ~bits : bits | 0x80000000u) << 32 | (unsigned)~token;
}

// Some logits, and the largest rank so far. Rows that do not exist are read as the last one.
KERNEL(LOGITS_WARPS) score(const float* x, const bf16* norm, const bf16* head, float* logits, u64* best) {
  __shared__ Sums<LOGITS_ROWS + 1, LOGITS_WARPS> sums;
  const int first = blockIdx.x * LOGITS_ROWS, thread = threadIdx.x;
  Product<LOGITS_ROWS, LOGITS_WARPS, LOGITS_DEPTH, HIDDEN> product;
#pragma unroll
  for (int r = 0; r < LOGITS_ROWS; ++r) {
    product.rows[r] = head + (i64)(first + r < VOCAB ? first + r : VOCAB - 1) * HIDDEN;
  }
  const float factor = multiply_normed(product, {x, norm, 0}, sums);
  if (thread) return;
  u64 most = 0;
#pragma unroll
  for (int r = 0; r < LOGITS_ROWS; ++r) {
    if (first + r >= VOCAB) break;
    const float logit = sums[r] * factor;
    const u64 rank = ranked(logit, first + r);
    logits[first + r] = logit, most = rank > most ? rank : most;
  }
  atomicMax(best, most);
}

// The token with the largest logit, and the embedding of what is read after it.
KERNEL(BEGIN_WARPS) choose(u64* best, i64* token, const i64* shift, const bf16* embedding, float* x) {
  let_next_begin();
  await_last();
  const unsigned found = ~(unsigned)*best;
  take_row(embedding + (found + *shift) % VOCAB * HIDDEN, x);
  __syncthreads();
  if (threadIdx.x == 0) *token = found, *best = 0;
}

#include "attend.cu"
