"""CUDA C++ by NVRTC, and launches of it in clusters of thread blocks, through the driver."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import torch

try:
    from cuda.bindings import driver, nvrtc
except ImportError as error:
    raise ImportError(
        f"CUDA C++ needs cuda.bindings with nvrtc ({error}): pip install 'cuda-bindings>=13' nvidia-cuda-nvrtc"
    ) from error

ARCHITECTURE = "sm_90a"
HEADERS = [
    folder
    for folder in (
        Path(nvrtc.__file__).parents[2] / "nvidia" / "cu13" / "include",
        Path("/usr/local/cuda/include"),
    )
    if folder.is_dir()
]
"""Where cuda_bf16.h and its kin are."""

OUTSIDE = driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE
PLAIN = driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE
SWIZZLE = driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B
PROMOTIONS = (
    driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
    driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
)
MAP_TYPES = {
    "bf16": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
    "f16": driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
}


def compile_cuda(source: str, function: str) -> tuple[bytes, bytes]:
    """The cubin, and the name that this C++ function has in it. Raises RuntimeError with the compiler's log."""
    program = _check(nvrtc.nvrtcCreateProgram(source.encode(), b"gemm.cu", 0, [], []))
    _check(nvrtc.nvrtcAddNameExpression(program, function.encode()))
    arguments = [f"--gpu-architecture={ARCHITECTURE}", "--std=c++17"]
    arguments += [f"--include-path={folder}" for folder in HEADERS]
    arguments += [f"--include-path={folder / 'cccl'}" for folder in HEADERS]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(arguments), [text.encode() for text in arguments])
    if result != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        log = b" " * _check(nvrtc.nvrtcGetProgramLogSize(program))
        _check(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(f"gemm.cu does not compile: {log.decode(errors='replace')}")
    cubin = b" " * _check(nvrtc.nvrtcGetCUBINSize(program))
    _check(nvrtc.nvrtcGetCUBIN(program, cubin))
    name = bytes(_check(nvrtc.nvrtcGetLoweredName(program, function.encode())))
    _check(nvrtc.nvrtcDestroyProgram(program))
    return cubin, name


def tensor_map(dtype: str, matrix: torch.Tensor, box: tuple[int, int], promotion: int) -> Any:
    """How TMA brings boxes of a row-major matrix: so many rows, so many elements along them.

    `promotion` 1: the L2 cache takes 128 bytes from memory at once, instead of 256.
    """
    rows, inner = matrix.shape
    size, (box_rows, box_inner) = matrix.element_size(), box
    sizes = [driver.cuuint64_t(inner), driver.cuuint64_t(rows)]
    pitches = [driver.cuuint64_t(inner * size)]
    boxes = [driver.cuuint32_t(box_inner), driver.cuuint32_t(box_rows)]
    strides = [driver.cuuint32_t(1), driver.cuuint32_t(1)]
    where = matrix.data_ptr()
    return _check(
        driver.cuTensorMapEncodeTiled(
            MAP_TYPES[dtype],
            2,
            where,
            sizes,
            pitches,
            boxes,
            strides,
            PLAIN,
            SWIZZLE,
            PROMOTIONS[promotion],
            OUTSIDE,
        )
    )


class ClusterKernel:
    """One function of a cubin, loaded when it is first called: by then torch has a context on the GPU."""

    def __init__(self, cubin: bytes, name: bytes, threads: int, shared: int, *, is_dependent: bool) -> None:
        """`shared` is the most dynamic shared memory of a block, in bytes.

        With `is_dependent` it may begin while the kernel before it ends: programmatic dependent launch.
        """
        self._cubin, self._name, self._threads, self._shared = cubin, name, threads, shared
        self._is_dependent = is_dependent
        self._module: Any = None
        self._function: Any = None

    def clusters_at_once(self, blocks: int) -> int:
        """Clusters of so many blocks that the GPU runs at the same time."""
        config = self._config(blocks, blocks, self._shared)
        return int(_check(driver.cuOccupancyMaxActiveClusters(self._loaded(), config)))

    def __call__(
        self, clusters: int, blocks: int, shared: int, maps: tuple[Any, Any], work: array[int]
    ) -> None:
        """Launch clusters of so many blocks on torch's current stream. Raises RuntimeError with the driver's word."""
        function = self._loaded()
        config = self._config(clusters * blocks, blocks, shared)
        config.hStream = torch.cuda.current_stream().cuda_stream
        addresses = array("Q", [maps[0].getPtr(), maps[1].getPtr(), work.buffer_info()[0]])
        _check(driver.cuLaunchKernelEx(config, function, addresses.buffer_info()[0], 0))

    def _config(self, grid: int, cluster: int, shared: int) -> Any:
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = self._threads, 1, 1
        config.sharedMemBytes = shared
        size = driver.CUlaunchAttribute()
        size.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size.value.clusterDim.x, size.value.clusterDim.y, size.value.clusterDim.z = cluster, 1, 1
        attributes = [size]
        if self._is_dependent:
            early = driver.CUlaunchAttribute()
            early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            early.value.programmaticStreamSerializationAllowed = 1
            attributes.append(early)
        config.attrs, config.numAttrs = attributes, len(attributes)
        return config

    def _loaded(self) -> Any:
        if self._function is None:
            self._module = _check(driver.cuModuleLoadData(self._cubin))
            function = _check(driver.cuModuleGetFunction(self._module, self._name))
            attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            _check(driver.cuFuncSetAttribute(function, attribute, self._shared))
            self._function = function
        return self._function


def _check(answer: tuple[Any, ...]) -> Any:
    """What follows the status, where that says success."""
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(f"CUDA says {status.name}")
    return values[0] if values else None
