"""Errors in the form of OpenAI's API."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

TYPES = {400: "invalid_request_error", 404: "invalid_request_error", 405: "invalid_request_error"}


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


def of_fields(error: Mapping[str, Any]) -> ApiError:
    """Of the first that pydantic found wrong in a request."""
    place = [str(part) for part in error["loc"] if part != "body"]
    field = error.get("ctx", {}).get("field") or (place[0] if place else None)
    if error["type"] == "json_invalid":
        return ApiError(400, f"the request is no JSON: {error['ctx']['error']}")
    if not place and isinstance(error["input"], bytes):
        return ApiError(400, "the request is no JSON: it lacks the header Content-Type: application/json")
    if error["type"] == "refused":
        return ApiError(400, error["msg"], field)
    where = ".".join(place) or "the request"
    return ApiError(400, f"{where}: {error['msg']}, not {_short(error['input'])}", field)


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
