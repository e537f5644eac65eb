"""The simulated judge as one on a GPU, which is told early what comes next, and writes that down."""

from __future__ import annotations

from pathlib import Path

from hillclimb.harness.judge.protocol import EmptyAnswer
from hillclimb.harness.records import Confirmation, Provenance, Screening, Side, Watch
from tests.fakes.judge import PROVENANCE, SimulatedJudge

GPU = PROVENANCE.model_copy(update={"device": "simulated GPU", "device_id": "GPU-0"})


class Hinted(SimulatedJudge):
    """Writes down what it is told and asked, in order."""

    def __init__(self, provenance: Provenance = GPU) -> None:
        super().__init__(provenance)
        self.heard: list[tuple[str, str]] = []

    def prepare(self, side: Side, parent: Side) -> EmptyAnswer:
        assert (Path(side.tree) / "kernel.py").is_file() and (Path(parent.tree) / "kernel.py").is_file()
        self.heard.append(("hint", side.model_dump_json()))
        return EmptyAnswer()

    def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
        self.heard.append(("screen", candidate.model_dump_json()))
        return super().screen(candidate, incumbent, watch)

    def confirm(
        self, candidate: Side, incumbent: Side, baseline: Side, alpha: float, watch: Watch
    ) -> Confirmation:
        self.heard.append(("confirm", candidate.model_dump_json()))
        return super().confirm(candidate, incumbent, baseline, alpha, watch)

    @property
    def hints(self) -> list[str]:
        return [side for what, side in self.heard if what == "hint"]
