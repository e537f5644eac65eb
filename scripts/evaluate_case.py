#!/usr/bin/env python3
"""Judges a case's workspace: `evaluate_case.py --case CASE`, other options as `hillclimb evaluate` takes them."""

import argparse
from pathlib import Path

from checkout_command import ROOT, become_hillclimb


def locate(given: str) -> str:
    """The case as named where this is called, else `<family>/<case>` of this checkout."""
    here = (Path(given), Path("cases") / given)
    ours = ROOT / "cases" / given
    known_here = any((folder / "case.yaml").is_file() for folder in here)
    return str(ours) if not known_here and (ours / "case.yaml").is_file() else given


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, epilog="The others: .venv/bin/hillclimb evaluate --help", allow_abbrev=False
    )
    parser.add_argument("--case", required=True, help="a case folder, or <family>/<case> below cases/")
    given, rest = parser.parse_known_args()
    become_hillclimb("evaluate", locate(given.case), *rest)


if __name__ == "__main__":
    main()
