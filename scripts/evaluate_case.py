#!/usr/bin/env python3
"""Judges a case's workspace: `evaluate_case.py --case CASE`, other options as `hillclimb evaluate` takes them."""

import argparse
import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--case", required=True, help="a case folder, or <family>/<case> below cases/")
    given, rest = parser.parse_known_args()
    hillclimb = ROOT / ".venv" / "bin" / "hillclimb"
    if not hillclimb.exists():
        print("evaluate_case.py: there is no environment yet; run scripts/setup", file=sys.stderr)
        raise SystemExit(3)
    os.execv(hillclimb, [str(hillclimb), "evaluate", given.case, *rest])


if __name__ == "__main__":
    main()
