#!/usr/bin/env python3
"""Draws how fast every kernel is for every shape; other options are those of `hillclimb gemm heatmap`."""

import argparse

from checkout_command import become_hillclimb


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="The others: .venv/bin/hillclimb gemm heatmap --help", allow_abbrev=False
    )
    parser.add_argument("--input", nargs="+", required=True, help="results, with many kernels a shape")
    parser.add_argument(
        "--select-kernels",
        nargs="*",
        default=[],
        metavar="KERNEL",
        help="these alone; the fewest at 0.98 of the best without names, as is the default",
    )
    given, rest = parser.parse_known_args()
    chosen = [word for kernel in given.select_kernels for word in ("--select-kernels", kernel)]
    become_hillclimb("gemm", "heatmap", *given.input, *chosen, *rest)


if __name__ == "__main__":
    main()
