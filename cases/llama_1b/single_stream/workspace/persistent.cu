// One token of one sequence by a Llama, in one launch: a block on every multiprocessor, that stays to the
// end.
//
// One thread of a block loads its weights in the order of their use, by bulk copies into a ring of slots. It
// waits for free slots only, never for results: while a block waits for a vector, weights of the next
// matrices arrive. The other warps multiply. Each thread owns eight columns of the hidden width, and all rows
// that pass the ring: so a vector needs no exchange within the block, and a matrix row is summed over the
// block at the end.
//
// Vectors go from block to block as words: float32 whose lowest bit says in which round it was written. A
// reader waits for the words themselves, and nobody needs a fence or a counter. A round is a layer of a
// token. No word is written for the next round before all blocks have read it: between the two, each block
// adds rows of o and of down, and all of those rows are waited for.
//
// Of gate, up and the head a block has a fixed share; the rest is claimed slot by slot.
//
// Sizes are macros: LAYERS, HIDDEN, HEADS, KV_HEADS, FFN, VOCAB, BLOCKS, SHARED_BYTES. So are choices: RING
// (slots), SEGMENTS (rows of the hidden width in a slot), FLIGHT (slots on their way), GATE_FIXED and
// HEAD_FIXED (slots of a block), CLAIMS (asked for beforehand), SPLITS (parts of the positions), MEMBERS
// (query heads that a block attends with), ASK_ONE (word of a vector that is not there yet, or all),
// EVICT_FIRST, ONE_WAITS (lane of a warp), SUSPENDS (while it waits), EARLY_CACHE (before q, k and v),
// OVERLAPS (with the end of the last launch).

constexpr int HEAD = 64;    // elements of an attention head
constexpr int COLUMNS = 8;  // of a thread
constexpr int WARPS = HIDDEN / (32 * COLUMNS);
constexpr int THREADS = 32 * WARPS;          // that multiply; 32 more load
constexpr int SLOT = SEGMENTS * HIDDEN * 2;  // bytes
constexpr int PARTS = FFN / HIDDEN;          // segments in a row of down
constexpr int GROUP = HEADS / KV_HEADS;
constexpr int SHARES = WARPS / MEMBERS;       // warps that share the positions of one query head
constexpr int POSITIONS = SLOT / (4 * HEAD);  // of keys and of values in a slot
constexpr int QUERY_ROWS = HEADS * HEAD, KV_ROWS = KV_HEADS * HEAD;
constexpr int QKV_SLOTS = (QUERY_ROWS + 2 * KV_ROWS) / SEGMENTS, O_SLOTS = HIDDEN / SEGMENTS;
constexpr int MOST_QKV_SLOTS = (QKV_SLOTS + BLOCKS - 1) / BLOCKS;  // of a block
constexpr int GATE_SLOTS = 2 * FFN / SEGMENTS, HEAD_SLOTS = VOCAB / SEGMENTS;
constexpr int DOWN_ROWS =
    SEGMENTS > PARTS ? SEGMENTS / PARTS : 1;  // of a step: a slot, or the slots of a row
constexpr int DOWN_SLOTS = SEGMENTS > PARTS ? 1 : PARTS / SEGMENTS;
constexpr int DOWN_STEPS = HIDDEN / DOWN_ROWS;
constexpr int ATTENTIONS = HEADS / MEMBERS * SPLITS;   // blocks that attend
constexpr int ATTENTION_STRIDE = BLOCKS / ATTENTIONS;  // every so many blocks one of them
constexpr float EPSILON = 1e-5f, NOTHING = -1e30f, LOG2_E = 1.4426950408889634f;

enum Kind { QKV, CACHED, O, GATE, DOWN, LOGITS, END };

typedef unsigned short bf16;
typedef unsigned long long u64;

static_assert(HIDDEN % (32 * COLUMNS) == 0 && QUERY_ROWS == HIDDEN && FFN % HIDDEN == 0, "widths");
static_assert(PARTS * DOWN_ROWS == SEGMENTS || PARTS == SEGMENTS * DOWN_SLOTS, "parts of down");
static_assert(SEGMENTS % 2 == 0 && 16 % SEGMENTS == 0 && WARPS % MEMBERS == 0 && GROUP % MEMBERS == 0 &&
                  WARPS % 2 == 0,
              "groups");
static_assert(BLOCKS >= ATTENTIONS && QKV_SLOTS >= BLOCKS && O_SLOTS >= BLOCKS, "blocks");
static_assert(DOWN_STEPS >= BLOCKS && GATE_FIXED >= 1 && HEAD_FIXED >= 1,
              "every block has work in each matrix");
static_assert(GATE_FIXED * BLOCKS <= GATE_SLOTS && HEAD_FIXED * BLOCKS <= HEAD_SLOTS, "fixed shares");

struct State {     // zero before the first launch
  u64 best[3];     // largest logit and its token: of the last launch, of this one, and zero for the next one
  unsigned epoch;  // launches so far
  unsigned claims[2][LAYERS + 1];  // of this launch, and zero for the next one
};

struct Call {
  const bf16 *q, *k, *v, *o, *gate, *up, *down, *embedding, *head, *attention_norm, *mlp_norm, *norm;
  const float* frequencies;
  bf16 *keys, *values;  // [layers, kv_heads, capacity, HEAD]
  const long long *given,
      *shifts;  // the token to read, or null; then the last launch made it, and a shift is added
  long long* tokens;
  float *logits, *qkv, *seen, *weight, *middle, *hidden, *gated;  // all but the logits are words
  State* state;
  long long capacity, position, step;
  long long* marks;
};

