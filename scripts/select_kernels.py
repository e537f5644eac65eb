#!/usr/bin/env python3
"""Chooses the few kernels that serve many shapes; other options are those of `hillclimb gemm select`."""

import argparse

from checkout_command import become_hillclimb


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="The others: .venv/bin/hillclimb gemm select --help", allow_abbrev=False
    )
    parser.add_argument("--input", nargs="+", required=True, help="results, with many kernels a shape")
    given, rest = parser.parse_known_args()
    become_hillclimb("gemm", "select", *given.input, *rest)


if __name__ == "__main__":
    main()
