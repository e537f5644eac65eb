"""`python -m hillclimb.harness.extract`: a question on standard input, the profile on standard output.

The model's own code runs here, in a process that may be ended.
"""

from __future__ import annotations

import os
import sys

from hillclimb.harness.errors import HillclimbError, UsageError
from hillclimb.harness.extract.module_groups import ModuleGroup, find_groups
from hillclimb.harness.extract.module_times import time_groups
from hillclimb.harness.extract.operator_source import operator_source
from hillclimb.harness.extract.profiled import ModelProfile, OperatorShare, ProfileQuestion
from hillclimb.harness.extract.stepped_model import load_model


def answer(question: ProfileQuestion) -> ModelProfile:
    """Raises UsageError for what cannot be read or written."""
    on_gpu = question.device.startswith("cuda")
    model = load_model(question)
    groups = find_groups(model)
    seconds, shares = time_groups(model, groups, question.steps, on_gpu)
    by_name = {group.name: (group, next(one for one in shares if one.name == group.name)) for group in groups}
    unknown = [name for name in question.write if name not in by_name]
    if unknown:
        known = ", ".join(one.name for one in shares if not one.unfit)
        raise UsageError(f"--write {unknown[0]!r} is no operator of the model; there are {known}")
    phase = "call" if question.name else question.phase
    sources = {
        name: operator_source(by_name[name][0], _title(*by_name[name], question)) for name in question.write
    }
    named = f"{question.model}:{question.name}" if question.name else question.model
    return ModelProfile(
        model=named,
        device=question.device,
        phase=phase,
        seconds=seconds,
        operators=tuple(shares),
        sources=sources,
    )


def _title(group: ModuleGroup, share: OperatorShare, question: ProfileQuestion) -> str:
    """One line: what it is, and what it is worth."""
    name = question.model.rstrip("/").rpartition("/")[2]
    return f"{group.kind} of {name}: {group.calls} calls a step, {share.share:.0%} of it, at most {share.bound:.2f}x"


def main() -> None:
    """Whatever the model prints goes to standard error."""
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    question = ProfileQuestion.model_validate_json(sys.stdin.read())
    try:
        found = answer(question)
    except HillclimbError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        raise SystemExit(1) from None
    out.write(found.model_dump_json())
    out.flush()


if __name__ == "__main__":
    main()
