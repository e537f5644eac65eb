#!/usr/bin/env python3
"""Writes and compiles kernels of many parameters: `hillclimb gemm generate`, with its options."""

import sys

from checkout_command import become_hillclimb

if __name__ == "__main__":
    become_hillclimb("gemm", "generate", *sys.argv[1:])
