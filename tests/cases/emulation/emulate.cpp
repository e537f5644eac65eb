// Tokens by persistent.cu on the CPU, compared with a plain computation in double. Prints the errors; 0 is
// right, 1 wrong, 3 a wait without end, 4 a broken rule. Arguments: tokens, cached positions, lateness, seed.
#define EMULATE 1
#define EVICT_FIRST 0
#define SHARED_BYTES 232448
#include <algorithm>
#include <memory>

#include "persistent.cu"

struct Model {
  std::vector<bf16> q, k, v, o, gate, up, down, embedding, attention_norm, mlp_norm, norm;
  std::vector<float> frequencies;
  std::mt19937 random;

  std::vector<bf16> drawn(size_t count, float size, float middle = 0) {
    std::normal_distribution<float> normal(middle, size);
    std::vector<bf16> values(count);
    for (bf16& value : values) value = rounded(normal(random));
    return values;
  }
  explicit Model(int seed) : random(seed) {
    const float wide = 1 / sqrtf(HIDDEN);
    q = drawn((size_t)LAYERS * QUERY_ROWS * HIDDEN, wide), k = drawn((size_t)LAYERS * KV_ROWS * HIDDEN, wide);
    v = drawn((size_t)LAYERS * KV_ROWS * HIDDEN, wide), o = drawn((size_t)LAYERS * HIDDEN * HIDDEN, wide);
    gate = drawn((size_t)LAYERS * FFN * HIDDEN, wide), up = drawn((size_t)LAYERS * FFN * HIDDEN, wide);
    down = drawn((size_t)LAYERS * HIDDEN * FFN, 1 / sqrtf(FFN)), embedding = drawn((size_t)VOCAB * HIDDEN, 1);
    attention_norm = drawn(LAYERS * HIDDEN, 0.2f, 1), mlp_norm = drawn(LAYERS * HIDDEN, 0.2f, 1);
    norm = drawn(HIDDEN, 0.2f, 1);
    for (int i = 0; i < HEAD / 2; ++i) frequencies.push_back(pow(10000.0, -2.0 * i / HEAD));
  }
};

typedef std::vector<double> Vector;

static Vector product(const bf16* matrix, int rows, const Vector& x) {
  Vector y(rows);
  for (int row = 0; row < rows; ++row) {
    for (size_t i = 0; i < x.size(); ++i) y[row] += (double)widened(matrix[row * x.size() + i]) * x[i];
  }
  return y;
}
static Vector normed(const Vector& x, const bf16* weight) {
  double squares = 0;
  for (double value : x) squares += value * value;
  Vector y(x);
  for (size_t i = 0; i < x.size(); ++i) y[i] *= widened(weight[i]) / sqrt(squares / x.size() + 1e-5);
  return y;
}
static void turn(double* head, const std::vector<float>& frequencies, int position) {
  for (int i = 0; i < HEAD / 2; ++i) {
    const double angle = (double)frequencies[i] * position, a = head[i], b = head[i + HEAD / 2];
    head[i] = a * cos(angle) - b * sin(angle), head[i + HEAD / 2] = b * cos(angle) + a * sin(angle);
  }
}

struct Plain {  // its cache is in bfloat16 too
  const Model& m;
  std::vector<bf16> keys, values;
  int capacity;

  size_t place(int layer, int head, int position) {
    return ((size_t)(layer * KV_HEADS + head) * capacity + position) * HEAD;
  }
  Vector attention(int layer, const Vector& x, int position) {
    Vector q = product(&m.q[(size_t)layer * QUERY_ROWS * HIDDEN], QUERY_ROWS, x), seen(QUERY_ROWS);
    Vector k = product(&m.k[(size_t)layer * KV_ROWS * HIDDEN], KV_ROWS, x);
    Vector v = product(&m.v[(size_t)layer * KV_ROWS * HIDDEN], KV_ROWS, x);
    for (int head = 0; head < HEADS; ++head) turn(&q[head * HEAD], m.frequencies, position);
    for (int head = 0; head < KV_HEADS; ++head) {
      turn(&k[head * HEAD], m.frequencies, position);
      for (int i = 0; i < HEAD; ++i) {
        keys[place(layer, head, position) + i] = rounded(k[head * HEAD + i]);
        values[place(layer, head, position) + i] = rounded(v[head * HEAD + i]);
      }
    }
    for (int head = 0; head < HEADS; ++head) {
      double total = 0;
      for (int at = 0; at <= position; ++at) {
        const size_t from = place(layer, head / GROUP, at);
        double s = 0;
        for (int i = 0; i < HEAD; ++i) s += q[head * HEAD + i] * widened(keys[from + i]);
        const double power = exp(s / 8);
        total += power;
        for (int i = 0; i < HEAD; ++i) seen[head * HEAD + i] += power * widened(values[from + i]);
      }
      for (int i = 0; i < HEAD; ++i) seen[head * HEAD + i] /= total;
    }
    return product(&m.o[(size_t)layer * HIDDEN * HIDDEN], HIDDEN, seen);
  }
  Vector mlp(int layer, const Vector& x) {
    const size_t at = (size_t)layer * FFN * HIDDEN;
    Vector gate = product(&m.gate[at], FFN, x), up = product(&m.up[at], FFN, x);
    for (int i = 0; i < FFN; ++i) gate[i] *= up[i] / (1 + exp(-gate[i]));
    return product(&m.down[at], HIDDEN, gate);
  }
  Vector logits(int token, int position) {
    Vector x(HIDDEN);
    for (int i = 0; i < HIDDEN; ++i) x[i] = widened(m.embedding[(size_t)token * HIDDEN + i]);
    for (int layer = 0; layer < LAYERS; ++layer) {
      const Vector a = attention(layer, normed(x, &m.attention_norm[layer * HIDDEN]), position);
      for (int i = 0; i < HIDDEN; ++i) x[i] += a[i];
      const Vector b = mlp(layer, normed(x, &m.mlp_norm[layer * HIDDEN]));
      for (int i = 0; i < HIDDEN; ++i) x[i] += b[i];
    }
    return product(m.embedding.data(), VOCAB, normed(x, m.norm.data()));
  }
};

