"""Masked lanes and loop trips of one side's Triton kernels on small problems, counted while they are interpreted.

A process of its own, on the CPU wherever the judge is, is handed the same arrays as under the gate, and its outputs
are checked, so that the counts are of kernels that do their work. The counts are the candidate's own words (harness.
candidate.lanes): only their form is looked at, and no verdict hangs on them. The statements shown beside them are read
by the judge. A candidate that fails is told in a sentence.
"""

from __future__ import annotations

import ast
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.case.contract import Contract
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.channel.profile_limits import (
    MAX_ACCESSES,
    MAX_FILES,
    MAX_KERNELS,
    MAX_LOOPS,
    MAX_NAME_CHARS,
    UNNAMEABLE,
)
from hillclimb.harness.device.cpu.cpu import MAX_INTERPRETED_BYTES
from hillclimb.harness.duel.duel_factory import DuelFactory
from hillclimb.harness.duel.inputs import InputSource
from hillclimb.harness.duel.parity import check_outputs
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.duel.process.launch_spec import MAX_SOURCE_BYTES
from hillclimb.harness.duel.process.parameters import Parameters, bound, drawn_parameters
from hillclimb.harness.errors import CandidateFault, UsageError
from hillclimb.harness.policy.policy import PARSE_ERRORS
from hillclimb.harness.profile.rows import printable
from hillclimb.harness.records import (
    KernelRuns,
    LaneCount,
    LaneReport,
    Lanes,
    Progress,
    Reason,
    Side,
    TripCount,
    Watch,
)
from hillclimb.harness.wording import choices

MAX_PROBLEMS_CHOSEN = 2
"""Problems that are looked at where none is named: the largest that are interpreted."""

MAX_COUNT = 10**15
MAX_SOURCE_CHARS = 160
KINDS = ("load", "store", "atomic")

EMPTY: dict[str, list[ast.AST]] = {
    "body": [ast.Pass()],
    "orelse": [],
    "finalbody": [],
    "handlers": [],
    "cases": [],
    "decorator_list": [],
}
"""The parts of a statement that are statements of their own, without them."""

LaneRow = Sequence[Any]


def count_lanes(duels: DuelFactory, side: Side, problems: Sequence[str], watch: Watch) -> LaneReport:
    """One call on each of these problems, or on a few that the judge chooses.

    Raises UsageError for a case without GPU kernels, or a problem that it does not have.
    """
    if not duels.case.can_count_lanes:
        raise UsageError(f"{duels.case.name} has no Triton kernels, so there are no lanes to count")
    started = time.perf_counter()
    contract = load_contract(
        duels.case.contract_file, "cpu", TORCH_DTYPES, model_path=duels.case.session_model
    )
    for name in problems:
        if name not in contract.problems:
            raise UsageError(
                f"{duels.case.name} has no problem {name!r}; it has {choices(name, contract.problems)}"
            )
    with drawn_parameters(contract, "cpu", duels.secret) as parameters:
        counter = _LaneCounter(duels, contract, parameters, watch)
        found = counter.take(side, problems or chosen(contract))
    return LaneReport(problems=found, seconds=time.perf_counter() - started)


def chosen(contract: Contract) -> list[str]:
    """The largest problems that are small enough to be interpreted, largest first."""
    sizes = {name: contract.work(problem).bytes for name, problem in contract.problems.items()}
    small = [name for name, size in sizes.items() if size <= MAX_INTERPRETED_BYTES]
    return sorted(small, key=lambda name: -sizes[name])[:MAX_PROBLEMS_CHOSEN]


