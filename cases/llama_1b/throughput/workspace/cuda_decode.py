"""One token of each of up to 32 sequences by the kernels of decode.cu, which overlap at their ends."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from cuda.bindings import driver, nvrtc
from knobs import knob

SOURCE = Path(__file__).with_name("decode.cu")
SEQUENCES, WARPS, ROWS, CHUNK = 32, 8, 16, 32
"""As in decode.cu."""

PRODUCTS = ("QKV", "O", "GATE", "DOWN", "LOGITS")
FEW, MANY = (
    {name: knob(f"LLAMA_{name}_{what}") for name in PRODUCTS} for what in ("BLOCKS", "BLOCKS_OF_MANY")
)
"""Most blocks of each product, for up to eight sequences and for more."""

DOWN_SPLITS, MEMBERS, OVERLAPS = (knob(f"LLAMA_{name}") for name in ("DOWN_SPLITS", "MEMBERS", "OVERLAPS"))

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

    def macros(self, eights: int) -> dict[str, int]:
        """Of kernels for so many groups of eight sequences."""
        return {
            "HIDDEN": self.hidden,
            "HEADS": self.heads,
            "KV_HEADS": self.kv_heads,
            "HEAD": self.head_dim,
            "FFN": self.ffn,
            "VOCAB": self.vocab,
            "LAYERS": self.layers,
            "EIGHTS": eights,
            "DOWN_SPLITS": DOWN_SPLITS,
            "MEMBERS": self.members,
        }

    @property
    def members(self) -> int:
        """Query heads of a block of the attention."""
        return math.gcd(MEMBERS, self.heads // self.kv_heads)

    def blocks(self, eights: int) -> dict[str, int]:
        """Of each product: at most as many as there is work for, and of each part of its columns as many."""
        tiles = {
            "QKV": (self.heads + 2 * self.kv_heads) * self.head_dim // ROWS,
            "O": self.hidden // ROWS,
            "GATE": self.ffn // 8,
            "DOWN": self.hidden // ROWS,
            "LOGITS": self.vocab // ROWS,
        }
        most, splits = FEW if eights == 1 else MANY, {"DOWN": DOWN_SPLITS}
        parts = {name: splits.get(name, 1) for name in tiles}
        return {name: min(most[name] // parts[name], count) * parts[name] for name, count in tiles.items()}

    def _problems(self, weights: dict[str, torch.Tensor]) -> dict[str, bool]:
        widths = {"hidden": self.hidden, "o": self.heads * self.head_dim, "down": self.ffn // DOWN_SPLITS}
        found = {f"head_dim is {self.head_dim}, not 64": self.head_dim != 64}
        found["the head is not the embedding"] = "lm_head" in weights
        found |= {
            f"{width} columns of {name} are no multiple of {WARPS * CHUNK}": width % (WARPS * CHUNK) != 0
            for name, width in widths.items()
        }
        found |= {f"vocab is {self.vocab}, no multiple of {ROWS}": self.vocab % ROWS != 0}
        found |= {
            f"{name} is not contiguous bfloat16": not weight.is_contiguous() or weight.dtype != torch.bfloat16
            for name, weight in weights.items()
            if name != "frequencies"
        }
        return found


def compiled(macros: dict[str, int]) -> bytes:
    """The cubin. Raises RuntimeError with the compiler's log."""
    program = _checked(nvrtc.nvrtcCreateProgram(SOURCE.read_bytes(), SOURCE.name.encode(), 0, [], []))
    defined = [f"--define-macro={name}={value}" for name, value in macros.items()]
    arguments = ["--gpu-architecture=sm_90a", "--std=c++17", f"--include-path={SOURCE.parent}", *defined]
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
    """Those of decode.cu for one model and some number of sequences, by name."""

    def __init__(self, macros: dict[str, int]) -> None:
        self._module = _checked(driver.cuModuleLoadData(compiled(macros)))
        self._functions: dict[str, Any] = {}

    def launch(self, name: str, grid: tuple[int, int], arguments: list[int]) -> None:
        """On torch's current stream. All but the first of a sequence may begin before the last one is over."""
        if name not in self._functions:
            self._functions[name] = _checked(driver.cuModuleGetFunction(self._module, name.encode()))
        values = torch.tensor(arguments, dtype=torch.int64)
        begins = values.data_ptr()
        pointers = torch.arange(begins, begins + 8 * len(arguments), 8)
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = *grid, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = 32 * WARPS, 1, 1
        config.hStream = torch.cuda.current_stream().cuda_stream
        if OVERLAPS and name != "begin":
            early = driver.CUlaunchAttribute()
            early.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            early.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [early], 1
        _checked(driver.cuLaunchKernelEx(config, self._functions[name], pointers.data_ptr(), 0))