static Call* launched;
static void fiber_main() {
  decode_token(*launched);
  emulated.current->is_done = true;
  give_way();
}

static void launch(Call& call) {
  constexpr int WHOLE = THREADS + 32;
  constexpr size_t STACK = 48 << 10;
  launched = &call;
  std::vector<EmulatedBlock> blocks(BLOCKS);
  std::vector<std::unique_ptr<Shared>> memory;
  std::vector<Fiber> fibers(BLOCKS * WHOLE);
  for (int i = 0; i < BLOCKS; ++i) {
    memory.emplace_back((Shared*)new (std::align_val_t(128)) Shared);
    memset((void*)memory.back().get(), 0xff, sizeof(Shared));
    blocks[i].memory = memory.back().get(), blocks[i].warps.resize(WHOLE / 32);
  }
  std::vector<Fiber*> running;
  for (int i = 0; i < BLOCKS * WHOLE; ++i) {
    Fiber& fiber = fibers[i];
    fiber.block = &blocks[i / WHOLE], fiber.thread = i % WHOLE, fiber.index = i / WHOLE,
    fiber.stack.resize(STACK);
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data(), fiber.context.uc_stack.ss_size = STACK;
    makecontext(&fiber.context, fiber_main, 0);
    running.push_back(&fiber);
  }
  for (int round = 0; !running.empty(); ++round) {
    if (round % 8 == 0) std::shuffle(running.begin(), running.end(), emulated.random);
    land_some();
    for (Fiber* fiber : running) {
      emulated.current = fiber;
      swapcontext(&emulated.scheduler, &fiber->context);
    }
    running.erase(std::remove_if(running.begin(), running.end(), [](Fiber* f) { return f->is_done; }),
                  running.end());
  }
  while (!emulated.landings.empty()) land_some();
  for (auto& shared : memory) operator delete((void*)shared.release(), std::align_val_t(128));
}

int main(int count, char** arguments) {
  const int tokens = count > 1 ? atoi(arguments[1]) : 2, context = count > 2 ? atoi(arguments[2]) : 9;
  emulated.lateness = count > 3 ? atoi(arguments[3]) : 8;
  const int seed = count > 4 ? atoi(arguments[4]) : 1, capacity = context + tokens + 3;
  emulated.random.seed(seed);
  Model m(seed);
  const size_t cached = (size_t)LAYERS * KV_HEADS * capacity * HEAD;
  std::vector<bf16> keys = m.drawn(cached, 1), values = m.drawn(cached, 1);
  Plain plain{m, keys, values, capacity};
  std::vector<float> logits((size_t)tokens * VOCAB, NAN), qkv(QUERY_ROWS + 2 * KV_ROWS),
      seen(SPLITS * HIDDEN);
  std::vector<float> weight(SPLITS * HEADS), middle(HIDDEN), hidden(HIDDEN), gated(FFN);
  std::vector<long long> made(tokens, -1), shifts(tokens);
  for (long long& shift : shifts) shift = m.random() % VOCAB;
  long long given = 5 % VOCAB;
  State state = {};
  Call call = {m.q.data(),
               m.k.data(),
               m.v.data(),
               m.o.data(),
               m.gate.data(),
               m.up.data(),
               m.down.data(),
               m.embedding.data(),
               m.embedding.data(),
               m.attention_norm.data(),
               m.mlp_norm.data(),
               m.norm.data(),
               m.frequencies.data(),
               keys.data(),
               values.data(),
               &given,
               shifts.data(),
               made.data(),
               logits.data(),
               qkv.data(),
               seen.data(),
               weight.data(),
               middle.data(),
               hidden.data(),
               gated.data(),
               &state,
               capacity,
               context,
               0,
               nullptr};
  double worst = 0;
  int read = given;
  bool is_right = true;
  for (int step = 0; step < tokens; ++step) {
    call.logits = &logits[(size_t)step * VOCAB], call.position = context + step, call.step = step;
    call.given = step ? nullptr : &given;
    launch(call);
    store_token(call);
    const Vector right = plain.logits(read, context + step);
    double error = 0, size = 0;
    for (int i = 0; i < VOCAB; ++i) error += pow(call.logits[i] - right[i], 2), size += pow(right[i], 2);
    worst = std::max(worst, std::isnan(error) ? INFINITY : sqrt(error / size));
    is_right &= made[step] == std::max_element(call.logits, call.logits + VOCAB) - call.logits;
    read = (made[step] + shifts[step]) % VOCAB;
  }
  double cache = 0;
  for (size_t i = 0; i < cached; ++i) {
    cache = std::max(cache, (double)fabsf(widened(keys[i]) - widened(plain.keys[i])));
    cache = std::max(cache, (double)fabsf(widened(values[i]) - widened(plain.values[i])));
  }
  printf("logits %.2e, cache %.2e, tokens %s\n", worst, cache, is_right ? "right" : "wrong");
  return !(worst < 2e-3 && cache < 0.1 && is_right);
}
