"""kernel_tuner on contest_case's space, in a Python that has it: contest_tuner.py SECONDS STRATEGY SEED. Prints JSON.

Every configuration's output is checked against a float64 softmax, element by element, within two roundings of
bfloat16; what differs is a failure, as in the judge's gate. A strategy may end before its time: adaptive_tabu_greywolf
has asked 5000 times then, by default, and cools down over those.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import contest_case
import numpy as np

BUDGET = 2.0**-7
"""Two roundings of bfloat16, relative."""

SMALLEST = 2.0**-100


def main() -> None:
    seconds, strategy, seed = float(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    import kernel_tuner

    bits = to_bits(np.random.default_rng(seed).standard_normal((contest_case.ROWS, contest_case.COLUMNS)))
    expected = softmax(to_floats(bits))
    started = time.perf_counter()
    results, _ = kernel_tuner.tune_kernel(
        "softmax",
        contest_case.SOURCE,
        (contest_case.ROWS,),
        [bits, np.zeros_like(bits)],
        contest_case.SPACE,
        grid_div_x=["SX_ROWS"],
        block_size_names=["SX_THREADS", "block_size_y", "block_size_z"],
        restrictions=[contest_case.FITS],
        answer=[None, expected],
        verify=is_right,
        lang="NVCUDA",
        compiler_options=["--std=c++17", *include_options()],
        strategy=strategy,
        strategy_options={"time_limit": seconds, "max_fevals": 10**6},
        quiet=True,
    )
    print(json.dumps(summarise(results, time.perf_counter() - started, kernel_tuner.__version__)))


def summarise(results: list[dict[str, Any]], seconds: float, version: str) -> dict[str, Any]:
    """How many configurations, and the best one's knobs. Strategies ask for some again and again; each counts once."""
    tried = {tuple(row[name] for name in contest_case.SPACE): row for row in results}
    timed = [row for row in tried.values() if isinstance(row["time"], int | float)]
    found = {
        "seconds": seconds,
        "candidates": len(tried),
        "failed": len(tried) - len(timed),
        "asked": len(results),
    }
    best = min(timed, key=lambda row: float(row["time"]), default=None)
    if best is not None:
        found["knobs"] = {name: int(best[name]) for name in contest_case.SPACE}
        found["own_us"] = 1e3 * float(best["time"])
    return {**found, "version": version}


def is_right(answer: list[Any], result: list[Any], atol: float) -> bool:
    """kernel_tuner's `verify`; atol is its own default and not used."""
    expected, got = answer[1], to_floats(result[1])
    share = np.abs(got - expected) / np.maximum(expected, SMALLEST)
    return bool(np.isfinite(got).all() and share.max() <= BUDGET)


def to_bits(values: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """float64 cut to bfloat16, as unsigned words."""
    return (values.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def to_floats(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def softmax(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)


def include_options() -> list[str]:
    """Where cuda_bf16.h is: CUDA's toolkit, or the wheels that torch brings."""
    homes = [os.environ.get("CUDA_HOME", "/usr/local/cuda"), *(f"{path}/nvidia/cu13" for path in sys.path)]
    folders = [Path(home) / "include" for home in homes if (Path(home) / "include" / "cuda_bf16.h").is_file()]
    return [f"--include-path={folder}{below}" for folder in folders[:1] for below in ("", "/cccl")]


if __name__ == "__main__":
    main()
