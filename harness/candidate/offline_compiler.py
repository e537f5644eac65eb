"""Compiles what a kernel would launch, for a GPU that need not be there: Triton's own path and a driver that notes.

Runs inside the sandbox. `run` is called with tensors on torch's meta device: they have shapes, strides and the address
0, which is divisible by 16 as every address in the judge's arenas is. Triton therefore asks for the same
specialisations, and writes to TRITON_CACHE_DIR what a process with the GPU then finds there: its key is made of source,
signature, constants, options, target and a few environment variables, none of which comes from a device but the target.

Not covered: kernels that are not Triton's, launches that depend on the values of tensors, and whatever asks torch.cuda
about a device where there is none. Such a problem is answered with the reason it was not compiled, and is no fault.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import torch

from hillclimb.harness.channel.layout import CallSignature, Shapes
from hillclimb.harness.channel.strides import Shape

SHARED = {80: 166912, 86: 101376, 89: 101376, 90: 232448, 100: 232448, 103: 232448, 120: 101376}
"""Bytes of shared memory one program may use, by architecture (CUDA C++ programming guide, compute capabilities)."""

PROCESSORS = {80: 108, 86: 84, 89: 142, 90: 132, 100: 148, 103: 148, 120: 188}
"""Streaming multiprocessors of the largest board of each architecture that is sold."""

THREADS, REGISTERS, WARP = 1024, 65536, 32
MAX_TOLD = 100
"""Kernels of an answer, for people: one that tunes itself may have thousands."""

MAX_TEXT_CHARS = 4000
USAGE = re.compile(r"REG:(\d+) STACK:(\d+)(?:.*?LOCAL:(\d+))?")


class NeedsDevice(Exception):
    """Something only a real device can answer."""


@dataclass(frozen=True)
class CompiledKernel:
    """One kernel as the compiler left it."""

    name: str
    hash: str
    """Triton's key of the cache entry."""
    warps: int
    shared: int
    """Bytes a program uses."""
    registers: int | None
    """Of one thread; None where cuobjdump is not there."""
    stack: int | None
    """Bytes of one thread that spilled to memory."""


class CompileOnlyDriver:
    """A driver for Triton that compiles and loads nothing: launches are noted, in the order they came.

    It has what Triton 3.4 to 3.9 ask of `triton.runtime.driver.driver.active`; anything else raises NeedsDevice.
    """

    def __init__(self, architecture: int) -> None:
        if architecture not in SHARED:
            raise ValueError(f"architecture is {architecture}; known are {', '.join(map(str, SHARED))}")
        self.architecture = architecture
        self.kernels: dict[str, CompiledKernel] = {}
        self.launches = 0
        self.utils = self
        self.launcher_cls = self._launcher

    def __getattr__(self, name: str) -> NoReturn:
        raise NeedsDevice(f"asks Triton's driver for {name!r}, which needs a GPU")

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self.architecture, WARP)

    def get_current_device(self) -> int:
        return 0

    def set_current_device(self, device: int) -> None:
        pass

    def get_current_stream(self, device: int | None = None) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return torch.device("meta")

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return divmod(self.architecture, 10)

    def map_python_to_cpp_type(self, kind: str) -> str:
        from triton.backends.nvidia.driver import ty_to_cpp

        return str(ty_to_cpp(kind))

    def get_device_properties(self, device: int) -> dict[str, int]:
        return {
            "max_shared_mem": SHARED[self.architecture],
            "max_num_regs": REGISTERS,
            "multiprocessor_count": PROCESSORS[self.architecture],
            "warpSize": WARP,
        }

    def load_binary(
        self, name: str, binary: bytes, shared: int, device: int
    ) -> tuple[int, int, int, int, int]:
        """(module, function, registers, spilled words, most threads), the last three as the real driver gives them."""
        registers, stack = usage(binary)
        return 1, 1, registers or 0, (stack or 0) // 4, THREADS

    def unload_module(self, module: int) -> None:
        pass

    def _launcher(self, source: Any, metadata: Any) -> Callable[..., None]:
        build_launcher(source, metadata)

        def launch(*arguments: Any) -> None:
            self.launches += 1

        return launch

    def record(self, metadata: Mapping[str, Any], binary: bytes) -> None:
        """Remember a kernel that was compiled, or found in the cache."""
        registers, stack = usage(binary)
        self.kernels[metadata["hash"]] = CompiledKernel(
            metadata["name"], metadata["hash"], metadata["num_warps"], metadata["shared"], registers, stack
        )


def use_compile_only_driver(architecture: int) -> CompileOnlyDriver:
    """Make Triton compile for this architecture and launch nothing, from here on and in this whole process.

    Call it before the workspace is imported, which may ask Triton's driver something already. Raises ValueError for
    an architecture that is not known and where TRITON_INTERPRET is set: what is interpreted is never compiled.
    """
    import triton
    from triton.runtime.autotuner import Autotuner
    from triton.runtime.driver import driver

    if triton.knobs.runtime.interpret:
        raise ValueError("TRITON_INTERPRET is set; unset it where kernels are to be compiled")
    active = getattr(driver, "_active", None)
    if isinstance(active, CompileOnlyDriver) and active.architecture == architecture:
        return active
    noting = CompileOnlyDriver(architecture)
    driver.set_active(noting)
    Autotuner.do_bench = _launch_once
    triton.knobs.compilation.listener = _listener(noting)
    return noting


