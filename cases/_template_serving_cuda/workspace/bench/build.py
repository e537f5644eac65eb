"""Compiles each implementation for sm_90, on a machine that needs no GPU: python -m bench.build

Prints a line for each: family, language, and what came out of it, or why it was left out. A language is
left out where its package is missing. Where a compiler refuses the code, its message is printed, and the exit
status is 1.

With EMIT_PTX=FOLDER in the environment, what compilers make of Triton and CUDA C++ is written there as PTX.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from knobs import knob

ARCHITECTURE, CAPABILITY = "sm_90a", 90


class Built(NamedTuple):
    """What a compiler made."""

    told: str
    """What is known of it, for people."""
    ptx: str | None = None
    """Where a compiler made some."""


def build_norm_gemv_triton() -> Built:
    """For addresses, n and k that are multiples of 16. Raises what Triton raises."""
    import triton
    from ops.triton.norm_gemv import ROWS, STEP, WARPS, norm_gemv_triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    signature = dict.fromkeys(("x", "norm", "weight", "y"), "*bf16") | {"eps": "fp32", "n": "i32", "k": "i32"}
    signature |= {"ROWS": "constexpr", "STEP": "constexpr"}
    divisible = {(place,): [["tt.divisibility", 16]] for place in (0, 1, 2, 3, 5, 6)}
    source = ASTSource(norm_gemv_triton, signature, {"ROWS": ROWS, "STEP": STEP}, divisible)
    made = triton.compile(source, target=GPUTarget("cuda", CAPABILITY, 32), options={"num_warps": WARPS})
    told = f"cubin of {len(made.asm['cubin'])} bytes, {made.metadata.shared} bytes of shared memory"
    return Built(told, made.asm["ptx"])


def build_norm_gemv_cuda() -> Built:
    """Raises ImportError without NVRTC, and RuntimeError with its log."""
    from ops.cuda.norm_gemv import MACROS, SOURCE
    from ops.cuda_code import compile_cuda, generate_ptx

    cubin = compile_cuda(SOURCE, *MACROS, architecture=ARCHITECTURE)
    return Built(f"cubin of {len(cubin)} bytes", generate_ptx(SOURCE, *MACROS, architecture=ARCHITECTURE))


def build_norm_gemv_ptx() -> Built:
    """Raises ImportError without nvJitLink, and RuntimeError with its log."""
    from ops.cuda_code import assemble_ptx
    from ops.ptx.norm_gemv import SOURCE

    return Built(f"cubin of {len(assemble_ptx(SOURCE, architecture=ARCHITECTURE))} bytes")


def build_norm_gemv_cute() -> Built:
    """Loads of eight columns, and of one. Raises ImportError without CuTe DSL, and else what that raises."""
    from cutlass.cute import GPUArch
    from ops.cute.norm_gemv import ALIGNED, compiled

    for columns in (ALIGNED, 1):
        compiled(columns, GPUArch(ARCHITECTURE))
    return Built(f"for loads of {ALIGNED} columns and of one")


BUILDS = {
    ("norm_gemv", "triton"): build_norm_gemv_triton,
    ("norm_gemv", "cuda"): build_norm_gemv_cuda,
    ("norm_gemv", "ptx"): build_norm_gemv_ptx,
    ("norm_gemv", "cute"): build_norm_gemv_cute,
}


def build_all(folder: Path | None) -> int:
    """Compile all of them, print a line for each, and count those that failed. PTX goes to the folder."""
    failed = 0
    for (family, language), build in BUILDS.items():
        label = f"{family:12} {language:8}"
        try:
            built = build()
        except ImportError as error:
            print(f"{label} left out: {error}")
        except Exception as error:  # noqa: BLE001 - a compiler may raise anything; it is shown and counted
            failed += 1
            print(f"{label} FAILED: {type(error).__name__}: {error}")
        else:
            print(f"{label} ok: {ARCHITECTURE}, {built.told}")
            if folder is not None and built.ptx is not None:
                folder.mkdir(parents=True, exist_ok=True)
                (folder / f"{family}_{language}.ptx").write_text(built.ptx, encoding="utf-8")
    return failed


if __name__ == "__main__":
    place = os.environ.get("EMIT_PTX")
    print(f"knobs: {knob('NORM_GEMV_ROWS')} rows and {knob('NORM_GEMV_WARPS')} warps of a block")
    raise SystemExit(1 if build_all(Path(place) if place else None) else 0)
