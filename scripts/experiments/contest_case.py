"""One softmax in CUDA C++ with knobs, for tuners to compete on: the same source, the same space, for everyone.

4096 x 4096 bfloat16. The knobs are macros, so a tuner needs nothing but a compiler; as a case's workspace the same file
is compiled by NVRTC when it is imported, with the macros from the environment.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import gpu_cases

ROOT = Path(__file__).resolve().parents[2]
ROWS, COLUMNS = gpu_cases.SIZES["softmax"]

SPACE: dict[str, list[int]] = {
    "SX_THREADS": [64, 128, 256, 512, 1024],
    "SX_VECTOR": [1, 2, 4, 8],
    "SX_KEEP": [0, 1],
    "SX_EXP2": [0, 1],
    "SX_LOAD": [0, 1, 2],
    "SX_STORE": [0, 1],
    "SX_ROWS": [1, 2, 4, 8],
    "SX_UNROLL": [1, 2, 4, 8],
}
"""Knob -> its values; 7680 settings, of which all count but those that do not fit."""

START = {
    "SX_THREADS": 128,
    "SX_VECTOR": 1,
    "SX_KEEP": 0,
    "SX_EXP2": 0,
    "SX_LOAD": 0,
    "SX_STORE": 0,
    "SX_ROWS": 1,
    "SX_UNROLL": 1,
}
"""Where everyone begins: right, and slow."""

FITS = "SX_THREADS * SX_VECTOR <= 4096"
"""A step is no longer than a row. Kept in registers, a row is at most 64 floats a thread, which do not spill."""

SOURCE = """\
// y = softmax(x) along rows of bfloat16. One block works on SX_ROWS rows, one after the other.
#include <cuda_bf16.h>

constexpr int COLUMNS = 4096;
constexpr int STEPS = COLUMNS / (SX_THREADS * SX_VECTOR);
constexpr int WARPS = SX_THREADS / 32;
constexpr float LOG2E = 1.4426950408889634f;
constexpr float LOWEST = -3.0e38f;

struct alignas(2 * SX_VECTOR) Pack {
    unsigned short part[SX_VECTOR];
};

template <typename Word> __device__ Word fetch(const Word* from) {
#if SX_LOAD == 1
    return __ldg(from);
#elif SX_LOAD == 2
    return __ldcs(from);
#else
    return *from;
#endif
}

template <typename Word> __device__ void put(Word* to, Word value) {
#if SX_STORE == 1
    __stcs(to, value);
#else
    *to = value;
#endif
}

#if SX_VECTOR == 1
typedef unsigned short Word;
#elif SX_VECTOR == 2
typedef unsigned int Word;
#elif SX_VECTOR == 4
typedef uint2 Word;
#else
typedef uint4 Word;
#endif

union Bits {
    Word word;
    Pack pack;
    __device__ Bits() {}
};

__device__ float widen(unsigned short bits) { return __uint_as_float(static_cast<unsigned int>(bits) << 16); }

__device__ unsigned short narrow(float value) { return __bfloat16_as_ushort(__float2bfloat16(value)); }

__device__ float power(float value, float top) {
#if SX_EXP2
    return exp2f(fmaf(value, LOG2E, -top * LOG2E));
#else
    return __expf(value - top);
#endif
}

__device__ float largest(float a, float b) { return fmaxf(a, b); }
__device__ float sum(float a, float b) { return a + b; }

template <float (*combine)(float, float)> __device__ float over_block(float mine, float* shared) {
    for (int distance = 16; distance > 0; distance /= 2)
        mine = combine(mine, __shfl_xor_sync(~0u, mine, distance));
    __syncthreads();
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = mine;
    __syncthreads();
    float all = shared[0];
    for (int warp = 1; warp < WARPS; ++warp) all = combine(all, shared[warp]);
    return all;
}

