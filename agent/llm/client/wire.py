"""The way to one server: sends one request, brings back a whole answer or says what went wrong.

The only module that touches the openai package; it is imported when an endpoint is opened, not before.
"""

from __future__ import annotations

import base64
import os
import ssl
from collections.abc import Sequence
from functools import cache
from typing import Any, cast

import httpx2
import openai

from hillclimb.agent.llm.client.body import (
    CURRENT_ATTEMPT,
    AttemptProgress,
    BadContentEncoding,
    BodyTooLarge,
    cap_response,
    track_request,
)
from hillclimb.agent.llm.client.faults import AttemptFailure, Fault
from hillclimb.agent.llm.client.http_response import HttpResponse
from hillclimb.agent.llm.client.settings import ModelSettings
from hillclimb.harness.errors import UsageError

CONNECT_TIMEOUT_SECONDS = 10.0


class ChatClient:
    """Raises UsageError at construction where the environment's proxy or certificates cannot be used."""

    def __init__(self, settings: ModelSettings) -> None:
        self._model, self._address = settings.model, settings.address
        self._client = openai.AsyncOpenAI(
            api_key=settings.api_key.get_secret_value() or "none",
            base_url=settings.address,
            max_retries=0,
            default_headers=_headers(settings),
            http_client=_http_client(settings),
        )
        self._completions = self._client.chat.completions.with_raw_response

    async def send(
        self, messages: Sequence[dict[str, Any]], parameters: dict[str, Any], receipt: AttemptProgress
    ) -> HttpResponse | AttemptFailure:
        """One attempt. `receipt` tells, meanwhile and after a cancellation, what has come."""
        CURRENT_ATTEMPT.set(receipt)
        try:
            raw = await self._completions.create(
                model=self._model, messages=cast(Any, messages), extra_body=parameters
            )
        except openai.APIStatusError as error:
            return _to_response(error.response)
        except openai.APIConnectionError as error:
            return _to_failure(error.__cause__, self._address)
        except BodyTooLarge as error:
            return AttemptFailure(Fault.TOO_LARGE, str(error))
        except BadContentEncoding as error:
            return AttemptFailure(Fault.BROKEN_HTTP, str(error))
        return _to_response(raw.http_response)

    async def close(self) -> None:
        """Every connection is closed when this returns."""
        await self._client.close()


def _headers(settings: ModelSettings) -> dict[str, str]:
    headers = {"Accept-Encoding": "identity"}
    key = settings.api_key.get_secret_value()
    if key:
        headers["Authorization"] = f"Bearer {key}"  # said here as well, or OPENAI_CUSTOM_HEADERS would win
    if settings.login:
        user, password = settings.login
        headers["Authorization"] = "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()
    return headers | dict(settings.headers)


def _http_client(settings: ModelSettings) -> httpx2.AsyncClient:
    """No timeout but for connecting: the call's own deadline is the one that counts."""
    try:
        return httpx2.AsyncClient(
            timeout=httpx2.Timeout(None, connect=min(CONNECT_TIMEOUT_SECONDS, settings.deadline_seconds / 2)),
            follow_redirects=False,
            trust_env=not settings.is_local,
            verify=_certificates(*_certificate_places(settings)),
            event_hooks={"request": [track_request], "response": [cap_response]},
        )
    except (ValueError, ImportError, OSError, httpx2.InvalidURL) as error:
        raise UsageError(
            f"the environment's proxy or certificates cannot be used ({type(error).__name__}); "
            "look at HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and SSL_CERT_FILE"
        ) from None


def _certificate_places(settings: ModelSettings) -> tuple[str, ...]:
    """What names certificates, in the order in which it counts; nothing for a server here that has none."""
    if settings.is_local and not settings.base_url.lower().startswith("https:"):
        return ()
    return tuple(os.environ.get(name, "") for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"))


@cache
def _certificates(*places: str) -> ssl.SSLContext:
    """Read once for the same places: it takes some 40 ms."""
    return httpx2.create_ssl_context(trust_env=bool(places))


def _to_response(response: Any) -> HttpResponse:
    headers = {name.lower(): value for name, value in response.headers.items()}
    return HttpResponse(response.status_code, headers, response.content)


def _to_failure(cause: BaseException | None, address: str) -> AttemptFailure:
    told = f"{address}: {type(cause).__name__}: {cause}"
    if (broken := _tls_error(cause)) is not None:
        return AttemptFailure(Fault.NO_TLS, f"{_tls_remedy(broken)}; {told}")
    return AttemptFailure(_transport_fault(cause), told)


def _tls_error(cause: BaseException | None) -> ssl.SSLError | None:
    """The error of TLS behind a failed connection; None where the connection just ended, which may pass."""
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:
        if isinstance(cause, ssl.SSLError):
            return None if isinstance(cause, ssl.SSLEOFError | ssl.SSLSyscallError) else cause
        seen.add(id(cause))
        cause = cause.__cause__ or cause.__context__
    return None


def _tls_remedy(error: ssl.SSLError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return "name the server's certificate, or its authority's, in SSL_CERT_FILE"
    return "check whether OPENAI_BASE_URL should begin with http:, and its port"


def _transport_fault(cause: BaseException | None) -> Fault:
    match cause:
        case httpx2.RemoteProtocolError():
            ended = "closed connection" in str(cause) or "disconnected" in str(cause)
            return Fault.CUT_OFF if ended else Fault.BROKEN_HTTP
        case httpx2.ReadError() | httpx2.WriteError() | httpx2.CloseError() | httpx2.ReadTimeout():
            return Fault.CUT_OFF
        case httpx2.NetworkError() | httpx2.ProxyError() | httpx2.TimeoutException() | ssl.SSLError():
            return Fault.UNREACHABLE
        case _:
            return Fault.BROKEN_HTTP
