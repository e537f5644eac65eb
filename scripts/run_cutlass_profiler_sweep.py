#!/usr/bin/env python3
"""Times every kernel of a cutlass_profiler: `hillclimb gemm sweep`, with its options."""

import sys

from checkout_command import become_hillclimb

if __name__ == "__main__":
    become_hillclimb("gemm", "sweep", *sys.argv[1:])
