// Attention of one token, a part of decode.cu. A block has one query head, or one part of its positions where
// there are many.

constexpr int LANES = HEAD / COLUMNS;                // that share a cached position
constexpr int TOGETHER = 32 * ATTEND_WARPS / LANES;  // positions that a block reads at a time
constexpr int ROUNDS = 4;                            // of them, that are on their way together

static_assert(LANES <= 32 && 32 % LANES == 0 && 32 * ATTEND_WARPS >= HEAD, "heads");

struct Softmax {  // of some positions; eight elements of the values
  float most = NOTHING, total = 0, seen[COLUMNS] = {};
  DEVICE void rescale(float larger) {
    const float before = exp2f(most - larger);
    total *= before;
#pragma unroll
    for (int e = 0; e < COLUMNS; ++e) seen[e] *= before;
    most = larger;
  }
  // Of the positions of a block's split. What is past the end is read from the last one and has no weight.
  DEVICE void add(const float (&query)[COLUMNS], const bf16* keys, const bf16* values, int own, int ends) {
    uint4 key[ROUNDS], value[ROUNDS];
    float score[ROUNDS], larger = most, part[COLUMNS];
#pragma unroll
    for (int i = 0; i < ROUNDS; ++i) {
      const int at = own + i * TOGETHER < ends ? own + i * TOGETHER : ends - 1;
      key[i] = *reinterpret_cast<const uint4*>(keys + (i64)at * HEAD);
      value[i] = *reinterpret_cast<const uint4*>(values + (i64)at * HEAD);
    }
#pragma unroll
    for (int i = 0; i < ROUNDS; ++i) {
      unpack(key[i], part);
      score[i] = dot(query, part, 0);
#pragma unroll
      for (int lanes = 1; lanes < LANES; lanes *= 2) score[i] += shuffle_xor(score[i], lanes);
      if (own + i * TOGETHER < ends) larger = fmaxf(larger, score[i]);
    }
    rescale(larger);
#pragma unroll
    for (int i = 0; i < ROUNDS; ++i) {
      const float power = own + i * TOGETHER < ends ? exp2f(score[i] - larger) : 0.0f;
      total += power;
      unpack(value[i], part);
#pragma unroll
      for (int e = 0; e < COLUMNS; ++e) seen[e] = fmaf(power, part[e], seen[e]);
    }
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

struct Joined {  // of one element
  float most = NOTHING, total = 0, seen = 0;
};

struct Parts {  // of one head: largest scores, sums, and HEAD elements of each
  float *most, *total, *seen;
  DEVICE Joined join(int count, int element) const {
    Joined all;
    for (int i = 0; i < count; ++i) all.most = fmaxf(all.most, most[i]);
    for (int i = 0; i < count; ++i) {
      const float factor = exp2f(most[i] - all.most);
      all.total = fmaf(factor, total[i], all.total);
      all.seen = fmaf(factor, seen[i * HEAD + element], all.seen);
    }
    return all;
  }
  DEVICE void put(int part, int element, const Joined& all) const {
    seen[part * HEAD + element] = all.seen;
    if (element == 0) most[part] = all.most, total[part] = all.total;
  }
};

// The block that is done last with a head puts its parts together, and leaves the ticket at zero again.
DEVICE bool is_last_of(unsigned* ticket, int splits) {
  __shared__ bool is_last;
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0) {
    is_last = atomicAdd(ticket, 1u) == splits - 1;
    if (is_last) *ticket = 0;
  }
  __syncthreads();
  __threadfence();
  return is_last;
}

// One query head over one part of its positions. `parts` are HEAD + 2 floats for each head and part.
KERNEL(ATTEND_WARPS) attend(const float* query, const bf16* keys, const bf16* values, float* seen,
                            float* parts, unsigned* tickets, i64 position, i64 capacity) {
  __shared__ float most[ATTEND_WARPS], total[ATTEND_WARPS], elements[ATTEND_WARPS * HEAD];
  const int head = blockIdx.x, split = blockIdx.y, splits = gridDim.y, thread = threadIdx.x;
  const int column = thread % LANES * COLUMNS, warp = thread / 32;
  const i64 count = position + 1, place = head / GROUP * capacity * HEAD + column;
  const int begins = (int)(count * split / splits), ends = (int)(count * (split + 1) / splits);
  let_next_begin();
  await_last();

  float scaled[COLUMNS];
  read(query + head * HEAD + column, scaled);
#pragma unroll
  for (int e = 0; e < COLUMNS; ++e) scaled[e] *= LOG2_E * rsqrtf(HEAD);
  Softmax state;
  for (int at = begins; at < ends; at += ROUNDS * TOGETHER) {
    state.add(scaled, keys + place, values + place, at + thread / LANES, ends);
  }
  state.join_lanes();
  if (thread % 32 < LANES) {
#pragma unroll
    for (int e = 0; e < COLUMNS; ++e) elements[warp * HEAD + column + e] = state.seen[e];
  }
  if (thread % 32 == 0) most[warp] = state.most, total[warp] = state.total;
  __syncthreads();

  Joined all;
  if (thread < HEAD) all = Parts{most, total, elements}.join(ATTEND_WARPS, thread);
  if (splits > 1) {
    float* own = parts + (i64)head * splits * (HEAD + 2);
    const Parts of_head{own, own + splits, own + 2 * splits};
    if (thread < HEAD) of_head.put(split, thread, all);
    if (!is_last_of(tickets + head, splits)) return;
    if (thread < HEAD) all = of_head.join(splits, thread);
  }
  if (thread < HEAD) seen[head * HEAD + thread] = all.seen / all.total;
}
