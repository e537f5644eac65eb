#!/usr/bin/env python3
"""Serves a case's model: `serve_case.py --case CASE`, other options as `hillclimb serve` takes them."""

import argparse

from checkout_command import become_hillclimb, locate


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="The others: .venv/bin/hillclimb serve --help", allow_abbrev=False
    )
    parser.add_argument("--case", required=True, help="a case folder, or <family>/<case> below cases/")
    parser.add_argument(
        "--backend", choices=["mock", "transformers", "custom"], default="custom", help="default: custom"
    )
    given, rest = parser.parse_known_args()
    become_hillclimb("serve", "--case", locate(given.case), "--backend", given.backend, *rest)


if __name__ == "__main__":
    main()
