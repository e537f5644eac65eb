"""Where the time of a decoded token goes: `python -m bench.profile`, under the knobs of the environment.

`hillclimb profile` looks at the whole server in its sandbox.
"""

from __future__ import annotations

import torch
from backend.environment import DEVICE
from backend.parity import prompts
from backend.serving import create_backend
from bench.case_model import case_model
from torch.profiler import ProfilerActivity, profile

WARM_UP, TOKENS, ROWS = 8, 32, 25


def main() -> None:
    """A table of torch's operators by their own time; functions of C and numba are in it as their caller's."""
    backend = create_backend(case_model())
    token = int(backend.prefill(0, prompts(backend.vocabulary, 1)[0]).argmax())
    for _ in range(WARM_UP):
        token = int(backend.decode({0: token})[0].argmax())
    activities = [ProfilerActivity.CPU]
    if DEVICE == "cuda":
        activities.append(ProfilerActivity.CUDA)
        torch.cuda.synchronize()
    with profile(activities=activities) as seen:
        for _ in range(TOKENS):
            token = int(backend.decode({0: token})[0].argmax())
    print(seen.key_averages().table(sort_by=f"self_{DEVICE}_time_total", row_limit=ROWS))


if __name__ == "__main__":
    main()
