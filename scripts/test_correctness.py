#!/usr/bin/env python3
"""Brings every kernel of the studies before its gate: options as `hillclimb study test` takes them."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    hillclimb = ROOT / ".venv" / "bin" / "hillclimb"
    if not hillclimb.exists():
        print("test_correctness.py: there is no environment yet; run scripts/setup", file=sys.stderr)
        raise SystemExit(3)
    os.chdir(ROOT)  # the studies are this checkout's
    os.execv(hillclimb, [str(hillclimb), "study", "test", *sys.argv[1:]])


if __name__ == "__main__":
    main()
