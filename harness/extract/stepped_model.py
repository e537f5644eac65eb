"""What is run while a model is profiled, a step at a time."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import torch

from hillclimb.harness.errors import UsageError
from hillclimb.harness.extract.profiled import ProfileQuestion
from hillclimb.harness.serving.backends.transformers_backend import TransformersBackend
from hillclimb.harness.sources.source_file import load_source


class SteppedModel(Protocol):
    """A model at work."""

    module: torch.nn.Module

    def begin(self) -> None:
        """What comes before steps, and is not timed."""

    def step(self) -> None:
        """What is timed."""


class Decoding:
    """A token after those before it."""

    def __init__(self, backend: TransformersBackend, prompt: Sequence[int]) -> None:
        self.module = backend.module
        self._backend, self._prompt, self._token = backend, prompt, 0

    def begin(self) -> None:
        self._backend.reset(0)
        self._token = int(self._backend.prefill(0, self._prompt).argmax())

    def step(self) -> None:
        self._token = int(self._backend.decode({0: self._token})[0].argmax())


class Prefilling:
    """A prompt."""

    def __init__(self, backend: TransformersBackend, prompt: Sequence[int]) -> None:
        self.module = backend.module
        self._backend, self._prompt = backend, prompt

    def begin(self) -> None:
        pass

    def step(self) -> None:
        self._backend.reset(0)
        self._backend.prefill(0, self._prompt)


class Calling:
    """A call of a module with its example inputs."""

    def __init__(self, module: torch.nn.Module, arguments: Sequence[Any]) -> None:
        self.module, self._arguments = module, arguments

    def begin(self) -> None:
        pass

    @torch.inference_mode()
    def step(self) -> None:
        self.module(*self._arguments)


def load_model(question: ProfileQuestion) -> SteppedModel:
    """Raises UsageError for a model that cannot be read, or what its own file raises."""
    if question.name:
        module, arguments = _made_by(Path(question.model), question.name)
        place: Any = question.device
        return Calling(module.to(place).eval(), [_moved(value, place) for value in arguments])
    backend = TransformersBackend(Path(question.model), device=question.device, dtype=question.dtype)
    most = backend.context - question.steps
    if question.prompt_tokens > most:
        raise UsageError(
            f"{question.prompt_tokens} tokens of a prompt do not fit: the model takes {backend.context}, of which "
            f"{question.steps} are made; give at most {most}"
        )
    drawn = torch.Generator().manual_seed(0)
    prompt = torch.randint(backend.vocabulary, (question.prompt_tokens,), generator=drawn).tolist()
    kind = Prefilling if question.phase == "prefill" else Decoding
    return kind(backend, prompt)


def _made_by(path: Path, name: str) -> tuple[torch.nn.Module, Sequence[Any]]:
    """A class of the file with its example_inputs(), or what a function of it returns: a module and its arguments."""
    file = load_source(path)
    found = file.get(name)
    if isinstance(found, type) and issubclass(found, torch.nn.Module):
        made_with = file.get("get_init_inputs", file.get("example_sizes", list))
        draws = file.get("example_inputs", file.get("get_inputs"))
        if draws is None:
            raise UsageError(
                f"{path} has no example_inputs(); write one that returns the arguments of {name}"
            )
        return found(*made_with()), draws()
    made = found() if callable(found) else None
    match made:
        case torch.nn.Module() as module, list() | tuple() as arguments:
            return module, arguments
    raise UsageError(
        f"{path}: {name} is no torch.nn.Module, and no function that returns one and a list of its arguments"
    )


def _moved(value: Any, device: str) -> Any:
    return value.to(device) if isinstance(value, torch.Tensor) else value
