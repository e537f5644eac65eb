"""Lanes masked off and loop trips of Triton kernels under Triton's interpreter, every one counted as it runs.

Accesses are counted where the interpreter makes them: a `tl.load`, `tl.store` or atomic is one run, its lanes are the
elements of its pointers, those whose mask is false or that lie outside a block pointer's or descriptor's bounds are
masked off, and its useful bytes are those of the elements it touches. Loops are counted by code put into the function
that the interpreter makes of a kernel: an entry each time the loop is reached, a trip each time its body begins.

Covered: kernels and functions of the workspace that they call; what a function of Triton's library does is counted for
the line that calls it. Not covered: loops of Triton's library, comprehensions, loops in functions handed to tl.reduce
or tl.associative_scan, and what hardware does with a masked lane. An unmasked lane may repeat another one's address.
"""

from __future__ import annotations

import ast
import math
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Literal

from harness.candidate.profiler import LONGEST_NAME, UNNAMEABLE

Kind = Literal["load", "store", "atomic"]
Place = tuple[int, str, int]
"""Number of the kernel, file and line."""

KINDS: dict[str, Kind] = {
    "load": "load",
    "descriptor_load": "load",
    "descriptor_gather": "load",
    "store": "store",
    "descriptor_store": "store",
    "descriptor_scatter": "store",
    "atomic_add": "atomic",
    "atomic_and": "atomic",
    "atomic_cas": "atomic",
    "atomic_load": "atomic",
    "atomic_max": "atomic",
    "atomic_min": "atomic",
    "atomic_or": "atomic",
    "atomic_poll": "atomic",
    "atomic_store": "atomic",
    "atomic_xchg": "atomic",
    "atomic_xor": "atomic",
}
"""What the language calls for an access; a Triton that does not know one of them has no such access."""

MOST_KERNELS, MOST_FILES, MOST_ACCESSES, MOST_LOOPS = 32, 32, 160, 80
"""Rows that are told; with names of the greatest length they fit one packet of harness.candidate.wire."""

ELSEWHERE = "elsewhere"
"""The file of an access that no line of the workspace makes."""

LOOP = "__hillclimb_loop__"
TRIPS = "__hillclimb_trips_{}__"


@dataclass
class Kernel:
    """One kernel that was launched."""

    name: str
    file: str
    line: int
    """Of its def."""
    launches: int = 0
    programs: int = 0


@dataclass
class Access:
    """Every access of one kind by one line."""

    runs: int = 0
    lanes: int = 0
    live: int = 0
    """Lanes not masked off."""
    bytes: int = 0

    def add(self, other: Access) -> None:
        self.runs += 1
        self.lanes += other.lanes
        self.live += other.live
        self.bytes += other.bytes


@dataclass
class Loop:
    """One loop statement."""

    entries: int = 0
    trips: int = 0
    fewest: int = 0
    most: int = 0

    def add(self, trips: int) -> None:
        self.fewest = min(self.fewest, trips) if self.entries else trips
        self.most = max(self.most, trips)
        self.entries += 1
        self.trips += trips


@dataclass
class Entry:
    """One time that a loop is reached: its statement stands in a `with` block of this."""

    loop: Loop
    trips: int = 0

    def step(self) -> None:
        self.trips += 1

    def __enter__(self) -> Entry:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None
    ) -> None:
        self.loop.add(self.trips)


