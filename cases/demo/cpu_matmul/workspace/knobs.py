"""Values of the knobs in knobs.yaml: the environment's where it sets one, else the default."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml

_CONVERT = {"int": int, "log-int": int, "float": float, "bool": lambda text: bool(int(text))}
_KNOBS: dict[str, Any] = yaml.safe_load(Path(__file__).with_name("knobs.yaml").read_text(encoding="utf-8"))


def knob(name: str) -> Any:
    """One knob's value, of the type its domain says. Raises KeyError or ValueError where there is none such."""
    body, text = _KNOBS[name], os.environ.get(name)
    if text is None:
        return body["default"]
    if body["type"] == "choice":
        return next(choice for choice in body["choices"] if str(choice) == text)
    return _CONVERT[body["type"]](text)
