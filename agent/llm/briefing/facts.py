"""Everything that a briefing says, as values: gathered once, then only worded and cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hillclimb.agent.llm.briefing.headroom import Headroom
    from hillclimb.agent.llm.briefing.knob_summary import KnobSummary
    from hillclimb.agent.llm.briefing.ledger_summary import LedgerSummary
    from hillclimb.agent.record.entries import ProfiledEntry
    from hillclimb.harness.case.case import Case


@dataclass(frozen=True)
class CaseTexts:
    """The case's own words; fixed for the length of a run."""

    program: str
    contract: str
    """The source of contract.py, or of the case's command, shown and never run here."""


@dataclass(frozen=True)
class Facts:
    """What is known when a model is asked."""

    case: Case
    texts: CaseTexts
    files: Mapping[str, str]
    """The incumbent's text files by path, docs included."""
    incumbent: str
    """Its commit."""
    past: LedgerSummary
    """Every candidate and every reply of the run."""
    seen: KnobSummary
    """What was seen of the knobs on the present source."""
    machine: str = ""
    """What judges, as the run began on it: the device, and versions."""
    family: str = ""
    """What to work on; empty leaves it to the model."""
    reason: str = ""
    """Why that, and why now."""
    unread_knobs: tuple[str, ...] = ()
    """Knobs that the incumbent's source never reads."""
    importances: Mapping[str, float] = field(default_factory=dict)
    importances_missing: str = ""
    """Why none are told, in words."""
    interactions: Mapping[tuple[str, str], float] = field(default_factory=dict)
    signals: tuple[str, ...] = ()
    """Of a plateau, by name."""
    profile: ProfiledEntry | None = None
    """Of the incumbent, or the newest there is."""
    headroom: tuple[Headroom, ...] = ()
    """Of each problem of that profile."""
    lane_lines: tuple[str, ...] = ()
    """What that profile says of masked lanes and trips of loops."""

    @property
    def entry(self) -> str:
        """The file that holds the kernel's function."""
        return self.case.settings.entry.split(":")[0]


def read_texts(case: Case) -> CaseTexts:
    """program.md, and contract.py or the files of the command; empty where there is none that can be read."""
    files, command = [case.contract_file], case.settings.command
    if command:
        named = {case.folder / word for word in command.run}
        files = [path for path in case.fixed_files() if path in named]
    return CaseTexts(_read(case.folder / "program.md"), "".join(map(_read, files)))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