@dataclass
class Tally:
    """What was counted so far, by lines of files below `workspace`."""

    workspace: str
    kernels: list[Kernel] = field(default_factory=list)
    accesses: dict[tuple[Place, Kind], Access] = field(default_factory=dict)
    loops: dict[Place, Loop] = field(default_factory=dict)
    _numbers: dict[tuple[str, str, int], int] = field(default_factory=dict)
    _files: dict[str, str | None] = field(default_factory=dict)
    _running: int | None = None
    """Number of the kernel that is being interpreted; None between launches."""
    _open: Access | None = None

    def file(self, path: str) -> str | None:
        """A path relative to the workspace; None where it is not below it."""
        if path not in self._files:
            inside = Path(path).is_relative_to(self.workspace)
            self._files[path] = Path(path).relative_to(self.workspace).as_posix() if inside else None
        return self._files[path]

    @contextmanager
    def launch(self, code: CodeType) -> Iterator[None]:
        """While a kernel's programs run, one after the other."""
        key = code.co_name, self.file(code.co_filename) or ELSEWHERE, code.co_firstlineno
        if key not in self._numbers:
            self._numbers[key] = len(self.kernels)
            self.kernels.append(Kernel(*key))
        outer, self._running = self._running, self._numbers[key]
        self.kernels[self._running].launches += 1
        try:
            yield
        finally:
            self._running = outer

    def programs(self, count: int) -> None:
        """So many programs are launched of the kernel that is running."""
        if self._running is not None:
            self.kernels[self._running].programs += count

    @contextmanager
    def access(self, kind: Kind) -> Iterator[Access]:
        """While one access is made; an access within another is part of it."""
        if self._open is not None:
            yield self._open
            return
        place = self._place(sys._getframe(2))
        self._open = Access()
        try:
            yield self._open
        finally:
            made, self._open = self._open, None
        if place is not None:
            self.accesses.setdefault((place, kind), Access()).add(made)

    def enter(self, file: str, line: int) -> Entry:
        """A loop is reached."""
        if self._running is None:
            return Entry(Loop())
        return Entry(self.loops.setdefault((self._running, file, line), Loop()))

    def told(self) -> dict[str, Any]:
        """Everything as plain numbers and names, in the order of the lines; where there is too much, the largest.

        kernels   name, number of its file, line, launches, programs
        accesses  number of the kernel, number of the file, line, kind, runs, lanes, masked off, useful bytes
        loops     number of the kernel, number of the file, line, entries, trips, fewest and most of an entry
        left_out  rows that there was no room for
        """
        files: list[str] = []
        kernels = [
            [_shown(k.name), _number(files, k.file), k.line, k.launches, k.programs] for k in self.kernels
        ]
        accesses = [
            [kernel, _number(files, file), line, kind, a.runs, a.lanes, a.lanes - a.live, a.bytes]
            for ((kernel, file, line), kind), a in sorted(self.accesses.items())
        ]
        loops = [
            [kernel, _number(files, file), line, loop.entries, loop.trips, loop.fewest, loop.most]
            for (kernel, file, line), loop in sorted(self.loops.items())
        ]
        return _fitting(
            {
                "files": [_shown(file) for file in files],
                "kernels": kernels,
                "accesses": accesses,
                "loops": loops,
            }
        )

    def _place(self, frame: FrameType | None) -> Place | None:
        """The innermost line of the workspace among the callers; None where no kernel is running."""
        if self._running is None:
            return None
        while frame is not None:
            if (file := self.file(frame.f_code.co_filename)) is not None:
                return self._running, file, frame.f_lineno
            frame = frame.f_back
        return self._running, ELSEWHERE, 0


class CountedLoops(ast.NodeTransformer):
    """Puts `with LOOP(file, line) as trips:` around every loop, and `trips.step()` before its body."""

    def __init__(self, file: str) -> None:
        self._file = file

    def visit_For(self, node: ast.For) -> ast.AST:
        return self._count(node)

    def visit_While(self, node: ast.While) -> ast.AST:
        return self._count(node)

    def _count(self, node: ast.For | ast.While) -> ast.AST:
        self.generic_visit(node)
        trips = TRIPS.format(node.lineno)
        entry = _statement(f"with {LOOP}({self._file!r}, {node.lineno}) as {trips}: pass", node)
        assert isinstance(entry, ast.With)
        entry.body = [node]
        node.body.insert(0, _statement(f"{trips}.step()", node))
        return entry


@contextmanager
def counting(workspace: str) -> Iterator[Tally]:
    """Count what every kernel does that this process interprets meanwhile; nothing where kernels are compiled."""
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    tally, builder = Tally(workspace), interpreter.InterpreterBuilder
    rewritten = interpreter.InterpretedFunction.rewritten_fn
    with ExitStack() as undoing:
        rewritten.clear()
        undoing.callback(rewritten.clear)
        for name, kind in KINDS.items():
            _replace(undoing, TritonSemantic, name, _opening(tally, kind))
        _replace(undoing, builder, "create_masked_load", _loading(tally))
        _replace(undoing, builder, "create_masked_store", _storing(tally))
        _replace(undoing, builder, "create_atomic_rmw", _modifying(tally))
        _replace(undoing, builder, "create_atomic_cas", _exchanging(tally))
        _replace(undoing, builder, "set_grid_dim", _dividing(tally))
        _replace(undoing, interpreter.GridExecutor, "__call__", _launching(tally))
        _replace(undoing, interpreter.FunctionRewriter, "_compile_and_exec", _rewriting(tally, undoing))
        yield tally


Method = Callable[..., Any]
Wrap = Callable[[Method], Method]


def _replace(undoing: ExitStack, owner: type, name: str, wrap: Wrap) -> None:
    """Wrap a method until the end; nothing where there is none of that name."""
    method = getattr(owner, name, None)
    if method is not None:
        setattr(owner, name, wraps(method)(wrap(method)))
        undoing.callback(setattr, owner, name, method)


