"""One token of one sequence by one launch of persistent.cu, a block on every multiprocessor to the end."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver, nvrtc
from knobs import knob

SEGMENTS, SPLITS = knob("LLAMA_SEGMENTS"), knob("LLAMA_PERSISTENT_SPLITS")
RING_BYTES, FLIGHT_BYTES = knob("LLAMA_RING_KIB") << 10, knob("LLAMA_FLIGHT_KIB") << 10
FIXED_PERCENT, HEAD_FIXED_PERCENT = knob("LLAMA_FIXED_PERCENT"), knob("LLAMA_HEAD_FIXED_PERCENT")
IS_STREAMED = knob("LLAMA_STREAM") == "evict_first"
CLAIMS, ASKS_ONE, ONE_WAITS = knob("LLAMA_CLAIMS"), knob("LLAMA_ASK_ONE"), knob("LLAMA_ONE_WAITS")
MEMBERS, SUSPENDS, IS_CACHE_EARLY, OVERLAPS = (
    knob(f"LLAMA_{name}") for name in ("MEMBERS", "SUSPENDS", "EARLY_CACHE", "OVERLAPS")
)

SOURCE = Path(__file__).with_name("persistent.cu")
HEAD, COLUMNS, LANES = 64, 8, 32
SCRATCH = 14 << 10
"""Bytes of shared memory beside the ring."""

MATRICES = ("q", "k", "v", "o", "gate", "up", "down")
WEIGHTS = (*MATRICES, "embedding", "head", "attention_norm", "mlp_norm", "norm", "frequencies")
"""In the order of the kernel's `Call`."""


class Sizes:
    """Of a model and of the GPU, as macros of persistent.cu."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        """Raises ValueError for what the kernel cannot do, and says what does not fit."""
        self.vocab, self.hidden = weights["embedding"].shape
        self.layers, queries, _ = weights["q"].shape
        self.heads, self.kv_heads = queries // HEAD, weights["k"].shape[1] // HEAD
        self.ffn = weights["gate"].shape[1]
        if not weights["q"].is_cuda:
            raise ValueError("persistent.cu cannot decode this model: its weights are on no GPU")
        gpu = torch.cuda.get_device_properties(weights["q"].device)
        self.blocks, self.shared = gpu.multi_processor_count, gpu.shared_memory_per_block_optin
        self.slot = 2 * SEGMENTS * self.hidden
        self.ring = min(RING_BYTES, self.shared - SCRATCH) // self.slot
        self.members = math.gcd(MEMBERS, self.heads // max(1, self.kv_heads))
        self._check(weights, gpu.major)

    @property
    def threads(self) -> int:
        """The multiplying ones, and a warp that loads."""
        return self.hidden // COLUMNS + LANES

    def macros(self) -> dict[str, int]:
        gate, head = 2 * self.ffn // SEGMENTS, self.vocab // SEGMENTS
        return {
            "LAYERS": self.layers,
            "HIDDEN": self.hidden,
            "HEADS": self.heads,
            "KV_HEADS": self.kv_heads,
            "FFN": self.ffn,
            "VOCAB": self.vocab,
            "BLOCKS": self.blocks,
            "RING": self.ring,
            "SEGMENTS": SEGMENTS,
            "SPLITS": SPLITS,
            "FLIGHT": max(1, min(self.ring, FLIGHT_BYTES // self.slot)),
            "GATE_FIXED": max(1, gate // self.blocks * FIXED_PERCENT // 100),
            "HEAD_FIXED": max(1, head // self.blocks * HEAD_FIXED_PERCENT // 100),
            "EVICT_FIRST": int(IS_STREAMED),
            "CLAIMS": CLAIMS,
            "ASK_ONE": int(ASKS_ONE),
            "ONE_WAITS": int(ONE_WAITS),
            "SUSPENDS": int(SUSPENDS),
            "EARLY_CACHE": int(IS_CACHE_EARLY),
            "OVERLAPS": int(OVERLAPS),
            "MEMBERS": self.members,
            "SHARED_BYTES": self.shared,
        }

    def _check(self, weights: dict[str, torch.Tensor], major: int) -> None:
        parts, warps = self.ffn // self.hidden, self.hidden // (COLUMNS * LANES)
        head_dim = 2 * weights["frequencies"].numel()
        slots = {
            "q, k and v": (self.heads + 2 * self.kv_heads) * HEAD // SEGMENTS,
            "o": self.hidden // SEGMENTS,
            "gate and up": 2 * self.ffn // SEGMENTS,
            "down": self.hidden // max(1, SEGMENTS // max(1, parts)),
            "the head": self.vocab // SEGMENTS,
        }
        attentions = self.heads // self.members * SPLITS
        problems = {
            f"compute capability {major}.x is not 9.x": major != 9,
            f"head_dim is {head_dim}, not {HEAD}": head_dim != HEAD,
            f"hidden is {self.hidden}, no multiple of {2 * COLUMNS * LANES}": self.hidden
            % (2 * COLUMNS * LANES),
            f"hidden is {self.hidden}, above 4096": self.hidden > 4096,
            f"{self.heads} heads of {HEAD} are not the hidden width": self.heads * HEAD != self.hidden,
            f"ffn is {self.ffn}, not 1, 2, 4 or 8 times hidden": self.ffn % self.hidden
            or parts not in (1, 2, 4, 8),
            f"vocab is {self.vocab}, no multiple of {SEGMENTS}": self.vocab % SEGMENTS,
            f"{warps} warps are no multiple of {self.members} heads": warps % self.members,
            f"{attentions} parts of the attention are more than blocks": attentions > self.blocks,
            f"{self.ring} slots are a ring of fewer than 3": self.ring < 3,
        }
        problems |= {f"{name} has {n} slots, fewer than blocks": n < self.blocks for name, n in slots.items()}
        problems |= {
            f"{name} is not contiguous bfloat16": not weight.is_contiguous() or weight.dtype != torch.bfloat16
            for name, weight in weights.items()
            if name != "frequencies"
        }
        for problem, is_so in problems.items():
            if is_so:
                raise ValueError(f"persistent.cu cannot decode this model: {problem}")


def compiled(sizes: Sizes, *options: str) -> bytes:
    """The cubin. Raises RuntimeError with the compiler's log."""
    program = _checked(nvrtc.nvrtcCreateProgram(SOURCE.read_bytes(), SOURCE.name.encode(), 0, [], []))
    macros = [f"--define-macro={name}={value}" for name, value in sizes.macros().items()]
    arguments = ["--gpu-architecture=sm_90a", "--std=c++17", *macros, *options]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(arguments), [text.encode() for text in arguments])
    if int(result) != 0:
        log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))
        _checked(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(f"{SOURCE.name} does not compile: {log.decode(errors='replace')}")
    cubin = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))
    _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    _checked(nvrtc.nvrtcDestroyProgram(program))
    return cubin


