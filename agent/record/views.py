"""Views of the ledger for people: results.tsv, progress.png and study.db. Made again at any time, never read back."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.record.ledger import Candidate, Ledger
from hillclimb.agent.record.trailers import to_one_line
from hillclimb.harness.errors import StorageError

COLUMNS = (
    "n",
    "time",
    "verdict",
    "reason",
    "speedup",
    "low",
    "high",
    "cumulative",
    "screened",
    "decided",
    "seconds_per_call",
    "metrics",
    "seconds",
    "author",
    "idea",
    "knobs",
    "commit",
    "detail",
)

DrawPlot = Callable[[Path], str]
"""Draws progress.png into a run folder; returns what went wrong, empty if nothing did."""
Mirror = Callable[[Path], str]
"""Writes study.db into a run folder, likewise."""

_DRAWING_SECONDS = 120


def draw_progress(folder: Path) -> str:
    """Draw in a process of its own, which may import matplotlib, and imports nothing from the current folder."""
    command = [sys.executable, "-P", "-m", "hillclimb.harness.report.plots", str(folder)]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_DRAWING_SECONDS, process_group=0
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    complaint = done.stderr.decode(errors="replace").strip().splitlines()
    return (complaint[-1] if complaint else f"exit status {done.returncode}") if done.returncode else ""


def mirror_nothing(folder: Path) -> str:
    """No study.db."""
    return ""


class Views:
    """The views of one run, kept up with its ledger. A failing view is noticed, and made whole the next time.

    Raises StorageError only where the disk takes nothing at all.
    """

    def __init__(
        self,
        folder: Path,
        disk: Disk,
        notice: Callable[[str], None],
        draw: DrawPlot,
        mirror: Mirror = mirror_nothing,
    ) -> None:
        self._folder, self._disk, self._notice = folder, disk, notice
        self._draw, self._mirror = draw, mirror
        self._is_complete = False

    def update(self, ledger: Ledger, candidate: Candidate) -> None:
        """One more candidate is settled."""
        path = self._folder / "results.tsv"
        if not self._is_complete:
            return self.rebuild_table(ledger)
        return self._try(lambda: self._disk.append(path, row(candidate).encode()))

    def rebuild_table(self, ledger: Ledger) -> None:
        """Write results.tsv from the whole ledger."""
        self._try(lambda: self._disk.replace(self._folder / "results.tsv", table(ledger).encode()))

    def draw(self) -> None:
        """Draw progress.png from the ledger on disk."""
        trouble = self._draw(self._folder)
        if trouble:
            self._notice(f"progress.png could not be drawn ({trouble}); the run goes on without it")

    def mirror(self) -> None:
        """Write study.db from the ledger on disk."""
        trouble = self._mirror(self._folder)
        if trouble:
            self._notice(f"study.db could not be written ({trouble}); 'hillclimb rebuild' makes it")

    def _try(self, write: Callable[[], None]) -> None:
        try:
            write()
            self._is_complete = True
        except StorageError as error:
            self._is_complete = False
            self._disk.probe(self._folder)  # a disk that refuses everything is not a view's trouble
            self._notice(
                f"results.tsv could not be written ({error}); it is made again with the next candidate"
            )


def table(ledger: Ledger) -> str:
    """results.tsv: one row a settled candidate."""
    settled = (candidate for candidate in ledger.candidates if candidate.settled)
    return "\t".join(COLUMNS) + "\n" + "".join(row(candidate) for candidate in settled)


def row(candidate: Candidate) -> str:
    """One candidate's line of results.tsv."""
    judged, proposal = candidate.judged, candidate.proposal
    if judged is None:
        raise ValueError(f"candidate {candidate.n} has no verdict")
    speedup, cumulative = judged.speedup, judged.cumulative
    cells = (
        str(candidate.n),
        datetime.fromtimestamp(judged.time, UTC).isoformat(timespec="seconds"),
        "kept" if judged.kept else "rejected",
        str(judged.reason or ""),
        _figure(speedup.estimate if speedup else None),
        _figure(speedup.low if speedup else None),
        _figure(speedup.high if speedup else None),
        _figure(cumulative.estimate if cumulative else None),
        _figure(judged.screened),
        _figure(judged.decided.speedup if judged.decided else None),
        f"{judged.seconds_per_call:.6g}" if judged.seconds_per_call is not None else "",
        json.dumps({f"{one.suite}.{one.metric}": float(f"{one.value:.6g}") for one in judged.metrics})
        if judged.metrics
        else "",
        f"{judged.seconds:.2f}",
        proposal.author,
        to_one_line(proposal.idea),
        json.dumps(proposal.knobs, sort_keys=True) if proposal.knobs else "",
        judged.commit or "",
        to_one_line(judged.detail),
    )
    return "\t".join(cells) + "\n"


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"