struct Shared {
  unsigned char ring[RING][SLOT];
  float sums[2][WARPS][WARPS][16];  // of a step, by a warp, in half as many lanes
  float query[MEMBERS * HEAD], key[HEAD], value[HEAD];
  float seen[WARPS][HEAD], most[WARPS], total[WARPS];
  float squares[WARPS];
  u64 full[RING], empty[RING];
  u64 issued[RING];  // number of the slot since the launch, from 1; kind; row
};
static_assert(sizeof(Shared) <= SHARED_BYTES && FLIGHT >= 1 && FLIGHT <= RING, "shared memory");

struct Words {
  unsigned x, y, z, w;
};

#ifdef EMULATE
#include "emulate.h"
#else
#define DEVICE __device__ __forceinline__
#define SHARED_MEMORY(name)                                        \
  extern __shared__ __align__(128) unsigned char dynamic_memory[]; \
  Shared& name = *reinterpret_cast<Shared*>(dynamic_memory)

DEVICE unsigned shared_address(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
// The last launch in the stream may not be over when this one begins; and when the next one may begin.
DEVICE void await_last_launch() {
#if OVERLAPS
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
DEVICE void let_next_begin() {
#if OVERLAPS
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
DEVICE void compute_sync() { asm volatile("bar.sync 1, %0;" ::"n"(THREADS) : "memory"); }
DEVICE void barrier_init(u64* barrier, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(count)
               : "memory");
}
DEVICE void barriers_are_set() {
  asm volatile("fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;" ::: "memory");
}
#if SUSPENDS
#define WAIT "try_wait"
#else
#define WAIT "test_wait"
#endif
DEVICE bool barrier_try(u64* barrier, unsigned phase) {
  unsigned done;
  asm volatile("{ .reg .pred p; mbarrier." WAIT ".parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
               : "=r"(done)
               : "r"(shared_address(barrier)), "r"(phase)
               : "memory");
  return done;
}
DEVICE void barrier_arrive(u64* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier)) : "memory");
}
DEVICE void barrier_expect(u64* barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(bytes)
               : "memory");
}
DEVICE void copy(void* to, const void* from, int bytes, u64* barrier, u64 policy) {
#if EVICT_FIRST
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
      "[%3], %4;" ::"r"(shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
#else
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          shared_address(to)),
      "l"(from), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#endif
}
DEVICE u64 once_policy() {
  u64 policy;
  asm volatile("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
DEVICE Words read_shared(const void* at) {
  Words r;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "r"(shared_address(at)));
  return r;
}
DEVICE u64 peek_shared(const u64* at) {
  u64 r;
  asm volatile("ld.volatile.shared.u64 %0, [%1];" : "=l"(r) : "r"(shared_address(at)) : "memory");
  return r;
}
DEVICE void poke_shared(u64* at, u64 value) {
  asm volatile("st.volatile.shared.u64 [%0], %1;" ::"r"(shared_address(at)), "l"(value) : "memory");
}
DEVICE Words read_words(const float* at) {
  Words r;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(r.x), "=r"(r.y), "=r"(r.z), "=r"(r.w)
               : "l"(at)
               : "memory");
  return r;
}
DEVICE unsigned read_word(const float* at) {
  unsigned r;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(r) : "l"(at) : "memory");
  return r;
}
DEVICE void write_word(float* at, unsigned word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(word) : "memory");
}
DEVICE Words read_constant(const bf16* at) {
  const uint4 r = __ldg(reinterpret_cast<const uint4*>(at));
  return {r.x, r.y, r.z, r.w};
}
DEVICE bf16 rounded(float x) {
  bf16 r;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x));
  return r;
}
DEVICE bool is_elected() {  // one thread of a warp; the compiler knows that it is one
  unsigned is_it;
  asm volatile("{ .reg .pred p; elect.sync _|p, 0xffffffff; selp.u32 %0, 1, 0, p; }" : "=r"(is_it));
  return is_it;
}
DEVICE float shuffle_xor(float x, int lanes) { return __shfl_xor_sync(~0u, x, lanes); }
DEVICE u64 shuffle_xor(u64 x, int lanes) { return __shfl_xor_sync(~0u, x, lanes); }
struct Patience {  // every wait ends in a trap
  unsigned left = 1u << 22;
  DEVICE void spend() {
    if (--left == 0) __trap();
  }
};
#endif

#ifdef MARKS  // for measuring: clocks of a block's first thread, and how many of them it waited for slots
#define MARK()                                                               \
  do {                                                                       \
    if (threadIdx.x == 0) {                                                  \
      long long* marks = r.call.marks + (long long)blockIdx.x * MARKS;       \
      marks[r.marked] = clock64(), marks[MARKS / 2 + r.marked++] = r.waited; \
    }                                                                        \
  } while (0)
#define CLOCK() clock64()
#else
#define MARK() (void)0
#define CLOCK() 0
#endif

DEVICE float low(unsigned pair) { return __uint_as_float(pair << 16); }
DEVICE float high(unsigned pair) { return __uint_as_float(pair & 0xffff0000u); }
DEVICE float widened(bf16 x) { return __uint_as_float((unsigned)x << 16); }
DEVICE void unpack(const Words& pairs, float* to) {
  to[0] = low(pairs.x), to[1] = high(pairs.x), to[2] = low(pairs.y), to[3] = high(pairs.y);
  to[4] = low(pairs.z), to[5] = high(pairs.z), to[6] = low(pairs.w), to[7] = high(pairs.w);
}
DEVICE unsigned word(float value, unsigned bit) { return (__float_as_uint(value) & ~1u) | bit; }
DEVICE unsigned mismatch(const Words& r, unsigned bit) {
  return ((r.x ^ bit) | (r.y ^ bit) | (r.z ^ bit) | (r.w ^ bit)) & 1u;
}
DEVICE void spread(const Words& r, float* to) {
  to[0] = __uint_as_float(r.x), to[1] = __uint_as_float(r.y), to[2] = __uint_as_float(r.z),
  to[3] = __uint_as_float(r.w);
}
DEVICE int share_begin(int count, int block) { return (int)((long long)count * block / BLOCKS); }

