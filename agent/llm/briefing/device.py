"""What a model is told about the device that a case is for: what `run` is handed, and how its calls are launched."""

from __future__ import annotations

from collections.abc import Iterator

from hillclimb.harness.case.settings import Settings
from hillclimb.harness.policy.library_calls import ALLOWED_TORCH, FILLS

ARRAYS = {
    "cpu": "C-contiguous NumPy arrays",
    "cuda": "contiguous, 256-byte aligned torch tensors on the one CUDA GPU, which is torch's current device,",
}
"""By a case's `device`."""

LAUNCH = {
    "graph": "The calls of a segment are captured once as a CUDA graph and replayed: what Python does in a call "
    "costs no time, but everything must be launched on torch's current stream, and nothing may synchronise, copy to "
    "the host or depend on the values of tensors.",
    "eager": "The calls are launched one by one from Python: for a short kernel, the time of a call is that of its "
    "launch. Launch on torch's current stream, and do not synchronise.",
}

CACHE = {
    "cold": "Nothing of a call's inputs is in the L2 cache when it starts.",
    "hot": "A call's inputs are in the L2 cache when it starts, where they fit into it.",
}


def rules(settings: Settings) -> Iterator[str]:
    """A sentence or two each; none on a CPU."""
    if settings.device == "cpu":
        return
    cuda = settings.cuda
    yield (
        f"Every timed call has a slot of its own: fresh inputs, poisoned outputs. {CACHE[cuda.cache]} "
        f"{LAUNCH[cuda.launch]}"
    )
    yield f"Dtypes are torch's, by the contract's names, bfloat16 and float8 too. The target is sm_{cuda.architecture}."
    yield (
        "Kernels are compiled ahead on tensors without contents, in a process without the GPU, so leave the GPU alone "
        "at import. Compilers may run during import and the first call on each problem; afterwards no process starts."
    )
    if cuda.sanitizers:
        yield f"A would-be win is looked at by compute-sanitizer ({', '.join(cuda.sanitizers)}) before it is kept."
    if "torch" in settings.policy.modules and not settings.policy.library_calls:
        yield _torch()


def _torch() -> str:
    """What the reading of the source lets pass; see hillclimb.harness.policy.library_calls."""
    allowed, fills = (", ".join(f"`{name}`" for name in sorted(names)) for names in (ALLOWED_TORCH, FILLS))
    return (
        f"Of `torch`, only its dtypes and {allowed} may be used; of tensors, only views, questions (`shape`, `stride`, "
        f"`data_ptr`, ...) and {fills}. Everything else in torch counts as a finished operator, arithmetic between "
        "tensors and assignment to slices included; what a kernel language compiles is not held to this."
    )