@dataclass(frozen=True)
class _LaneCounter:
    duels: DuelFactory
    contract: Contract
    parameters: Parameters | None
    watch: Watch

    def take(self, side: Side, names: Sequence[str]) -> tuple[Lanes, ...]:
        """In the order of the names; once the candidate failed, those that are left are told with the reason."""
        found = {
            name: Lanes(problem=name, detail=large) for name in names if (large := self._too_large(name))
        }
        detail = ""
        try:
            for lanes in self._each(side, [name for name in names if name not in found]):
                found[lanes.problem] = lanes
        except CandidateFault as fault:
            detail = printable(f"not counted: interpreted, it stopped, {fault}")
        return tuple(found.get(name) or Lanes(problem=name, detail=detail) for name in names)

    def _too_large(self, name: str) -> str:
        size = self.contract.work(self.contract.problems[name]).bytes
        if size <= MAX_INTERPRETED_BYTES:
            return ""
        return f"not counted: it moves {size} bytes, and at most {MAX_INTERPRETED_BYTES} are interpreted"

    def _each(self, side: Side, names: Sequence[str]) -> Iterator[Lanes]:
        if not names:
            return
        statements = Statements(Path(side.tree))
        with self.duels.launcher.launch_interpreted(side, self.parameters) as process:
            process.await_loaded()
            process.take_parameters()
            for done, name in enumerate(names):
                self.watch(Progress(stage="lanes", done=done, of=len(names)))
                yield parse_lanes(self._one(process, name), name, statements)

    def _one(self, process: CandidateProcess, name: str) -> object:
        """What the candidate tells of a call whose outputs are right."""
        contract = bound(self.contract, process.parameters)
        source = InputSource(contract, name, contract.distributions[0], self.duels.secret, "cpu")
        with source.arena(1) as arena:
            inputs = source.refresh(arena, range(1), (0,))[0]
            told = process.count_lanes(arena, 0)
            budget = self.duels.case.settings.gate.error_budget
            where = f"{source.distribution} (while lanes were counted)"
            check_outputs(contract, name, arena, 0, inputs, budget, where)
            process.unmap(arena)
        return told


@dataclass(frozen=True)
class Statements:
    """What a workspace's source says at a line. Never imported, and read below `tree` only."""

    tree: Path
    _files: dict[str, tuple[ast.stmt, ...]] = field(default_factory=dict)

    def at(self, file: str, line: int) -> str:
        """The innermost statement that covers the line, on one line, a compound one by its head; empty if none."""
        if file not in self._files:
            self._files[file] = tuple(_statements(self.tree, file))
        covering = [s for s in self._files[file] if s.lineno <= line <= (s.end_lineno or s.lineno)]
        if not covering:
            return ""
        latest = max(statement.lineno for statement in covering)
        innermost = [statement for statement in covering if statement.lineno == latest][-1]
        text = " ".join(printable(_head(innermost)).split())
        return text if len(text) <= MAX_SOURCE_CHARS else f"{text[: MAX_SOURCE_CHARS - 3]}..."


def parse_lanes(told: object, problem: str, statements: Statements) -> Lanes:
    """What a candidate answered, taken at its form only. Raises CandidateFault for any other form."""
    if not isinstance(told, dict) or set(told) != {"files", "kernels", "accesses", "loops", "left_out"}:
        raise _malformed("counts", told)
    files = [_name(file) for file in _rows(told["files"], MAX_FILES, "files")]
    runs = [_kernel(row, files) for row in _rows(told["kernels"], MAX_KERNELS, "kernels")]
    kernels = _disambiguated(runs)
    lines = _LineRows([kernel.kernel for kernel in kernels], files, statements)
    accesses = [lines.access(row) for row in _rows(told["accesses"], MAX_ACCESSES, "accesses")]
    loops = [lines.loop(row) for row in _rows(told["loops"], MAX_LOOPS, "loops")]
    return Lanes(
        problem=problem,
        kernels=kernels,
        accesses=tuple(accesses),
        loops=tuple(loops),
        left_out=_count(told["left_out"]),
        detail="" if kernels else "not counted: no Triton kernel ran",
    )