// This thread's columns of COUNT vectors that are `stride` floats apart, once all were written in this round.
template <int COUNT>
DEVICE void await_columns(const float* at, int stride, unsigned bit, float (&to)[COUNT * COLUMNS]) {
  const float* own = at + threadIdx.x * COLUMNS;
  Patience patience;
  for (;;) {
    Words r[2 * COUNT];
    unsigned missing = 0;
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      r[2 * i] = read_words(own + i * stride), r[2 * i + 1] = read_words(own + i * stride + 4);
#pragma unroll
    for (int i = 0; i < 2 * COUNT; ++i) missing |= mismatch(r[i], bit), spread(r[i], to + 4 * i);
    if (!missing) return;
    patience.spend();
  }
}

// Until the last word of this warp's columns was written in this round. A warp that asks for one word only
// leaves the L2 to the weights; it has to ask once more for the others.
DEVICE void await_last(const float* at, unsigned bit) {
  const float* last = at + (threadIdx.x * COLUMNS | (32 * COLUMNS - 1));
  Patience patience;
  while ((read_word(last) ^ bit) & 1u) patience.spend();
}

// ---- the loading thread

struct Loader {
  const Call& call;
  Shared& shared;
  u64 policy;
  int slot = 0;
  unsigned phase = 1, number = 0;
  int landing = 0;  // the oldest slot that may be on its way
  unsigned landing_phase = 0;

  // With more copies on their way than the memory needs, everything else in the L2 waits behind them.
  DEVICE void await_landing() {
    if (number <= FLIGHT) return;
    Patience patience;
    while (!barrier_try(&shared.full[landing], landing_phase)) patience.spend();
    if (++landing == RING) landing = 0, landing_phase ^= 1;
  }
  DEVICE void await_empty(Kind kind, int row) {
    Patience patience;
    while (!barrier_try(&shared.empty[slot], phase)) patience.spend();
    poke_shared(&shared.issued[slot], (u64)++number << 32 | (unsigned)kind << 28 | (unsigned)row);
  }
  // The same number of bytes into either half of a slot.
  DEVICE void load(Kind kind, int row, const bf16* first, const bf16* second, int bytes) {
    await_empty(kind, row);
    await_landing();
    u64* full = &shared.full[slot];
    unsigned char* to = shared.ring[slot];
    barrier_expect(full, 2 * bytes);
    copy(to, first, bytes, full, policy);
    copy(to + SLOT / 2, second, bytes, full, policy);
    if (++slot == RING) slot = 0, phase ^= 1;
  }
};

struct Attention {  // which part of it a block has
  int first_head, kv_head, split, begins, ends;
  bool is_here;
  DEVICE Attention(int block, int position) {
    const int index = block / ATTENTION_STRIDE;
    is_here = block % ATTENTION_STRIDE == 0 && index < ATTENTIONS;
    first_head = index / SPLITS * MEMBERS, kv_head = first_head / GROUP, split = index % SPLITS;
    begins = (int)((long long)position * split / SPLITS),
    ends = (int)((long long)position * (split + 1) / SPLITS);
  }
  // Whether what is cached is loaded before q, k and v: it must not take the place of what the queries need.
  DEVICE bool is_early() const { return EARLY_CACHE && MOST_QKV_SLOTS < RING && slots() == 1; }
  DEVICE int slots() const { return is_here ? (ends - begins + POSITIONS - 1) / POSITIONS : 0; }
};

struct Portion {  // slots of a matrix that a block has for sure, and those that are claimed
  int begins, ends, pool_begins, pool_ends;
};

DEVICE Portion even_portion(int steps, int slots) {
  return {share_begin(steps, blockIdx.x) * slots, share_begin(steps, blockIdx.x + 1) * slots, 0, 0};
}
DEVICE Portion portion(Kind kind) {
  const int block = blockIdx.x;
  switch (kind) {
    case QKV: return even_portion(QKV_SLOTS, 1);
    case O: return even_portion(O_SLOTS, 1);
    case DOWN: return even_portion(DOWN_STEPS, DOWN_SLOTS);
    case GATE: return {GATE_FIXED * block, GATE_FIXED * (block + 1), GATE_FIXED * BLOCKS, GATE_SLOTS};
    default: return {HEAD_FIXED * block, HEAD_FIXED * (block + 1), HEAD_FIXED * BLOCKS, HEAD_SLOTS};
  }
}

struct Source {  // the halves of slot i are `stride` elements times i further
  const bf16 *first, *second;
  long long stride;
  int row_step, bytes;  // the latter from the first slot on
  Portion own;
};

// The rows of one of q, k and v, which are numbered together.
DEVICE void take_rows(Source& source, const bf16* matrix, int layer, int rows_before, int rows) {
  const int before = rows_before / SEGMENTS, end = before + rows / SEGMENTS;
  source.first = matrix + ((long long)layer * rows - rows_before) * HIDDEN;
  source.own.begins = source.own.begins > before ? source.own.begins : before;
  source.own.ends = source.own.ends < end ? source.own.ends : end;
}

enum Matrix { Q_MATRIX, K_MATRIX, V_MATRIX, CACHE, O_MATRIX, GATE_UP, DOWN_MATRIX, HEAD_MATRIX };

