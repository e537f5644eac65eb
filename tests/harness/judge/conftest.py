from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_torch_thread() -> None:
    """As in the judge's process: spinning workers would slow the candidates under test."""
    torch.set_num_threads(1)
