"""Carries one post to a Discord webhook: one request of a bounded length, and an answer, never an exception."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from http.client import HTTPException
from typing import Any

from discord_webhook import DiscordWebhook  # type: ignore[import-untyped]
from pydantic import SecretStr
from requests import Response, Session
from urllib3.exceptions import HTTPError

from hillclimb.agent.notify.connection import AbortableConnection, open_session
from hillclimb.agent.notify.post import PICTURE, Post, embed, read_picture
from hillclimb.agent.notify.response import WebhookResponse, read_answer

_MAX_BODY_BYTES = 64 << 10
_CONNECT_TIMEOUT_SECONDS = 10.0
_MESSAGE = ("embeds", "attachments", "allowed_mentions")
"""What Discord is sent out of all that the package keeps in a message."""
_NOISY_LOGGERS = ("urllib3", "requests", "discord_webhook", "charset_normalizer")


class WebhookClient:
    """One webhook. Its URL is in no answer, and in no line that a library logs here."""

    def __init__(self, url: SecretStr) -> None:
        self._url = url
        self._connection = AbortableConnection()

    def deliver(self, post: Post, seconds: float) -> WebhookResponse:
        """Send the post, all in so many seconds (the look-up of the host's name aside, which nothing can end)."""
        line = self._connection = AbortableConnection()
        watchdog = threading.Timer(seconds, line.abort)
        watchdog.daemon = True
        watchdog.start()
        try:
            with _suppressed_logs(), closing(line):
                return self._send(post, seconds, line)
        except Exception as error:  # noqa: BLE001 - whatever a library raises may quote the URL: only its type is told
            cause = _root_cause(error)
            # the library's deadlines may be as long as ours: either may be met first
            is_late = line.is_aborted or isinstance(cause, TimeoutError)
            return WebhookResponse(
                "failed", "no reply in time" if is_late else f"no connection: {type(cause).__name__}"
            )
        finally:
            watchdog.cancel()

    def abort(self) -> None:
        """End the request under way, from any thread."""
        self._connection.abort()

    def _send(self, post: Post, seconds: float, line: AbortableConnection) -> WebhookResponse:
        picture = read_picture(post.picture)
        with open_session(line) as session:
            webhook = _Webhook(
                self._url.get_secret_value(),
                session,
                embeds=[embed(post, pictured=picture is not None)],
                allowed_mentions={"parse": []},
                timeout=(min(seconds, _CONNECT_TIMEOUT_SECONDS), seconds),
            )
            if picture is not None:
                webhook.attach(picture)
            with webhook.api_post_request() as response:
                return read_answer(response.status_code, response.headers, _read(response))


class _Webhook(DiscordWebhook):  # type: ignore[misc]  # the package is untyped
    """The package's message. Its own way of sending has no total deadline, follows redirects, and logs."""

    def __init__(self, url: str, session: Session, **options: Any) -> None:
        super().__init__(url, **options)
        self._session = session

    def attach(self, picture: bytes) -> None:
        """https://discord.com/developers/docs/reference#uploading-files"""
        self.attachments = [{"id": 0, "filename": PICTURE, "description": "best speedup so far"}]
        self.files = {"files[0]": (PICTURE, picture, "image/png")}

    def api_post_request(self) -> Response:
        """One request, the body of its reply not read yet."""
        message = {key: value for key, value in self.json.items() if key in _MESSAGE and value}
        packed: dict[str, Any] = {"json": message}
        if self.files:
            packed = {"files": {**self.files, "payload_json": (None, json.dumps(message))}}
        return self._session.post(
            self.url,
            params=self._query_params,
            timeout=self.timeout,
            headers={"Accept-Encoding": "identity"},
            allow_redirects=False,
            stream=True,
            **packed,
        )


def _read(response: Response) -> bytes:
    """As much of the body as comes, up to the cap. The status has come already, and it counts for more."""
    body = b""
    with suppress(OSError, ValueError, HTTPError, HTTPException):
        while len(body) < _MAX_BODY_BYTES and (
            piece := response.raw.read1(_MAX_BODY_BYTES - len(body), decode_content=False)
        ):
            body += piece
    return body


def _root_cause(error: BaseException) -> BaseException:
    """What is at the bottom: `gaierror` says more than the `ConnectionError` around it."""
    seen = error
    while isinstance(below := seen.__cause__ or seen.__context__, Exception):
        seen = below
    return seen


@contextmanager
def _suppressed_logs() -> Iterator[None]:
    """Drop what HTTP libraries log from this thread meanwhile: their lines hold the path, and so the token."""
    ours = threading.get_ident()

    def is_elsewhere(record: logging.LogRecord) -> bool:
        return record.thread != ours

    names = [name for name in logging.root.manager.loggerDict if name.partition(".")[0] in _NOISY_LOGGERS]
    loggers = [logging.getLogger(name) for name in names]
    for logger in loggers:
        logger.addFilter(is_elsewhere)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(is_elsewhere)
