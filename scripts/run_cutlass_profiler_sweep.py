#!/usr/bin/env python3
"""Times every kernel of a cutlass_profiler: what `hillclimb gemm sweep` does, with its options."""

import os
import sys
from pathlib import Path

HILLCLIMB = Path(__file__).resolve().parents[1] / ".venv" / "bin" / "hillclimb"

if __name__ == "__main__":
    if not HILLCLIMB.exists():
        print(
            "run_cutlass_profiler_sweep.py: there is no environment yet; run scripts/setup", file=sys.stderr
        )
        raise SystemExit(3)
    os.execv(HILLCLIMB, [str(HILLCLIMB), "gemm", "sweep", *sys.argv[1:]])