class CudaDecoder:
    """One model, and what is between its kernels."""

    def __init__(self, weights: dict[str, torch.Tensor]) -> None:
        """Raises ValueError for a model or a GPU that the kernels are not for."""
        self._sizes = sizes = Sizes(weights)
        self._place = place = weights["q"].device
        self._require_gpu()
        self._kernels: dict[int, Kernels] = {}
        self._weights = weights
        self._at = {name: weight.data_ptr() for name, weight in weights.items()}
        self._layers = [{name: weights[name][i].data_ptr() for name in LAYERED} for i in range(sizes.layers)]
        queries = sizes.heads * sizes.head_dim
        counts = {"x": sizes.hidden, "query": queries, "parts": DOWN_SPLITS * sizes.hidden}
        counts["squares"] = 2 * sizes.layers + 1
        halves = {"normed": sizes.hidden, "seen": queries, "gated": sizes.ffn}
        state = {name: torch.zeros(SEQUENCES * n, device=place) for name, n in counts.items()}
        state |= {
            name: torch.zeros(SEQUENCES * n, dtype=torch.bfloat16, device=place) for name, n in halves.items()
        }
        state["tickets"] = torch.zeros(sizes.hidden // ROWS, dtype=torch.int32, device=place)
        state["best"] = torch.zeros(SEQUENCES, dtype=torch.int64, device=place)
        self._state = state
        self._at |= {name: vector.data_ptr() for name, vector in state.items()}

    def _require_gpu(self) -> None:
        if self._place.type != "cuda" or torch.cuda.get_device_capability(self._place) != (9, 0):
            raise ValueError("decode.cu needs weights on a GPU of compute capability 9.0")

    def begin(self, prompt: torch.Tensor) -> None:
        """The tokens that are read next, [batch, 1]."""
        self._batch = len(prompt)
        self._eights = -(-self._batch // 8)
        if self._eights not in self._kernels:
            self._kernels[self._eights] = self._compiled(self._sizes.macros(self._eights))
        self._blocks = self._sizes.blocks(self._eights)
        norm = self._layers[0]["attention_norm"]
        given = prompt.data_ptr(), prompt.stride(0)
        self._launch("begin", (self._batch, 1), *given, "embedding", norm, "x", "normed", "squares", "best")

    def _compiled(self, macros: dict[str, int]) -> Kernels:
        return Kernels(macros)

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
        """One token more of each sequence, and the embedding of what is read after it."""
        for layer in range(self._sizes.layers):
            self._attention(layer, keys[layer], values[layer], position)
            self._mlp(layer)
        to, stride = logits[:, step].data_ptr(), logits.stride(0)
        squares = self._squares(2 * self._sizes.layers)
        self._product("LOGITS", "score", "normed", squares, "embedding", to, stride, "best", self._batch)
        made, shift = tokens[:, step:].data_ptr(), shifts[:, step:].data_ptr()
        self._launch(
            "choose", (self._batch, 1), "best", made, tokens.stride(0), shift, shifts.stride(0), "embedding",
            self._layers[0]["attention_norm"], "x", "normed", "squares",
        )  # fmt: skip

    def _attention(self, layer: int, keys: torch.Tensor, values: torch.Tensor, position: int) -> None:
        weights, capacity = self._layers[layer], keys.shape[2]
        cache = keys.data_ptr(), values.data_ptr()
        self._product(
            "QKV", "project", "normed", self._squares(2 * layer), *(weights[name] for name in "qkv"),
            "frequencies", "query", *cache, position, capacity, self._batch,
        )  # fmt: skip
        grid = self._sizes.heads // self._sizes.members, self._batch
        self._launch("attend", grid, "query", *cache, "seen", position, capacity)
        added = "seen", weights["o"], "x", weights["mlp_norm"]
        self._add("O", "add_attention", added, self._squares(2 * layer + 1))

    def _mlp(self, layer: int) -> None:
        weights = self._layers[layer]
        matrices = weights["gate"], weights["up"]
        squares = self._squares(2 * layer + 1)
        self._product("GATE", "gate_up", "normed", squares, *matrices, "gated", self._batch)
        is_last = layer + 1 == len(self._layers)
        norm = "norm" if is_last else self._layers[layer + 1]["attention_norm"]
        self._add("DOWN", "add_down", ("gated", weights["down"], "x", norm), self._squares(2 * layer + 2))

    def _add(self, product: str, kernel: str, added: tuple[int | str, ...], squares: int) -> None:
        self._product(product, kernel, *added, "normed", squares, "parts", "tickets", self._batch)

    def _squares(self, norm: int) -> int:
        """Where the sums of squares are that this norm of a token divides by."""
        return self._at["squares"] + 4 * SEQUENCES * norm

    def _product(self, product: str, kernel: str, *arguments: int | str) -> None:
        self._launch(kernel, (self._blocks[product], 1), *arguments)

    def _launch(self, kernel: str, grid: tuple[int, int], *arguments: int | str) -> None:
        """Arguments that are names stand for the addresses of weights or of what is between kernels."""
        given = [self._at[a] if isinstance(a, str) else a for a in arguments]
        self._kernels[self._eights].launch(kernel, grid, given)


def _checked(answer: tuple[Any, ...]) -> Any:
    """What follows the status, where that says success."""
    status, *values = answer
    if int(status) != 0:
        raise RuntimeError(f"CUDA says {status.name}")
    return values[0] if values else None
