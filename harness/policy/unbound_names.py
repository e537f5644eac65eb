"""Names that a file reads and does not bind: a package, Python's site and Triton's interpreter put them there."""

from __future__ import annotations

import ast
import symtable
from bisect import bisect_left
from collections.abc import Container, Iterator, Mapping, Sequence
from functools import lru_cache

from hillclimb.harness.policy.allowed import words
from hillclimb.harness.policy.names import MAX_FILES_REMEMBERED, DottedNames, bound_by, imported, nodes_of

OF_SITE = words("help credits license copyright exit quit")
"""Put among the builtins by Python's site, for people at a prompt; they import and read by text."""

OF_INTERPRETER = words(
    "annotations ast textwrap inspect time math np triton tl dataclass dataclasses partial Callable Dict List Optional "
    "Tuple TypeVar ASTTransformer ExtraFunctions FunctionRewriter GridExecutor InterpretedFunction "
    "InterpreterBuilder InterpreterError InterpreterOptions KernelInterface ReduceOps ReduceScanOpInterface "
    "ScanOps T TensorDescHandle TensorDescriptor TensorHandle TritonSemantic interpreter_builder "
    "interpreter_semantic np_erf_fp32 np_erf_fp64 np_umulhi_u64"
)
"""Put by Triton's interpreter among the globals of a kernel's module, where the module binds none of that name."""


@lru_cache(maxsize=MAX_FILES_REMEMBERED)
def scopes_of(source: bytes) -> symtable.SymbolTable:
    """Raises as symtable does for what ast.parse takes and Python does not compile."""
    return symtable.symtable(source, "file", "exec")  # type: ignore[arg-type]  # bytes name their encoding


def find_unbound_names(
    tree: ast.Module,
    scopes: symtable.SymbolTable,
    names: DottedNames,
    modules: Container[str],
    others: Container[str],
) -> Iterator[tuple[int, str]]:
    """(line, problem); `modules` are all modules and packages of the workspace.

    A package's globals have its submodules, whoever imports them. `others` are further names that something puts among
    a module's globals.
    """
    certain: dict[str, int] = {}
    for name, line in _bound_for_certain(tree.body):
        certain.setdefault(name, line)
    is_package = names.module == names.package
    for name, begin in sorted(_global_reads(scopes)):
        line = _line_of(tree, name, begin)
        if name in certain and (certain[name] < _line_of(tree, name, 0) or not _is_given(name, others)):
            continue
        if name in OF_SITE:
            yield line, f"uses {name!r}, which imports or reads what it is told; leave it out"
        elif is_package and f"{names.package}.{name}" in modules:
            yield line, f"reads the module {name!r} without importing it; import it at the top"
        elif name in others:
            yield line, f"reads {name!r}, which need not be bound here; bind it at the top"
    for node in nodes_of(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Del()) | ast.ExceptHandler(name=str(name)) if _is_given(
                name, others
            ):
                yield node.lineno, f"deletes {name!r}, which stands for something else then"
        for name in bound_by(node) if is_package else ():
            inner = f"{names.package}.{name}"
            path = imported(node, names.package).get(name, "")
            if inner in modules and path != inner and not path.startswith(f"{inner}."):
                line = getattr(node, "lineno", 0)
                yield line, f"binds {name!r}, which is the module {inner} as well; call one of them otherwise"


def _is_given(name: str, others: Container[str]) -> bool:
    """Whether it stands for something where the file binds it not."""
    return name in OF_SITE or name in others


def _bound_for_certain(statements: list[ast.stmt]) -> Iterator[tuple[str, int]]:
    """What they bind at the top of a file, whatever happens, each with the line where it is bound then."""
    for statement in statements:
        match statement:
            case ast.Assign(targets=targets):
                parts = (part for target in targets for part in getattr(target, "elts", [target]))
                names = [part.id for part in parts if isinstance(part, ast.Name)]
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr()):
                names = [name]
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                names = [statement.name]
            case ast.Import() | ast.ImportFrom():
                names = list(bound_by(statement))
            case ast.If(body=body, orelse=orelse):
                names = list(_names_of(body).intersection(_names_of(orelse)))
            case ast.Try(body=body, handlers=handlers, orelse=orelse, finalbody=finalbody):
                ways = [_names_of(one.body) for one in handlers if not isinstance(one.body[-1], ast.Raise)]
                names = [*_names_of([*body, *orelse]).intersection(*ways), *_names_of(finalbody)]
            case _:
                names = []
        yield from ((name, statement.end_lineno or statement.lineno) for name in names)


def _names_of(statements: list[ast.stmt]) -> set[str]:
    return {name for name, _ in _bound_for_certain(statements)}


def _tables(scopes: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield scopes
    for inner in scopes.get_children():
        yield from _tables(inner)


def _global_reads(scopes: symtable.SymbolTable) -> set[tuple[str, int]]:
    """Names that may be read as globals, with the line at which the scope that reads begins."""
    return {
        (symbol.get_name(), table.get_lineno())
        for table in _tables(scopes)
        for symbol in table.get_symbols()
        if symbol.is_referenced()
        if symbol.is_global() or (table.get_type() in ("module", "class") and not symbol.is_free())
    }


def _line_of(tree: ast.AST, name: str, line: int) -> int:
    """The first place behind a line where a name is read."""
    lines = _reads_of(tree).get(name, ())
    at = bisect_left(lines, line)
    return lines[at] if at < len(lines) else line


@lru_cache(maxsize=1)
def _reads_of(tree: ast.AST) -> Mapping[str, Sequence[int]]:
    """Lines in which each name is read, in order."""
    found: dict[str, list[int]] = {}
    for node in nodes_of(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.setdefault(node.id, []).append(node.lineno)
    return {name: sorted(lines) for name, lines in found.items()}
