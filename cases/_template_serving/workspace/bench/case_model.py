"""The model that case.yaml names, as the server's entry is told of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from hillclimb.harness.serving.backends.backend import ServedModel

CASE = Path(__file__).resolve().parents[2]


def case_model() -> ServedModel:
    """Raises OSError where there is no case.yaml two folders above."""
    settings: dict[str, Any] = yaml.safe_load((CASE / "case.yaml").read_text(encoding="utf-8"))
    path = (CASE / Path(settings["model_path"]).expanduser()).resolve()
    sizes = settings["serving"]
    return ServedModel(settings["model"], path, sizes["context"], sizes["slots"])
