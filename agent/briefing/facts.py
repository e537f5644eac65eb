"""Everything that a briefing is made from, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from agent.entries import Profiled
    from agent.ledger import Ledger
    from harness.case.case import Case


@dataclass(frozen=True)
class Texts:
    """The case's own words; fixed for the length of a run."""

    program: str
    contract: str
    """The source of contract.py, shown and never run here."""


@dataclass(frozen=True)
class Facts:
    """What is known when a model is asked."""

    case: Case
    texts: Texts
    files: Mapping[str, str]
    """The incumbent's text files by path, docs included."""
    incumbent: str
    """Its commit."""
    ledger: Ledger
    family: str = ""
    """What to work on; empty leaves it to the model."""
    reason: str = ""
    """Why that, and why now."""
    importances: Mapping[str, float] = field(default_factory=dict)
    interactions: Mapping[tuple[str, str], float] = field(default_factory=dict)
    signals: tuple[str, ...] = ()
    """Of a plateau, by name."""
    profile: Profiled | None = None
    """Of the incumbent, or the newest there is."""

    @property
    def entry(self) -> str:
        """The file that holds the kernel's function."""
        return self.case.settings.entry.split(":")[0]


def read_texts(case: Case) -> Texts:
    """program.md and contract.py; empty where there is none that can be read."""
    return Texts(_read(case.folder / "program.md"), _read(case.contract_file))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
