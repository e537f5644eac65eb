"""Servers that compute the model right and wrong, asked by the judge's client over a real socket."""

from __future__ import annotations

import json
import random
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import uvicorn

from hillclimb.harness.errors import CandidateFault, UsageError
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
        assert parity.share(found) < (0.01 if dtype == "float32" else 1)
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
    change(backend.module)
    for seed in range(3):
        with pytest.raises(CandidateFault, match="of what is allowed") as caught:
            parity.share(answers(tmp_path, backend, seed, count=4))
        assert caught.value.reason is Reason.WRONG_RESULT


def made(backend: TransformersBackend, seed: int, sizes: tuple[int, int, int]) -> list[AnsweredRequest]:
    """Answers as a server gives them, without one: so many, to prompts of so many tokens, of so many."""
    drawn, (count, prompt, tokens) = random.Random(seed), sizes
    found = []
    for _ in range(count):
        read = [drawn.randrange(backend.vocabulary) for _ in range(prompt)]
        logits, chosen, told = backend.prefill(0, read), [], []
        for _ in range(tokens):
            best = logits.log_softmax(-1).topk(5)
            chosen.append(int(logits.argmax()))
            told.append(dict(zip(best.indices.tolist(), best.values.tolist(), strict=True)))
            logits = backend.decode({0: chosen[-1]})[0]
        backend.reset(0)
        found.append(AnsweredRequest(tuple(read), tuple(chosen), tuple(told), 0.0, 0.1, 0.2, 1))
    return found


@pytest.mark.parametrize("sizes", [(1, 8, 2), (1, 40, 2), (1, 8, 8), (4, 1, 8), (2, 20, 16)], ids=str)
def test_bfloat16_passes_in_answers_of_any_size(
    parity: ServedParity, tiny: Path, sizes: tuple[int, int, int]
) -> None:
    backend = TransformersBackend(tiny, dtype="bfloat16")
    assert max(parity.share(made(backend, seed, sizes)) for seed in range(12)) <= 1


def test_errors_cannot_be_thinned_out(parity: ServedParity, tiny: Path) -> None:
    """By more logarithms of the first token, whose prompt was read exactly, or by tokens that are not the likeliest."""
    backend = TransformersBackend(tiny)
    (answer,) = made(backend, 3, (1, 8, 8))
    logits = backend.prefill(0, answer.prompt).log_softmax(-1)
    many = {token: float(value) for token, value in enumerate(logits)}
    with pytest.raises(CandidateFault, match="and was asked for 5"):
        parity.share([replace(answer, likeliest=(many, *answer.likeliest[1:]))])
    rarest = {int(token): float(logits[token]) for token in logits.topk(4, largest=False).indices}
    rare = {answer.tokens[0]: float(logits.max()), **rarest}
    with pytest.raises(CandidateFault, match="not the likeliest"):
        parity.share([replace(answer, likeliest=(rare, *answer.likeliest[1:]))])


class SevenBits(TransformersBackend):
    """It reads prompts as it should, and makes tokens with layers of seven bits."""

    def prefill(self, slot: int, tokens: Any) -> torch.Tensor:
        if not hasattr(self, "exact"):
            self.exact, self.rough = self.module.state_dict(), {}
            for name, weight in self.exact.items():
                unit = weight.abs().amax(-1, keepdim=True) / 63
                is_layer = name.endswith("proj.weight")
                self.rough[name] = (weight / unit).round() * unit if is_layer else weight.clone()
            self.exact = {name: weight.clone() for name, weight in self.exact.items()}
        self.module.load_state_dict(self.exact)
        logits = super().prefill(slot, tokens)
        self.module.load_state_dict(self.rough)
        return logits


def test_fewer_bits_after_an_exact_prompt_are_refused(parity: ServedParity, tiny: Path) -> None:
    backend = SevenBits(tiny)
    for seed in range(4):
        with pytest.raises(CandidateFault, match="of what is allowed"):
            parity.share(made(backend, seed, (2, 8, 16)))


def test_a_snapshot_without_all_weights_is_refused(tiny: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(tiny, tmp_path / "model"))
    config = json.loads((folder / "config.json").read_text())
    layers = config["num_hidden_layers"]
    for change in ({"num_hidden_layers": layers + 1}, {"head_dim": 7}, {"hidden_size": 100}):
        (folder / "config.json").write_text(json.dumps({**config, **change}))
        with pytest.raises(UsageError):
            ServedParity(folder, torch.device("cpu"))
    (folder / "config.json").write_text(json.dumps(config))
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-999])
    with pytest.raises(UsageError, match="cannot read it"):
        ServedParity(folder, torch.device("cpu"))


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