DEVICE Kind kind_of(int matrix) { return matrix <= V_MATRIX ? QKV : (Kind)(matrix - CACHE + CACHED); }

DEVICE Source source_of(const Call& call, const Attention& part, int matrix, int layer) {
  Source source{nullptr, nullptr, SEGMENTS * HIDDEN, SEGMENTS, 0, portion(kind_of(matrix))};
  const long long wide = (long long)layer * FFN * HIDDEN;
  switch (matrix) {
    case Q_MATRIX: take_rows(source, call.q, layer, 0, QUERY_ROWS); break;
    case K_MATRIX: take_rows(source, call.k, layer, QUERY_ROWS, KV_ROWS); break;
    case V_MATRIX: take_rows(source, call.v, layer, QUERY_ROWS + KV_ROWS, KV_ROWS); break;
    case CACHE: {
      const long long place = (long long)(layer * KV_HEADS + part.kv_head) * call.capacity + part.begins;
      source.first = call.keys + place * HEAD, source.second = call.values + place * HEAD;
      source.stride = POSITIONS * HEAD, source.bytes = 2 * HEAD * (part.ends - part.begins);
      source.own = {0, part.slots(), 0, 0};
      break;
    }
    case O_MATRIX: source.first = call.o + (long long)layer * HIDDEN * HIDDEN; break;
    case GATE_UP:
      source.first = call.gate + wide, source.second = call.up + wide;
      source.stride /= 2, source.row_step /= 2;
      break;
    case DOWN_MATRIX: source.first = call.down + wide; break;
    default: source.first = call.head;
  }
  if (!source.second) source.second = source.first + SLOT / 4;
  return source;
}

DEVICE void load_slot(Loader& loader, const Source& source, int matrix, int i) {
  const int left = source.bytes - i * (SLOT / 2), bytes = left < SLOT / 2 ? left : SLOT / 2;
  const int row = matrix == DOWN_MATRIX ? i * SEGMENTS / PARTS : i * source.row_step;
  loader.load(kind_of(matrix), row, source.first + i * source.stride, source.second + i * source.stride,
              matrix == CACHE ? bytes : SLOT / 2);
}

DEVICE void load_matrix(Loader& loader, const Source& source, int matrix, unsigned* counter) {
  const Portion& own = source.own;
  const int pool = own.pool_ends - own.pool_begins;
  int claimed[CLAIMS];
#pragma unroll
  for (int i = 0; i < CLAIMS; ++i) claimed[i] = pool ? (int)atomicAdd(counter, 1u) : 0;
#pragma unroll 1
  for (int i = own.begins; i < own.ends; ++i) load_slot(loader, source, matrix, i);
#pragma unroll 1
  for (;;) {
#pragma unroll
    for (int i = 0; i < CLAIMS; ++i) {
      if (claimed[i] >= pool) return;
      const int next = own.pool_begins + claimed[i];
      claimed[i] = (int)atomicAdd(counter, 1u);
      load_slot(loader, source, matrix, next);
    }
  }
}

DEVICE void load_all(const Call& call, Shared& shared) {
  Loader loader{call, shared, once_policy()};
  const Attention part(blockIdx.x, (int)call.position);
  unsigned* counters = nullptr;
#pragma unroll 1
  for (int layer = 0; layer <= LAYERS; ++layer) {
#pragma unroll 1
    for (int i = layer < LAYERS ? Q_MATRIX : HEAD_MATRIX; i <= HEAD_MATRIX; ++i) {
      if (i == HEAD_MATRIX && layer < LAYERS) break;
      const int matrix = part.is_early() && i <= CACHE ? (i == Q_MATRIX ? CACHE : i - 1) : i;
      if (layer == 0 && matrix == CACHE) await_last_launch();
      if (!counters && matrix == GATE_UP) counters = call.state->claims[call.state->epoch & 1];
      load_matrix(loader, source_of(call, part, matrix, layer), matrix, counters + layer);
    }
  }
  loader.await_empty(END, 0);
}

// ---- the multiplying warps

struct Reader {
  const Call& call;
  Shared& shared;
  int warp, lane;
  int slot = 0, held = 0, kept = 0;  // the next slot, the oldest one that was not released, and one for later
  unsigned phase = 0, kept_phase = 0, number = 0, group = 0;
  int marked = 0;
  long long waited = 0;

  DEVICE const unsigned char* wait(int at, unsigned in_phase) {
    const long long before = CLOCK();
    Patience patience;
    if (!ONE_WAITS || lane == 0) {
      while (!barrier_try(&shared.full[at], in_phase)) patience.spend();
    }
    if (ONE_WAITS) __syncwarp();
    waited += CLOCK() - before;
    return shared.ring[at];
  }
  DEVICE const unsigned char* wait() { return wait(slot, phase); }
  DEVICE int row() { return (int)(peek_shared(&shared.issued[slot]) & 0xfffffff); }
  DEVICE void advance() {
    ++number;
    if (++slot == RING) slot = 0, phase ^= 1;
  }
  // The next slot is for later.
  DEVICE void keep() {
    kept = slot, kept_phase = phase;
    advance();
    if (++held == RING) held = 0;
  }
  DEVICE void release() {
    __syncwarp();
    if (lane == 0) barrier_arrive(&shared.empty[held]);
    if (++held == RING) held = 0;
  }
  // Whether the next slot has the same matrix; known as soon as its copy is on the way.
  DEVICE bool goes_on(Kind kind) {
    Patience patience;
    u64 issued;
    while ((unsigned)((issued = peek_shared(&shared.issued[slot])) >> 32) != number + 1) patience.spend();
    return (unsigned)(issued >> 28 & 15) == (unsigned)kind;
  }
};