def compile_only(
    kernel: Callable[..., object], problems: Mapping[str, CallSignature], architecture: int
) -> dict[str, Any]:
    """Call `kernel` once for each problem, on arrays of these shapes, dtypes and strides, without contents.

    The answer, as JSON: {"ok": true, "kernels": [Compiled, ...], "launches": n, "skipped": {problem: why it was not
    compiled to its end}}, or {"fault": "does_not_compile", "problem", "text"} with the compiler's message where Triton
    refuses the code, or where a kernel needs more than the architecture has.
    """
    noting = use_compile_only_driver(architecture)
    skipped: dict[str, str] = {}
    for name, signature in problems.items():
        tensors = without_contents(signature.arrays).values()
        before = noting.launches
        try:
            kernel(*tensors, **signature.attributes)
        except MemoryError:
            raise  # whoever asked tells it from what the compiler refuses
        except Exception as error:  # noqa: BLE001 - workspace code may raise anything; it is sorted and reported
            text = _tell(error)
            if is_compilers(error):
                return {
                    "fault": "does_not_compile",
                    "problem": name,
                    "text": f"problem {name}: {text[-MAX_TEXT_CHARS:]}",
                }
            skipped[name] = f"not compiled ahead: {text}"[:500]
        else:
            if noting.launches == before:
                skipped[name] = "not compiled ahead: no Triton kernel was launched"
    kernels = [asdict(compiled) for compiled in noting.kernels.values()][:MAX_TOLD]
    return {"ok": True, "kernels": kernels, "launches": noting.launches, "skipped": skipped}


def without_contents(arrays: Shapes) -> dict[str, torch.Tensor]:
    """Tensors of these names that have shapes, dtypes and strides alone."""
    return {name: _empty(shape, dtype, *strides) for name, shape, dtype, *strides in arrays}


def is_compilers(error: BaseException) -> bool:
    """Whether Triton itself refused: the innermost Python code under the exception is Triton's.

    An exception out of torch or the workspace says only that values, or a device, were not there.
    """
    frames = _frames(error)
    return not isinstance(error, NeedsDevice) and bool(frames) and _package_of(frames[-1]) == "triton"


@cache
def usage(binary: bytes) -> tuple[int | None, int | None]:
    """(registers, bytes of stack and spills) of one thread, read off a cubin by the cuobjdump that Triton brings."""
    import triton

    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    if not tool.exists():
        return None, None
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        done = subprocess.run([tool, "--dump-resource-usage", file.name], capture_output=True, text=True)
    found = USAGE.search(done.stdout)
    return (int(found[1]), int(found[2]) + int(found[3] or 0)) if found else (None, None)


def build_launcher(source: Any, metadata: Any) -> None:
    """Build the C code that launches a kernel of this signature, where Triton needs one and libcuda is there.

    Up to 3.6 a C compiler is run for each signature; its result is in the cache as well.
    """
    from triton.backends.nvidia import driver as nvidia

    try:
        nvidia.library_dirs()
    except (AssertionError, OSError, subprocess.SubprocessError):
        return  # no libcuda, so the launcher is built where the kernel runs
    nvidia.CudaUtils()
    nvidia.CudaLauncher(source, metadata)


def _listener(noting: CompileOnlyDriver) -> Callable[..., None]:
    """Triton calls it after each compilation and each find in its cache."""

    def listen(*, metadata: Mapping[str, Any], metadata_group: Mapping[str, str], **_: Any) -> None:
        binary = next((path for name, path in metadata_group.items() if name.endswith(".cubin")), None)
        noting.record(metadata, Path(binary).read_bytes() if binary else b"")

    return listen


def _launch_once(self: Any, kernel_call: Callable[[], None], quantiles: Any = None, **_: Any) -> list[float]:
    """Instead of timing a configuration, launch it once, so that every one is compiled; all count as equal."""
    kernel_call()
    return [1.0, 1.0, 1.0]


def _empty(shape: Shape, dtype: str, strides: Shape | None = None) -> torch.Tensor:
    kind: dict[str, Any] = {"dtype": getattr(torch, dtype), "device": "meta"}
    return torch.empty(shape, **kind) if strides is None else torch.empty_strided(shape, strides, **kind)


def _tell(error: BaseException) -> str:
    """The exception's own message, and where the workspace stood when it came."""
    message = "".join(traceback.format_exception_only(error)).strip()
    inside = [frame for frame in _frames(error) if _package_of(frame) is None and frame.filename != __file__]
    where = f"{Path(inside[-1].filename).name}:{inside[-1].lineno}: " if inside else ""
    return f"{where}{message}"


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    """Python frames from outside in, without code that has no file: Triton makes some of that."""
    return [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith("<")]


def _package_of(frame: traceback.FrameSummary) -> str | None:
    for name in ("triton", "torch"):
        if Path(frame.filename).is_relative_to(Path(sys.modules[name].__file__ or "").parent):
            return name
    return None
