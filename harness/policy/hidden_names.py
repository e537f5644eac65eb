"""What would take a name away from the reading: a second meaning, a value handed on, an attribute nobody names."""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from hillclimb.harness.policy.allowed import words
from hillclimb.harness.policy.library_calls import PRODUCT_NAMES
from hillclimb.harness.policy.names import DottedNames, attribute_of, in_scope_of, nodes_of, relative_module

PLAIN_DUNDERS = words(
    "__init__ __post_init__ __call__ __enter__ __exit__ __getitem__ __setitem__ __len__ __iter__ __next__ __name__ "
    "__qualname__ __doc__ __version__ __class__ __eq__ __hash__ __repr__ __str__ __file__ __torch_function__ "
    "__array_interface__ __cuda_array_interface__ __cuda_stream__ __dlpack__ __dlpack_device__"
)
"""Attributes with two underscores on either side that may be read. Others reach what an object is made of."""

NAMED_DUNDERS = PLAIN_DUNDERS | PRODUCT_NAMES
"""The latter are held by policy.library_calls."""

DEFINED_DUNDERS = words(
    "__init__ __post_init__ __call__ __enter__ __exit__ __getitem__ __setitem__ __len__ __iter__ __next__ __contains__ "
    "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__ __bool__ __repr__ __str__ __format__ __index__ __int__ "
    "__float__ __add__ __radd__ __iadd__ __sub__ __rsub__ __isub__ __mul__ __rmul__ __imul__ __truediv__ "
    "__floordiv__ __mod__ __neg__ __abs__ __pow__ __or__ __and__ __xor__ __invert__ __lshift__ __rshift__ "
    "__divmod__ __round__ __reversed__ __missing__ __del__ __copy__"
)
"""Methods that a class may define."""

BOUND_DUNDERS = words("__all__ __version__ __author__ __doc__ __slots__ __hash__")
"""Those that an assignment may bind. Others say where a module's names come from, or what an object pretends to be."""


OF_NUMBA = "_numba_type_"
"""An attribute by which an object tells numba what it is."""

READ_DUNDERS = NAMED_DUNDERS | BOUND_DUNDERS | {"__debug__"}
"""Names of a module's own that it may read. Its `__path__`, changed in place, says where other modules come from."""


def find_hidden_names(
    tree: ast.AST, names: DottedNames, own: Container[str], modules: Container[str]
) -> Iterator[tuple[int, str]]:
    """(line, problem); `own` are the workspace's top-level names, `modules` all of its modules and packages."""
    for node in nodes_of(tree):
        line = getattr(node, "lineno", 0)
        problems = [
            *_bindings(node),
            *_attributes(node),
            *_read_names(node),
            *_patterns(node),
            *_imports(node, names.package, modules),
            *_renamed(node),
        ]
        yield from ((line, problem) for problem in problems)
    yield from _module_functions(tree)
    yield from _interfaces(tree)
    yield from _slots(tree)
    yield from _wrappers(tree, names)
    for use, path in names.uses(tree):
        if path in modules:
            yield (
                use.lineno,
                f"hands the module {path} on, which hides what is used of it; name the functions",
            )
    yield from _ambiguous(names, own)  # after every use was followed: what was not to its end is known then


def _is_dunder(name: str | None) -> bool:
    return name is not None and len(name) > 4 and name.startswith("__") and name.endswith("__")


def _bindings(node: ast.AST) -> Iterator[str]:
    """Names with two underscores on either side that are bound, whatever binds them."""
    bound: list[str | None] = []
    match node:
        case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
            bound = [name]
        case ast.alias(asname=other):
            bound = [other]
        case ast.arg(arg=name):
            bound = [name]
        case ast.ExceptHandler(name=other) | ast.MatchAs(name=other) | ast.MatchStar(name=other):
            bound = [other]
        case ast.MatchMapping(rest=other):
            bound = [other]
        case ast.Global(names=several) | ast.Nonlocal(names=several):
            bound = list(several)
        case ast.ClassDef(name=name):
            bound = [name]
        case ast.Attribute(attr=name, ctx=ast.Store() | ast.Del()):
            bound = [name]
        case ast.FunctionDef(name=name):
            bound = [name if name == OF_NUMBA else None]
    for told in bound:
        if (_is_dunder(told) and told not in BOUND_DUNDERS) or told == OF_NUMBA:
            yield f"binds {told}, which says where names come from; call it otherwise"


def _module_functions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Functions named so that are no methods: __getattr__ of a module answers for every name."""
    methods = {id(part) for node in nodes_of(tree) if isinstance(node, ast.ClassDef) for part in node.body}
    for node in nodes_of(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and _is_dunder(node.name)
            and id(node) not in methods
        ):
            yield (
                node.lineno,
                f"defines {node.name} outside a class, which answers for names that nobody reads",
            )


def _interfaces(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Methods by which an object tells others where its memory lies, or what it is."""
    for node in nodes_of(tree):
        if (
            isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            and _is_dunder(node.name)
            and node.name not in DEFINED_DUNDERS
        ):
            yield node.lineno, f"defines {node.name}, by which others take the object for something else"


