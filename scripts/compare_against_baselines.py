#!/usr/bin/env python3
"""Puts providers of matrix products beside a baseline; other options are those of `hillclimb gemm compare`."""

import argparse

from checkout_command import become_hillclimb

FOLDER = "artifacts/cutlass_profiler"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="The others: .venv/bin/hillclimb gemm compare --help", allow_abbrev=False
    )
    baseline = f"{FOLDER}/cutlass_profiler_results.json"
    parser.add_argument("--baseline", default=baseline, help="results that the others stand beside")
    parser.add_argument("--providers", nargs="+", default=[], help="results of other providers")
    parser.add_argument(
        "--include-default-triton", action="store_true", help=f"also {FOLDER}/triton_matmul_results.json"
    )
    given, rest = parser.parse_known_args()
    triton = [f"{FOLDER}/triton_matmul_results.json"] if given.include_default_triton else []
    become_hillclimb("gemm", "compare", "--baseline", given.baseline, *given.providers, *triton, *rest)


if __name__ == "__main__":
    main()
