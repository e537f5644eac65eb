"""Tests here need an NVIDIA GPU; without one they are skipped, and say so. Run them alone: `pytest tests/gpu -n 0`."""

from __future__ import annotations

from pathlib import Path

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = [item for item in items if item.path.is_relative_to(Path(__file__).parent)]
    for item in here:
        item.add_marker(pytest.mark.gpu)
        if not Path("/dev/nvidiactl").exists():
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here (/dev/nvidiactl is missing)"))
