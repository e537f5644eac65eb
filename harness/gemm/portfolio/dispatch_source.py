"""A dispatch table as source that stands alone: one C++ header, or one Python module."""

from __future__ import annotations

from string import Template
from typing import get_args

from hillclimb.harness.gemm.portfolio.dispatch import NEAREST, Dispatch
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

struct Known {
  Dtype dtype;
  double m, n, k, groups;
  double efficiency[kernel_count];
};

inline constexpr std::size_t known_count = $count;
inline constexpr Known known[known_count ? known_count : 1] = {
$rows
};

// Index into kernel_names of the kernel for C[m,n] = A[m,k] B[k,n].
inline std::size_t choose(Dtype dtype, double m, double n, double k, double groups = 1) {
  constexpr std::size_t nearest = $nearest;
  double distance[nearest];
  std::size_t at[nearest], found = 0;
  for (std::size_t i = 0; i < known_count; ++i) {
    if (known[i].dtype != dtype) continue;
    const double dm = std::log2(known[i].m) - std::log2(m), dn = std::log2(known[i].n) - std::log2(n);
    const double dk = std::log2(known[i].k) - std::log2(k), dg = std::log2(known[i].groups) - std::log2(groups);
    const double d = std::sqrt(dm * dm + dn * dn + dk * dk + dg * dg);
    if (found == nearest && d >= distance[nearest - 1]) continue;
    std::size_t place = found < nearest ? found++ : nearest - 1;
    for (; place > 0 && distance[place - 1] > d; --place) {
      distance[place] = distance[place - 1];
      at[place] = at[place - 1];
    }
    distance[place] = d;
    at[place] = i;
  }
  if (!found) return fall_back;
  if (distance[0] == 0) found = 1;
  std::size_t best = 0;
  double most = -1;
  for (std::size_t kernel = 0; kernel < kernel_count; ++kernel) {
    double votes = 0;
    for (std::size_t i = 0; i < found; ++i) {
      const double d = distance[i] > 1e-9 ? distance[i] : 1e-9;
      votes += known[at[i]].efficiency[kernel] / (d * d);
    }
    if (votes > most) most = votes, best = kernel;
  }
  return best;
}

}  // namespace gemm_dispatch
""")

PYTHON = Template('''"""Which kernel runs a matrix product. Written by `hillclimb gemm select`; do not edit."""

import math

KERNELS = $names
FALL_BACK = $fall_back

# dtype, m, n, k, groups, and the efficiency of every kernel
KNOWN = [
$rows
]


def choose(dtype, m, n, k, groups=1):
    """The name of the kernel for C[m, n] = A[m, k] B[k, n]."""
    sizes = [math.log2(size) for size in (m, n, k, groups)]
    same = [
        (math.dist([math.log2(size) for size in one[1:5]], sizes), at)
        for at, one in enumerate(KNOWN)
        if one[0] == dtype
    ]
    nearest = sorted(same)[:$nearest]
    if not nearest:
        return KERNELS[FALL_BACK]
    if nearest[0][0] == 0:
        nearest = nearest[:1]
    votes = [
        sum(KNOWN[at][5][kernel] / max(distance, 1e-9) ** 2 for distance, at in nearest)
        for kernel in range(len(KERNELS))
    ]
    return KERNELS[votes.index(max(votes))]
''')


def as_cpp(table: Dispatch) -> str:
    """A header of C++17."""
    rows = [
        f"    {{Dtype::{one.dtype}, {one.m}, {one.n}, {one.k}, {one.groups}, {{{_shares(one.efficiency)}}}}},"
        for one in table.known
    ]
    return CPP.substitute(
        dtypes=", ".join(get_args(Dtype)),
        kernels=len(table.kernels),
        names=", ".join(f'"{_escaped(name)}"' for name in table.kernels),
        fall_back=table.fall_back,
        count=len(table.known),
        rows="\n".join(rows) or "    {}",
        nearest=NEAREST,
    )


def as_python(table: Dispatch) -> str:
    """A module that needs nothing but the standard library."""
    rows = [
        f"    ({one.dtype!r}, {one.m}, {one.n}, {one.k}, {one.groups}, ({_shares(one.efficiency)},)),"
        for one in table.known
    ]
    return PYTHON.substitute(
        names=list(table.kernels), fall_back=table.fall_back, rows="\n".join(rows), nearest=NEAREST
    )


def _shares(efficiency: tuple[float, ...]) -> str:
    return ", ".join(f"{share:g}" for share in efficiency)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