def _opening(tally: Tally, kind: Kind) -> Wrap:
    def wrap(method: Method) -> Method:
        def opening(*operands: Any, **options: Any) -> Any:
            with tally.access(kind):
                return method(*operands, **options)

        return opening

    return wrap


def _loading(tally: Tally) -> Wrap:
    def wrap(method: Method) -> Method:
        def loading(builder: Any, pointers: Any, mask: Any, *operands: Any, **options: Any) -> Any:
            with tally.access("load") as access:
                _touch(access, pointers, mask)
                return method(builder, pointers, mask, *operands, **options)

        return loading

    return wrap


def _storing(tally: Tally) -> Wrap:
    def wrap(method: Method) -> Method:
        def storing(
            builder: Any, pointers: Any, value: Any, mask: Any, *operands: Any, **options: Any
        ) -> Any:
            with tally.access("store") as access:
                _touch(access, pointers, mask)
                return method(builder, pointers, value, mask, *operands, **options)

        return storing

    return wrap


def _modifying(tally: Tally) -> Wrap:
    """A maximum or minimum of floats is two of these, whose masks divide its lanes between them."""

    def wrap(method: Method) -> Method:
        def modifying(builder: Any, op: Any, pointers: Any, value: Any, mask: Any, *operands: Any) -> Any:
            with tally.access("atomic") as access:
                lanes = access.lanes
                _touch(access, pointers, mask)
                access.lanes = max(lanes, access.lanes - lanes)
                return method(builder, op, pointers, value, mask, *operands)

        return modifying

    return wrap


def _exchanging(tally: Tally) -> Wrap:
    def wrap(method: Method) -> Method:
        def exchanging(builder: Any, pointers: Any, *operands: Any) -> Any:
            with tally.access("atomic") as access:
                _touch(access, pointers, True)
                return method(builder, pointers, *operands)

        return exchanging

    return wrap


def _dividing(tally: Tally) -> Wrap:
    def wrap(method: Method) -> Method:
        def dividing(builder: Any, *grid: Any) -> Any:
            method(builder, *grid)
            tally.programs(math.prod(int(extent) for extent in grid))

        return dividing

    return wrap


def _launching(tally: Tally) -> Wrap:
    def wrap(method: Method) -> Method:
        def launching(executor: Any, *operands: Any, **options: Any) -> Any:
            with tally.launch(executor.fn.__code__):
                return method(executor, *operands, **options)

        return launching

    return wrap


def _rewriting(tally: Tally, undoing: ExitStack) -> Wrap:
    def wrap(method: Method) -> Method:
        def rewriting(rewriter: Any, tree: ast.AST) -> Any:
            file = tally.file(rewriter.filename)
            if file is not None:
                tree = CountedLoops(file).visit(tree)
                names = rewriter.fn.__globals__
                names[LOOP] = tally.enter
                undoing.callback(names.pop, LOOP, None)
            return method(rewriter, tree)

        return rewriting

    return wrap


def _touch(access: Access, pointers: Any, mask: Any) -> None:
    """Pointers are a handle; the mask is a handle, or in Triton 3.6 the array of a block's bounds, or True."""
    import numpy as np

    mask = np.asarray(getattr(mask, "data", mask))
    live = int(np.count_nonzero(np.broadcast_to(mask, pointers.data.shape)))
    access.lanes += pointers.data.size
    access.live += live
    access.bytes += live * max(1, pointers.get_element_ty().primitive_bitwidth // 8)


def _statement(text: str, where: ast.stmt) -> ast.stmt:
    """A parsed statement that seems to stand where another one does."""
    (statement,) = ast.parse(text).body
    for node in ast.walk(statement):
        ast.copy_location(node, where)
    return statement


def _number(known: list[str], file: str) -> int:
    if file not in known:
        known.append(file)
    return known.index(file)


def _fitting(told: dict[str, Any]) -> dict[str, Any]:
    """The rows that there is room for: those of the first kernels and files, and of them the largest."""
    accesses, loops = (
        [row for row in told[rows] if row[0] < MOST_KERNELS and row[1] < MOST_FILES]
        for rows in ("accesses", "loops")
    )
    shown = {
        "files": told["files"][:MOST_FILES],
        "kernels": told["kernels"][:MOST_KERNELS],  # whose files are the first
        "accesses": sorted(sorted(accesses, key=lambda row: -row[5])[:MOST_ACCESSES]),
        "loops": sorted(sorted(loops, key=lambda row: -row[4])[:MOST_LOOPS]),
    }
    left_out = sum(len(told[rows]) - len(shown[rows]) for rows in ("kernels", "accesses", "loops"))
    return {**shown, "left_out": left_out}


def _shown(name: str) -> str:
    return UNNAMEABLE.sub("?", name)[:LONGEST_NAME] or "?"
