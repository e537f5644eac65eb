#!/usr/bin/env python3
"""Judges a case's workspace: `evaluate_case.py --case CASE`, other options as `hillclimb evaluate` takes them."""

import argparse

from checkout_command import become_hillclimb, locate


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="The others: .venv/bin/hillclimb evaluate --help", allow_abbrev=False
    )
    parser.add_argument("--case", required=True, help="a case folder, or <family>/<case> below cases/")
    given, rest = parser.parse_known_args()
    become_hillclimb("evaluate", locate(given.case), *rest)


if __name__ == "__main__":
    main()