def _slots(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Names in __slots__ become attributes of the class, marks that others look for among them."""
    plain = {id(target) for node in nodes_of(tree) for target in _plain_slots(node)}
    for node in nodes_of(tree):
        if isinstance(node, ast.Name) and node.id == "__slots__" and id(node) not in plain:
            yield node.lineno, "binds __slots__ to other than a tuple of names written out"


def _plain_slots(node: ast.AST) -> Iterator[ast.AST]:
    match node:
        case ast.Assign(targets=[ast.Name() as target], value=ast.Tuple(elts=names) | ast.List(elts=names)):
            said = [name.value for name in names if isinstance(name, ast.Constant)]
            is_plain = all(isinstance(one, str) and not one.startswith("__") for one in said)
            yield from (target,) if is_plain and len(said) == len(names) else ()
        case ast.Assign(targets=[ast.Name() as target], value=ast.Constant(value=str(name))):
            yield from () if name.startswith("__") else (target,)


def _attributes(node: ast.AST) -> Iterator[str]:
    attribute = attribute_of(node)
    if _is_dunder(attribute) and attribute not in NAMED_DUNDERS:
        yield f"uses '.{attribute}', which reaches what an object is made of"


def _renamed(node: ast.AST) -> Iterator[str]:
    """Names that Python puts the class's before, wherever they stand in its body."""
    for part in nodes_of(node) if isinstance(node, ast.ClassDef) else ():
        for name in sorted(_identifiers(part)):
            if name.startswith("__") and not name.endswith("__"):
                yield f"says {name} in a class, where Python reads another name; begin it with one underscore"


def _identifiers(node: ast.AST) -> set[str]:
    """Those that are a node's own."""
    said = [value for _, value in ast.iter_fields(node)]
    lists = [one for value in said if isinstance(value, list) for one in value]
    names = {one for one in [*said, *lists] if isinstance(one, str)}
    return set() if isinstance(node, ast.Constant) else names


def _read_names(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name, ctx=ast.Load()) if _is_dunder(name) and name not in READ_DUNDERS:
            yield f"reads {name}, which reaches what a module is made of"


def _patterns(node: ast.AST) -> Iterator[str]:
    """`case C(x)` and `case C(a=x)` read attributes of what is matched."""
    if isinstance(node, ast.MatchClass) and (node.patterns or node.kwd_attrs):
        yield "matches a class pattern, which reads attributes unseen; use isinstance"


def _imports(node: ast.AST, package: str, modules: Container[str]) -> Iterator[str]:
    if isinstance(node, ast.ClassDef) and any(
        isinstance(part, ast.Import | ast.ImportFrom) for part in in_scope_of(node)
    ):
        yield "imports inside a class, which hides what is used of it; import at the top"
    if not isinstance(node, ast.ImportFrom):
        return
    for alias in node.names:
        if alias.name == "*":
            yield f"imports * from {node.module!r}, which hides what is used of it; name the functions"
        elif _is_dunder(alias.name) and alias.name not in NAMED_DUNDERS:
            yield f"imports {alias.name}, which reaches what a module is made of"
    if node.level:
        target = relative_module(node, package)
        if target is None or (target and target not in modules):
            yield "imports from a package that the workspace does not have; name a module that it has"


def _ambiguous(names: DottedNames, own: Container[str]) -> Iterator[tuple[int, str]]:
    """Names that are foreign in one place and the workspace's own in another."""
    for line, name, first, second in names.ambiguous:
        meant = [names.follow(first), names.follow(second)]
        if len({path.partition(".")[0] in own for path in meant}) > 1:
            yield (
                line,
                f"{name!r} stands for {first} and for {second} in this file; call one of them otherwise",
            )
    for line, name in names.too_long:
        yield line, f"reaches {name!r} by too many steps to be followed; name it directly"


def _wrappers(tree: ast.AST, names: DottedNames) -> Iterator[tuple[int, str]]:
    """functools.wraps sets and reads attributes whose names it is given: of a function that it stands before alone."""
    decorators = {
        id(decorator.func)
        for node in nodes_of(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list[-1:]
        if isinstance(decorator, ast.Call) and len(decorator.args) == 1 and not decorator.keywords
        if not isinstance(decorator.args[0], ast.Starred)
    }
    for node, path in names.uses(tree):
        if path == "functools.wraps" and id(node) not in decorators:
            yield (
                node.lineno,
                "uses functools.wraps otherwise than as a function's last decorator, @wraps(function)",
            )
