"""What workspace code may not even say: a reading of its source, never an import of it.

A first line of defence against honest overreach and lazy cheats; it can be talked around by code that sets its
mind to it (docs/explanation/trust.md). What cannot be talked around is the sandbox, the gate and the clock.
"""

from __future__ import annotations

import ast
import importlib.machinery
import symtable
import sys
import sysconfig
from collections.abc import Container, Iterator, Sequence
from functools import cache, lru_cache
from operator import itemgetter
from pathlib import Path, PurePath

from hillclimb.harness.case.settings import Policy
from hillclimb.harness.case.workspace_names import UNREAD_FOLDERS
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.policy.allowed import (
    LEADING_OUT,
    TRITON_LANGUAGES,
    problem_with,
    problem_with_import,
    words,
)
from hillclimb.harness.policy.hidden_names import find_hidden_names
from hillclimb.harness.policy.library_calls import (
    LIBRARY_CALLS,
    find_graph_captures,
    find_library_calls,
    is_torch_or_language,
)
from hillclimb.harness.policy.made_types import find_made_types
from hillclimb.harness.policy.names import (
    DottedNames,
    attribute_of,
    module_name,
    nodes_of,
    package_name,
    parse,
    require_shallow,
)
from hillclimb.harness.policy.other_readers import (
    find_addresses,
    find_foreign_wraps,
    find_named_fields,
    find_named_types,
    find_other_texts,
    find_wrapped_parameters,
    lines_of,
    uses_fields,
    wrapping_functions,
)
from hillclimb.harness.policy.signatures import find_additions, find_evaluated_strings, makes_ufuncs
from hillclimb.harness.policy.unbound_names import OF_INTERPRETER, find_unbound_names, scopes_of
from hillclimb.harness.records import Reason

__all__ = ["DYNAMIC", "LIBRARY_CALLS", "check_policy"]

DYNAMIC = frozenset(
    {
        "eval",
        "exec",
        "compile",
        "vars",
        "globals",
        "locals",
        "__dict__",
        "__getattribute__",
        "__import__",
        "__builtins__",
        "__loader__",
        "__spec__",
        "__globals__",
        "__closure__",
        "__code__",
        "__subclasses__",
        "setattr",
        "delattr",
        "breakpoint",
    }
)
"""Names that would let code say the rest unseen."""

TAKEN = words(
    "agent harness hillclimb numpy scipy numba llvmlite yaml torch triton cuda cutlass sitecustomize usercustomize "
    "cython_runtime"
)
"""Names of modules that are not the workspace's to give, besides the standard library's and those of policy.imports."""

COMPILED = "__pycache__"
"""What a folder of that name holds is not read by a candidate's process, which looks for it in its scratch folder."""

UNREADABLE = (
    *importlib.machinery.EXTENSION_SUFFIXES,
    *importlib.machinery.BYTECODE_SUFFIXES,
    *(".pth", ".zip", ".egg", ".whl", ".nbi", ".nbc", ".pkl", ".pickle"),
)
"""Endings of files that Python or numba would run and nobody can read."""

METADATA = (".dist-info", ".egg-info")
"""Endings of folders by which a package says what others shall import of it."""

MAX_SOURCE_BYTES = 256 << 10
"""Bytes of all source files together; a kernel written by hand has a few thousand, and reading takes 20 s a MiB."""

MAX_SOURCES_REMEMBERED = 64
"""Sources whose reading is kept: a side is read again at the start of each of its processes."""

READ_BY_PARTS = ("torch.", *TRITON_LANGUAGES)
"""Of what is below these every part of a path is held to a list."""

PARSE_ERRORS = (SyntaxError, ValueError, RecursionError, MemoryError, SystemError)
"""What ast.parse raises for bytes that are no program, or one nested deeper than the parser's own stack."""


def check_policy(workspace: Path, policy: Policy) -> None:
    """Raises CandidateFault: POLICY naming file, line and what is not allowed there, or DOES_NOT_LOAD."""
    try:
        complaint = _taken_name(workspace, policy) or _first_violation(tuple(_read(workspace)), policy)
    except RecursionError:
        complaint = Reason.DOES_NOT_LOAD, "statements are nested too deeply to be read"
    if complaint is not None:
        raise CandidateFault(*complaint)


