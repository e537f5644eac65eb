// One token of each of up to 32 sequences by a Llama: five kernels a layer, one for the logits, one for the token.
//
// A token reads every weight once, and each weight is used by all sequences, eight of them at a time: sixteen rows
// of a matrix are the larger operand of a tensor core's product, and eight sequences the smaller one. The warps of
// a block share out the columns. A warp loads its part of sixteen rows straight into the registers that the product
// reads, 16 bytes a lane: which column is which is the same for both operands, so their order does not matter. Its
// part of the input stays in registers, for all tiles of rows that the block multiplies.
//
// The residual stream `x` is kept in float32. Beside it is `normed`, its elements times the weights of the norm that
// follows, in bfloat16. A norm's factor is the same for all columns, so it multiplies the finished sums; whoever
// writes `x` adds to `squares`, from which it is told.
//
// A kernel may begin while the one before it ends (programmatic dependent launch). It then loads its first
// weights, which nobody writes, and waits before it reads anything else.
//
// All parameters have eight bytes. Macros are HIDDEN, HEADS, KV_HEADS, HEAD (elements of a head), FFN, VOCAB, LAYERS;
// EIGHTS, which is how many groups of eight sequences there are; DOWN_SPLITS, the parts of the columns of `down` that
// blocks share out; MEMBERS, the query heads of a block of the attention.

typedef unsigned short bf16;  // the upper half of a float32
typedef unsigned long long u64;
typedef long long i64;

constexpr int WARPS = 8, THREADS = 32 * WARPS;
constexpr int COLUMNS = 8;      // that a thread loads at a time: 16 bytes
constexpr int CHUNK = 32;       // columns that a warp loads at a time
constexpr int ROWS = 16;        // of a tile
constexpr int SEQUENCES = 32;   // at the most
constexpr int PAIRS = 64 * EIGHTS;  // sums of a tile, two for each thread that finishes them
constexpr int HALF = HEAD / 2, GROUP = HEADS / KV_HEADS, QUERY = HEADS * HEAD;
constexpr float EPSILON = 1e-5f, NOTHING = -1e30f, LOG2_E = 1.4426950408889634f;

static_assert(8 * EIGHTS <= SEQUENCES && PAIRS <= THREADS, "sequences");
static_assert(HALF % 8 == 0 && FFN % 8 == 0 && HIDDEN % ROWS == 0 && VOCAB % ROWS == 0, "tiles");

#ifdef EMULATE
#include "emulate_mma.h"
#else
#include "gpu.cu"
#endif

DEVICE uint4 load_written(const bf16* at) { return __ldcg(reinterpret_cast<const uint4*>(at)); }
DEVICE float widened(bf16 x) { return __uint_as_float((unsigned)x << 16); }

#include "product.cu"

DEVICE float factor_of(const float* squares, int sequence) {
  return rsqrtf(__ldcg(squares + sequence) * (1.0f / HIDDEN) + EPSILON);
}

// ---- the kernels

// Rows of q, k or v of one head: element i and the one half a head further, which are turned together.
struct Projection {
  static constexpr int PARTS = HALF / 8, TILES = (HEADS + 2 * KV_HEADS) * PARTS;
  const bf16 *q, *k, *v;
  const float *squares, *frequencies;
  float* query;
  bf16 *keys, *values;
  i64 position, capacity;
  int batch;
  float factor;
  DEVICE Rows rows(int tile, int row) const {
    const int head = tile / PARTS, element = tile % PARTS * 8 + row;
    const bool is_query = head < HEADS, is_key = head < HEADS + KV_HEADS;
    const bf16* matrix = is_query ? q : is_key ? k : v;
    const int own = head - (is_query ? 0 : is_key ? HEADS : HEADS + KV_HEADS);
    const bf16* first = matrix + (i64)(own * HEAD + element) * HIDDEN;
    return {first, first + (i64)HALF * HIDDEN};
  }
  DEVICE void begin(const Place& at) { factor = factor_of(squares, at.sequence); }
  DEVICE void finish(int tile, const Place& at, float a, float b) {
    if (at.sequence >= batch) return;
    const int head = tile / PARTS, element = tile % PARTS * 8 + at.row, own = head - HEADS;
    a *= factor, b *= factor;
    if (head < HEADS + KV_HEADS) {
      float sine, cosine;
      sincosf(frequencies[element] * (float)position, &sine, &cosine);
      const float first = a;
      a = first * cosine - b * sine, b = b * cosine + first * sine;
    }
    if (head < HEADS) {
      float* to = query + at.sequence * QUERY + head * HEAD + element;
      to[0] = a, to[HALF] = b;
      return;
    }
    bf16* to = (own < KV_HEADS ? keys : values) + element;
    to += ((at.sequence * KV_HEADS + own % KV_HEADS) * capacity + position) * HEAD;
    to[0] = rounded(a), to[HALF] = rounded(b);
  }
};