@dataclass(frozen=True)
class _LineRows:
    """Rows of lines, whose numbers of kernels and files are looked up."""

    kernels: Sequence[str]
    files: Sequence[str]
    statements: Statements

    def access(self, row: object) -> LaneCount:
        place, (kind, *counts) = self._placed(row, 8)
        runs, lanes, masked, moved = map(_count, counts)
        if kind not in KINDS or masked > lanes:
            raise _malformed("an access", row)
        return LaneCount(**place, kind=kind, runs=runs, lanes=lanes, masked=masked, bytes=moved)

    def loop(self, row: object) -> TripCount:
        place, counts = self._placed(row, 7)
        entries, trips, fewest, most = map(_count, counts)
        if not fewest * entries <= trips <= most * entries:
            raise _malformed("a loop", row)
        return TripCount(**place, entries=entries, trips=trips, fewest=fewest, most=most)

    def _placed(self, row: object, length: int) -> tuple[dict[str, str], LaneRow]:
        """Kernel, place and statement, and the rest of the row."""
        number, of_file, told, *rest = _row(row, length)
        kernel, file, line = _known(number, self.kernels), _known(of_file, self.files), _count(told)
        source = self.statements.at(file, line)
        return {"kernel": kernel, "place": f"{file}:{line}", "source": source}, rest


def _kernel(row: object, files: Sequence[str]) -> KernelRuns:
    name, file, line, launches, programs = _row(row, 5)
    place = f"{_known(file, files)}:{_count(line)}"
    return KernelRuns(kernel=_name(name), place=place, launches=_count(launches), programs=_count(programs))


def _disambiguated(kernels: Sequence[KernelRuns]) -> tuple[KernelRuns, ...]:
    """Kernels of the same name are called by their places too."""
    names = Counter(kernel.kernel for kernel in kernels)
    return tuple(
        kernel.model_copy(update={"kernel": f"{kernel.kernel} ({kernel.place})"})
        if names[kernel.kernel] > 1
        else kernel
        for kernel in kernels
    )


def _rows(told: object, most: int, what: str) -> list[object]:
    if not isinstance(told, list) or len(told) > most:
        raise _malformed(what, told)
    return told


def _row(told: object, length: int) -> LaneRow:
    if not isinstance(told, list) or len(told) != length:
        raise _malformed("a row", told)
    return told


def _name(told: object) -> str:
    if not isinstance(told, str) or not 0 < len(told) <= MAX_NAME_CHARS or UNNAMEABLE.search(told):
        raise _malformed("a name", told)
    return told


def _known(told: object, names: Sequence[str]) -> str:
    if type(told) is not int or not 0 <= told < len(names):
        raise _malformed("a number of one of the names", told)
    return names[told]


def _count(told: object) -> int:
    if type(told) is not int or not 0 <= told <= MAX_COUNT:
        raise _malformed("a count", told)
    return told


def _malformed(what: str, seen: object) -> CandidateFault:
    kind = f"{type(seen).__name__} of {len(seen)}" if isinstance(seen, list | str) else type(seen).__name__
    return CandidateFault(Reason.BROKE_PROTOCOL, f"its lane counts hold as {what} something else ({kind})")


def _statements(tree: Path, file: str) -> Iterator[ast.stmt]:
    """Every statement of one file of the workspace; none where there is no such file that can be read."""
    path = tree / file
    try:
        inside = path.resolve().is_relative_to(tree.resolve()) and path.is_file()
        if not inside or path.suffix != ".py" or path.stat().st_size > MAX_SOURCE_BYTES:
            return
        module = ast.parse(path.read_bytes())
    except (OSError, *PARSE_ERRORS):
        return
    yield from (node for node in ast.walk(module) if isinstance(node, ast.stmt))


def _head(statement: ast.stmt) -> str:
    """Its source without comments; of a compound statement the first line."""
    bare = copy(statement)
    for name, empty in EMPTY.items():
        if hasattr(bare, name):
            setattr(bare, name, empty)
    try:
        return (ast.unparse(bare).splitlines() or [""])[0]
    except PARSE_ERRORS:
        return ""
