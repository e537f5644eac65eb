from __future__ import annotations

from collections.abc import Iterator

import pytest

from hillclimb.harness.errors import SandboxError
from hillclimb.harness.sandbox.fork.prefork import PreforkRung
from hillclimb.harness.sandbox.rungs.choose import ForkableRung, bubblewrap_rung, landlock_rung
from tests.harness.sandbox.conftest import start as start
from tests.harness.sandbox.conftest import workspace as workspace

MAKERS = {"bubblewrap": bubblewrap_rung, "landlock": landlock_rung}
WAYS = [f"{how}-{name}" for name in MAKERS for how in ("fresh", "forked")]


@pytest.fixture(scope="module", params=WAYS)
def rung(request: pytest.FixtureRequest) -> Iterator[ForkableRung]:
    """Each real rung in turn, started afresh and forked; skipped where the machine lacks it."""
    how, _, name = request.param.partition("-")
    try:
        made = MAKERS[name]()
    except SandboxError as error:
        pytest.skip(str(error))
    if how == "fresh":
        yield made
        return
    with PreforkRung(made, ["hillclimb.harness.sandbox.canary.escapes"]) as forking:
        yield forking
