"""Which model, where, and within which limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit

from pydantic import SecretStr

from hillclimb.agent.machine.config import is_local
from hillclimb.harness.case.settings import Prices
from hillclimb.harness.errors import UsageError


@dataclass(frozen=True)
class ModelSettings:
    """Checked at construction; raises UsageError, which never shows the key or a password in the URL."""

    model: str
    """As the endpoint knows it."""
    base_url: str = field(repr=False)
    """Of an OpenAI-compatible server, as `https://host/v1`; `user:password@` becomes basic authentication."""
    api_key: SecretStr = field(default_factory=lambda: SecretStr(""))
    """Empty for a server that wants none."""
    temperature: float | None = None
    """None: the provider's own."""
    reasoning_effort: str | None = None
    """None: the provider's own."""
    deadline_seconds: float = 600.0
    """One call, all its attempts and pauses included."""
    reply_tokens: int = 32_000
    prices: Prices | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Parameters of every request as a person gave them, before what is sent otherwise; None leaves one out."""
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Headers of every request as a person gave them; they may be secret."""

    def __post_init__(self) -> None:
        if not self.model.strip():
            raise UsageError("no model is named; set HILLCLIMB_MODEL, llm.model in case.yaml, or --model")
        if not self.deadline_seconds > 0:
            raise UsageError(f"deadline_seconds is {self.deadline_seconds:g}; give more than 0")
        if taken := sorted({"model", "messages"} & self.extra.keys()):
            raise UsageError(f"{taken[0]} is no extra parameter of a request; drop it")
        _check_url(self.base_url)
        _check_key(self.api_key.get_secret_value())

    @property
    def address(self) -> str:
        """The base URL without what may be secret; for people, and for the wire."""
        parts = urlsplit(self.base_url)
        return urlunsplit(parts._replace(netloc=_host_and_port(parts), query="", fragment=""))

    @property
    def login(self) -> tuple[str, str] | None:
        """User and password out of the base URL."""
        parts = urlsplit(self.base_url)
        if parts.username is None and parts.password is None:
            return None
        return unquote(parts.username or ""), unquote(parts.password or "")

    @property
    def is_local(self) -> bool:
        """Whether the server is this machine, which no proxy leads to."""
        return is_local(urlsplit(self.base_url).hostname or "")


def _host_and_port(parts: SplitResult) -> str:
    return parts.netloc.rpartition("@")[2]


def _check_url(url: str) -> None:
    try:
        parts = urlsplit(url)
        sound = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        sound = False
    if not sound or not url.isprintable() or " " in url:
        raise UsageError(
            "the base URL (--base-url, else OPENAI_BASE_URL) is not one; give something like https://host/v1"
        )
    if parts.query or parts.fragment:
        where = urlunsplit(parts._replace(netloc=_host_and_port(parts), query="", fragment=""))
        raise UsageError(
            f"the base URL {where} goes on with '?' or '#'; set OPENAI_BASE_URL to what stands before"
        )


def _check_key(key: str) -> None:
    if not key.isascii() or not key.isprintable() or " " in key:
        raise UsageError(
            "the API key holds a blank, a line break or a letter that no key holds; "
            "set OPENAI_API_KEY to the key alone"
        )