extern "C" __global__ void __launch_bounds__(SX_THREADS) softmax(const unsigned short* x, unsigned short* y) {
    __shared__ float shared[WARPS];
#if SX_KEEP
    float kept[STEPS * SX_VECTOR];
#endif
    for (int r = 0; r < SX_ROWS; ++r) {
        const long long start = (static_cast<long long>(blockIdx.x) * SX_ROWS + r) * COLUMNS;
        const Word* in = reinterpret_cast<const Word*>(x + start) + threadIdx.x;
        Word* out = reinterpret_cast<Word*>(y + start) + threadIdx.x;

        float top = LOWEST;
#if SX_KEEP
#pragma unroll
#else
#pragma unroll SX_UNROLL
#endif
        for (int step = 0; step < STEPS; ++step) {
            Bits read;
            read.word = fetch(in + step * SX_THREADS);
#pragma unroll
            for (int part = 0; part < SX_VECTOR; ++part) {
                float value = widen(read.pack.part[part]);
#if SX_KEEP
                kept[step * SX_VECTOR + part] = value;
#endif
                top = fmaxf(top, value);
            }
        }
        top = over_block<largest>(top, shared);

        float total = 0.0f;
#if SX_KEEP
#pragma unroll
        for (int i = 0; i < STEPS * SX_VECTOR; ++i) total += kept[i] = power(kept[i], top);
#else
#pragma unroll SX_UNROLL
        for (int step = 0; step < STEPS; ++step) {
            Bits read;
            read.word = fetch(in + step * SX_THREADS);
#pragma unroll
            for (int part = 0; part < SX_VECTOR; ++part) total += power(widen(read.pack.part[part]), top);
        }
#endif
        const float factor = 1.0f / over_block<sum>(total, shared);

#if SX_KEEP
#pragma unroll
#else
#pragma unroll SX_UNROLL
#endif
        for (int step = 0; step < STEPS; ++step) {
            Bits write;
#if !SX_KEEP
            Bits read;
            read.word = fetch(in + step * SX_THREADS);
#endif
#pragma unroll
            for (int part = 0; part < SX_VECTOR; ++part) {
#if SX_KEEP
                write.pack.part[part] = narrow(kept[step * SX_VECTOR + part] * factor);
#else
                write.pack.part[part] = narrow(power(widen(read.pack.part[part]), top) * factor);
#endif
            }
            put(out + step * SX_THREADS, write.word);
        }
    }
}
"""

KERNEL = '''\
"""y = softmax(x) along rows of bfloat16, in CUDA C++: softmax.cu, its macros from the knobs."""

from __future__ import annotations

from pathlib import Path

import torch
from cuda_code import Kernel, compile_cuda
from knobs import knob

NAMES = ("THREADS", "VECTOR", "KEEP", "EXP2", "LOAD", "STORE", "ROWS", "UNROLL")
VALUES = {name: knob(name) for name in NAMES}
if VALUES["THREADS"] * VALUES["VECTOR"] > 4096:
    raise ValueError("SX_THREADS * SX_VECTOR is more than a row of 4096")
MACROS = [f"-DSX_{name}={value}" for name, value in VALUES.items()]
SOFTMAX = Kernel(compile_cuda(Path(__file__).with_name("softmax.cu"), *MACROS), "softmax")


def run(x: torch.Tensor, y: torch.Tensor) -> None:
    SOFTMAX((x.shape[0] // VALUES["ROWS"], 1, 1), (VALUES["THREADS"], 1, 1), x, y)
'''.replace("knob(name)", 'knob(f"SX_{name}")')

IMPORTS = "[__future__, array, os, pathlib, typing, torch, cuda, yaml]"


def write_case(folder: Path) -> Path:
    """`folder`/experiments/softmax, as a case that a climb takes: the contract and settings of gpu_cases."""
    case = gpu_cases.write_case(folder, "softmax", 0.0025, pair_blocks=4, max_pairs=30)
    file = case / "case.yaml"
    settings = file.read_text().replace("[os, torch, triton]", IMPORTS)
    file.write_text(settings + 'mutable: ["*.py", "*.cu", "knobs.yaml", "docs/**"]\n')
    shutil.rmtree(case / "workspace")
    write_workspace(case / "workspace")
    return case


def write_workspace(folder: Path) -> Path:
    folder.mkdir(parents=True)
    demo = ROOT / "cases" / "demo" / "triton_softmax" / "workspace"
    for name in ("cuda_code.py", "knobs.py"):
        shutil.copyfile(demo / name, folder / name)
    (folder / "softmax.cu").write_text(SOURCE)
    (folder / "kernel.py").write_text(KERNEL)
    lines = [
        f"{name}: {{type: choice, choices: {json.dumps(values)}, default: {START[name]}}}\n"
        for name, values in SPACE.items()
    ]
    (folder / "knobs.yaml").write_text("".join(lines))
    return folder
