from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(autouse=True)
def _one_torch_thread() -> None:
    """As in the judge's process: spinning workers would slow the candidates under test."""
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One for many pages; ask for it behind the mark `in_browser`."""
    from tests.harness.report.page_browser import CHROMIUM, run_chromium

    assert CHROMIUM is not None
    with run_chromium(CHROMIUM) as found:
        yield found


@pytest.fixture
def unread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Takes the first wall away: the reading of the source, which a hostile author can talk around."""
    monkeypatch.setattr(
        "hillclimb.harness.duel.process.launcher.check_policy", lambda workspace, policy: None
    )
