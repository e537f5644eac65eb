"""A proposer with a plan: what comes next is a function of its seed and the ledger's length and wins alone."""

from __future__ import annotations

import random

from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.record.ledger import Ledger
from tests.fakes.toy import kernel

KINDS = (
    "tune",
    "crash",
    "outside",
    "slower",
    "improve",
    "near",
    "trick",
    "ragged",
    "unknown",
    "same",
    "both",
)


class PlannedProposer:
    """Goes through a plan of kinds of proposals, by default one of each kind, then has no ideas left."""

    def __init__(self, seed: int = 0, plan: tuple[str, ...] = KINDS) -> None:
        self._seed, self._plan = seed, plan

    def propose(self, ledger: Ledger) -> Proposal | None:
        n = len(ledger.candidates) + 1
        if n > len(self._plan):
            return None
        return self._planned(n, ledger)

    def peek(self, ledger: Ledger, count: int) -> list[Proposal]:
        """The next ones of the plan, as they would be if nothing were kept meanwhile."""
        n = len(ledger.candidates) + 1
        return [self._planned(k, ledger) for k in range(n, min(n + count, len(self._plan) + 1))]

    def _planned(self, n: int, ledger: Ledger) -> Proposal:
        draw = random.Random(f"{self._seed}/{n}")
        return _proposal(self._plan[n - 1], n, _quality(ledger), draw.randrange(1000))

    def finish(self, ledger: Ledger) -> None:
        """Nothing is ever under way."""

    def importances(self, ledger: Ledger) -> dict[str, float]:
        return {"TILE": 0.75, "UNROLL": 0.25}


def _quality(ledger: Ledger) -> float:
    """The number in the incumbent's kernel.py."""
    for win in reversed(ledger.wins):
        for edit in win.proposal.edits:
            if edit.path == "kernel.py" and edit.content:
                return float(edit.content.split()[2])
    return 1.0


def _proposal(kind: str, n: int, quality: float, salt: int) -> Proposal:
    idea = f"{kind} {salt}"
    better = round(quality * 1.25, 4)
    match kind:
        case "tune":
            return Proposal(author="sweep", idea=idea, knobs={"TILE": 32})
        case "crash":
            return _edit(idea, kernel(better, "crashed"))
        case "outside":
            return Proposal(author="llm", idea=idea, edits=(Edit(path="../contract.py", content="pass\n"),))
        case "slower":
            return Proposal(author="sweep", idea=idea, knobs={"UNROLL": 4})
        case "improve":
            return _edit(idea, kernel(better), Edit(path="docs/more.md", content=f"{n}\n"))
        case "near":
            return _edit(idea, kernel(round(quality * 1.01, 4)))
        case "trick":
            return Proposal(author="sweep", idea=idea, knobs={"TRICK": True})
        case "ragged":
            return _edit(idea, kernel(better, "ragged"))
        case "unknown":
            return Proposal(author="llm", idea=idea, knobs={"WARPS": 4})
        case "same":
            return _edit(idea, kernel(better, "ragged"))
        case "both":
            edits = (Edit(path="kernel.py", content=kernel(better)),)
            return Proposal(author="llm", idea=idea, edits=edits, knobs={"UNROLL": 2})
    raise ValueError(kind)


def _edit(idea: str, content: str, *others: Edit) -> Proposal:
    return Proposal(author="llm", idea=idea, edits=(Edit(path="kernel.py", content=content), *others))
