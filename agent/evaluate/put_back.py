"""`put-back`: a kernel goes into a server's workspace, in the place of the model's module or of the whole model."""

from __future__ import annotations

import ast
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

import yaml
from pydantic import ValidationError

from hillclimb.agent.evaluate.hook_text import (
    hook_text,
    installers_text,
    manifest_text,
    session_test_text,
    session_text,
    test_text,
)
from hillclimb.agent.evaluate.versions import read_version
from hillclimb.agent.git.version import Version
from hillclimb.harness.case.case import Case
from hillclimb.harness.engagement.kernel_manifest import MANIFEST_FILE, read_chosen
from hillclimb.harness.engagement.kernel_names import DEFINED
from hillclimb.harness.errors import CandidateFault, UsageError
from hillclimb.harness.extract.profiled import EXTRACTED, ExtractedOperator
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.records import Record

KERNEL_FILES = (".py", ".cu", ".cuh", ".h", ".hpp", ".ptx")
LEFT_OUT = ("tests", "docs")
SHARED_FILE = "knobs.py"
"""The server's workspace has its own, which reads the knobs of both."""

INSTALLERS, SESSION_BACKEND = "ops/extracted.py", "backend/session.py"
HOOK_FILE, SESSION_FILE = "hook.py", "put_back.py"
"""Written into `ops/<name>/` for a module of the model, and for the whole of it."""

LAUNCHED = re.compile(r"\b(\w+)\s*\[")


class PutBack(Record):
    """What `put-back` did."""

    case: str
    """The server's."""
    family: str
    """Of the manifest."""
    knob: str
    files: tuple[str, ...]
    """Written, below the workspace."""


def put_back(kernel: Case, what: str | None, server: Case, claimed: Collection[str] | None = None) -> PutBack:
    """Put a version of the kernel's workspace, by default its working files, into the server's working files.

    The manifest claims that the functions `claimed` run; by default all kernels that its files define and launch.
    Raises UsageError where the kernel is neither a session nor was extracted from a model, and where the result would
    be no sound workspace; nothing is written then.
    """
    place = None if kernel.settings.surface == "session" else _read_place(kernel)
    _require_alike(kernel, server)
    name = kernel.folder.name
    family = PutBack(case=server.name, family=name, knob=f"OP_{name.upper()}", files=())
    version = read_version(kernel, what or str(kernel.workspace))
    files, function = _with_caller(dict(_texts(version, name)), kernel, place)
    kernels = _claimed(files, function, server.settings.device) if claimed is None else sorted(claimed)
    if not kernels:
        raise UsageError(
            f"{kernel.name} launches no kernel of its own; name what runs by --claim, or put back one that does"
        )
    with tempfile.TemporaryDirectory(prefix="hillclimb_put_back_") as beside:
        tried = Path(beside) / server.folder.parent.name / server.folder.name
        shutil.copytree(server.folder, tried, ignore=shutil.ignore_patterns("__pycache__"))
        workspace = tried / "workspace"
        _require_room(server, INSTALLERS if place else SESSION_BACKEND)
        shutil.rmtree(workspace / "ops" / name, ignore_errors=True)
        _write(workspace, files)
        claim = manifest_text(
            name, family.knob, kernels, "a module of the model" if place else "the whole model"
        )
        files |= _joined(workspace, version, family, claim)
        _write(workspace, files)
        _require_sound(tried)
        shutil.rmtree(server.workspace / "ops" / name, ignore_errors=True)
        _write(server.workspace, files)
    return family.model_copy(update={"files": tuple(sorted(files))})


def _require_room(server: Case, file: str) -> None:
    """Raises UsageError for a server that has no place for kernels which are put back."""
    if not (server.workspace / file).is_file():
        raise UsageError(
            f"{server.name} has no workspace/{file}, by which kernels that are put back are run; "
            "'hillclimb new-case --kind serving' makes a workspace that has it"
        )


def _require_alike(kernel: Case, server: Case) -> None:
    """Raises UsageError for a kernel that cannot run in the server."""
    entry = kernel.settings.entry.split(":")[0]
    if not entry.endswith(".py"):
        raise UsageError(
            f"{kernel.name} runs {entry}; put it back by hand, by native_function in a module of the server's ops/"
        )
    if kernel.settings.device != server.settings.device:
        raise UsageError(
            f"{kernel.name} is for {kernel.settings.device}, and {server.name} for {server.settings.device}"
        )


def _with_caller(
    files: dict[str, str], kernel: Case, place: ExtractedOperator | None
) -> tuple[dict[str, str], str]:
    """The kernel's files with what calls it in the server, and its test; and the name of the function that runs."""
    name = kernel.folder.name
    entry, function = kernel.settings.entry.split(":")
    if place is None:
        called = _called(files[f"ops/{name}/{entry}"], function)
        hook, test = session_text(name, entry, function), session_test_text(name)
        return {**files, f"ops/{name}/{SESSION_FILE}": hook, f"tests/test_{name}.py": test}, called
    function = _name_entry(files, f"ops/{name}/{entry}", function, name)
    hook, test = hook_text(name, entry, function, place), test_text(name, place)
    return {**files, f"ops/{name}/{HOOK_FILE}": hook, f"tests/test_{name}.py": test}, function


