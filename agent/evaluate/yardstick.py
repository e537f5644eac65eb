"""A case's yardstick.py as what a candidate is judged against: the operator as a library has it."""

from __future__ import annotations

from dataclasses import replace

from hillclimb.agent.git.version import Version
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import UsageError
from hillclimb.harness.studies.variants import SETTINGS_FILE, YARDSTICK_FILE, freed_settings, is_compiled

YARDSTICK = "yardstick"


def as_yardstick(case: Case, files: Version, candidate: Version) -> tuple[Version, Version]:
    """The case's files with a policy that lets it call what it likes, and the candidate with it as its kernel.

    Raises UsageError where there is none, or one that is to be compiled first.
    """
    found = files.get(YARDSTICK_FILE)
    if found is None:
        raise UsageError(f"{case.name} has no {YARDSTICK_FILE}; name a folder or a revision with --against")
    if is_compiled(found.content.decode(errors="replace")):
        raise UsageError(
            f"{YARDSTICK_FILE} of {case.name} is for torch.compile, which `hillclimb study profile` does; "
            "only one that says COMPILED = False is judged as it is"
        )
    settings = replace(files[SETTINGS_FILE], content=freed_settings(case).encode())
    entry, _ = case.settings.entry.split(":")
    return {**files, SETTINGS_FILE: settings}, {**candidate, entry: found}