DEVICE float dot(const Words& pairs, const float* x, float sum) {
  float w[8];
  unpack(pairs, w);
#pragma unroll
  for (int i = 0; i < 8; ++i) sum = fmaf(w[i], x[i], sum);
  return sum;
}

// Each lane's share of a step: value `lane % COUNT`, summed over the lanes that differ above that and
// below 16.
template <int COUNT>
DEVICE float folded(float (&value)[COUNT], int lane) {
  if constexpr (COUNT == 1) {
    return value[0];
  } else {
    constexpr int HALF = COUNT / 2;
    const bool is_upper = lane & HALF;
    float half[HALF];
#pragma unroll
    for (int i = 0; i < HALF; ++i) {
      const float sent = is_upper ? value[i] : value[i + HALF], kept = is_upper ? value[i + HALF] : value[i];
      half[i] = kept + shuffle_xor(sent, HALF);
    }
    return folded<HALF>(half, lane);
  }
}

template <int SPAN>
struct Step {  // what a warp multiplies at a time: one slot, or the slots of one row; SPAN segments are a row
  static constexpr int SLOTS = SPAN > SEGMENTS ? SPAN / SEGMENTS : 1,
                       ROWS = SPAN > SEGMENTS ? 1 : SEGMENTS / SPAN;
  Words segments[SLOTS * SEGMENTS];
  int row;  // the first one

  DEVICE void take(Reader& r) {
#pragma unroll
    for (int s = 0; s < SLOTS; ++s) {
      const unsigned char* at = r.wait() + (r.warp * 32 + r.lane) * 16;
#pragma unroll
      for (int j = 0; j < SEGMENTS; ++j) segments[s * SEGMENTS + j] = read_shared(at + j * HIDDEN * 2);
      if (s == 0) row = r.row();
      r.advance();
    }
  }
  // Leaves this warp's share of the sums in half of the lanes.
  DEVICE void multiply(const float (&x)[SPAN * COLUMNS], float (&sums)[16], int lane) const {
    constexpr int EACH = SLOTS * SEGMENTS / ROWS;
    float of_row[ROWS];
#pragma unroll
    for (int i = 0; i < ROWS; ++i) {
      float part[EACH] = {};
#pragma unroll
      for (int j = 0; j < EACH; ++j) part[j] = dot(segments[i * EACH + j], x + j * COLUMNS, part[j]);
      of_row[i] = part[0];
#pragma unroll
      for (int j = 1; j < EACH; ++j) of_row[i] += part[j];
    }
    float sum = folded<ROWS>(of_row, lane);
    sum += shuffle_xor(sum, 16);
    if (lane < 16) sums[lane] = sum;
  }
};

template <int SLOTS>
DEVICE void release(Reader& r) {
#pragma unroll
  for (int s = 0; s < SLOTS; ++s) r.release();
}

// A matrix times x. `steps` of it are sure; with `claimed` there may be more. Each warp adds up one step of
// as many as there are warps, and calls `use(row, sum, before)` in all lanes: lane i has row i % ROWS of the
// step. `before(row)` is called beforehand; `first_row` is the block's. A step is in registers while the one
// before it is multiplied.
template <int SPAN, class Before, class Use>
DEVICE void multiply(Reader& r, Kind kind, const float (&x)[SPAN * COLUMNS], int steps, bool claimed,
                     int first_row, Before before, Use use) {
  constexpr int ROWS = Step<SPAN>::ROWS;
  Step<SPAN> even, odd;
  even.take(r);
  release<Step<SPAN>::SLOTS>(r);
  bool more = true;
#pragma unroll 1
  while (more) {
    float (&sums)[WARPS][WARPS][16] = r.shared.sums[r.group & 1];
    const float added = r.warp < steps ? before(first_row + r.warp * ROWS + r.lane % ROWS) : 0.0f;
    int row = 0, step = 0;
    const auto turn = [&](const Step<SPAN>& now, Step<SPAN>& next) {
      --steps;
      more = steps > 0 || (claimed && r.goes_on(kind));
      if (more) next.take(r);
      now.multiply(x, sums[step][r.warp], r.lane);
      if (more) release<Step<SPAN>::SLOTS>(r);
      if (step == r.warp) row = now.row;
      ++step;
    };
#pragma unroll 1
    while (step < WARPS && more) {
      turn(even, odd);
      if (more) turn(odd, even);
    }
    compute_sync();
    if (r.warp < step) {
      float sum = 0;
#pragma unroll
      for (int i = 0; i < WARPS; i += 2) sum += sums[r.warp][i + r.lane / 16][r.lane % 16];
#pragma unroll
      for (int lanes = 16; lanes >= ROWS; lanes /= 2) sum += shuffle_xor(sum, lanes);
      use(row + r.lane % ROWS, sum, added);
    }
    ++r.group, first_row += WARPS * ROWS;
  }
}

DEVICE float warp_sum(float value) {
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) value += shuffle_xor(value, lanes);
  return value;
}

// x times the weights of a norm; the squares are left for `scale`, which is known after the next
// compute_sync.
DEVICE void weigh(Reader& r, const Words& norm, float (&x)[COLUMNS]) {
  float weight[COLUMNS], squares = 0;
  unpack(norm, weight);
#pragma unroll
  for (int i = 0; i < COLUMNS; ++i) squares = fmaf(x[i], x[i], squares), x[i] *= weight[i];
  squares = warp_sum(squares);
  if (r.lane == 0) r.shared.squares[r.warp] = squares;
}
DEVICE float scale(Reader& r) {
  float squares = 0;
#pragma unroll
  for (int i = 0; i < WARPS; ++i) squares += r.shared.squares[i];
  return rsqrtf(squares * (1.0f / HIDDEN) + EPSILON);
}

