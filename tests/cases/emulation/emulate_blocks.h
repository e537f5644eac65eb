// What decode.cu uses of a GPU, for a CPU: blocks run one after another, and each thread of a block is a
// fiber, which gives way where threads meet.
#pragma once

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#include <vector>

#define DEVICE inline
#define KERNEL(warps) extern "C" void
#define __shared__ static

struct uint4 {
  unsigned x, y, z, w;
};
struct float4 {
  float x, y, z, w;
};
struct Index {
  int x, y;
};
inline Index blockIdx, gridDim;

struct Meeting {
  int count = 0;
  unsigned turn = 0;
};
struct Warp {
  Meeting meeting;
  float value[2][32];
};
struct Fiber {
  ucontext_t context;
  std::vector<char> stack;
  int thread;
  bool is_done;
};
struct Emulated {
  Fiber* current;
  ucontext_t scheduler;
  Meeting all;
  std::vector<Warp> warps;
  int threads;
};
inline Emulated emulated;
struct ThreadIndex {
  struct {
    operator int() const { return emulated.current->thread; }
  } x;
} inline threadIdx;

inline void meet(Meeting& meeting, int count) {
  const unsigned turn = meeting.turn;
  if (++meeting.count == count) {
    meeting.count = 0, ++meeting.turn;
    return;
  }
  while (meeting.turn == turn) swapcontext(&emulated.current->context, &emulated.scheduler);
}
inline void __syncthreads() { meet(emulated.all, emulated.threads); }
inline float shuffle_xor(float x, int lanes) {
  Warp& warp = emulated.warps[threadIdx.x / 32];
  float* values = warp.value[warp.meeting.turn & 1];
  values[threadIdx.x % 32] = x;
  meet(warp.meeting, 32);
  return values[threadIdx.x % 32 ^ lanes];
}
inline void __threadfence() {}
inline void let_next_begin() {}
inline void await_last() {}

inline u64 leaves_first() { return 0; }
inline uint4 load_once(const bf16* at, u64) {
  if ((uintptr_t)at % 16) printf("a load is not aligned\n"), exit(4);
  return *(const uint4*)at;
}
inline void prefetch(const bf16*) {}
inline float __ldcg(const float* at) { return *at; }
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

typedef void (*Launched)(i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64, i64);
inline Launched launched;
inline const i64* given;
inline void fiber_main() {
  const i64* a = given;
  launched(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11]);
  emulated.current->is_done = true;
  swapcontext(&emulated.current->context, &emulated.scheduler);
}

inline void run_block(std::vector<Fiber>& fibers) {
  for (Fiber& fiber : fibers) {
    getcontext(&fiber.context);
    fiber.is_done = false;
    fiber.context.uc_stack.ss_sp = fiber.stack.data(), fiber.context.uc_stack.ss_size = fiber.stack.size();
    makecontext(&fiber.context, fiber_main, 0);
  }
  for (size_t done = 0; done < fibers.size();) {
    for (Fiber& fiber : fibers) {
      if (fiber.is_done) continue;
      emulated.current = &fiber;
      swapcontext(&emulated.scheduler, &fiber.context);
      done += fiber.is_done;
    }
  }
}

// A kernel on a grid of blocks; up to twelve arguments of eight bytes.
extern "C" void run_grid(Launched kernel, int x, int y, int threads, const i64* arguments) {
  std::vector<Fiber> fibers(threads);
  launched = kernel, given = arguments, gridDim = {x, y}, emulated.threads = threads;
  for (int i = 0; i < threads; ++i) fibers[i].thread = i, fibers[i].stack.resize(32 << 10);
  for (blockIdx.y = 0; blockIdx.y < y; ++blockIdx.y) {
    for (blockIdx.x = 0; blockIdx.x < x; ++blockIdx.x) {
      emulated.all = {}, emulated.warps.assign(threads / 32, {});
      run_block(fibers);
    }
  }
}
