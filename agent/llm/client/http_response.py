"""An HTTP answer as it came: status, headers, and the body under a cap."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class HttpResponse:
    """One whole answer, of whatever status."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes

    def parse_json(self) -> Any:
        """The body as JSON. Raises ValueError where it is none."""
        try:
            return json.loads(self.body)
        except RecursionError:
            raise ValueError("nested too deeply") from None

    def parse_json_or_none(self) -> Any:
        """The body as JSON; None where it is none."""
        try:
            return self.parse_json()
        except ValueError:
            return None

    def excerpt(self) -> str:
        """How the body begins, for people: tags dropped, a page's title first."""
        text = self.body[:20_000].decode(errors="replace")
        title = re.search(r"(?is)<title[^>]*>(.{0,300}?)</title>", text)
        return title[1] if title else re.sub(r"(?s)<[^>]*>", " ", text)
