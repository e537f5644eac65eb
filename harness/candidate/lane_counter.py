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
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import wraps
from typing import Any

from hillclimb.harness.candidate.lane_tally import AccessCount, AccessKind, LaneTally

KINDS: dict[str, AccessKind] = {
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

LOOP = "__hillclimb_loop__"
TRIPS = "__hillclimb_trips_{}__"


class LoopInstrumenter(ast.NodeTransformer):
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
def counting_lanes(workspace: str) -> Iterator[LaneTally]:
    """Count what every kernel does that this process interprets meanwhile; nothing where kernels are compiled."""
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter

    tally, builder = LaneTally(workspace), interpreter.InterpreterBuilder
    rewritten = interpreter.InterpretedFunction.rewritten_fn
    with ExitStack() as undoing:
        rewritten.clear()
        undoing.callback(rewritten.clear)
        for name, kind in KINDS.items():
            _replace(undoing, TritonSemantic, name, _wrap_access(tally, kind))
        _replace(undoing, builder, "create_masked_load", _wrap_load(tally))
        _replace(undoing, builder, "create_masked_store", _wrap_store(tally))
        _replace(undoing, builder, "create_atomic_rmw", _wrap_atomic_rmw(tally))
        _replace(undoing, builder, "create_atomic_cas", _wrap_atomic_cas(tally))
        _replace(undoing, builder, "set_grid_dim", _wrap_grid(tally))
        _replace(undoing, interpreter.GridExecutor, "__call__", _wrap_launch(tally))
        _replace(undoing, interpreter.FunctionRewriter, "_compile_and_exec", _wrap_rewriter(tally, undoing))
        yield tally


Method = Callable[..., Any]
Wrap = Callable[[Method], Method]


def _replace(undoing: ExitStack, owner: type, name: str, wrap: Wrap) -> None:
    """Wrap a method until the end; nothing where there is none of that name."""
    method = getattr(owner, name, None)
    if method is not None:
        setattr(owner, name, wraps(method)(wrap(method)))
        undoing.callback(setattr, owner, name, method)


def _wrap_access(tally: LaneTally, kind: AccessKind) -> Wrap:
    def wrap(method: Method) -> Method:
        def opening(*operands: Any, **options: Any) -> Any:
            with tally.access(kind):
                return method(*operands, **options)

        return opening

    return wrap


def _wrap_load(tally: LaneTally) -> Wrap:
    def wrap(method: Method) -> Method:
        def loading(builder: Any, pointers: Any, mask: Any, *operands: Any, **options: Any) -> Any:
            with tally.access("load") as access:
                _count_lanes(access, pointers, mask)
                return method(builder, pointers, mask, *operands, **options)

        return loading

    return wrap


def _wrap_store(tally: LaneTally) -> Wrap:
    def wrap(method: Method) -> Method:
        def storing(
            builder: Any, pointers: Any, value: Any, mask: Any, *operands: Any, **options: Any
        ) -> Any:
            with tally.access("store") as access:
                _count_lanes(access, pointers, mask)
                return method(builder, pointers, value, mask, *operands, **options)

        return storing

    return wrap


def _wrap_atomic_rmw(tally: LaneTally) -> Wrap:
    """A maximum or minimum of floats is two of these, whose masks divide its lanes between them."""

    def wrap(method: Method) -> Method:
        def modifying(builder: Any, op: Any, pointers: Any, value: Any, mask: Any, *operands: Any) -> Any:
            with tally.access("atomic") as access:
                lanes = access.lanes
                _count_lanes(access, pointers, mask)
                access.lanes = max(lanes, access.lanes - lanes)
                return method(builder, op, pointers, value, mask, *operands)

        return modifying

    return wrap


def _wrap_atomic_cas(tally: LaneTally) -> Wrap:
    def wrap(method: Method) -> Method:
        def exchanging(builder: Any, pointers: Any, *operands: Any) -> Any:
            with tally.access("atomic") as access:
                _count_lanes(access, pointers, True)
                return method(builder, pointers, *operands)

        return exchanging

    return wrap


def _wrap_grid(tally: LaneTally) -> Wrap:
    def wrap(method: Method) -> Method:
        def dividing(builder: Any, *grid: Any) -> Any:
            method(builder, *grid)
            tally.programs(math.prod(int(extent) for extent in grid))

        return dividing

    return wrap


def _wrap_launch(tally: LaneTally) -> Wrap:
    def wrap(method: Method) -> Method:
        def launching(executor: Any, *operands: Any, **options: Any) -> Any:
            with tally.launch(executor.fn.__code__):
                return method(executor, *operands, **options)

        return launching

    return wrap


def _wrap_rewriter(tally: LaneTally, undoing: ExitStack) -> Wrap:
    def wrap(method: Method) -> Method:
        def rewriting(rewriter: Any, tree: ast.AST) -> Any:
            file = tally.file(rewriter.filename)
            if file is not None:
                tree = LoopInstrumenter(file).visit(tree)
                names = rewriter.fn.__globals__
                names[LOOP] = tally.enter
                undoing.callback(names.pop, LOOP, None)
            return method(rewriter, tree)

        return rewriting

    return wrap


def _count_lanes(access: AccessCount, pointers: Any, mask: Any) -> None:
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
