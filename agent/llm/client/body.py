"""The body of an answer as it comes in: noticed, capped, and inflated no further than the cap.

Covered: endless bodies, compression bombs, nested or unknown encodings. Not covered: an endless head; the HTTP
library caps that itself.
"""

from __future__ import annotations

import zlib
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import httpx2

from hillclimb.agent.llm.client.faults import Fault

MAX_BODY_BYTES = 8 * 2**20
_BILLED_FAULTS = (
    Fault.DRIPPING,
    Fault.CUT_OFF,
    Fault.TOO_LARGE,
    Fault.BROKEN_HTTP,
    Fault.EMPTY_BODY,
    Fault.BROKEN_JSON,
)
"""With a status that says all went well: the server bills what was never read."""


@dataclass
class AttemptProgress:
    """What has come of the answer so far; filled in while one attempt waits for it."""

    connected: bool = False
    """There is a connection, and the request is on its way."""
    sent: bool = False
    """The request went out whole."""
    status: int = 0
    """As soon as the head of the answer is there."""
    body_bytes: int = 0
    """Bytes of the body."""

    def clear(self) -> None:
        """For the next attempt."""
        self.connected, self.sent, self.status, self.body_bytes = False, False, 0, 0

    def may_have_run(self, fault: Fault) -> bool:
        """Whether the model probably worked for an attempt that ended like this."""
        if fault is Fault.HUNG or (fault is Fault.CUT_OFF and not self.status):
            return self.sent
        if fault is Fault.GATEWAY:
            return self.sent
        return self.sent and 200 <= self.status < 300 and fault in _BILLED_FAULTS


CURRENT_ATTEMPT: ContextVar[AttemptProgress] = ContextVar("CURRENT_ATTEMPT")
"""The receipt of the attempt that runs in this task."""


class BodyTooLarge(Exception):
    """The body passed the cap."""


class BadContentEncoding(Exception):
    """The body is compressed in a way that is not understood, or wrongly."""


class CappedBody(httpx2.AsyncByteStream):
    """Wraps the stream of a body; what comes out is plain bytes, `most` of them at most."""

    def __init__(
        self, stream: httpx2.AsyncByteStream, encoding: str, most: int, receipt: AttemptProgress
    ) -> None:
        self._stream, self._most, self._progress = stream, most, receipt
        self._inflater = _inflater(encoding)
        self._plain_bytes = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            self._progress.body_bytes += len(chunk)
            plain = self._inflate(chunk) if self._inflater else chunk
            self._plain_bytes += len(plain)
            if max(self._plain_bytes, self._progress.body_bytes) > self._most:
                raise BodyTooLarge(f"the body passed {self._most} bytes")
            yield plain

    async def aclose(self) -> None:
        await self._stream.aclose()

    def _inflate(self, chunk: bytes) -> bytes:
        assert self._inflater is not None
        try:
            plain = self._inflater.decompress(chunk, self._most - self._plain_bytes + 1)
        except zlib.error as error:
            raise BadContentEncoding(f"its compression is broken: {error}") from None
        if self._inflater.unconsumed_tail:
            raise BodyTooLarge(f"the body passed {self._most} bytes once inflated")
        return plain


async def track_request(request: httpx2.Request) -> None:
    """A request hook: the receipt learns when the request goes out."""
    receipt = CURRENT_ATTEMPT.get()

    async def notice(event: str, _: dict[str, Any]) -> None:
        receipt.connected = receipt.connected or event.endswith("send_request_headers.started")
        receipt.sent = receipt.sent or event.endswith("send_request_body.complete")

    request.extensions = {**request.extensions, "trace": notice}


async def cap_response(response: httpx2.Response, most: int = MAX_BODY_BYTES) -> None:
    """A response hook: puts a Body in front of what is still to be read."""
    receipt = CURRENT_ATTEMPT.get()
    receipt.status = response.status_code
    encoding = response.headers.pop("content-encoding", "").strip().casefold()
    stream = response.stream
    assert isinstance(stream, httpx2.AsyncByteStream)
    response.stream = CappedBody(stream, encoding, most, receipt)


def _inflater(encoding: str) -> zlib._Decompress | None:
    if encoding in ("", "identity"):
        return None
    if encoding in ("gzip", "x-gzip", "deflate"):
        return zlib.decompressobj(wbits=47)  # 32 + 15: gzip or zlib, whichever it is
    raise BadContentEncoding(f"its encoding is {encoding!r}, which was not asked for")
