"""A dispatch table as source that stands alone: one C++ header, or one Python module."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate
from string import Template
from typing import get_args

from hillclimb.harness.gemm.portfolio.dispatch import Dispatch
from hillclimb.harness.gemm.shape import Dtype

CPP = Template("""// Which kernel runs a matrix product. Written by `hillclimb gemm select`; do not edit.
#pragma once
#include <cmath>
#include <cstddef>

namespace gemm_dispatch {

enum class Dtype { $dtypes };

inline constexpr std::size_t kernel_count = $kernels;
inline constexpr const char* kernel_names[kernel_count] = {$names};
inline constexpr std::size_t fall_back = $fall_back;

// A matrix of weights; its spans of m are some of those below.
struct Known {
  Dtype dtype;
  double n, k, groups;
  std::size_t first, spans;
};

struct Span {
  long long start;  // the least m
  std::size_t kernel;
};

inline constexpr std::size_t known_count = $count;
inline constexpr Known known[known_count ? known_count : 1] = {
$rows
};
inline constexpr Span spans[] = {
$spans
};

// Index into kernel_names of the kernel for C[m,n] = A[m,k] B[k,n].
inline std::size_t choose(Dtype dtype, long long m, double n, double k, double groups = 1) {
  const Known* nearest = nullptr;
  double least = 0;
  for (std::size_t i = 0; i < known_count; ++i) {
    if (known[i].dtype != dtype || (known[i].groups > 1) != (groups > 1)) continue;
    const double dn = std::log2(known[i].n) - std::log2(n), dk = std::log2(known[i].k) - std::log2(k);
    const double dg = std::log2(known[i].groups) - std::log2(groups);
    const double distance = std::sqrt(dn * dn + dk * dk + dg * dg);
    if (!nearest || distance < least) nearest = &known[i], least = distance;
  }
  if (!nearest) return fall_back;
  std::size_t at = nearest->first;
  const std::size_t last = nearest->first + nearest->spans - 1;
  while (at < last && spans[at + 1].start <= m) ++at;
  return spans[at].kernel;
}

}  // namespace gemm_dispatch
""")

PYTHON = Template('''"""Which kernel runs a matrix product. Written by `hillclimb gemm select`; do not edit."""

import math
from bisect import bisect_right

KERNELS = $names
FALL_BACK = $fall_back

# dtype, n, k, groups, the least m of each span, and each span's kernel
KNOWN = [
$rows
]


def choose(dtype, m, n, k, groups=1):
    """The name of the kernel for C[m, n] = A[m, k] B[k, n]."""
    sizes = [math.log2(size) for size in (n, k, groups)]
    same = [
        (math.dist([math.log2(size) for size in one[1:4]], sizes), at)
        for at, one in enumerate(KNOWN)
        if one[0] == dtype and (one[3] > 1) == (groups > 1)
    ]
    if not same:
        return KERNELS[FALL_BACK]
    starts, chosen = KNOWN[min(same)[1]][4:]
    return KERNELS[chosen[bisect_right(starts, max(m, 1)) - 1]]
''')


def as_cpp(table: Dispatch) -> str:
    """A header of C++17."""
    firsts = [0, *accumulate(len(one.starts) for one in table.known)]
    rows = [
        f"    {{Dtype::{one.dtype}, {one.n}, {one.k}, {one.groups}, {first}, {len(one.starts)}}},"
        for one, first in zip(table.known, firsts, strict=False)
    ]
    spans = [
        "    "
        + " ".join(f"{{{start}, {kernel}}}," for start, kernel in zip(one.starts, one.chosen, strict=True))
        for one in table.known
    ]
    return CPP.substitute(
        dtypes=", ".join(get_args(Dtype)),
        kernels=len(table.kernels),
        names=", ".join(f'"{_escaped(name)}"' for name in table.kernels),
        fall_back=table.fall_back,
        count=len(table.known),
        rows="\n".join(rows) or "    {}",
        spans="\n".join(spans) or "    {}",
    )


def as_python(table: Dispatch) -> str:
    """A module that needs nothing but the standard library."""
    rows = [
        f"    ({one.dtype!r}, {one.n}, {one.k}, {one.groups}, {_tuple(one.starts)}, {_tuple(one.chosen)}),"
        for one in table.known
    ]
    return PYTHON.substitute(names=list(table.kernels), fall_back=table.fall_back, rows="\n".join(rows))


def _tuple(numbers: Iterable[int]) -> str:
    return f"({', '.join(map(str, numbers))},)"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