def _taken_name(workspace: Path, policy: Policy) -> tuple[Reason, str] | None:
    """A file or folder that would be imported instead of a foreign module, or that cannot be read."""
    taken = TAKEN | sys.stdlib_module_names | set(policy.modules)
    for path in sorted(workspace.glob("*")):
        module = path.name.partition(".")[0]
        if (
            (path.is_dir() or path.suffix == ".py")
            and path.name != COMPILED
            and (module in taken or _is_pythons(module) or (_is_importable(path) and _is_installed(module)))
        ):
            return (
                Reason.POLICY,
                f"{path.name}: hides the module {module!r} from every import; give it another name",
            )
    for path in sorted(workspace.rglob("*")):
        name = path.relative_to(workspace)
        if COMPILED in name.parts:
            continue
        if path.name.endswith(UNREADABLE):
            return Reason.POLICY, f"{name}: would be run, and nobody can read it; bring its source"
        if path.name.endswith(METADATA):
            return Reason.POLICY, f"{name}: says what packages are installed, and what they run; take it out"
        if path.is_symlink() and path.is_dir():
            return (
                Reason.POLICY,
                f"{name}: is a link to a folder, which would be imported unread; bring the folder",
            )
        if path.suffix == ".py" and path.with_suffix("").is_dir():
            return Reason.POLICY, f"{name}: a folder of the same name is imported instead; rename one"
    return None


def _is_pythons(module: str) -> bool:
    """Whether Python or Cython keeps something under that name already, so that no import looks for a file."""
    is_dunder = module.startswith("__") and module.endswith("__") and module != "__init__"
    return is_dunder or module.startswith("_cython_")


def _is_importable(path: Path) -> bool:
    """Whether it has Python. Else an import passes it over, and some packages bring a folder `docs` or `scripts`."""
    return path.is_file() or any(path.rglob("*.py"))


@cache
def _is_installed(module: str) -> bool:
    """Whether an import could find a package of that name besides the workspace's."""
    places = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    return importlib.machinery.PathFinder.find_spec(module, places) is not None


def _read(workspace: Path) -> Iterator[tuple[PurePath, bytes]]:
    """Every file that may be imported, by its path in the workspace."""
    total = 0
    for path in sorted(workspace.rglob("*.py")):
        name = path.relative_to(workspace)
        if not path.is_file() or name.parts[0] in UNREAD_FOLDERS:
            continue
        try:
            total += path.stat().st_size
            if total > MAX_SOURCE_BYTES:
                raise ValueError(
                    f"all source together has over {MAX_SOURCE_BYTES} bytes, the most that is read"
                )
            yield name, path.read_bytes()
        except (OSError, ValueError) as error:
            raise CandidateFault(Reason.DOES_NOT_LOAD, _unreadable(name, error)) from None


@lru_cache(maxsize=MAX_SOURCES_REMEMBERED)
def _first_violation(
    sources: tuple[tuple[PurePath, bytes], ...], policy: Policy
) -> tuple[Reason, str] | None:
    """What there is to say against these files; None where nothing is."""
    own = {name.parts[0].removesuffix(".py") for name, _ in sources}
    trees: dict[PurePath, ast.Module] = {}
    scopes: dict[PurePath, symtable.SymbolTable] = {}
    lines: dict[PurePath, Sequence[str]] = {}
    for file, source in sources:
        try:
            trees[file], scopes[file], lines[file] = parse(source), scopes_of(source), lines_of(source)
            require_shallow(trees[file])
        except PARSE_ERRORS as error:
            return Reason.DOES_NOT_LOAD, _unreadable(file, error)
    names: dict[str, DottedNames] = {}
    for file, tree in trees.items():
        names[module_name(file)] = DottedNames(tree, names, package_name(file), module_name(file))
    modules = {*names, *(package_name(file) for file in trees)} - {""}
    has_ufuncs = any(makes_ufuncs(tree, names[module_name(file)]) for file, tree in trees.items())
    libraries = {root for one in names.values() for root in one.roots}
    has_triton = "triton" in libraries
    has_fields = "dataclasses" in libraries and any(
        uses_fields(tree, names[module_name(file)]) for file, tree in trees.items()
    )
    wrapping = frozenset(
        name for file, tree in trees.items() for name in wrapping_functions(tree, names[module_name(file)])
    )
    for file, tree in trees.items():
        found = [*_violations(tree, names[module_name(file)], own, modules, policy)]
        given = OF_INTERPRETER if has_triton else ()
        found += find_unbound_names(tree, scopes[file], names[module_name(file)], modules, given)
        if has_triton:
            found += find_other_texts(tree, lines[file], names[module_name(file)])
            found += find_wrapped_parameters(tree, names[module_name(file)], wrapping)
        found += find_named_types(tree) if "numba" in libraries else ()
        found += find_named_fields(tree) if has_fields else ()
        found += find_additions(tree, names[module_name(file)]) if has_ufuncs else ()
        for line, problem in sorted(found, key=itemgetter(0)):
            return Reason.POLICY, f"{file}:{line}: {problem}"
    return None