KERNEL project(const bf16* normed, const float* squares, const bf16* q, const bf16* k, const bf16* v,
               const float* frequencies, float* query, bf16* keys, bf16* values, i64 position, i64 capacity,
               i64 batch) {
  Projection task{q, k, v, squares, frequencies, query, keys, values, position, capacity, (int)batch, 0};
  run<HIDDEN, 1>(task, normed, (int)batch);
}

// The same rows of both matrices of the gated layer.
struct Gate {
  static constexpr int TILES = FFN / 8;
  const bf16 *gate, *up;
  const float* squares;
  bf16* gated;
  int batch;
  float factor;
  DEVICE Rows rows(int tile, int row) const {
    const i64 at = (i64)(tile * 8 + row) * HIDDEN;
    return {gate + at, up + at};
  }
  DEVICE void begin(const Place& at) { factor = factor_of(squares, at.sequence); }
  DEVICE void finish(int tile, const Place& at, float a, float b) {
    if (at.sequence >= batch) return;
    a *= factor, b *= factor;
    gated[(i64)at.sequence * FFN + tile * 8 + at.row] = rounded(a / (1.0f + exp2f(-LOG2_E * a)) * b);
  }
};

KERNEL gate_up(const bf16* normed, const float* squares, const bf16* gate, const bf16* up, bf16* gated, i64 batch) {
  Gate task{gate, up, squares, gated, (int)batch, 0};
  run<HIDDEN, 1>(task, normed, (int)batch);
}

struct Stream {  // the residual stream, and the norm that follows
  float* x;
  const bf16* norm;
  bf16* normed;
  float* squares;
  DEVICE float put(i64 at, int column, float value) const {
    x[at + column] = value, normed[at + column] = rounded(value * widened(norm[column]));
    return value * value;
  }
};

// Rows that are added to the residual stream. Of several parts of the columns, the block that is done last with a
// tile puts them together.
template <int WIDTH, int SPLITS>
struct Addition {
  static constexpr int TILES = HIDDEN / ROWS;
  const bf16* matrix;
  Stream stream;
  float2* parts;
  unsigned* tickets;
  int batch;
  DEVICE Rows rows(int tile, int row) const {
    const bf16* first = matrix + (i64)(tile * ROWS + row) * WIDTH;
    return {first, first + (i64)8 * WIDTH};
  }
  DEVICE void begin(const Place&) {}
  DEVICE float2* part(int tile, int split) const { return parts + (tile * SPLITS + split) * PAIRS + threadIdx.x; }
  DEVICE void finish(int tile, const Place& at, float a, float b) {
    if (SPLITS > 1) *part(tile, blockIdx.x % SPLITS) = float2{a, b};
    else add(tile, at, a, b);
  }
  DEVICE void add(int tile, const Place& at, float a, float b) const {
    const int column = tile * ROWS + at.row;
    const i64 own = (i64)at.sequence * HIDDEN;
    float squares = 0;
    if (at.sequence < batch) {
      squares = stream.put(own, column, __ldcg(stream.x + own + column) + a);
      squares += stream.put(own, column + 8, __ldcg(stream.x + own + column + 8) + b);
    }
#pragma unroll
    for (int lanes = 1; lanes < 8; lanes *= 2) squares += shuffle_xor(squares, lanes);
    if (at.row == 0 && at.sequence < batch) atomicAdd(stream.squares + at.sequence, squares);
  }
  DEVICE void join() const {
    __shared__ bool is_last[TILES];
    const int first = blockIdx.x / SPLITS, stride = gridDim.x / SPLITS;
    __threadfence();
    __syncthreads();
    for (int tile = first + threadIdx.x * stride; tile < TILES; tile += THREADS * stride) {
      is_last[tile] = atomicAdd(tickets + tile, 1u) == SPLITS - 1;
      if (is_last[tile]) tickets[tile] = 0;
    }
    __threadfence();
    __syncthreads();
    for (int tile = first; tile < TILES; tile += stride) {
      if (!is_last[tile] || threadIdx.x >= PAIRS) continue;
      float2 sum = {0, 0};
#pragma unroll
      for (int split = 0; split < SPLITS; ++split) {
        const float2 own = __ldcg(part(tile, split));
        sum.x += own.x, sum.y += own.y;
      }
      add(tile, Place(), sum.x, sum.y);
    }
  }
};

