"""Looking ahead: while one candidate is measured, the judge compiles what will probably be asked about next.

All of it are hints. What is announced counts for nothing until it is proposed; the judge may ignore a hint, and one
that fails is forgotten. What is announced and never proposed leaves a folder in trees/ until the session ends, and
objects in git that no ref points at.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hillclimb.agent.climb.candidate import BuiltCandidate
from hillclimb.agent.climb.try_candidate import TrialContext, find_same_tree, why_unsandboxed
from hillclimb.agent.proposal import Proposal
from hillclimb.agent.proposer import Proposer, peek
from hillclimb.agent.record.ledger import Candidate, Ledger
from hillclimb.harness.device.cores import usable_cpus
from hillclimb.harness.errors import HillclimbError, Stop
from hillclimb.harness.records import Provenance

GPU_LOOKAHEAD_COUNT = 3
"""Proposals that are foreseen on a GPU; compiling one takes about as long as screening one, on another core."""


def lookahead_count(provenance: Provenance) -> int:
    """How many proposals to look ahead: none on a CPU, where whatever runs beside a measurement disturbs it."""
    return GPU_LOOKAHEAD_COUNT if provenance.device_id.startswith("GPU-") else 0


def spare_compile_slots(cores: int) -> int:
    """How many sides can be compiled beside the present one: the judge takes half of the cores for it."""
    return max(0, cores // 2 - 1)


class Lookahead:
    """Builds and announces what comes next."""

    def __init__(self, context: TrialContext) -> None:
        self._context = context
        self._count = min(context.lookahead_count, spare_compile_slots(usable_cpus()))
        self._folders: dict[str, tuple[Path, ...]] = {}

    @property
    def folders_in_use(self) -> tuple[Path, ...]:
        """Trees that the judge may be reading: announced, and not proposed yet."""
        return tuple(folder for folders in self._folders.values() for folder in folders)

    def end(self) -> None:
        """Nothing that was announced is needed any more."""
        self._folders = {}

    def send_hints(self, proposer: Proposer, candidate: Candidate, ledger: Ledger) -> None:
        """Tell the judge of the present candidate, then of what would follow if nothing changed."""
        if not self._context.lookahead_count:
            return
        incumbent = self._context.builder.side(ledger.incumbent)
        for proposal in (candidate.proposal, *self._peek(proposer, ledger)):
            built = self._build(proposal, ledger)
            if built:
                self._context.judge.hint(built.screened, incumbent)
        self._folders.pop(candidate.proposal.model_dump_json(), None)

    def _peek(self, proposer: Proposer, ledger: Ledger) -> Sequence[Proposal]:
        try:
            return peek(proposer, ledger, self._count)
        except Stop:
            raise
        except HillclimbError:
            return ()  # `propose` meets whatever is wrong, where it counts

    def _build(self, proposal: Proposal, ledger: Ledger) -> BuiltCandidate | None:
        """The candidate that the proposal would become; None where it would not be run."""
        if why_unsandboxed(self._context, proposal):
            return None
        try:
            built = self._context.build(proposal, ledger.incumbent)
        except Stop:
            raise
        except HillclimbError:
            return None  # if it is proposed, it is built again, and whatever is wrong with it recorded
        if find_same_tree(ledger, built.tree):
            return None
        self._folders[proposal.model_dump_json()] = (Path(built.screened.tree), Path(built.confirmed.tree))
        return built
