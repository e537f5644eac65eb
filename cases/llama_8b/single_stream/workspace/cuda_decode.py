"""One token of one sequence by the kernels of decode.cu, each launched before the one ahead of it is over."""

from __future__ import annotations

from array import array
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver, nvrtc
from knobs import knob

SOURCE = Path(__file__).with_name("decode.cu")
PRODUCTS = ("QKV", "O", "GATE", "DOWN", "LOGITS")
ROWS, WARPS, DEPTH = (
    {name: knob(f"LLAMA_{name}_{what}") for name in PRODUCTS} for what in ("ROWS", "WARPS", "DEPTH")
)
ATTEND_WARPS, BEGIN_WARPS = knob("LLAMA_ATTEND_WARPS"), 16
SPLIT_POSITIONS, MOST_SPLITS = knob("LLAMA_SPLIT_POSITIONS"), 16
OVERLAPS, IS_STREAMED = knob("LLAMA_OVERLAPS"), knob("LLAMA_STREAM") == "evict_first"

LAYERED = ("q", "k", "v", "o", "gate", "up", "down", "attention_norm", "mlp_norm")
"""Weights that each layer has."""


class Sizes:
    """Of a model, as macros of decode.cu."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        """Raises ValueError for what the kernels cannot do, and says what does not fit."""
        self.vocab, self.hidden = weights["embedding"].shape
        self.layers, queries, _ = weights["q"].shape
        self.head_dim = 2 * weights["frequencies"].numel()
        self.heads, self.kv_heads = queries // self.head_dim, weights["k"].shape[1] // self.head_dim
        self.ffn = weights["gate"].shape[1]
        for problem, is_so in self._problems(weights).items():
            if is_so:
                raise ValueError(f"decode.cu cannot decode this model: {problem}")

    def macros(self) -> dict[str, int]:
        sizes = {"HIDDEN": self.hidden, "HEADS": self.heads, "KV_HEADS": self.kv_heads, "HEAD": self.head_dim}
        sizes |= {"FFN": self.ffn, "VOCAB": self.vocab, "EVICT_FIRST": int(IS_STREAMED)}
        sizes |= {"ATTEND_WARPS": ATTEND_WARPS, "BEGIN_WARPS": BEGIN_WARPS}
        for what, values in (("ROWS", ROWS), ("WARPS", WARPS), ("DEPTH", DEPTH)):
            sizes |= {f"{name}_{what}": value for name, value in values.items()}
        return sizes

    def _problems(self, weights: dict[str, torch.Tensor]) -> dict[str, bool]:
        lanes = self.head_dim // 8
        found = {
            f"head_dim is {self.head_dim}, not 64, 128 or 256": lanes not in (8, 16, 32),
            f"hidden and ffn are {self.hidden} and {self.ffn}, no multiples of 8": self.hidden % 8
            or self.ffn % 8,
            f"ffn is {self.ffn}, no multiple of {ROWS['GATE'] // 2}": self.ffn % (ROWS["GATE"] // 2),
            f"hidden is {self.hidden}, no multiple of the rows of a block": self.hidden % ROWS["O"]
            or self.hidden % ROWS["DOWN"],
        }
        found |= {
            f"{name} is not contiguous bfloat16": not weight.is_contiguous() or weight.dtype != torch.bfloat16
            for name, weight in weights.items()
            if name != "frequencies"
        }
        return {problem: bool(is_so) for problem, is_so in found.items()}


def compiled(sizes: Sizes) -> bytes:
    """The cubin. Raises RuntimeError with the compiler's log."""
    program = _checked(nvrtc.nvrtcCreateProgram(SOURCE.read_bytes(), SOURCE.name.encode(), 0, [], []))
    macros = [f"--define-macro={name}={value}" for name, value in sizes.macros().items()]
    arguments = ["--gpu-architecture=sm_90a", "--std=c++17", f"--include-path={SOURCE.parent}", *macros]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(arguments), [text.encode() for text in arguments])
    if int(result) != 0:
        log = b" " * _checked(nvrtc.nvrtcGetProgramLogSize(program))
        _checked(nvrtc.nvrtcGetProgramLog(program, log))
        raise RuntimeError(f"{SOURCE.name} does not compile: {log.decode(errors='replace')}")
    cubin = b" " * _checked(nvrtc.nvrtcGetCUBINSize(program))
    _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    _checked(nvrtc.nvrtcDestroyProgram(program))
    return cubin


