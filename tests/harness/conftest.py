from __future__ import annotations

import pytest
import torch


@pytest.fixture(autouse=True)
def _one_torch_thread() -> None:
    """As in the judge's process: spinning workers would slow the candidates under test."""
    torch.set_num_threads(1)


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the first wall away: the reading of the source, which a hostile author can talk around."""
    monkeypatch.setattr(
        "hillclimb.harness.duel.process.launcher.check_policy", lambda workspace, policy: None
    )
