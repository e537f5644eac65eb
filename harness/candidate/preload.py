"""Imported once by the process that candidates for a GPU are forked from: everything slow that none of them owns.

CUDA stays untouched, for a context does not survive a fork.
"""

from __future__ import annotations

import triton
import triton.backends.nvidia.compiler
import triton.compiler.compiler
import triton.language
import triton.runtime.autotuner
import triton.runtime.cache

import hillclimb.harness.candidate.cuda_slots
import hillclimb.harness.candidate.offline_compiler
import hillclimb.harness.candidate.runner  # noqa: F401 - what is imported here is what a fork finds

triton.runtime.cache.triton_key()  # reads every file of Triton's, for its cache's keys; remembered in this process