class PersistentDecoder:
    """One model, and the vectors that go from block to block."""

    def __init__(self, weights: dict[str, torch.Tensor], *options: str) -> None:
        """Raises ValueError for a model that the kernel cannot decode. `options` are the compiler's."""
        self._sizes = sizes = Sizes(weights)
        self._weights = weights | {"head": weights.get("lm_head", weights["embedding"])}
        self._weight_pointers = [self._weights[name].data_ptr() for name in WEIGHTS]
        place = weights["q"].device
        counts = {
            "qkv": (sizes.heads + 2 * sizes.kv_heads) * HEAD,
            "seen": SPLITS * sizes.hidden,
            "weight": SPLITS * sizes.heads,
            "middle": sizes.hidden,
            "hidden": sizes.hidden,
            "gated": sizes.ffn,
        }
        self._vectors = [torch.zeros(count, dtype=torch.float32, device=place) for count in counts.values()]
        self._vector_pointers = [vector.data_ptr() for vector in self._vectors]
        self._state = torch.zeros(8 + sizes.layers + 1, dtype=torch.int64, device=place)
        self._marks = torch.zeros(0, dtype=torch.int64, device=place)
        self._given: torch.Tensor | None = None
        self._load(compiled(sizes, *options))

    def begin(self, token: torch.Tensor) -> None:
        """The token that is read next."""
        self._given = token

    def step(
        self,
        shifts: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        tokens: torch.Tensor,
        logits: torch.Tensor,
        position: int,
        step: int,
    ) -> None:
        """One token more. It is stored by the next step, or by a kernel of its own where it is the last one."""
        given = 0 if self._given is None else self._given.data_ptr()
        pointers = [keys.data_ptr(), values.data_ptr(), given, shifts.data_ptr(), tokens.data_ptr()]
        pointers += [logits[0, step].data_ptr(), *self._vector_pointers]
        numbers = [self._state.data_ptr(), keys.shape[3], position, step, self._marks.data_ptr()]
        call = torch.tensor([*self._weight_pointers, *pointers, *numbers], dtype=torch.int64)
        self._launch(self._decode, self._sizes.blocks, self._sizes.threads, self._sizes.shared, call)
        self._given = None
        if step + 1 == tokens.shape[1]:
            self._launch(self._store, 1, 1, 0, call)

    def _load(self, cubin: bytes) -> None:
        self._module = _checked(driver.cuModuleLoadData(cubin))
        self._decode, self._store = (
            _checked(driver.cuModuleGetFunction(self._module, name))
            for name in (b"decode_token", b"store_token")
        )
        attribute = driver.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        _checked(driver.cuFuncSetAttribute(self._decode, attribute, self._sizes.shared))

    def _launch(self, function: Any, blocks: int, threads: int, shared: int, call: torch.Tensor) -> None:
        """On torch's current stream. `call` has the fields of `Call`, of eight bytes each."""
        address = torch.tensor([call.data_ptr()], dtype=torch.int64)
        stream = torch.cuda.current_stream().cuda_stream
        if OVERLAPS and blocks > 1:
            config = overlapping(blocks, threads, shared, stream)
            _checked(driver.cuLaunchKernelEx(config, function, address.data_ptr(), 0))
            return
        _checked(
            driver.cuLaunchKernel(
                function, blocks, 1, 1, threads, 1, 1, shared, stream, address.data_ptr(), 0
            )
        )


def overlapping(blocks: int, threads: int, shared: int, stream: int) -> Any:
    """A launch that may begin before the last one in the stream is over; the kernel itself waits for that."""
    early = driver.CUlaunchAttribute()
    early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
    early.value.programmaticStreamSerializationAllowed = 1
    config = driver.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = blocks, 1, 1
    config.blockDimX, config.blockDimY, config.blockDimZ = threads, 1, 1
    config.sharedMemBytes, config.hStream = shared, stream
    config.attrs, config.numAttrs = [early], 1
    return config


def _checked(answer: tuple[Any, ...]) -> Any:
    """What follows the status, where that says success."""
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(f"CUDA says {status.name}")
    return values[0] if values else None
