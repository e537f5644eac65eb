"""CUDA C++ and PTX without a compiler process: NVRTC and nvJitLink make the code, the driver loads it.

    ADD = Kernel(partial(compile_cuda, Path(__file__).with_name("add.cu")), "add")
    ADD((blocks, 1, 1), (256, 1, 1), x, y, n)    # on torch's current stream; the first call compiles

For sm_90 and newer. Functions must be `extern "C"`. Tensors are handed over as addresses, int as a C int,
float as a C float.
"""

from __future__ import annotations

from array import array
from functools import partial
from pathlib import Path
from typing import Any

import torch

try:
    from cuda.bindings import driver, nvjitlink, nvrtc
except ImportError as error:
    raise ImportError(
        f"CUDA C++ and PTX need cuda.bindings with nvrtc and nvjitlink ({error}): "
        "pip install 'cuda-bindings>=13' nvidia-cuda-nvrtc nvidia-nvjitlink"
    ) from error

DEFAULT_ARCHITECTURE = "sm_90a"
"""Where there is no GPU to ask: that of the H100 and the H200."""

HEADERS = [
    folder
    for folder in (
        Path(nvrtc.__file__).parents[2] / "nvidia" / "cu13" / "include",
        Path("/usr/local/cuda/include"),
    )
    if folder.is_dir()
]
"""Where cuda_bf16.h and its kin are; a kernel that includes none of them needs no folder."""

MAX_STATIC_SHARED = 48 * 1024


def gpu_architecture() -> str:
    """Of the GPU that is there, such as "sm_90a", or DEFAULT_ARCHITECTURE.

    Raises RuntimeError for one below sm_90.
    """
    if not torch.cuda.is_available():
        return DEFAULT_ARCHITECTURE
    major, minor = torch.cuda.get_device_capability()
    if major < 9:
        raise RuntimeError(
            f"the GPU is sm_{major}{minor}; these kernels need sm_90 or newer, such as an H100"
        )
    return f"sm_{major}{minor}a"


def compile_cuda(source: Path, *options: str, architecture: str | None = None) -> bytes:
    """The cubin of a CUDA C++ file, by default for the GPU that is there.

    Raises RuntimeError with the compiler's log.
    """
    program = _compiled(source, architecture or gpu_architecture(), options)
    cubin = b" " * _check(nvrtc.nvrtcGetCUBINSize(program))
    _check(nvrtc.nvrtcGetCUBIN(program, cubin))
    _check(nvrtc.nvrtcDestroyProgram(program))
    return cubin


def generate_ptx(source: Path, *options: str, architecture: str | None = None) -> str:
    """The PTX that the compiler makes of a CUDA C++ file. Raises RuntimeError with the compiler's log."""
    program = _compiled(source, architecture or gpu_architecture(), options)
    text = b" " * _check(nvrtc.nvrtcGetPTXSize(program))
    _check(nvrtc.nvrtcGetPTX(program, text))
    _check(nvrtc.nvrtcDestroyProgram(program))
    return text.rstrip(b"\0").decode()


def assemble_ptx(source: Path, *, architecture: str | None = None) -> bytes:
    """The cubin of a PTX file, by default for the GPU that is there.

    Raises RuntimeError with the assembler's log.
    """
    text = source.read_bytes() + b"\0"
    linker = nvjitlink.create(1, [f"-arch={architecture or gpu_architecture()}"])
    try:
        nvjitlink.add_data(linker, nvjitlink.InputType.PTX, text, len(text), source.name)
        nvjitlink.complete(linker)
    except nvjitlink.nvJitLinkError as error:
        log = bytearray(nvjitlink.get_error_log_size(linker))
        nvjitlink.get_error_log(linker, log)
        raise RuntimeError(
            f"{source.name} does not assemble: {log.decode(errors='replace')} ({error})"
        ) from error
    cubin = bytearray(nvjitlink.get_linked_cubin_size(linker))
    nvjitlink.get_linked_cubin(linker, cubin)
    nvjitlink.destroy(linker)
    return bytes(cubin)


class Kernel:
    """One function, compiled and loaded when it is first called: by then torch has a context on the GPU."""

    def __init__(self, make_cubin: partial[bytes], name: str, shared: int = 0) -> None:
        """`shared` is the dynamic shared memory of a block, in bytes."""
        self._make_cubin, self._name, self._shared = make_cubin, name, shared
        self._module: Any = None
        self._function: Any = None

    def __call__(
        self, grid: tuple[int, int, int], block: tuple[int, int, int], *arguments: torch.Tensor | int | float
    ) -> None:
        """Launch it on torch's current stream.

        Raises RuntimeError with the compiler's log, or the driver's word for what went wrong.
        """
        stream = torch.cuda.current_stream().cuda_stream
        if self._function is None:
            self._load()
        values = [_packed(argument) for argument in arguments]
        addresses = array("Q", [value.buffer_info()[0] for value in values])
        pointers = addresses.buffer_info()[0]
        _check(driver.cuLaunchKernel(self._function, *grid, *block, self._shared, stream, pointers, 0))

    def _load(self) -> None:
        self._module = _check(driver.cuModuleLoadData(self._make_cubin()))
        function = _check(driver.cuModuleGetFunction(self._module, self._name.encode()))
        if self._shared > MAX_STATIC_SHARED:
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _check(driver.cuFuncSetAttribute(function, attribute, self._shared))
        self._function = function


def _compiled(source: Path, architecture: str, options: tuple[str, ...]) -> Any:
    """NVRTC's program, compiled."""
    program = _check(nvrtc.nvrtcCreateProgram(source.read_bytes(), source.name.encode(), 0, [], []))
    arguments = [f"--gpu-architecture={architecture}", "--std=c++17", *options]
    arguments += [f"--include-path={place}" for folder in HEADERS for place in (folder, folder / "cccl")]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(arguments), [text.encode() for text in arguments])
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * _check(nvrtc.nvrtcGetProgramLogSize(program))
        _check(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(f"{source.name} does not compile: {log.decode(errors='replace')}")
    return program


def _packed(argument: torch.Tensor | int | float) -> array[Any]:
    """One argument where the driver can read it."""
    if isinstance(argument, int):
        return array("i", [argument])
    if isinstance(argument, float):
        return array("f", [argument])
    return array("Q", [argument.data_ptr()])


def _check(answer: tuple[Any, ...]) -> Any:
    """What follows the status, where that says success."""
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(f"CUDA says {status.name}")
    return values[0] if values else None
