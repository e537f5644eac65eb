"""`new-case --from`: reads, runs, writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hillclimb.agent.importers.choose import importer_of, is_space, request_of
from hillclimb.agent.importers.formats import kernel_tuner
from hillclimb.agent.importers.formats.imported import DeviceKind, ImportRequest, KnobPlan
from hillclimb.agent.importers.probe_process import ask
from hillclimb.agent.importers.writing.writer import CaseNames, compose, place, policy_complaint, slug_of
from hillclimb.agent.stamp import create_case, template_text
from hillclimb.harness.errors import UsageError


@dataclass(frozen=True)
class ImportResult:
    """Where the case is, what it was imported from, and what was not carried over, a line each."""

    folder: Path
    case: str
    format: str
    told: tuple[str, ...]


@dataclass(frozen=True)
class WantedCase:
    """What a person typed; what is empty is made of the file's name."""

    family: str = ""
    case: str = ""
    model: str = ""
    hardware: str = ""
    device: DeviceKind | None = None


def import_case(
    root: Path, sources: Sequence[str], examples: Sequence[str], wanted: WantedCase
) -> ImportResult:
    """A case below `root`, from one operator, one tuning space, or both.

    Raises UsageError for what cannot be imported, StorageError where the disk refuses.
    """
    requests = [request_of(given, wanted.device, examples) for given in sources]
    spaces = [request for request in requests if is_space(request)]
    operators = [request for request in requests if request not in spaces]
    if len(spaces) > 1 or len(operators) > 1:
        raise UsageError(
            f"--from was given {len(requests)} times; give one operator and one tuning space at the most"
        )
    knobs = kernel_tuner.read_knobs(spaces[0].path) if spaces else None
    if not operators:
        assert knobs is not None
        return _stamp_with_knobs(root, spaces[0], knobs, wanted)
    return _import_operator(root, operators[0], knobs, wanted)


def _import_operator(
    root: Path, request: ImportRequest, knobs: KnobPlan | None, wanted: WantedCase
) -> ImportResult:
    plan = importer_of(request).read(request)
    family = wanted.family or slug_of(plan.format.rpartition(" ")[0])
    names = CaseNames(
        family, wanted.case or slug_of(request.name or request.path.stem), wanted.model, wanted.hardware
    )
    made = compose(names, plan, ask(plan, request.path), wanted.device or plan.default_device, knobs)
    folder = place(root, names, lambda: made.files, template_text(root, "_template", "workspace/knobs.py"))
    complaint = policy_complaint(folder)
    told = [
        *made.told,
        *([f"policy: the baseline is refused: {complaint}; rewrite it there"] if complaint else []),
    ]
    if knobs:
        told.append("knobs: the baseline reads none of them; they are for the kernel that replaces it")
    return ImportResult(folder, names.full, plan.format, tuple(told))


def _stamp_with_knobs(
    root: Path, request: ImportRequest, knobs: KnobPlan, wanted: WantedCase
) -> ImportResult:
    """The template's case, with the space's knobs beside its own."""
    family = wanted.family or "kernel_tuner"
    case = wanted.case or slug_of(request.path.name.split(".")[0])
    folder = create_case(root, family, case, wanted.model, "", wanted.hardware, wanted.device or "cuda")
    knobs_file = folder / "workspace" / "knobs.yaml"
    knobs_file.write_text(f"{knobs_file.read_text(encoding='utf-8')}\n{knobs.text}", encoding="utf-8")
    (folder / "space.json").write_text(knobs.source, encoding="utf-8")
    told = (
        *knobs.told,
        "operator: a space does not say what is computed; contract.py and kernel.py are the template's row sums",
        "knobs: the template's kernel reads none of these; put your kernel there, or its operator by a second --from",
    )
    return ImportResult(folder, f"{family}/{case}", "kernel_tuner space", told)
