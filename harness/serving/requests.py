"""What clients of OpenAI's API may ask for here, and what is refused by name.

https://platform.openai.com/docs/api-reference has the fields; ignore_eos, min_tokens, return_tokens_as_token_ids
and continuous_usage_stats are those of vLLM, which load generators use.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_core import PydanticCustomError

from hillclimb.harness.serving.backends.backend import ChatMessage

UNIMPLEMENTED: dict[str, tuple[Any, ...]] = {
    "add_special_tokens": (True,),
    "audio": (),
    "best_of": (1,),
    "chat_template_kwargs": ({},),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "min_p": (0,),
    "modalities": (["text"],),
    "moderation": (),
    "parallel_tool_calls": (True, False),
    "prediction": (),
    "presence_penalty": (0,),
    "reasoning_effort": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "service_tier": ("auto", "default"),
    "skip_special_tokens": (True,),
    "stop_token_ids": ([],),
    "store": (False,),
    "suffix": (),
    "tool_choice": ("none",),
    "tools": ([],),
    "top_k": (-1, 0),
    "use_beam_search": (False,),
    "verbosity": (),
    "web_search_options": (),
}
"""Fields of the API and of vLLM that are not implemented, each with the values that ask for nothing, beside null."""

HINTS = (
    "metadata",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "user",
)
"""Fields that change no answer."""

MOST_OF_REQUEST = 2048
"""Answers to one request, over all of its prompts."""

MOST_ANSWERS = 128
MOST_STOPS = 4
MOST_LOGPROBS = 20
MOST_SEED = 2**63 - 1

TextTokens = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=1)]


def _refused(field: str, told: str) -> PydanticCustomError:
    return PydanticCustomError("refused", "{told}", {"told": told, "field": field})


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise PydanticCustomError(
            "no_text", "This is no Unicode text: half of a surrogate pair is in it"
        ) from None
    return text


Text = Annotated[str, AfterValidator(_encodable)]


class _Fields(BaseModel):
    """What all parts of a request share: null is as good as nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        return {name: value for name, value in fields.items() if value is not None}


class StreamOptions(_Fields):
    """Of a stream."""

    include_usage: bool = False
    """A last chunk has the counts of tokens."""
    continuous_usage_stats: bool = False
    """Every chunk has those until then."""
    include_obfuscation: bool = False
    """Not done."""


class ContentPart(_Fields):
    """Of a message: text alone is read here."""

    type: Literal["text"]
    text: Text


class RequestMessage(_Fields):
    """One of a conversation."""

    role: Literal["system", "developer", "user", "assistant"]
    content: Text | list[ContentPart]
    name: str | None = None
    """Not told to the model."""

    @property
    def plain(self) -> ChatMessage:
        """With its parts as one text."""
        if isinstance(self.content, str):
            return ChatMessage(self.role, self.content)
        return ChatMessage(self.role, "".join(one.text for one in self.content))


class AnswerRequest(_Fields):
    """What chat and text completions share."""

    model: str
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    min_tokens: Annotated[int, Field(ge=0)] = 0
    ignore_eos: bool = False
    n: Annotated[int, Field(ge=1, le=MOST_ANSWERS)] = 1
    """Answers to each prompt."""
    seed: Annotated[int, Field(ge=-MOST_SEED, le=MOST_SEED)] | None = None
    stop: list[Annotated[Text, Field(min_length=1)]] = []
    return_tokens_as_token_ids: bool = False
    """Where logarithms are told, tokens are called `token_id:7`, for several may have one text."""
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    temperature: Annotated[float, Field(ge=0, le=2)] = 1.0
    top_p: Annotated[float, Field(gt=0, le=1)] = 1.0

    @model_validator(mode="before")
    @classmethod
    def _is_implemented(cls, fields: Any) -> Any:
        if not isinstance(fields, dict):
            return fields
        for name, value in fields.items():
            if name in HINTS:
                continue
            if name in UNIMPLEMENTED and value is not None and value not in UNIMPLEMENTED[name]:
                raise _refused(name, f"{name} is not implemented here; leave it out")
            if name not in UNIMPLEMENTED and name not in cls.model_fields:
                near = get_close_matches(name, [*cls.model_fields, *UNIMPLEMENTED], n=1)
                hint = f"; is it {near[0]}?" if near else ""
                raise _refused(ascii(name)[1:-1], f"{ascii(name)[1:-1]} is no field of this request{hint}")
        return {name: value for name, value in fields.items() if name not in (*UNIMPLEMENTED, *HINTS)}

    @field_validator("stop", mode="before")
    @classmethod
    def _is_list(cls, stop: Any) -> Any:
        stops = [stop] if isinstance(stop, str) else stop
        if isinstance(stops, list) and len(stops) > MOST_STOPS:
            raise _refused("stop", f"stop: {MOST_STOPS} are the most, not {len(stops)}")
        return stops

    @model_validator(mode="after")
    def _has_stream(self) -> Self:
        if "stream_options" in self.model_fields_set and not self.stream:
            raise _refused("stream_options", "stream_options is for a stream; set stream to true")
        return self

    @property
    def most_tokens(self) -> int | None:
        """Of an answer; None for as many as there is room for."""
        return self.max_tokens

    @property
    def top_tokens(self) -> int | None:
        """How many of the likeliest tokens are told for each; None for no logarithms."""
        return None


class ChatRequest(AnswerRequest):
    """POST /v1/chat/completions."""

    messages: Annotated[list[RequestMessage], Field(min_length=1)]
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    logprobs: bool = False
    top_logprobs: Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] = 0

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        both = (self.max_tokens, self.max_completion_tokens)
        if None not in both and both[0] != both[1]:
            told = "max_tokens and max_completion_tokens are two names of one limit; give one"
            raise _refused("max_tokens", told)
        if self.top_logprobs and not self.logprobs:
            raise _refused("top_logprobs", "top_logprobs is for logprobs; set logprobs to true")
        return self

    @property
    def most_tokens(self) -> int | None:
        """By either name."""
        return self.max_completion_tokens or self.max_tokens

    @property
    def top_tokens(self) -> int | None:
        """As asked for, beside the chosen one."""
        return self.top_logprobs if self.logprobs else None


class CompletionRequest(AnswerRequest):
    """POST /v1/completions."""

    prompt: Text | list[Text] | TextTokens | list[TextTokens]
    max_tokens: Annotated[int, Field(ge=1)] | None = 16
    logprobs: Annotated[int, Field(ge=0, le=MOST_LOGPROBS)] | None = None

    @property
    def prompts(self) -> list[str | list[int]]:
        """Texts, and prompts that are tokens already. Raises ValueError for an empty list."""
        if isinstance(self.prompt, str):
            return [self.prompt]
        if not self.prompt:
            raise ValueError("prompt is an empty list")
        if isinstance(self.prompt[0], int):
            return [[token for token in self.prompt if isinstance(token, int)]]
        return [one for one in self.prompt if not isinstance(one, int)]

    @property
    def top_tokens(self) -> int | None:
        """As asked for, beside the chosen one."""
        return self.logprobs
