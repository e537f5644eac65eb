"""Calls a workspace's kernel on tensors of its own, without a judge: what sanitizers and counter readers run inside.

`python -m hillclimb.harness.candidate.tool_run WORKSPACE ENTRY PACK`; PACK is the number of a descriptor
(hillclimb.harness.channel.problem_pack). Every problem is called twice, for the first call may compile; only the
second is seen by a tool that waits for the CUDA profiler's range. A line of JSON is printed for every problem done.
The run ends early where the next problem, by the time of the one before it and their weights, would take longer than
what is left.

Nothing here is sealed: compilers may be started at any time. Nothing said from here decides anything.
"""

from __future__ import annotations

import json
import os
import sys
import time
from functools import partial

import torch

from hillclimb.harness.candidate.runner import import_kernel, made_of
from hillclimb.harness.candidate.slots import Kernel
from hillclimb.harness.channel.problem_pack import ProblemPackReader

UNCACHED = "PYTORCH_NO_CUDA_MEMORY_CACHING"
"""Every tensor in a CUDA allocation of its own, so that an access beside it is one outside all memory."""

CALLS = 2


def run_problems(kernel: Kernel, reader: ProblemPackReader) -> None:
    """Call the kernel on every problem that there is time for; a line is printed for each. Raises what it raises."""
    pack, deadline = reader.pack, time.monotonic() + reader.pack.seconds
    on_gpu, per_weight = pack.device.startswith("cuda"), 0.0
    for packed in pack.problems:
        if CALLS * per_weight * packed.weight > deadline - time.monotonic():
            return
        tensors, call = reader.tensors(packed), partial(kernel, **packed.attributes)
        _call(call, tensors, on_gpu=on_gpu)
        reader.restore_changed(packed, tensors)
        if on_gpu:
            torch.cuda.synchronize()
            torch.cuda.profiler.start()  # type: ignore[no-untyped-call]
        seconds = _call(call, tensors, on_gpu=on_gpu)
        if on_gpu:
            torch.cuda.profiler.stop()  # type: ignore[no-untyped-call]
        per_weight = seconds / max(packed.weight, 1.0)
        print(json.dumps({"called": packed.problem}), flush=True)


def _call(kernel: Kernel, tensors: tuple[torch.Tensor, ...], *, on_gpu: bool) -> float:
    """Seconds from the call until the device is done."""
    start = time.monotonic()
    kernel(*tensors)
    if on_gpu:
        torch.cuda.synchronize()
    return time.monotonic() - start


def main() -> None:
    os.environ[UNCACHED] = "1"
    workspace, entry, descriptor = sys.argv[1:]
    reader = ProblemPackReader(int(descriptor))
    kernel, parameters = import_kernel(workspace, entry), reader.parameters()
    run_problems(made_of(kernel, parameters) if parameters else kernel, reader)


if __name__ == "__main__":
    main()
