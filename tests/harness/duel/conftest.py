from __future__ import annotations

from collections.abc import Iterator

import pytest

from hillclimb.harness.duel.process.launch_spec import thread_variables
from hillclimb.harness.sandbox.rungs.choose import PreforkRung, Rung, choose_rung

SHARE_A_RUNG = {"test_duel", "test_launcher", "test_precompile", "test_process"}


def pytest_itemcollected(item: pytest.Item) -> None:
    """One worker runs all that is forked from the process below, which takes seconds to start."""
    if item.path.stem in SHARE_A_RUNG:
        item.add_marker(pytest.mark.xdist_group("rung"))


@pytest.fixture(scope="session")
def rung() -> Iterator[Rung]:
    """Forks candidates as the judge of a GPU does."""
    with PreforkRung(
        choose_rung(trust_workspace=False), ["hillclimb.harness.candidate.preload"], thread_variables()
    ) as made:
        yield made
