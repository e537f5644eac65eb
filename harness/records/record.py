"""What every record has: a frozen model whose unknown keys are refused."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

SCHEMA = 1
"""Version of every record below; raised when a field changes meaning."""


class Record(BaseModel):
    """A frozen value that crosses a process or a file border as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")
