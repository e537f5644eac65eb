"""How torch code runs that names its own dtypes, devices and seeds: in float64, elsewhere, from another seed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

WIDE = {
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.float32: torch.float64,
    torch.complex64: torch.complex128,
}
_GENERATOR = torch.Generator
CASTS = (torch.Tensor.float, torch.Tensor.half, torch.Tensor.bfloat16)


class ExactMode(TorchFunctionMode):
    """Every floating dtype that code names is float64; float8 stays, since it says which numbers there are."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func in CASTS:
            return args[0].double()
        return func(*map(_widen, args), **{key: _widen(value) for key, value in (kwargs or {}).items()})


def _widen(value: Any) -> Any:
    return WIDE.get(value, value) if isinstance(value, torch.dtype) else value


class PlaceMode(TorchFunctionMode):
    """What names a GPU as its device goes to another place: for machines that have none."""

    def __init__(self, place: str) -> None:
        super().__init__()
        self._place = place

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if func is torch.Tensor.cuda:
            return args[0].to(self._place)
        moved = (_move(value, self._place) for value in args)
        return func(*moved, **{key: _move(value, self._place) for key, value in (kwargs or {}).items()})


def _move(value: Any, place: str) -> Any:
    is_gpu = isinstance(value, str | torch.device) and str(value).partition(":")[0] == "cuda"
    return torch.device(place) if is_gpu else value


@contextmanager
def exactly() -> Iterator[None]:
    """Plain numbers become float64, too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with ExactMode():
            yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def placed(place: str) -> Iterator[None]:
    """New tensors are made there, also those that code wants on a GPU where `place` is none."""
    with ExitStack() as stack:
        stack.enter_context(torch.device(place))
        if torch.device(place).type != "cuda":
            stack.enter_context(PlaceMode(place))
            stack.enter_context(mock.patch.object(torch, "Generator", _host_generator))
        stack.enter_context(_full_precision())
        yield


def _host_generator(device: object = "cpu") -> torch.Generator:
    """A generator on the host, wherever it was wanted."""
    return _GENERATOR("cpu")


@contextmanager
def _full_precision() -> Iterator[None]:
    """No TF32 in convolutions, which cuDNN would use."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=False, allow_tf32=False):
        yield


@contextmanager
def seeded(seed: int, place: str) -> Iterator[None]:
    """Whatever is drawn from the usual generators of torch, NumPy and Python follows from `seed`."""
    devices = [torch.device(place).index or 0] if torch.device(place).type == "cuda" else []
    python, numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=devices):
            torch.manual_seed(seed)
            random.seed(seed)
            np.random.seed(seed % 2**32)
            yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)