// ---- attention

// Queries, and the new key and value, into shared memory; of the blocks that share a head of the cache one
// stores it.
DEVICE void take_queries(Reader& r, const Attention& part, int layer, float cosine, float sine,
                         unsigned bit) {
  constexpr int ELEMENTS = (MEMBERS + 2) * HEAD, ITEMS = (ELEMENTS + THREADS - 1) / THREADS;
  const Call& call = r.call;
  const int thread = threadIdx.x;
  float own[ITEMS], other[ITEMS];
  Patience patience;
  for (;;) {
    unsigned missing = 0;
#pragma unroll
    for (int i = 0; i < ITEMS; ++i) {
      const int element = i * THREADS + thread, kind = element / HEAD;
      if (element >= ELEMENTS) break;
      const int row = kind < MEMBERS
                          ? part.first_head * HEAD + element
                          : QUERY_ROWS + (kind - MEMBERS) * KV_ROWS + part.kv_head * HEAD + element % HEAD;
      const unsigned a = read_word(call.qkv + row), b = read_word(call.qkv + (row ^ (HEAD / 2)));
      missing |= (a ^ bit) | (b ^ bit);
      own[i] = __uint_as_float(a), other[i] = __uint_as_float(b);
    }
    if (!(missing & 1u)) break;
    patience.spend();
  }
  const long long place =
      ((long long)(layer * KV_HEADS + part.kv_head) * call.capacity + call.position) * HEAD;
  const bool stores = part.split == SPLITS - 1 && part.first_head % GROUP == 0;
#pragma unroll
  for (int i = 0; i < ITEMS; ++i) {
    const int element = i * THREADS + thread, kind = element / HEAD, at = element % HEAD;
    if (element >= ELEMENTS) break;
    const float turned = own[i] * cosine + (at < HEAD / 2 ? -other[i] : other[i]) * sine;
    if (kind < MEMBERS) {
      r.shared.query[element] = turned * (0.125f * LOG2_E);
      continue;
    }
    const bf16 stored = rounded(kind == MEMBERS ? turned : own[i]);
    (kind == MEMBERS ? r.shared.key : r.shared.value)[at] = widened(stored);
    if (stores) (kind == MEMBERS ? call.keys : call.values)[place + at] = stored;
  }
}

struct Softmax {  // of the positions that eight lanes have read; eight elements a lane
  float most = NOTHING, total = 0, seen[8] = {};
  DEVICE void rescale(float larger) {
    const float before = exp2f(most - larger);
    total *= before;
#pragma unroll
    for (int e = 0; e < 8; ++e) seen[e] *= before;
    most = larger;
  }
  DEVICE void add(float power, const float* value) {
    total += power;
#pragma unroll
    for (int e = 0; e < 8; ++e) seen[e] = fmaf(power, value[e], seen[e]);
  }
};

// Sums over eight lanes.
template <int COUNT>
DEVICE void join_eight(float (&sum)[COUNT]) {
#pragma unroll
  for (int lanes = 1; lanes < 8; lanes *= 2) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) sum[i] += shuffle_xor(sum[i], lanes);
  }
}

// One slot of cached positions; a warp has one query head, and every so many times four positions. What is
// past the end is read from the last position and has no weight: without branches the rounds overlap.
DEVICE void attend_slot(const unsigned char* slot, int count, int share, int lane, const float* query,
                        Softmax& state) {
  constexpr int ROUNDS = SHARES < 4 ? 4 : 2, STRIDE = 4 * SHARES;
  for (int first = share * 4; first < count; first += ROUNDS * STRIDE) {
    const int own = first + lane / 8;
    Words keys[ROUNDS], values[ROUNDS];
#pragma unroll
    for (int i = 0; i < ROUNDS; ++i) {
      const int at = own + i * STRIDE < count ? own + i * STRIDE : count - 1;
      const unsigned char* place = slot + at * 2 * HEAD + lane % 8 * 16;
      keys[i] = read_shared(place), values[i] = read_shared(place + SLOT / 2);
    }
    float scores[ROUNDS], larger = state.most;
#pragma unroll
    for (int i = 0; i < ROUNDS; ++i) scores[i] = dot(keys[i], query, 0);
    join_eight(scores);
#pragma unroll
    for (int i = 0; i < ROUNDS; ++i) {
      if (own + i * STRIDE >= count) scores[i] = NOTHING;
      larger = fmaxf(larger, scores[i]);
    }
    state.rescale(larger);
#pragma unroll
    for (int i = 0; i < ROUNDS; ++i) {
      float value[8];
      unpack(values[i], value);
      state.add(own + i * STRIDE < count ? exp2f(scores[i] - larger) : 0.0f, value);
    }
  }
}

// What the four times eight lanes have read, together in all of them.
DEVICE void join_lanes(Softmax& state) {
  float larger = fmaxf(state.most, shuffle_xor(state.most, 8));
  larger = fmaxf(larger, shuffle_xor(larger, 16));
  state.rescale(larger);
#pragma unroll
  for (int lanes = 8; lanes <= 16; lanes *= 2) {
    state.total += shuffle_xor(state.total, lanes);
#pragma unroll
    for (int e = 0; e < 8; ++e) state.seen[e] += shuffle_xor(state.seen[e], lanes);
  }
}

