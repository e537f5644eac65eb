"""`extract`: asks a process of its own for a profile, and makes cases of the operators that were chosen."""

from __future__ import annotations

import ast
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from pydantic import ValidationError

from hillclimb.agent.importers.formats.imported import DeviceKind
from hillclimb.agent.importers.import_case import WantedCase, import_case
from hillclimb.agent.importers.writing.writer import slug_of
from hillclimb.harness.errors import UsageError
from hillclimb.harness.extract.profiled import (
    EXTRACTED,
    ExtractedOperator,
    Extraction,
    ModelProfile,
    OperatorFile,
    OperatorShare,
    ProfileQuestion,
)

MAX_SECONDS = 1800.0
"""Longest that a profile may take. One of a million parameters takes ten seconds."""

COLUMNS = "{:20} {:>5} {:>9} {:>6} {:>7}  {}"


def extract_operators(root: Path, question: ProfileQuestion, family: str, hardware: str) -> Extraction:
    """Profile, and write a case below `root` for each name in `question.write`.

    Raises UsageError for a model that cannot be run, an operator that is none, and a case that is there already.
    """
    profile = profile_model(question)
    chosen = {one.name: one for one in profile.operators}
    cases, told = [], []
    device: DeviceKind = "cuda" if question.device.startswith("cuda") else "cpu"
    with tempfile.TemporaryDirectory(prefix="hillclimb_extract_") as place:
        for name, written in profile.sources.items():
            file = Path(place) / f"{name}.py"
            file.write_text(written.text, encoding="utf-8")
            wanted = WantedCase(
                family=family or slug_of(Path(question.model).name),
                case=name,
                model=profile.model,
                hardware=hardware,
                device=device,
            )
            made = import_case(root, [f"{file}:{chosen[name].module}"], (), wanted)
            _note_place(made.folder, chosen[name], written)
            cases.append(made.case)
            told += [f"{made.case}: {line}" for line in made.told]
    return Extraction(profile=profile, cases=tuple(cases), told=tuple(told))


def _note_place(folder: Path, operator: OperatorShare, written: OperatorFile) -> None:
    """Write extracted.json: where in a model the case's kernel belongs."""
    names = _input_names(folder / "contract.py")
    weights = {name: written.weights[name] for name in names if name in written.weights}
    shapes = dict(zip((written.weights[name] for name in written.weights), operator.parameters, strict=False))
    place = ExtractedOperator(
        module=operator.module,
        inputs=written.inputs,
        output=written.output,
        weights=weights,
        shapes={target: shapes[target] for target in weights.values() if target in shapes},
        attributes=written.sizes,
    )
    (folder / EXTRACTED).write_text(place.model_dump_json(indent=2) + "\n", encoding="utf-8")


def _input_names(contract: Path) -> list[str]:
    """Of the contract that was just written: the names of what the kernel is called with."""
    for node in ast.walk(ast.parse(contract.read_text(encoding="utf-8"))):
        match node:
            case ast.Assign(targets=[ast.Name(id="input_names")], value=value):
                return list(ast.literal_eval(value))
    return []


def profile_model(question: ProfileQuestion, seconds: float = MAX_SECONDS) -> ModelProfile:
    """Raises UsageError that says what came of it."""
    command = [sys.executable, "-m", "hillclimb.harness.extract"]
    try:
        done = subprocess.run(
            command, input=question.model_dump_json(), capture_output=True, text=True, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        raise UsageError(
            f"{question.model} was not profiled after {seconds:.0f} s; give fewer --steps, or a smaller model"
        ) from None
    if done.returncode < 0:
        raise UsageError(f"{question.model}: running it ended the process by signal {-done.returncode}")
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing was said"])[-1]
        raise UsageError(f"{question.model} cannot be profiled: {said}")
    try:
        return ModelProfile.model_validate_json(done.stdout)
    except ValidationError:
        raise UsageError(
            f"{question.model}: running it gave no answer; it must not end the process"
        ) from None


def describe_profile(profile: ModelProfile, top: int) -> list[str]:
    """A table for people: the `top` largest shares."""
    unit = {"decode": "a token", "prefill": "a prompt", "call": "a call"}[profile.phase]
    lines = [
        f"{profile.model} on {profile.device}: {profile.seconds * 1e3:.3f} ms {unit}",
        COLUMNS.format("operator", "calls", "us", "share", "bound", "in the model as; called with"),
    ]
    lines += [_row(one) for one in profile.operators[:top]]
    left = len(profile.operators) - top
    if left > 0:
        lines.append(f"{left} more; --top {len(profile.operators)} shows them")
    lines.append("Operators contain each other. The bound is what a step could gain if one took no time.")
    return lines


def _row(one: OperatorShare) -> str:
    places: Sequence[str] = one.places
    told = f"{', '.join(places)}; {', '.join(one.inputs)}" if not one.unfit else f"no case: it {one.unfit}"
    return COLUMNS.format(
        one.name,
        one.calls,
        f"{one.seconds * 1e6:.1f}",
        f"{one.share:.1%}",
        f"{min(one.bound, 99.99):.2f}x",
        told,
    )
