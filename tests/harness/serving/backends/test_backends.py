"""One suite over all backends, and what a model's own answers are held to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from openai import OpenAI

from hillclimb.harness.errors import UsageError
from hillclimb.harness.serving.backends.backend import Backend, ChatMessage
from hillclimb.harness.serving.backends.mock_backend import MockBackend
from hillclimb.harness.serving.backends.transformers_backend import TransformersBackend
from tests.harness.serving.conftest import served

NAMES = ["mock", "eager", "static", pytest.param("compiled", marks=pytest.mark.slow(60))]
MODELS = NAMES[1:]
PROMPTS = ("matrix products", "a kernel is", "why?")


@pytest.fixture(scope="module")
def made() -> dict[str, Backend]:
    return {}


def backend_named(name: str, made: dict[str, Backend], tiny: Path) -> Backend:
    """Each is made once."""
    if name not in made:
        made[name] = (
            MockBackend(slots=3)
            if name == "mock"
            else TransformersBackend(tiny, mode=name, context=128, slots=3)  # type: ignore[arg-type]
        )
    return made[name]


@pytest.fixture
def backend(request: pytest.FixtureRequest, made: dict[str, Backend], tiny: Path) -> Backend:
    return backend_named(request.param, made, tiny)


def greedy(backend: Backend, slot: int, prompt: Sequence[int], count: int) -> list[int]:
    """So many tokens, each the likeliest."""
    found = [int(backend.prefill(slot, prompt).argmax())]
    while len(found) < count:
        found.append(int(backend.decode({slot: found[-1]})[0].argmax()))
    backend.reset(slot)
    return found


@pytest.mark.parametrize("backend", NAMES, indirect=True)
def test_logits_are_one_for_each_token(backend: Backend) -> None:
    first = backend.prefill(0, backend.encode("a"))
    more = backend.decode({0: 5})
    backend.reset(0)
    assert first.shape == (backend.vocabulary,) and more.shape == (1, backend.vocabulary)
    assert first.dtype == more.dtype == torch.float32
    assert all(0 <= one < backend.vocabulary for one in backend.end_tokens) and backend.end_tokens


@pytest.mark.parametrize("backend", NAMES, indirect=True)
def test_sequences_do_not_meet(backend: Backend) -> None:
    prompts = [backend.encode(text) for text in PROMPTS]
    alone = [greedy(backend, 0, prompt, 6) for prompt in prompts]
    last = {slot: int(backend.prefill(slot, prompt).argmax()) for slot, prompt in enumerate(prompts)}
    together = [[token] for token in last.values()]
    for step in range(1, 6):
        order = [2, 0, 1] if step % 2 else [1, 2, 0]
        logits = backend.decode({slot: together[slot][-1] for slot in order})
        for slot, row in zip(order, logits, strict=True):
            together[slot].append(int(row.argmax()))
    assert together == alone
    for slot in range(3):
        backend.reset(slot)
    assert greedy(backend, 1, prompts[0], 6) == alone[0]


@pytest.mark.parametrize("backend", NAMES[:2], indirect=True)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(min_size=1, max_size=20))
def test_a_text_is_what_its_tokens_spell(backend: Backend, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert backend.text(backend.encode(text)) == text


@pytest.mark.parametrize("backend", MODELS, indirect=True)
def test_a_step_gives_what_the_whole_would(backend: Backend) -> None:
    """Within what sums in another order cost."""
    tokens = backend.encode("a step along K is 128 bytes, and tiles are of 64 rows")
    for known in (1, 3, len(tokens) - 1):
        backend.prefill(0, tokens[:known])
        for token in tokens[known:]:
            stepped = backend.decode({0: token})[0]
        backend.reset(0)
        whole = backend.prefill(1, tokens)
        backend.reset(1)
        assert (stepped - whole).abs().max() < 1e-4 * whole.abs().max()


def test_modes_agree_and_prompts_do_not(made: dict[str, Backend], tiny: Path) -> None:
    eager, static = (backend_named(name, made, tiny) for name in ("eager", "static"))
    answers = [greedy(eager, 0, eager.encode(text), 12) for text in PROMPTS]
    assert answers == [greedy(static, 0, static.encode(text), 12) for text in PROMPTS]
    assert len({tuple(one) for one in answers}) == 3


def test_a_conversation_is_put_as_the_template_says(made: dict[str, Backend], tiny: Path) -> None:
    backend = backend_named("eager", made, tiny)
    found = backend.encode_chat([ChatMessage("system", "be short"), ChatMessage("user", "hi")])
    assert backend.text(found) == "be short\nhi\n" and found[0] == 0
    bare = TransformersBackend(tiny)
    bare._tokenizer.chat_template = None
    with pytest.raises(ValueError, match="has no chat template"):
        bare.encode_chat([ChatMessage("user", "hi")])


def test_a_model_answers_over_http(tiny: Path) -> None:
    with served(TransformersBackend(tiny, context=128)) as client:
        check_answers(client)


def check_answers(client: OpenAI) -> None:
    """Streamed and whole ones are the same, and as many tokens as are asked for."""
    asked = [{"role": "user", "content": "how fast is it?"}]
    fixed = {"ignore_eos": True, "min_tokens": 20}
    more = {"temperature": 0, "max_tokens": 20, "logprobs": True, "extra_body": fixed}
    whole = client.chat.completions.create(model="tiny", messages=asked, **more)  # type: ignore[call-overload]
    choice = whole.choices[0]
    assert (choice.finish_reason, whole.usage.completion_tokens) == ("length", 20)
    assert len(choice.logprobs.content) == 20 and choice.message.content
    chunks = client.chat.completions.create(model="tiny", messages=asked, stream=True, **more)  # type: ignore[call-overload]
    assert "".join(one.choices[0].delta.content or "" for one in chunks) == choice.message.content


def test_a_snapshot_that_cannot_be_read_is_told(tmp_path: Path, tiny: Path) -> None:
    with pytest.raises(UsageError, match="is no snapshot; give a folder"):
        TransformersBackend(tmp_path / "none")
    with pytest.raises(UsageError, match="transformers cannot read it"):
        TransformersBackend(tmp_path)
    (tmp_path / "a.gguf").write_bytes(b"no model")
    with pytest.raises(UsageError, match="transformers cannot read it"):
        TransformersBackend(tmp_path / "a.gguf")
    with pytest.raises(UsageError, match="a context of 2048 tokens, not 4096; give --context 2048"):
        TransformersBackend(tiny, context=4096)