DEVICE void join_warps(Reader& r, const Attention& part, unsigned bit) {
  for (int element = threadIdx.x; element < MEMBERS * HEAD; element += THREADS) {
    const int member = element / HEAD, at = element % HEAD, head = part.first_head + member;
    float larger = NOTHING, total = 0, seen = 0;
#pragma unroll
    for (int i = 0; i < SHARES; ++i) larger = fmaxf(larger, r.shared.most[i * MEMBERS + member]);
#pragma unroll
    for (int i = 0; i < SHARES; ++i) {
      const int warp = i * MEMBERS + member;
      const float factor = exp2f(r.shared.most[warp] - larger);
      total = fmaf(factor, r.shared.total[warp], total), seen = fmaf(factor, r.shared.seen[warp][at], seen);
    }
    const bool is_any = total > 0;
    write_word(r.call.seen + part.split * HIDDEN + head * HEAD + at, word(is_any ? seen / total : 0.0f, bit));
    if (at == 0)
      write_word(r.call.weight + part.split * HEADS + head,
                 word(is_any ? larger + log2f(total) : NOTHING, bit));
  }
}

DEVICE void attend(Reader& r, const Attention& part) {
  const int member = r.warp % MEMBERS, share = r.warp / MEMBERS, at = r.lane % 8 * 8;
  Softmax state;
  float query[8];
#pragma unroll
  for (int e = 0; e < 8; ++e) query[e] = r.shared.query[member * HEAD + at + e];
  for (int first = part.begins; first < part.ends; first += POSITIONS) {
    const int count = part.ends - first < POSITIONS ? part.ends - first : POSITIONS;
    if (part.is_early()) {
      attend_slot(r.wait(r.kept, r.kept_phase), count, share, r.lane, query, state);
      __syncwarp();
      if (r.lane == 0) barrier_arrive(&r.shared.empty[r.kept]);
    } else {
      attend_slot(r.wait(), count, share, r.lane, query, state);
      r.advance();
      r.release();
    }
  }
  if (part.split == SPLITS - 1 && share == 0) {
    float s[1] = {};
#pragma unroll
    for (int e = 0; e < 8; ++e) s[0] = fmaf(query[e], r.shared.key[at + e], s[0]);
    join_eight(s);
    if (r.lane < 8) {
      state.rescale(fmaxf(state.most, s[0]));
      state.add(exp2f(s[0] - state.most), r.shared.value + at);
    }
  }
  join_lanes(state);
  if (r.lane < 8) {
#pragma unroll
    for (int e = 0; e < 8; ++e) r.shared.seen[r.warp][at + e] = state.seen[e];
  }
  if (r.lane == 0) r.shared.most[r.warp] = state.most, r.shared.total[r.warp] = state.total;
}

DEVICE void take_vector(const float* at, unsigned bit, float (&x)[COLUMNS]) {
  if (ASK_ONE) await_last(at, bit);
  await_columns<1>(at, 0, bit, x);
}

// This thread's columns of what the attention has seen, over all splits.
DEVICE void take_seen(const Call& call, unsigned bit, float (&x)[COLUMNS]) {
  if constexpr (SPLITS == 1) {
    take_vector(call.seen, bit, x);
    return;
  }
  const int head = threadIdx.x * COLUMNS / HEAD;
  float weight[SPLITS], seen[SPLITS * COLUMNS], larger = NOTHING, total = 0;
  Patience patience;
  for (;;) {
    unsigned missing = 0;
#pragma unroll
    for (int i = 0; i < SPLITS; ++i) {
      const unsigned found = read_word(call.weight + i * HEADS + head);
      missing |= found ^ bit, weight[i] = __uint_as_float(found);
    }
    if (!(missing & 1u)) break;
    patience.spend();
  }
  await_columns<SPLITS>(call.seen, HIDDEN, bit, seen);
#pragma unroll
  for (int i = 0; i < SPLITS; ++i) larger = fmaxf(larger, weight[i]);
#pragma unroll
  for (int i = 0; i < SPLITS; ++i) weight[i] = exp2f(weight[i] - larger), total += weight[i];
  const float inverse = 1.0f / total;
#pragma unroll
  for (int c = 0; c < COLUMNS; ++c) {
    x[c] = 0;
#pragma unroll
    for (int i = 0; i < SPLITS; ++i) x[c] = fmaf(weight[i] * inverse, seen[i * COLUMNS + c], x[c]);
  }
}

// ---- the launch

DEVICE u64 ranked(float logit, int token) {
  const unsigned bits = __float_as_uint(logit);
  return (u64)(bits & 0x80000000u ? ~bits : bits | 0x80000000u) << 32 | (unsigned)~token;
}
DEVICE int chosen(u64 best) { return (int)~(unsigned)best; }

// The token that is read; block 0 stores the one that was made last, and clears what the next launch needs.
DEVICE int start(const Call& call, unsigned epoch) {
  State& state = *call.state;
  const bool is_first_thread = blockIdx.x == 0 && threadIdx.x == 0;
  if (is_first_thread) {
    state.best[(epoch + 2) % 3] = 0;
    for (int i = 0; i <= LAYERS; ++i) state.claims[(epoch + 1) & 1][i] = 0;
  }
  if (call.given) return (int)*call.given;
  const int token = chosen(state.best[epoch % 3]);
  if (is_first_thread) call.tokens[call.step - 1] = token;
  return (int)((token + call.shifts[call.step - 1]) % VOCAB);
}

struct Token {      // what is the same in all layers
  const bf16* row;  // of the embedding
  float cosine, sine;
  unsigned epoch;
};

DEVICE unsigned bit_of(const Token& token, int layer) { return (token.epoch * LAYERS + layer + 1) & 1; }

