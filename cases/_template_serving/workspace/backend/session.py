"""A session's kernel as the step of a server: it reads tokens, and chooses the likeliest next one by itself.

On a GPU the tokens after the one that is asked for are made already, while the server answers. A server that then goes
on with another token than the likeliest one lets them be made again, and none ahead until it takes the likeliest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import torch
from backend.environment import DEVICE, as_given
from backend.loading import StockBackend
from backend.prompts import AHEAD, PromptReader

from hillclimb.harness.serving.backends.backend import ServedModel

IS_ON_GPU = DEVICE == "cuda"
LAYER_NAMES = {
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "o": "self_attn.o_proj",
    "gate": "mlp.gate_proj",
    "up": "mlp.up_proj",
    "down": "mlp.down_proj",
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
}
"""A session's names of weights, and transformers'."""

ROWS = AHEAD + 2
"""Of a sequence: one that is asked for, those that are made ahead, and one that the server may still read."""


class Row:
    """Logits of one position and the likeliest token, and the way of both to the CPU."""

    def __init__(self, vocabulary: int) -> None:
        self.logits = torch.empty(1, 1, vocabulary, device=DEVICE)
        self.token = torch.empty(1, 1, dtype=torch.int64, device=DEVICE)
        self._here = [self.logits, self.token]
        if IS_ON_GPU:
            self._here = [torch.empty(one.shape, dtype=one.dtype, pin_memory=True) for one in self._here]
            self._copies, self._is_made, self._is_here = (
                torch.cuda.Stream(),
                torch.cuda.Event(),
                torch.cuda.Event(),
            )

    def fetch(self) -> None:
        """Begin to copy what was launched so far, beside what is launched later."""
        if not IS_ON_GPU:
            return
        self._is_made.record()
        self._copies.wait_event(self._is_made)
        with torch.cuda.stream(self._copies):
            for here, there in zip(self._here, (self.logits, self.token), strict=True):
                here.copy_(there, non_blocking=True)
            self._is_here.record()

    def wait(self) -> tuple[torch.Tensor, int]:
        """The logits, [vocabulary], and the token."""
        if IS_ON_GPU:
            self._is_here.synchronize()
        logits, token = self._here
        return logits[0, 0], int(token)


class Slot:
    """One sequence at a time, and its cache."""

    def __init__(self, step: Callable[..., None], cache: Sequence[torch.Tensor], vocabulary: int) -> None:
        """`step` is the session; `cache` has keys and values, each [layers, 1, kv_heads, context, head_dim]."""
        self._step, self._keys_values = step, [as_given(one) for one in cache]
        self._context = cache[0].shape[3]
        self._shifts = as_given(torch.zeros(1, 1, dtype=torch.int64, device=DEVICE))
        self._rows = [Row(vocabulary) for _ in range(ROWS)]
        self._ahead: deque[Row] = deque()
        self._read_prompt = PromptReader(lambda tokens: self._call(tokens, 0, self._rows[0]))
        self.forget()

    def forget(self) -> None:
        """What is in the cache is written over later."""
        self._length, self._launched, self._likeliest = 0, 0, -1
        self._ahead.clear()

    def read(self, tokens: Sequence[int]) -> torch.Tensor:
        """Logits of what follows these tokens, [vocabulary]; they follow those that were read before."""
        is_likely = not self._length or list(tokens) == [self._likeliest]
        if not self._ahead or not is_likely:
            self._ahead.clear()
            self._launch(torch.tensor([list(tokens)], device=DEVICE), self._length)
        self._length += len(tokens)
        row = self._ahead.popleft()
        last = self._ahead[-1] if self._ahead else row
        most = AHEAD if is_likely else 0  # who draws tokens seldom draws the likeliest twice
        for start in range(self._length + len(self._ahead), min(self._length + most, self._context)):
            last = self._launch(last.token, start)
        logits, self._likeliest = row.wait()
        return logits

    def _launch(self, tokens: torch.Tensor, start: int) -> Row:
        row = self._rows[self._launched % ROWS]
        self._launched += 1
        if start == 0:
            self._read_prompt(tokens)
        else:
            self._call(tokens, start, row)
        row.fetch()
        self._ahead.append(row)
        return row

    def _call(self, tokens: torch.Tensor, start: int, row: Row) -> None:
        made = (as_given(row.token), as_given(row.logits))
        self._step(as_given(tokens), self._shifts, *self._keys_values, *made, context=start)


class SessionBackend(StockBackend):
    """The model's tokenizer and weights, and a session in the place of its modules."""

    def __init__(self, model: ServedModel, session: Callable[..., Callable[..., None]]) -> None:
        """`session` is called once with the weights, by name."""
        super().__init__(model)
        weights = session_weights(self.module)
        config = self.module.config
        self.release()
        step = session(**{name: as_given(weight) for name, weight in weights.items()})
        head_dim = 2 * len(weights["frequencies"])
        sizes = (config.num_hidden_layers, 1, config.num_key_value_heads, self.context, head_dim)
        like = {"dtype": weights["embedding"].dtype, "device": DEVICE}
        self._slots = [
            Slot(step, [torch.zeros(sizes, **like) for _ in range(2)], self.vocabulary)
            for _ in range(self.slots)
        ]

    @torch.inference_mode()
    def prefill(self, slot: int, tokens: Sequence[int]) -> torch.Tensor:
        """All of the prompt at once."""
        return self._slots[slot].read(tokens)

    @torch.inference_mode()
    def decode(self, last: Mapping[int, int]) -> torch.Tensor:
        """One sequence after another."""
        rows = [self._slots[slot].read([token]) for slot, token in last.items()]
        return torch.stack(rows) if len(rows) > 1 else rows[0][None]

    def reset(self, slot: int) -> None:
        """Begin anew there."""
        self._slots[slot].forget()


def session_weights(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Of a LlamaForCausalLM, as a session has them: those of all layers in one tensor."""
    state, layers = module.state_dict(), range(module.config.num_hidden_layers)
    weights = {"embedding": state["model.embed_tokens.weight"], "norm": state["model.norm.weight"]}
    for name, theirs in LAYER_NAMES.items():
        weights[name] = torch.stack([state[f"model.layers.{i}.{theirs}.weight"] for i in layers])
    if not module.config.tie_word_embeddings:
        weights["lm_head"] = state["lm_head.weight"]
    return {**weights, "frequencies": module.model.rotary_emb.inv_freq.float()}
