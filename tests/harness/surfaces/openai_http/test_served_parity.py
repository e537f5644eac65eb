"""Servers that compute the model right and wrong, asked by the judge's client over a real socket."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn

from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Reason
from hillclimb.harness.serving.app import create_app
from hillclimb.harness.serving.backends.transformers_backend import TransformersBackend
from hillclimb.harness.serving.server import listen_on
from hillclimb.harness.serving.service import Service
from hillclimb.harness.surfaces.openai_http.client import AnsweredRequest, ServerAddress, ask
from hillclimb.harness.surfaces.openai_http.served_parity import ServedParity

Change = Callable[[Any], None]
"""Of a model of transformers."""


@contextmanager
def served(folder: Path, backend: TransformersBackend) -> Iterator[ServerAddress]:
    service, path = Service(backend), folder / "socket"
    server = uvicorn.Server(uvicorn.Config(create_app(service), log_level="warning"))
    with listen_on(path) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield ServerAddress(path, backend.model, 30)
        finally:
            server.should_exit = True
            thread.join()
            service.engine.close()
    path.unlink(missing_ok=True)


@pytest.fixture(scope="module")
def parity(tiny: Path) -> ServedParity:
    torch.set_num_threads(1)
    return ServedParity(tiny, torch.device("cpu"))


def answers(
    folder: Path, backend: TransformersBackend, seed: int, count: int = 2, tokens: int = 24
) -> list[AnsweredRequest]:
    drawn = random.Random(seed)
    prompts = [[drawn.randrange(backend.vocabulary) for _ in range(9)] for _ in range(count)]
    with served(folder, backend) as address:
        return [ask(address, prompt, tokens) for prompt in prompts]


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_honest_server_passes(parity: ServedParity, tiny: Path, tmp_path: Path, dtype: Any) -> None:
    backend = TransformersBackend(tiny, dtype=dtype)
    for seed in range(3):
        found = answers(tmp_path, backend, seed)
        assert parity.share(found) < (0.01 if dtype == "float32" else 0.9)
        assert all(len(one.tokens) == 24 and 0 < one.ttft < one.latency for one in found)
        assert all(one.first_tokens == 1 and one.tpot > 0 for one in found)


def layer_left_out(model: Any) -> None:
    model.model.layers = model.model.layers[:-1]
    model.config.num_hidden_layers -= 1


def layers_in_int8(model: Any) -> None:
    for name, weight in model.model.layers.named_parameters():
        if name.endswith("proj.weight"):
            unit = weight.detach().float().abs().amax(-1, keepdim=True) / 127
            weight.data = ((weight.detach() / unit).round() * unit).to(weight.dtype)


WRONG = {"a layer left out": layer_left_out, "layers in int8": layers_in_int8}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_wrong_model_is_refused(parity: ServedParity, tiny: Path, tmp_path: Path, change: Change) -> None:
    backend = TransformersBackend(tiny)
    change(backend._model)
    for seed in range(3):
        with pytest.raises(CandidateFault, match="of what is allowed") as caught:
            parity.share(answers(tmp_path, backend, seed, count=4))
        assert caught.value.reason is Reason.WRONG_RESULT


class Ahead(TransformersBackend):
    """It takes the second best token for the best."""

    def decode(self, last: Any) -> torch.Tensor:
        logits = super().decode(last)
        best = logits.topk(2, -1)
        return logits.scatter(-1, best.indices, best.values.flip(-1))


class Cached(TransformersBackend):
    """It answers all prompts with what the first one was answered with."""

    def prefill(self, slot: int, tokens: Any) -> torch.Tensor:
        self.first = getattr(self, "first", tokens)
        return super().prefill(slot, self.first)


@pytest.mark.parametrize("kind", [Ahead, Cached])
def test_wrong_tokens_are_refused(
    parity: ServedParity, tiny: Path, tmp_path: Path, kind: type[TransformersBackend]
) -> None:
    with pytest.raises(CandidateFault) as caught:
        parity.share(answers(tmp_path, kind(tiny), 7))
    assert caught.value.reason is Reason.WRONG_RESULT
