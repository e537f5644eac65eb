// Tiles of sixteen rows times all sequences, a part of decode.cu.

struct Rows {  // of a lane
  const bf16 *first, *second;
};

template <int WIDTH, int SPLITS>
struct Product {
  static constexpr int SLICE = WIDTH / SPLITS / WARPS, CHUNKS = SLICE / CHUNK;
  static_assert(CHUNKS * CHUNK * WARPS * SPLITS == WIDTH, "columns");
  uint4 first[CHUNKS], second[CHUNKS], input[EIGHTS][CHUNKS];
  int column;

  DEVICE explicit Product(int split) {
    column = (split * WARPS + (int)threadIdx.x / 32) * SLICE + COLUMNS * ((int)threadIdx.x % 4);
  }
  DEVICE void load(int chunk, const Rows& rows) {
    first[chunk] = load_weights(rows.first + column + chunk * CHUNK);
    second[chunk] = load_weights(rows.second + column + chunk * CHUNK);
  }
  DEVICE void take(const bf16* x, int batch) {
#pragma unroll
    for (int n = 0; n < EIGHTS; ++n) {
      const int sequence = 8 * n + (int)threadIdx.x % 32 / 4;
#pragma unroll
      for (int chunk = 0; chunk < CHUNKS; ++chunk) {
        input[n][chunk] = uint4{0, 0, 0, 0};
        if (sequence < batch) input[n][chunk] = load_written(x + (i64)sequence * WIDTH + column + chunk * CHUNK);
      }
    }
  }
  DEVICE void multiply(int chunk, float (&sums)[EIGHTS][4]) {
    const uint4 a = first[chunk], b = second[chunk];
#pragma unroll
    for (int n = 0; n < EIGHTS; ++n) {
      const uint4 x = input[n][chunk];
      multiply_add(sums[n], a.x, b.x, a.y, b.y, x.x, x.y);
      multiply_add(sums[n], a.z, b.z, a.w, b.w, x.z, x.w);
    }
  }
};

struct Sums {  // over the warps of a block, in shared memory
  static constexpr int STRIDE = 20;  // of sequences: lanes that write together are in different banks
  float parts[WARPS][8 * EIGHTS][STRIDE];
  DEVICE void put(const float (&own)[EIGHTS][4]) {
    const int warp = threadIdx.x / 32, row = threadIdx.x % 32 / 4, column = 2 * (threadIdx.x % 4);
#pragma unroll
    for (int n = 0; n < EIGHTS; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) parts[warp][8 * n + column + i % 2][row + i / 2 * 8] = own[n][i];
    }
  }
  DEVICE float get(int sequence, int row) const {
    float sum = 0;
#pragma unroll
    for (int warp = 0; warp < WARPS; ++warp) sum += parts[warp][sequence][row];
    return sum;
  }
};

// Of a pair of rows and a sequence, where a thread finishes their sums.
struct Place {
  int row = threadIdx.x % 8, sequence = threadIdx.x / 8;
};

// A task says which rows a tile has, and what becomes of their sums.
template <int WIDTH, int SPLITS, class Task>
DEVICE void run(Task& task, const bf16* input, int batch) {
  __shared__ Sums sums[2];
  const int stride = gridDim.x / SPLITS, lane_row = threadIdx.x % 32 / 4;
  int tile = blockIdx.x / SPLITS;
  Product<WIDTH, SPLITS> product(blockIdx.x % SPLITS);
  const Rows rows = task.rows(tile, lane_row);
#pragma unroll
  for (int chunk = 0; chunk < product.CHUNKS; ++chunk) product.load(chunk, rows);
  let_next_begin();
  await_last();
  product.take(input, batch);
  task.begin(Place());
#pragma unroll 1
  for (int turn = 0; tile < Task::TILES; tile += stride, turn ^= 1) {
    const bool goes_on = tile + stride < Task::TILES;
    const Rows next = task.rows(goes_on ? tile + stride : tile, lane_row);
    float own[EIGHTS][4] = {};
#pragma unroll
    for (int chunk = 0; chunk < product.CHUNKS; ++chunk) {
      product.multiply(chunk, own);
      if (goes_on) product.load(chunk, next);
    }
    sums[turn].put(own);
    __syncthreads();
    const Place at;
    if (threadIdx.x < PAIRS) {
      task.finish(tile, at, sums[turn].get(at.sequence, at.row), sums[turn].get(at.sequence, at.row + 8));
    }
  }
}
