// What decode.cu of llama_1b/throughput uses of a GPU beyond emulate_blocks.h: tensor cores, and loads of any type.
#pragma once

#include "emulate_blocks.h"

#undef KERNEL
#define KERNEL extern "C" void

struct float2 {
  float x, y;
};
inline unsigned deposited[32][2][32][6];  // of warps and lanes, by turns

// Each lane deposits its part of both operands, and computes its four sums from those of the others.
inline void multiply_add(float (&sum)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                         unsigned b1) {
  const int lane = threadIdx.x % 32, at = threadIdx.x / 32;
  Warp& warp = emulated.warps[at];
  unsigned (*words)[6] = deposited[at][warp.meeting.turn & 1];
  const unsigned own[6] = {a0, a1, a2, a3, b0, b1};
  memcpy(words[lane], own, sizeof own);
  meet(warp.meeting, 32);
  for (int i = 0; i < 4; ++i) {
    const int row = lane / 4, column = lane % 4 * 2 + i % 2, low = i / 2;
    for (int k = 0; k < 16; ++k) {
      const unsigned a = words[row * 4 + k % 8 / 2][low + k / 8 * 2], b = words[column * 4 + k % 8 / 2][4 + k / 8];
      const unsigned wide[2] = {k % 2 ? a & 0xffff0000u : a << 16, k % 2 ? b & 0xffff0000u : b << 16};
      float pair[2];
      memcpy(pair, wide, 8);
      sum[i] += pair[0] * pair[1];
    }
  }
}
inline uint4 load_weights(const bf16* at) { return load_once(at, 0); }
inline void fetch(const bf16*) {}
template <class T>
inline T __ldcg(const T* at) {
  return *at;
}
template <class T>
inline T atomicAdd(T* at, T value) {
  const T before = *at;
  *at += value;
  return before;
}