template <int WIDTH, int SPLITS>
DEVICE void add_rows(const bf16* input, const bf16* matrix, const Stream& stream, float2* parts, unsigned* tickets,
                     int batch) {
  Addition<WIDTH, SPLITS> task{matrix, stream, parts, tickets, batch};
  run<WIDTH, SPLITS>(task, input, batch);
  if (SPLITS > 1) task.join();
}

KERNEL add_attention(const bf16* seen, const bf16* o, float* x, const bf16* norm, bf16* normed, float* squares,
                     float2* parts, unsigned* tickets, i64 batch) {
  add_rows<QUERY, 1>(seen, o, {x, norm, normed, squares}, parts, tickets, (int)batch);
}

KERNEL add_down(const bf16* gated, const bf16* down, float* x, const bf16* norm, bf16* normed, float* squares,
                float2* parts, unsigned* tickets, i64 batch) {
  add_rows<FFN, DOWN_SPLITS>(gated, down, {x, norm, normed, squares}, parts, tickets, (int)batch);
}

// A larger logit has a larger rank, and of equal ones that of the first token.
DEVICE u64 ranked(float logit, int token) {
  const unsigned bits = __float_as_uint(logit);
  return (u64)(bits & 0x80000000u ? ~bits : bits | 0x80000000u) << 32 | (unsigned)~token;
}
DEVICE u64 larger(u64 a, u64 b) { return a > b ? a : b; }

struct Score {
  static constexpr int TILES = VOCAB / ROWS;
  const bf16* head;
  const float* squares;
  float* logits;
  i64 stride;  // of sequences
  int batch;
  float factor;
  u64 most;
  DEVICE Rows rows(int tile, int row) const {
    const bf16* first = head + (i64)(tile * ROWS + row) * HIDDEN;
    return {first, first + (i64)8 * HIDDEN};
  }
  DEVICE void begin(const Place& at) { factor = factor_of(squares, at.sequence); }
  DEVICE void finish(int tile, const Place& at, float a, float b) {
    if (at.sequence >= batch) return;
    const int token = tile * ROWS + at.row;
    float* to = logits + at.sequence * stride + token;
    to[0] = a * factor, to[8] = b * factor;
    most = larger(most, larger(ranked(a * factor, token), ranked(b * factor, token + 8)));
  }
};

KERNEL score(const bf16* normed, const float* squares, const bf16* head, float* logits, i64 stride, u64* best,
             i64 batch) {
  __shared__ u64 found[PAIRS];
  Score task{head, squares, logits, stride, (int)batch, 0, 0};
  run<HIDDEN, 1>(task, normed, (int)batch);
  if (threadIdx.x < PAIRS) found[threadIdx.x] = task.most;
  __syncthreads();
  if (threadIdx.x >= batch) return;
  u64 most = 0;
  for (int i = 0; i < 8; ++i) most = larger(most, found[8 * threadIdx.x + i]);
  atomicMax(best + threadIdx.x, most);
}

// The embedding of what a sequence reads next, by one block; the squares of all norms but the first begin at zero.
DEVICE void read_token(const bf16* row, const Stream& stream, int sequence) {
  __shared__ float parts[WARPS];
  float squares = 0;
  for (int i = threadIdx.x; i < HIDDEN; i += THREADS) squares += stream.put((i64)sequence * HIDDEN, i, widened(row[i]));
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) squares += shuffle_xor(squares, lanes);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = squares;
  __syncthreads();
  for (int i = threadIdx.x; i <= 2 * LAYERS; i += THREADS) {
    float sum = 0;
    for (int warp = 0; i == 0 && warp < WARPS; ++warp) sum += parts[warp];
    stream.squares[i * SEQUENCES + sequence] = sum;
  }
}

KERNEL begin(const i64* tokens, i64 stride, const bf16* embedding, const bf16* norm, float* x, bf16* normed,
             float* squares, u64* best) {
  const int sequence = blockIdx.x;
  if (threadIdx.x == 0) best[sequence] = 0;
  read_token(embedding + tokens[sequence * stride] * HIDDEN, {x, norm, normed, squares}, sequence);
}

// The tokens with the largest logits, and what is read after them. All of one token is over before the next begins.
KERNEL choose(u64* best, i64* tokens, i64 stride, const i64* shifts, i64 shifts_stride, const bf16* embedding,
              const bf16* norm, float* x, bf16* normed, float* squares) {
  const int sequence = blockIdx.x;
  await_last();
  let_next_begin();
  const unsigned found = ~(unsigned)best[sequence];
  const i64 following = (found + shifts[sequence * shifts_stride]) % VOCAB;
  read_token(embedding + following * HIDDEN, {x, norm, normed, squares}, sequence);
  if (threadIdx.x == 0) tokens[sequence * stride] = found, best[sequence] = 0;
}

#include "attend.cu"
