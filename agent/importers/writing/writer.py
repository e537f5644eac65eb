"""Makes a case of what was read and found out, and puts its files in place in one step."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from hillclimb.agent.importers.formats.imported import DeviceKind, Findings, ImportedCase, KnobPlan, Plan
from hillclimb.agent.importers.formats.slicing import imported_modules
from hillclimb.agent.importers.writing.baseline import kernel_text, original_text
from hillclimb.agent.importers.writing.case_text import (
    KNOBS_TEXT,
    LARGE_BYTES,
    case_text,
    notes_text,
    program_text,
    readme_text,
)
from hillclimb.agent.importers.writing.contract_text import contract_text, suite_text
from hillclimb.agent.stamp import SLUG
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import CandidateFault, StorageError, UsageError
from hillclimb.harness.knobs.knobs import parse_knobs
from hillclimb.harness.policy.policy import check_policy

IMPORTS: Mapping[DeviceKind, tuple[str, ...]] = {
    "cpu": ("__future__", "pathlib", "math", "os", "typing", "functools", "numpy", "numba", "yaml"),
    "cuda": (
        "__future__",
        "functools",
        "itertools",
        "math",
        "os",
        "pathlib",
        "typing",
        "torch",
        "triton",
        "yaml",
    ),
}

REFUSED = "policy"


@dataclass(frozen=True)
class CaseNames:
    """What a person calls the case, and what it is for."""

    family: str
    case: str
    model: str
    hardware: str

    @property
    def full(self) -> str:
        return f"{self.family}/{self.case}"


def compose(
    names: CaseNames, plan: Plan, found: Findings, device: DeviceKind, knobs: KnobPlan | None
) -> ImportedCase:
    """All files of the case. Raises UsageError for an operator that cannot be on this device."""
    if plan.operator.kind == "NumpyFunction" and device == "cuda":
        raise UsageError(
            f"{plan.operator.name} computes with NumPy, which is on the CPU; leave --device cuda out"
        )
    uses_torch = plan.operator.kind != "NumpyFunction"
    original, kernel = original_text(plan), kernel_text(names.full, plan, found, device)
    modules = sorted(imported_modules(original) - {*IMPORTS[device], "original", "torch"})
    imports = [*IMPORTS[device], *(["torch"] if uses_torch and device == "cpu" else [])]
    imports += [module for module in modules if module not in imports]
    told = [*found.told, *_told(plan, found, device, modules), *(knobs.told if knobs else ())]
    knobs_text = knobs.text if knobs else KNOBS_TEXT

    def files(library_calls: bool) -> dict[str, str]:
        noted = [*told, *_first_job(uses_torch, library_calls)]
        return {
            "case.yaml": case_text(
                names.full, plan, names.model, names.hardware, device, library_calls, imports
            ),
            "contract.py": contract_text(names.full, plan, found),
            "source.py": plan.source,
            **plan.beside,
            **({"space.json": knobs.source} if knobs else {}),
            "program.md": program_text(names.full, plan, found, noted, library_calls),
            "benchmarks/main.yaml": suite_text(found.timed, f"what the {plan.format} times"),
            "workspace/kernel.py": kernel,
            "workspace/original.py": original,
            "workspace/knobs.yaml": knobs_text,
            "workspace/README.md": readme_text(names.full),
            "workspace/docs/notes.md": notes_text(names.full, plan, noted),
        }

    library_calls = uses_torch or not _is_allowed(files(False))
    return ImportedCase(
        plan, found, device, (*told, *_first_job(uses_torch, library_calls)), files(library_calls)
    )


def _first_job(uses_torch: bool, library_calls: bool) -> list[str]:
    if not library_calls:
        return []
    who = "torch" if uses_torch else "NumPy's finished operators"
    return [
        f"policy.library_calls: it is true, for the baseline calls {who}; the first job of a climb is to replace that"
    ]


def _told(plan: Plan, found: Findings, device: DeviceKind, modules: Sequence[str]) -> list[str]:
    """What of the whole is worth a line."""
    told = []
    if modules:
        told.append(f"policy.imports: the source needs {', '.join(modules)}, too")
    if found.mode == "train" and "BatchNorm" in plan.source:
        told.append(
            "BatchNorm: it takes mean and variance of the batch, as in training; running averages are left out"
        )
    if found.unmixed:
        told.append(f"inputs of several distributions are not mixed: {found.unmixed}")
    if device == "cpu" and found.public_bytes > LARGE_BYTES:
        told.append(
            f"{found.timed[-1]}: a call moves {found.public_bytes >> 20} MiB; on a CPU smaller ones time better"
        )
    if not found.neighbours:
        told.append(
            "vary: no problems that no list shows; add Contract.vary, so that no kernel can know all sizes"
        )
    return told


def _is_allowed(files: Mapping[str, str]) -> bool:
    """Whether the baseline passes the reading of its source."""
    with tempfile.TemporaryDirectory(prefix="hillclimb_import_") as folder:
        made = Path(folder) / "case"
        _write(made, files)
        try:
            check_policy(made / "workspace", Case(made).settings.policy)
        except CandidateFault:
            return False
    return True


def policy_complaint(folder: Path) -> str:
    """What the reading of the source says against the baseline; empty where nothing."""
    try:
        check_policy(folder / "workspace", Case(folder).settings.policy)
    except CandidateFault as fault:
        return fault.detail
    return ""


def place(root: Path, names: CaseNames, make: Callable[[], Mapping[str, str]], knobs_file: str) -> Path:
    """Write cases/<family>/<case> below `root`, whole or not at all. Raises UsageError, StorageError."""
    folder = root / "cases" / names.family / names.case
    for option, slug in (("--family", names.family), ("--case", names.case)):
        if not SLUG.fullmatch(slug):
            raise UsageError(
                f"{option} {slug!r} is no slug; use a-z, 0-9 and _, at most 64, not starting with _"
            )
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder} is there already; choose another --case, or remove it")
    files = make()
    try:
        folder.parents[1].mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="_stamping_", dir=folder.parents[1]) as beside:
            made = Path(beside) / folder.name
            _write(made, {**files, "workspace/knobs.py": knobs_file})
            parse_knobs(files["workspace/knobs.yaml"], made / "workspace" / "knobs.yaml")
            Case(made)  # an imported case is a valid one
            folder.parent.mkdir(exist_ok=True)
            made.rename(folder)
    except OSError as error:
        raise StorageError(f"{folder} could not be written: {error}; nothing was left there") from error
    return folder


def _write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def slug_of(text: str) -> str:
    """A folder's name made of a file's."""
    plain = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
    return plain[:64].rstrip("_") or "imported"