def _called(text: str, session: str) -> str:
    """What runs at each token: a session is a class, or a function that makes something to be called."""
    is_class = any(isinstance(node, ast.ClassDef) and node.name == session for node in ast.parse(text).body)
    return "__call__" if is_class else session


def _read_place(kernel: Case) -> ExtractedOperator:
    file = kernel.folder / EXTRACTED
    try:
        return ExtractedOperator.model_validate_json(file.read_text(encoding="utf-8"))
    except (OSError, ValidationError) as error:
        first = str(error).splitlines()[0]
        raise UsageError(
            f"{file} does not say where the kernel belongs ({first}); "
            "'hillclimb extract MODEL --write' makes cases that do"
        ) from None


def _texts(version: Version, name: str) -> Iterator[tuple[str, str]]:
    """The kernel's sources by their new places, with imports of each other that are true there."""
    paths = [PurePosixPath(path) for path in version]
    own = {path.parts[0].removesuffix(".py") for path in paths if path.suffix == ".py"} - {"knobs", *LEFT_OUT}
    for path in paths:
        if path.suffix in KERNEL_FILES and path.parts[0] not in LEFT_OUT and str(path) != SHARED_FILE:
            text = version[str(path)].content.decode("utf-8")
            yield f"ops/{name}/{path}", _moved_imports(text, own, name) if path.suffix == ".py" else text


def _moved_imports(text: str, own: set[str], name: str) -> str:
    """Imports of the kernel's own modules, from where they lie now."""
    lines = text.splitlines()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module=str(module), level=0, names=names) if module.partition(".")[0] in own:
                moved = ast.ImportFrom(f"ops.{name}.{module}", names, 0)
            case ast.Import(names=[ast.alias(name=module)] as names) if module in own:
                moved = ast.ImportFrom(f"ops.{name}", names, 0)
            case _:
                continue
        lines[node.lineno - 1] = " " * node.col_offset + ast.unparse(moved)
        for at in range(node.lineno, node.end_lineno or node.lineno):
            lines[at] = ""
    return "\n".join(lines) + "\n"


def _name_entry(files: dict[str, str], path: str, function: str, name: str) -> str:
    """A name for the entry that no other kernel's has, for manifests tell functions by their names. Returns it."""
    text, own = files[path], f"{function}_{name}"
    defined, used = re.compile(rf"^def {function}\(", re.MULTILINE), re.compile(rf"\b{function}\b")
    if len(defined.findall(text)) != 1 or len(used.findall("\n".join(files.values()))) != 1:
        return function
    files[path] = defined.sub(f"def {own}(", text)
    return own


def _claimed(files: Mapping[str, str], function: str, device: str) -> list[str]:
    """Functions that the manifest says run: on a CPU the entry, on a GPU the kernels that are launched."""
    if device == "cpu":
        return [function]
    text = "\n".join(files.values())
    jitted = {
        node.name
        for path, source in files.items()
        if path.endswith(".py")
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef) and any("jit" in ast.unparse(one) for one in node.decorator_list)
    }
    found = jitted & set(LAUNCHED.findall(text))
    compiled = {one for _, *pair in DEFINED.findall(text) for one in pair if one}
    return sorted(found | compiled)


def _joined(workspace: Path, version: Version, made: PutBack, claim: str) -> dict[str, str]:
    """The server's knobs, manifest and list of installers, with the kernel's."""
    knobs = (workspace / "knobs.yaml").read_text(encoding="utf-8").rstrip() + "\n"
    known = yaml.safe_load(knobs) or {}
    if made.knob not in known:
        brought = version["knobs.yaml"].content.decode("utf-8") if "knobs.yaml" in version else ""
        double = sorted(set(yaml.safe_load(brought) or {}) & set(known))
        if double:
            raise UsageError(f"both workspaces have a knob {double[0]}; rename one of them")
        own = "" if not yaml.safe_load(brought) else brought.strip() + "\n"
        knobs += (
            f"{made.knob}:\n  doc: Who computes {made.family}, the model's own modules or ops/{made.family}.\n"
            f"  type: choice\n  choices: [stock, kernel]\n  default: kernel\n{own}"
        )
    file = workspace / MANIFEST_FILE
    manifest = (
        file.read_text(encoding="utf-8").rstrip() + "\n" if file.is_file() else "schema: 1\nfamilies:\n"
    )
    before = re.compile(rf"(?<=\n)  {made.family}:\n(?:    .*\n)*")
    manifest = before.sub("", manifest) + claim
    hooks, sessions = (
        sorted(path.parent.name for path in (workspace / "ops").glob(f"*/{file}"))
        for file in (HOOK_FILE, SESSION_FILE)
    )
    return {"knobs.yaml": knobs, MANIFEST_FILE: manifest, INSTALLERS: installers_text(hooks, sessions)}


def _write(workspace: Path, files: Mapping[str, str]) -> None:
    for path, text in files.items():
        (workspace / path).parent.mkdir(parents=True, exist_ok=True)
        (workspace / path).write_text(text, encoding="utf-8")


def _require_sound(folder: Path) -> None:
    """Raises UsageError where the case would not be judged, CaseError where it is no case."""
    case = Case(folder)
    read_chosen(case.workspace, {})
    try:
        check_policy(case.workspace, case.settings.policy)
    except CandidateFault as fault:
        raise UsageError(
            f"the server's policy refuses the kernel: {fault.detail}; change the one or the other"
        ) from None
