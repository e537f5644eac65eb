// Attention of one token of all sequences, a part of decode.cu. A block has some query heads that share one head of
// the cache.

constexpr int LANES = HEAD / COLUMNS;         // that share a cached position
constexpr int TOGETHER = THREADS / LANES;     // positions that a block reads at a time
constexpr int ROUNDS = 2;                     // of them, that are on their way together

static_assert(LANES <= 32 && 32 % LANES == 0 && GROUP % MEMBERS == 0, "heads");
static_assert(MEMBERS * HEAD <= THREADS, "each element of the result has a thread");

DEVICE void unpack(const uint4& packed, float (&to)[COLUMNS]) {
  const unsigned pairs[4] = {packed.x, packed.y, packed.z, packed.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    to[2 * i] = __uint_as_float(pairs[i] << 16), to[2 * i + 1] = __uint_as_float(pairs[i] & 0xffff0000u);
  }
}

struct Softmax {  // of some positions and one query head; eight elements of the values
  float most = NOTHING, total = 0, seen[COLUMNS] = {};
  DEVICE void rescale(float larger) {
    const float before = exp2f(most - larger);
    total *= before;
#pragma unroll
    for (int e = 0; e < COLUMNS; ++e) seen[e] *= before;
    most = larger;
  }
  DEVICE void add(float power, const float (&value)[COLUMNS]) {
    total += power;
#pragma unroll
    for (int e = 0; e < COLUMNS; ++e) seen[e] = fmaf(power, value[e], seen[e]);
  }
  // Together with what the other lanes of a warp have of the same elements.
  DEVICE void join_lanes() {
#pragma unroll
    for (int lanes = LANES; lanes < 32; lanes *= 2) {
      rescale(fmaxf(most, shuffle_xor(most, lanes)));
      total += shuffle_xor(total, lanes);
#pragma unroll
      for (int e = 0; e < COLUMNS; ++e) seen[e] += shuffle_xor(seen[e], lanes);
    }
  }
};

struct Cached {  // positions that a thread reads together; those past the end are read as the last one
  uint4 key[ROUNDS], value[ROUNDS];
  DEVICE Cached(const bf16* keys, const bf16* values, int own, int count) {
#pragma unroll
    for (int i = 0; i < ROUNDS; ++i) {
      const i64 at = (own + i * TOGETHER < count ? own + i * TOGETHER : count - 1) * HEAD;
      key[i] = load_written(keys + at), value[i] = load_written(values + at);
    }
  }
  DEVICE void score(int i, const float (&query)[MEMBERS][COLUMNS], float (&scores)[MEMBERS]) const {
    float part[COLUMNS];
    unpack(key[i], part);
#pragma unroll
    for (int m = 0; m < MEMBERS; ++m) {
      scores[m] = 0;
#pragma unroll
      for (int e = 0; e < COLUMNS; ++e) scores[m] = fmaf(query[m][e], part[e], scores[m]);
#pragma unroll
      for (int lanes = 1; lanes < LANES; lanes *= 2) scores[m] += shuffle_xor(scores[m], lanes);
    }
  }
};

struct Parts {  // of a block's warps
  float most[MEMBERS][WARPS], total[MEMBERS][WARPS], seen[MEMBERS][WARPS][HEAD];
  DEVICE float join(int member, int element) const {
    float all = NOTHING, sum = 0, joined = 0;
    for (int warp = 0; warp < WARPS; ++warp) all = fmaxf(all, most[member][warp]);
    for (int warp = 0; warp < WARPS; ++warp) {
      const float factor = exp2f(most[member][warp] - all);
      sum = fmaf(factor, total[member][warp], sum);
      joined = fmaf(factor, seen[member][warp][element], joined);
    }
    return joined / sum;
  }
  DEVICE void put(int member, const Softmax& own, int column) {
    const int warp = threadIdx.x / 32;
    if (threadIdx.x % 32 >= LANES) return;
#pragma unroll
    for (int e = 0; e < COLUMNS; ++e) seen[member][warp][column + e] = own.seen[e];
    most[member][warp] = own.most, total[member][warp] = own.total;
  }
};

DEVICE void attend_to(const Cached& cached, const float (&query)[MEMBERS][COLUMNS], int own, int count,
                      Softmax (&state)[MEMBERS]) {
  float scores[ROUNDS][MEMBERS];
#pragma unroll
  for (int i = 0; i < ROUNDS; ++i) cached.score(i, query, scores[i]);
#pragma unroll
  for (int m = 0; m < MEMBERS; ++m) {
    float larger = state[m].most;
#pragma unroll
    for (int i = 0; i < ROUNDS; ++i) {
      if (own + i * TOGETHER < count) larger = fmaxf(larger, scores[i][m]);
    }
    state[m].rescale(larger);
  }
#pragma unroll
  for (int i = 0; i < ROUNDS; ++i) {
    float value[COLUMNS];
    unpack(cached.value[i], value);
#pragma unroll
    for (int m = 0; m < MEMBERS; ++m) {
      state[m].add(own + i * TOGETHER < count ? exp2f(scores[i][m] - state[m].most) : 0.0f, value);
    }
  }
}

KERNEL attend(const float* query, const bf16* keys, const bf16* values, bf16* seen, i64 position, i64 capacity) {
  __shared__ Parts parts;
  const int head = blockIdx.x * MEMBERS, sequence = blockIdx.y, thread = threadIdx.x;
  const int column = thread % LANES * COLUMNS, count = (int)position + 1;
  const i64 place = (sequence * KV_HEADS + head / GROUP) * capacity * HEAD;
  for (int at = thread; at < position; at += THREADS) {
    fetch(keys + place + at * HEAD), fetch(values + place + at * HEAD);
  }
  let_next_begin();
  await_last();

  float scaled[MEMBERS][COLUMNS];
#pragma unroll
  for (int m = 0; m < MEMBERS; ++m) {
    const float* own = query + (sequence * HEADS + head + m) * HEAD + column;
#pragma unroll
    for (int e = 0; e < COLUMNS; ++e) scaled[m][e] = __ldcg(own + e) * (LOG2_E * rsqrtf(HEAD));
  }
  Softmax state[MEMBERS];
  for (int at = 0; at < count; at += ROUNDS * TOGETHER) {
    const int own = at + thread / LANES;
    attend_to(Cached(keys + place + column, values + place + column, own, count), scaled, own, count, state);
  }
#pragma unroll
  for (int m = 0; m < MEMBERS; ++m) {
    state[m].join_lanes();
    parts.put(m, state[m], column);
  }
  __syncthreads();
  if (thread >= MEMBERS * HEAD) return;
  seen[(sequence * HEADS + head) * HEAD + thread] = rounded(parts.join(thread / HEAD, thread % HEAD));
}
