"""What earlier runs of the case saw of the same knobs, for the sweep to begin with.

It is looked for once, before the first candidate, and kept in the run's folder as `earlier.json`: a run that is taken
up reads it there, whatever became of the other runs since.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import TypeAdapter, ValidationError

from hillclimb.agent.record.ledger import Ledger
from hillclimb.agent.sweep.landscape import KnobObservation, build_landscape
from hillclimb.harness.errors import HillclimbError
from hillclimb.harness.knobs.knobs import Knobs, KnobValue
from hillclimb.harness.records import Record, Stage

if TYPE_CHECKING:
    from hillclimb.agent.proposer import ProposerContext

EARLIER_FILE = "earlier.json"
MAX_BEST, MAX_OTHERS = 40, 60
"""Configurations taken from earlier runs: the best, and some of the others, evenly spread over their ranks."""
MAX_RUNS = 5
"""Runs that are looked into, the latest first."""
_LEDGER = "ledger.jsonl"


class EarlierResult(Record):
    """One configuration that an earlier run judged."""

    run: str
    configuration: dict[str, KnobValue]
    value: float | None
    """Log speedup over that run's baseline; None where nothing could be timed."""
    stage: Stage | None = None
    """The last stage that timed it there; None where none did, and in files from before it was recorded."""


_LIST: TypeAdapter[tuple[EarlierResult, ...]] = TypeAdapter(tuple[EarlierResult, ...])


def load_earlier_results(background: ProposerContext) -> tuple[EarlierResult, ...]:
    """What the run began with; looked for and written down where it has not begun.

    A file that cannot be read counts as none: what is proposed may differ then, what is kept does not.
    """
    path = background.folder / EARLIER_FILE
    if path.exists():
        return _read(path)
    if not background.case.knobs or _has_begun(background.folder):
        return ()
    found = select_results(_look(background.folder, background.case.knobs))
    if found:
        background.disk.replace(path, _LIST.dump_json(found))
    return found


def select_results(found: Sequence[EarlierResult]) -> tuple[EarlierResult, ...]:
    """The best of many, and some of the others."""
    ranked = sorted(found, key=lambda seen: (seen.value is None, -(seen.value or 0.0)))
    best, others = ranked[:MAX_BEST], ranked[MAX_BEST:]
    step = max(1, -(-len(others) // MAX_OTHERS))
    return (*best, *others[::step])


def _look(folder: Path, knobs: Knobs) -> list[EarlierResult]:
    """What the other runs beside this one saw, of each configuration the latest."""
    others = [path for path in folder.parent.glob(f"*/{_LEDGER}") if path.parent != folder]
    latest = sorted(others, key=lambda path: -path.stat().st_mtime)[: 2 * MAX_RUNS]
    seen = chain.from_iterable(islice((found for path in latest if (found := _see(path, knobs))), MAX_RUNS))
    once: dict[str, EarlierResult] = {}
    for one in seen:
        once.setdefault(repr(sorted(one.configuration.items())), one)
    return list(once.values())


def _see(path: Path, knobs: Knobs) -> list[EarlierResult]:
    """What one run saw on its last source; nothing where its knobs are others, or its ledger cannot be read."""
    try:
        landscape = build_landscape(knobs, Ledger.read(path))
    except (HillclimbError, OSError):
        return []
    same = {name: knob.values() for name, knob in landscape.knobs.items()} == {
        name: knob.values() for name, knob in knobs.items()
    }
    return list(_told(path.parent.name, landscape.observations)) if same else []


def _told(run: str, observations: Sequence[KnobObservation]) -> Iterator[EarlierResult]:
    for seen in observations:
        yield EarlierResult(
            run=run,
            configuration=seen.configuration,
            value=seen.value,
            stage=seen.estimate.stage if seen.estimate else None,
        )


def _has_begun(folder: Path) -> bool:
    """Whether the run has candidates, which were proposed without the file."""
    path = folder / _LEDGER
    return path.exists() and bool(Ledger.read(path).candidates)


def _read(path: Path) -> tuple[EarlierResult, ...]:
    try:
        return _LIST.validate_json(path.read_bytes())
    except (OSError, ValidationError):
        return ()
