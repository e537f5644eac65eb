#!/usr/bin/env python3
"""Stamps a new case: --family F --case C [--device cuda] [--model-name NAME] [--model-path PATH] [--hardware TEXT]."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    hillclimb = ROOT / ".venv" / "bin" / "hillclimb"
    if not hillclimb.exists():
        print("new_kernel_case.py: there is no environment yet; run scripts/setup", file=sys.stderr)
        raise SystemExit(3)
    os.chdir(ROOT)
    os.execv(hillclimb, [str(hillclimb), "new-case", *sys.argv[1:]])


if __name__ == "__main__":
    main()