// The vector that a matrix is multiplied with; with a norm, but for the scale.
DEVICE void take_input(Reader& r, const Token& token, Kind kind, int layer, float (&x)[COLUMNS]) {
  const Call& call = r.call;
  const int column = threadIdx.x * COLUMNS;
  const unsigned bit = bit_of(token, layer);
  if (kind == O) {
    take_seen(call, bit, x);
    return;
  }
  const bf16* norms =
      kind == LOGITS ? call.norm : (kind == QKV ? call.attention_norm : call.mlp_norm) + layer * HIDDEN;
  const Words norm = read_constant(norms + column);
  if (layer == 0 && kind == QKV) unpack(read_constant(token.row + column), x);
  else if (kind == GATE) take_vector(call.middle, bit, x);
  else take_vector(call.hidden, bit ^ 1, x);
  weigh(r, norm, x);
}

DEVICE void run_attention(Reader& r, const Token& token, const Attention& part, int layer) {
  if (part.is_here) {
    take_queries(r, part, layer, token.cosine, token.sine, bit_of(token, layer));
    compute_sync();
    MARK();
    attend(r, part);
    compute_sync();
    join_warps(r, part, bit_of(token, layer));
  } else {
    MARK();
  }
  MARK();
}

DEVICE void run_down(Reader& r, const Token& token, int layer) {
  const Call& call = r.call;
  const unsigned bit = bit_of(token, layer);
  const int begins = share_begin(DOWN_STEPS, blockIdx.x);
  float x[PARTS * COLUMNS];
  await_last(call.gated + FFN - HIDDEN, bit);
  await_columns<PARTS>(call.gated, HIDDEN, bit, x);
  MARK();
  multiply<PARTS>(
      r, DOWN, x, share_begin(DOWN_STEPS, blockIdx.x + 1) - begins, false, begins * DOWN_ROWS,
      [&](int row) { return __uint_as_float(read_word(call.middle + row)); },
      [&](int row, float sum, float before) {
        if (r.lane < DOWN_ROWS) write_word(call.hidden + row, word(before + sum, bit));
      });
  MARK();
}

// The matrices whose rows have the hidden width, one code for all: what is read once a layer should stay in
// the instruction cache. Gives the largest logit of this lane's.
DEVICE u64 run_matrix(Reader& r, const Token& token, const Attention& part, Kind kind, int layer) {
  const Call& call = r.call;
  const unsigned bit = bit_of(token, layer);
  const Portion own = portion(kind);
  u64 best = 0;
  float x[COLUMNS];
  if (kind == QKV && part.is_early()) r.keep();
  take_input(r, token, kind, layer, x);
  MARK();
  multiply<1>(
      r, kind, x, own.ends - own.begins, own.pool_ends > 0, own.begins * SEGMENTS,
      [&](int row) {
        if (kind != O) return 0.0f;
        return layer ? __uint_as_float(read_word(call.hidden + row)) : widened(token.row[row]);
      },
      [&](int row, float sum, float before) {
        if (kind != O) sum *= scale(r);
        const float other = shuffle_xor(sum, SEGMENTS / 2);
        if (r.lane >= (kind == GATE ? SEGMENTS / 2 : SEGMENTS)) return;
        if (kind == QKV) write_word(call.qkv + row, word(sum, bit));
        if (kind == O) write_word(call.middle + row, word(before + sum, bit));
        if (kind == GATE)
          write_word(call.gated + row, word(sum / (1.0f + exp2f(-LOG2_E * sum)) * other, bit));
        if (kind != LOGITS) return;
        call.logits[row] = sum;
        const u64 rank = ranked(sum, row);
        best = rank > best ? rank : best;
      });
  MARK();
  return best;
}

DEVICE void store_best(Reader& r, const Token& token, u64 best) {
#pragma unroll
  for (int lanes = 16; lanes; lanes /= 2) {
    const u64 other = shuffle_xor(best, lanes);
    best = other > best ? other : best;
  }
  if (r.lane == 0 && best) atomicMax(&r.call.state->best[(token.epoch + 1) % 3], best);
}

DEVICE void run_all(const Call& call, Shared& shared) {
  Reader r{call, shared, (int)threadIdx.x / 32, (int)threadIdx.x % 32};
  const Attention part(blockIdx.x, (int)call.position);
  Token token;
  await_last_launch();
  token.epoch = call.state->epoch;
  token.row = call.embedding + (long long)start(call, token.epoch) * HIDDEN;
  sincosf(call.frequencies[r.lane] * (float)call.position, &token.sine, &token.cosine);
  MARK();
#pragma unroll 1
  for (int stage = 0; stage <= 3 * LAYERS; ++stage) {
    const int layer = stage / 3;
    const Kind kind = layer == LAYERS ? LOGITS : stage % 3 == 0 ? QKV : stage % 3 == 1 ? O : GATE;
    if (kind == LOGITS) let_next_begin();
    const u64 best = run_matrix(r, token, part, kind, layer);
    if (kind == QKV) run_attention(r, token, part, layer);
    if (kind == GATE) run_down(r, token, layer);
    if (kind == LOGITS) store_best(r, token, best);
  }
  if (blockIdx.x == 0 && threadIdx.x == 0) call.state->epoch = token.epoch + 1;
}

extern "C" __global__ void __launch_bounds__(THREADS + 32, 1) decode_token(const Call call) {
  SHARED_MEMORY(shared);
  if (threadIdx.x == 0) {
    for (int i = 0; i < RING; ++i) {
      barrier_init(&shared.full[i], 1);
      barrier_init(&shared.empty[i], WARPS);
      shared.issued[i] = 0;
    }
    barriers_are_set();
  }
  __syncthreads();
  if (threadIdx.x < THREADS) run_all(call, shared);
  else if (is_elected()) load_all(call, shared);
}

// The token that the last launch made.
extern "C" __global__ void store_token(const Call call) {
  call.tokens[call.step] = chosen(call.state->best[call.state->epoch % 3]);
}
