"""Errors in the form of OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

TYPES = {400: "invalid_request_error", 404: "invalid_request_error", 405: "invalid_request_error"}

UNIONS = {
    "prompt": "Give a text, a list of texts, a list of tokens or a list of such lists",
    "content": "Give a text, or a list of parts of the type text",
}
"""What is told of a field that takes several forms, for pydantic tells of the first form alone."""


class ApiError(Exception):
    """What a client is told instead of an answer."""

    def __init__(self, status: int, message: str, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.param, self.code = status, message, param, code

    @property
    def text(self) -> str:
        """As JSON."""
        told = {
            "message": self.message,
            "type": TYPES.get(self.status, "server_error"),
            "param": self.param,
            "code": self.code,
        }
        return json.dumps({"error": told})


def of_fields(errors: Sequence[Mapping[str, Any]]) -> ApiError:
    """Of what pydantic found wrong in a request: the first that this server told it, or else the first."""
    error = next((one for one in errors if one["type"] in ("refused", "no_text")), errors[0])
    place = [str(part) for part in error["loc"] if part != "body"]
    field = error.get("ctx", {}).get("field") or (place[0] if place else None)
    if error["type"] == "json_invalid":
        return ApiError(400, f"the request is no JSON: {error['ctx']['error']}")
    if not place and isinstance(error["input"], bytes):
        return ApiError(400, "the request is no JSON: it lacks the header Content-Type: application/json")
    if error["type"] == "refused":
        return ApiError(400, error["msg"], field)
    at = next((at for at, part in enumerate(place) if part in UNIONS), len(place))
    where = ".".join(place[: at + 1]) or "the request"
    told = UNIONS[place[at]] if at < len(place) and error["type"] != "no_text" else error["msg"]
    return ApiError(400, f"{where}: {told}, not {_short(error['input'])}", field)


def _short(value: Any) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