class Kernels:
    """Those of decode.cu for one model, by name."""

    def __init__(self, sizes: Sizes) -> None:
        self._module = _checked(driver.cuModuleLoadData(compiled(sizes)))
        self._functions: dict[str, Any] = {}

    def launch(self, name: str, grid: tuple[int, int], warps: int, arguments: list[int]) -> None:
        """On torch's current stream. All but the first of a sequence may begin before the last one is over."""
        if name not in self._functions:
            self._functions[name] = _checked(driver.cuModuleGetFunction(self._module, name.encode()))
        values = array("q", arguments)
        address = values.buffer_info()[0]
        pointers = array("Q", range(address, address + 8 * len(values), 8))
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = *grid, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = 32 * warps, 1, 1
        config.hStream = torch.cuda.current_stream().cuda_stream
        if OVERLAPS and name != "begin":
            early = driver.CUlaunchAttribute()
            early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            early.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [early], 1
        _checked(driver.cuLaunchKernelEx(config, self._functions[name], pointers.buffer_info()[0], 0))


class CudaDecoder:
    """One model, and what is between its kernels."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        """Raises ValueError for a model or a GPU that the kernels are not for."""
        self._sizes = sizes = Sizes(weights)
        self._kernels = self._loaded(weights["q"].device)
        self._weights = weights
        self._at = {name: weight.data_ptr() for name, weight in weights.items()}
        self._at.setdefault("lm_head", self._at["embedding"])
        self._layers = [{name: weights[name][i].data_ptr() for name in LAYERED} for i in range(sizes.layers)]
        queries = sizes.heads * sizes.head_dim
        counts = {"x": sizes.hidden, "query": queries, "seen": queries, "gated": sizes.ffn}
        counts["parts"] = MOST_SPLITS * sizes.heads * (sizes.head_dim + 2)
        self._state = {
            name: torch.zeros(count, dtype=torch.float32, device=weights["q"].device)
            for name, count in counts.items()
        }
        for name, count in (("tickets", sizes.heads), ("best", 1)):
            self._state[name] = torch.zeros(count, dtype=torch.int64, device=weights["q"].device)
        self._at |= {name: vector.data_ptr() for name, vector in self._state.items()}

    def _loaded(self, place: torch.device) -> Kernels:
        if place.type != "cuda" or torch.cuda.get_device_capability(place) != (9, 0):
            raise ValueError(
                "decode.cu cannot decode here: the weights are on no GPU of compute capability 9.0"
            )
        return Kernels(self._sizes)

    def begin(self, token: torch.Tensor) -> None:
        """The token that is read next."""
        self._launch("begin", 1, BEGIN_WARPS, token.data_ptr(), "embedding", "x", "best")

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
        """One token more, and the embedding of what is read after it."""
        for layer, weights in enumerate(self._layers):
            self._attention(weights, keys[layer], values[layer], position)
            self._mlp(weights)
        blocks = -(-self._sizes.vocab // ROWS["LOGITS"])
        self._launch(
            "score", blocks, WARPS["LOGITS"], "x", "norm", "lm_head", logits[0, step].data_ptr(), "best"
        )
        made, shift = tokens[0, step:].data_ptr(), shifts[0, step:].data_ptr()
        self._launch("choose", 1, BEGIN_WARPS, "best", made, shift, "embedding", "x")

    def _attention(
        self, weights: dict[str, int], keys: torch.Tensor, values: torch.Tensor, position: int
    ) -> None:
        sizes, capacity = self._sizes, keys.shape[2]
        cache = keys.data_ptr(), values.data_ptr()
        qkv = (weights[name] for name in "qkv")
        blocks = (sizes.heads + 2 * sizes.kv_heads) * sizes.head_dim // ROWS["QKV"]
        self._launch(
            "project", blocks, WARPS["QKV"], "x", weights["attention_norm"], *qkv, "frequencies", "query", *cache,
            position, capacity,
        )  # fmt: skip
        splits = min(MOST_SPLITS, position // SPLIT_POSITIONS + 1)
        self._launch(
            "attend", (sizes.heads, splits), ATTEND_WARPS, "query", *cache, "seen", "parts", "tickets", position,
            capacity,
        )  # fmt: skip
        self._launch("add_attention", sizes.hidden // ROWS["O"], WARPS["O"], "seen", weights["o"], "x")

    def _mlp(self, weights: dict[str, int]) -> None:
        blocks = 2 * self._sizes.ffn // ROWS["GATE"]
        matrices = weights["gate"], weights["up"]
        self._launch("gate_up", blocks, WARPS["GATE"], "x", weights["mlp_norm"], *matrices, "gated")
        blocks = self._sizes.hidden // ROWS["DOWN"]
        self._launch("add_down", blocks, WARPS["DOWN"], "gated", weights["down"], "x")

    def _launch(self, kernel: str, grid: int | tuple[int, int], warps: int, *arguments: int | str) -> None:
        """Names among the arguments are those of vectors and of weights that no layer has."""
        given = [self._at[one] if isinstance(one, str) else one for one in arguments]
        self._kernels.launch(kernel, grid if isinstance(grid, tuple) else (grid, 1), warps, given)


def _checked(answer: tuple[Any, ...]) -> Any:
    """What follows the status, where that says success."""
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(f"CUDA says {status.name}")
    return values[0] if values else None
