"""Compiles what the operators need, a line each: `python -m bench.build`."""

from __future__ import annotations

import torch
from ops.c.norm_gemv import norm_gemv_c
from ops.numba.norm_gemv import norm_gemv_numba


def main() -> None:
    """Raises what a compiler said, where one failed."""
    x, weight = torch.ones(8), torch.ones(4, 8)
    for name, function in (("c", norm_gemv_c), ("numba", norm_gemv_numba)):
        found = function(x, x, 0.0, weight)
        print(f"norm_gemv  {name:6s} ok  a vector of eight ones times ones: {found.tolist()}")


if __name__ == "__main__":
    main()
