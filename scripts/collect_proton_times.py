#!/usr/bin/env python3
"""Times every kernel of the studies into STUDY/proton_times.csv: options as `hillclimb study profile` takes them."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    hillclimb = ROOT / ".venv" / "bin" / "hillclimb"
    if not hillclimb.exists():
        print("collect_proton_times.py: there is no environment yet; run scripts/setup", file=sys.stderr)
        raise SystemExit(3)
    os.chdir(ROOT)  # the studies are this checkout's
    os.execv(hillclimb, [str(hillclimb), "study", "profile", *sys.argv[1:]])


if __name__ == "__main__":
    main()
