"""The GPU's judge over the same kind of cheats: rejected for their own reasons, the honest ones through the gate.

The whole way, and both rates, is scripts/experiments/cheat_rates.py gpu. Run alone: `pytest tests/gpu -n 0`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.cheats.court import Court
from tests.cheats.declared import Candidate, Verdict, find, matches, names

CHEATS, HONEST = find("gpu"), find("honest/gpu")
UNREAD = [cheat for cheat in CHEATS if cheat.declared.unread]
ALPHA = 1e-3


@pytest.fixture(scope="module")
def court(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Court]:
    folder = tmp_path_factory.mktemp("cheats")
    for path in (folder, *folder.parents):
        if path.stat().st_uid == folder.stat().st_uid and path != Path("/"):
            path.chmod(path.stat().st_mode | 0o055)
    with closing(Court(folder)) as found:
        yield found


@pytest.mark.parametrize("candidate", HONEST, ids=names(HONEST))
def test_honest_candidates_pass_the_gate(court: Court, candidate: Candidate) -> None:
    answer = court.judge(candidate, ALPHA, until="gate")
    print(candidate.name, "->", answer)
    assert answer.reason is None, answer.detail


@pytest.mark.parametrize("cheat", CHEATS, ids=names(CHEATS))
def test_each_cheat_is_rejected_for_its_own_reason(court: Court, cheat: Candidate) -> None:
    _expect(court, cheat, cheat.declared, unread=False)


@pytest.mark.parametrize("cheat", UNREAD, ids=names(UNREAD))
def test_behind_the_reading_of_the_source_stands_another_wall(court: Court, cheat: Candidate) -> None:
    assert cheat.declared.unread is not None
    _expect(court, cheat, cheat.declared.unread, unread=True)


def _expect(court: Court, cheat: Candidate, expected: Verdict, *, unread: bool) -> None:
    answer = court.judge(cheat, ALPHA, unread=unread, until=expected.stage)
    print(cheat.name, "->", answer)
    assert answer.reason is not None, "kept" if answer.stage == "confirm" else "not seen through"
    assert matches(expected, answer.reason, answer.detail), f"{answer.reason}: {answer.detail}"
