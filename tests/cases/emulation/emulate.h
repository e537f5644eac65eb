// What persistent.cu uses of a GPU, for a CPU: each thread is a fiber, and waits give the processor to
// another one.
//
// Bulk copies and words land late and out of order. A slot is filled with NaN until its copy has landed.
// Fibers run in an order that is drawn anew all the time.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <random>
#include <vector>

#define DEVICE inline
#define __global__
#define __launch_bounds__(...)
#define SHARED_MEMORY(name) Shared& name = *(Shared*)emulated.current->block->memory

struct Meeting {  // of so many fibers
  int count = 0;
  unsigned turn = 0;
};
struct EmulatedWarp {
  Meeting meeting;
  uint64_t value[2][32];
};
struct EmulatedBlock {
  void* memory;
  Meeting all, computing;
  std::vector<EmulatedWarp> warps;
};
struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  EmulatedBlock* block;
  int thread, index;
  bool is_done = false;
};
struct Landing {  // what is on its way
  void* to;
  const void* from;
  int bytes;
  u64* barrier;
  unsigned word;
};
struct Emulated {
  Fiber* current = nullptr;
  ucontext_t scheduler;
  std::vector<Landing> landings;
  std::mt19937 random{7};
  int lateness = 8;
};
inline Emulated emulated;

struct ThreadIndex {
  struct {
    operator unsigned() const { return emulated.current->thread; }
  } x;
} inline threadIdx;
struct BlockIndex {
  struct {
    operator unsigned() const { return emulated.current->index; }
  } x;
} inline blockIdx;

__attribute__((noinline)) inline void give_way() {
  swapcontext(&emulated.current->context, &emulated.scheduler);
}

struct Patience {
  int left = 3000;
  void spend() {
    if (--left == 0) {
      printf("block %d, thread %d waits for ever\n", emulated.current->index, emulated.current->thread);
      exit(3);
    }
    give_way();
  }
};

inline void meet(Meeting& meeting, int count) {
  const unsigned turn = meeting.turn;
  if (++meeting.count == count) {
    meeting.count = 0, ++meeting.turn;
    return;
  }
  Patience patience;
  while (meeting.turn == turn) patience.spend();
}
inline EmulatedWarp& own_warp() { return emulated.current->block->warps[emulated.current->thread / 32]; }
inline void __syncthreads() { meet(emulated.current->block->all, THREADS + 32); }
inline void compute_sync() { meet(emulated.current->block->computing, THREADS); }
inline bool is_elected() { return emulated.current->thread % 32 == 0; }
inline void __syncwarp() { meet(own_warp().meeting, 32); }

template <class Value>
inline Value exchanged(Value value, int lanes) {
  EmulatedWarp& warp = own_warp();
  const unsigned turn = warp.meeting.turn & 1;
  memcpy(&warp.value[turn][emulated.current->thread % 32], &value, sizeof value);
  meet(warp.meeting, 32);
  memcpy(&value, &warp.value[turn][emulated.current->thread % 32 ^ lanes], sizeof value);
  return value;
}
inline float shuffle_xor(float x, int lanes) { return exchanged(x, lanes); }
inline u64 shuffle_xor(u64 x, int lanes) { return exchanged(x, lanes); }

struct EmulatedBarrier {  // in eight bytes
  int32_t bytes;
  int16_t count : 7, pending : 7;
  uint16_t phase : 1;
};
static_assert(sizeof(EmulatedBarrier) == 8, "a barrier has eight bytes");
inline EmulatedBarrier& barrier_of(u64* at) { return *(EmulatedBarrier*)at; }
inline void turn_phase(EmulatedBarrier& b) {
  if (b.pending < 0) printf("a barrier has too many arrivals\n"), exit(4);
  if (b.pending == 0 && b.bytes == 0) b.pending = b.count, b.phase ^= 1;
}
inline void barrier_init(u64* at, int count) {
  EmulatedBarrier& b = barrier_of(at);
  b.bytes = 0, b.count = count, b.pending = count, b.phase = 0;
}
inline void barriers_are_set() {}
inline void await_last_launch() {}
inline void let_next_begin() {}
inline bool barrier_try(u64* at, unsigned phase) { return barrier_of(at).phase != phase; }
inline void barrier_arrive(u64* at) { --barrier_of(at).pending, turn_phase(barrier_of(at)); }
inline void barrier_expect(u64* at, int bytes) { barrier_of(at).bytes += bytes, barrier_arrive(at); }

inline void copy(void* to, const void* from, int bytes, u64* barrier, u64) {
  if ((uintptr_t)from % 16 || bytes % 16 || bytes <= 0) printf("a copy is not aligned\n"), exit(4);
  memset(to, 0xff, bytes);
  emulated.landings.push_back({to, from, bytes, barrier, 0});
}
inline u64 once_policy() { return 0; }
inline void land(const Landing& landing) {
  if (!landing.from) {
    *(unsigned*)landing.to = landing.word;
    return;
  }
  memcpy(landing.to, landing.from, landing.bytes);
  barrier_of(landing.barrier).bytes -= landing.bytes, turn_phase(barrier_of(landing.barrier));
}
inline void land_some() {
  size_t kept = 0;
  for (const Landing& landing : emulated.landings) {
    if (emulated.random() % emulated.lateness) emulated.landings[kept++] = landing;
    else land(landing);
  }
  emulated.landings.resize(kept);
}

inline Words read_shared(const void* at) { return *(const Words*)at; }
inline u64 peek_shared(const u64* at) { return *at; }
inline void poke_shared(u64* at, u64 value) { *at = value; }
inline Words read_words(const float* at) { return *(const Words*)at; }
inline unsigned read_word(const float* at) { return *(const unsigned*)at; }
inline void write_word(float* at, unsigned word) {
  emulated.landings.push_back({at, nullptr, 0, nullptr, word});
}
inline Words read_constant(const bf16* at) { return *(const Words*)at; }
inline float __uint_as_float(unsigned bits) {
  float x;
  memcpy(&x, &bits, 4);
  return x;
}
inline unsigned __float_as_uint(float x) {
  unsigned bits;
  memcpy(&bits, &x, 4);
  return bits;
}
inline bf16 rounded(float x) {
  const unsigned bits = __float_as_uint(x);
  return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
inline unsigned atomicAdd(unsigned* at, unsigned value) { return *at += value, *at - value; }
inline void atomicMax(u64* at, u64 value) { *at = value > *at ? value : *at; }