def _unreadable(file: PurePath, error: BaseException) -> str:
    return f"{file}: {type(error).__name__}: {str(error) or 'nested too deeply to be parsed'}"


def _violations(
    tree: ast.AST, names: DottedNames, own: set[str], modules: Container[str], policy: Policy
) -> Iterator[tuple[int, str]]:
    """(line, problem) of everything that the policy does not allow."""
    called = {id(node.func) for node in nodes_of(tree) if isinstance(node, ast.Call)}
    for node in nodes_of(tree):
        problems = [*_imports(node, own, policy), *_dynamic_code(node, id(node) in called, names)]
        problems += _patches(node, names, own)
        yield from ((getattr(node, "lineno", 0), problem) for problem in problems)
    if not policy.graphs:
        yield from find_graph_captures(tree, names)
    if not policy.library_calls:
        yield from find_library_calls(
            tree, names, own, with_tensors=bool({"torch", "hillclimb"} & set(policy.modules))
        )
    yield from find_hidden_names(tree, names, own, modules)
    yield from find_made_types(tree, names)
    yield from find_foreign_wraps(tree, names)
    yield from find_addresses(tree, names)
    yield from find_evaluated_strings(tree, names)
    yield from _unlisted(tree, names, own, policy)


def _unlisted(tree: ast.AST, names: DottedNames, own: set[str], policy: Policy) -> Iterator[tuple[int, str]]:
    """Uses of foreign names that are not on their module's list."""
    asked = [(node.lineno, path, problem_with) for node, path in names.uses(tree)]
    for node in nodes_of(tree):
        asked += [(getattr(node, "lineno", 0), path, problem_with_import) for path in _imported(node)]
    for line, path, problem_of in asked:
        if path.partition(".")[0] not in own:
            problem = problem_of(path, policy.imports, policy.library_calls)
            if problem is not None:
                yield line, problem


def _imports(node: ast.AST, own: set[str], policy: Policy) -> Iterator[str]:
    for path in _imported(node):
        root = path.partition(".")[0]
        if root not in own and root not in policy.modules:
            allowed = ", ".join(policy.imports)
            yield f"imports {root!r}; policy.imports allows {allowed} and the workspace's own modules"


def _imported(node: ast.AST) -> list[str]:
    """Dotted paths of what an import binds; relative ones are the workspace's own."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.level == 0:
        return [f"{node.module}.{alias.name}" for alias in node.names if alias.name != "*"] or [
            node.module or ""
        ]
    return []


def _dynamic_code(node: ast.AST, is_called: bool, names: DottedNames) -> Iterator[str]:
    """Names that hide others, and getattr where its literal name cannot be read off."""
    name, attribute = _name(node), attribute_of(node)
    said = DYNAMIC.intersection((name, attribute))
    path = names.known(node) or ""
    if is_torch_or_language(path):
        said = said - {"compile"}
    if f"{path}.".startswith(READ_BY_PARTS):
        attribute = None
    for dynamic in sorted(said):
        yield f"uses {dynamic!r}, which hides what the code does"
    if attribute in LEADING_OUT:
        yield f"uses '.{attribute}', which leads out of the kernel"
    if name == "getattr" and not is_called:
        yield "uses getattr without calling it there, which hides what the code does"
    if isinstance(node, ast.Call) and _name(node.func) == "getattr" and attribute_of(node) is None:
        yield "calls getattr with a computed name, which hides what the code does"


def _patches(node: ast.AST, names: DottedNames, own: set[str]) -> Iterator[str]:
    """Assignments into modules that are not the workspace's own."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store | ast.Del):
        path = names.path(node)
        if path is not None and path.split(".")[0] not in own:
            yield f"changes {path}, which is not the workspace's own"
        elif path is not None and isinstance(node.ctx, ast.Del):
            yield f"deletes {path}, which stands for something else then"
        elif path is not None and not names.may_set(path):
            yield f"changes {path}, which is no variable of that module"


def _name(node: ast.AST) -> str | None:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.alias(name=name):
            return name.split(".")[-1]
    return None
