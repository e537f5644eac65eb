"""Stamps a new case: a kernel's from cases/_template, a server's from cases/_template_serving.

One for a GPU has the files of a second template over it.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Literal

import hillclimb
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import StorageError, UsageError
from hillclimb.harness.records import Record

SLUG = re.compile(r"[a-z0-9][a-z0-9_]{0,63}")
PLACEHOLDER = re.compile(r"(: )?\{\{(\w+)\}\}")
CaseKind = Literal["kernel", "serving"]
"""What is climbed: a function, or a server of a model."""

TEMPLATES = {"cpu": ("_template",), "cuda": ("_template", "_template_cuda")}
"""Folders below cases/ that a case is stamped from, by its device; a later one's files replace an earlier one's."""

SERVING_TEMPLATES = {"cpu": ("_template_serving",), "cuda": ("_template_serving", "_template_serving_cuda")}
"""The same for a server."""

FOR_CPU = ("workspace/ops/c", "workspace/ops/numba")
"""What of the first one no server on a GPU has."""

SHARED = ("workspace/knobs.py", "workspace/docs/notes.md")
"""Files that a server's case has from a kernel's template."""


class StampedCase(Record):
    """What `new-case` or `gemm claim` made."""

    folder: str
    case: str
    """`<family>/<case>`."""
    told: tuple[str, ...] = ()
    """Of an import: what could not be carried over, a line each. Of a claim: the kernel, and what was measured."""


def create_case(
    root: Path,
    family: str,
    case: str,
    model_name: str,
    model_path: str,
    hardware: str,
    device: Literal["cpu", "cuda"] = "cpu",
    kind: CaseKind = "kernel",
) -> Path:
    """Write cases/<family>/<case> below `root`, whole or not at all, and return that folder.

    Raises UsageError for a slug or text that cannot be used, a server without `model_path`, a folder that is there
    already, no template; StorageError where the disk refuses.
    """
    values = {
        "model_name": _line("--model-name", model_name),
        "model_path": _line("--model-path", model_path),
        "hardware": _line("--hardware", hardware),
    }
    if kind == "kernel":
        return stamp(root, TEMPLATES[device], family, case, values)
    return _stamp_server(root, family, case, values, device)


def _stamp_server(root: Path, family: str, case: str, values: dict[str, str], device: str) -> Path:
    """As `create_case`."""
    if not values["model_path"]:
        raise UsageError(
            "--model-path is empty; name the folder or the GGUF file of the model that is served"
        )
    if Path(values["model_path"]).exists():  # as it is named from here; the case lies elsewhere
        values["model_path"] = str(Path(values["model_path"]).absolute())

    def finish(folder: Path) -> None:
        for name in SHARED:
            text = template_text(root, "_template", name, {**values, "family": family, "case": case})
            (folder / name).write_text(text, encoding="utf-8")
        for name in FOR_CPU if device == "cuda" else ():
            shutil.rmtree(folder / name)

    return stamp(root, SERVING_TEMPLATES[device], family, case, values, finish)


def stamp(
    root: Path,
    names: Sequence[str],
    family: str,
    case: str,
    values: Mapping[str, str],
    finish: Callable[[Path], None] = lambda _: None,
) -> Path:
    """As `create_case`, from the templates of these names; `finish` may change what they gave."""
    values = {**values, "family": _slug("--family", family), "case": _slug("--case", case)}
    templates = [_template(root, name) for name in names]
    folder = root / "cases" / family / case
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} is there already; choose another --case, or remove it")
    try:
        _build(templates, folder, values, finish)
    except OSError as error:
        raise StorageError(f"{folder} could not be written: {error}; nothing was left there") from error
    return folder


def repository(here: Path) -> Path:
    """The folder above `here` that has cases/_template; `here` itself where none has."""
    return next(
        (folder for folder in (here, *here.parents) if (folder / "cases" / "_template").is_dir()), here
    )


def template_text(
    root: Path, template: str, name: str, values: Mapping[str, str] = MappingProxyType({})
) -> str:
    """One file of a template, its placeholders filled. Raises UsageError where there is no such template."""
    return _render(_template(root, template) / name, values)


def _template(root: Path, name: str) -> Path:
    """The checkout's own template, else the one that is installed with the package."""
    own = root / "cases" / name
    found = own if own.exists() else Path(hillclimb.__path__[0]) / "cases" / name
    if not (found / "case.yaml").is_file():
        raise UsageError(f"{found} has no case.yaml, so no case can be stamped from it; restore the template")
    return found


def _build(
    templates: Sequence[Path], folder: Path, values: Mapping[str, str], finish: Callable[[Path], None]
) -> None:
    """Write the case beside its place and move it there in one step."""
    folder.parents[1].mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="_stamping_", dir=folder.parents[1]) as beside:
        made = Path(beside) / folder.name
        for template in templates:
            _render_tree(template, made, values)
        finish(made)
        Case(made)  # a stamped case is a valid one
        folder.parent.mkdir(exist_ok=True)
        made.rename(folder)


def _render_tree(template: Path, folder: Path, values: Mapping[str, str]) -> None:
    for source in sorted(template.rglob("*")):
        relative = source.relative_to(template)
        if not source.is_file() or any(part.startswith((".", "__pycache__")) for part in relative.parts):
            continue
        target = folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(_render(source, values), encoding="utf-8")
        shutil.copymode(source, target)


def _render(source: Path, values: Mapping[str, str]) -> str:
    """The file's text with its placeholders filled; one that is a whole YAML value is quoted."""

    def fill(found: re.Match[str]) -> str:
        lead, value = found[1] or "", values[found[2]]
        quoted = lead and source.suffix == ".yaml"
        return lead + (json.dumps(value, ensure_ascii=False) if quoted else value)

    return PLACEHOLDER.sub(fill, source.read_text(encoding="utf-8"))


def _slug(option: str, value: str) -> str:
    if not SLUG.fullmatch(value):
        raise UsageError(
            f"{option} {value!r} is no slug; use a-z, 0-9 and _, at most 64, not starting with _"
        )
    return value


def _line(option: str, value: str) -> str:
    if not value.isprintable():
        raise UsageError(f"{option} {value!r} has control characters in it; write it as one plain line")
    return value.strip()
