"""A case: the typed form of case.yaml and of the files beside it.

cases/<family>/<case>/
    case.yaml      this schema
    program.md     what a proposer should know
    contract.py    what right means (hillclimb.harness.case.contract); none of a command or a server
    benchmarks/    what is timed: <suite>.yaml
    workspace/     the only folder a proposal may change
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import TypeVar

from pydantic import (
    ValidationError,
)

from hillclimb.harness.case.metrics import CommandSuite, RequestSuite
from hillclimb.harness.case.settings import Settings, Suite, is_inside, is_unscored
from hillclimb.harness.case.workspace_names import require_names
from hillclimb.harness.errors import CaseError, UsageError
from hillclimb.harness.knobs.knobs import (
    KNOBS_FILE,
    TAGS,
    Knobs,
    KnobValue,
    broken_by_themselves,
    contains,
    load_knobs,
    spell,
    typed,
)
from hillclimb.harness.wording import choices, did_you_mean, suggestion
from hillclimb.harness.yaml_errors import case_error, keys_of, read_yaml, short

AnySuite = TypeVar("AnySuite", Suite, CommandSuite, RequestSuite)


class Case:
    """One case on disk; `settings`, `suites` and `knobs` are validated at construction.

    Raises CaseError for the first file, key or value that is wrong.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self.settings = _load_settings(self.folder / "case.yaml")
        others = {path.stem for path in self.folder.glob("benchmarks/*.yaml")}
        self._require_suites(others)
        names = sorted({*self.judged_suites, *others})
        self.suites = {name: _load_suite(self.folder, name, Suite) for name in names if self.has_contract}
        surface = self.settings.surface
        self.command_suites = {
            name: _load_suite(self.folder, name, CommandSuite) for name in names if surface == "shell_json"
        }
        self.request_suites = {
            name: _load_suite(self.folder, name, RequestSuite) for name in names if surface == "openai_http"
        }
        self.knobs: Knobs = load_knobs(self.workspace / KNOBS_FILE)
        read_there = {} if self.settings.command else self.knobs  # a command may read knobs as well
        require_names(self.folder / "case.yaml", self.workspace, self.settings.entry, read_there)

    @property
    def name(self) -> str:
        """`<family>/<case>`."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def judged_suites(self) -> tuple[str, ...]:
        """Names of the suites that a verdict hangs on: the objective's, then the guardrails'."""
        named = (self.settings.objective.suite, *(g.suite for g in self.settings.guardrails))
        return tuple(dict.fromkeys(named))

    def _require_suites(self, known: set[str]) -> None:
        """Raises CaseError where case.yaml names a suite that has no file."""
        named = [("objective.suite", self.settings.objective.suite)]
        named += [(f"guardrails.{i}.suite", g.suite) for i, g in enumerate(self.settings.guardrails)]
        for key, suite in named:
            if suite not in known:
                file = self.folder / "benchmarks" / f"{suite}.yaml"
                remedy = (
                    did_you_mean(suite, sorted(known)) or f"create it, or name one of {choices(suite, known)}"
                )
                problem = f"value {suite!r}: {file} does not exist"
                raise CaseError(self.folder / "case.yaml", key, problem, remedy)

    @property
    def workspace(self) -> Path:
        return self.folder / "workspace"

    @property
    def has_contract(self) -> bool:
        return self.settings.has_contract

    @property
    def contract_file(self) -> Path:
        return self.folder / "contract.py"

    @property
    def can_count_lanes(self) -> bool:
        """Whether its kernels may be Triton's, whose masked lanes alone can be counted."""
        settings = self.settings
        return self.has_contract and settings.device == "cuda" and "triton" in settings.policy.modules

    @property
    def model_path(self) -> Path | None:
        """Where the model's files lie; None where case.yaml names none. Raises UsageError where they are missing."""
        given, file = self.settings.model_path, self.folder / "case.yaml"
        if not given:
            return None
        try:
            path = (self.folder / Path(given).expanduser()).resolve()
        except RuntimeError as error:  # of a user that is not there
            raise UsageError(f"{file}: model_path {given!r}: {error}") from None
        if not path.exists():
            raise UsageError(f"{file}: model_path {given!r}: there is no {path}")
        return path

    @property
    def session_model(self) -> Path | None:
        """What a session's contract reads its parameters from; None where they are drawn. Raises UsageError, too."""
        return self.model_path if self.settings.surface == "session" else None

    def first_to_sweep(self) -> tuple[dict[str, KnobValue], ...]:
        """Knob values that the sweep tries first.

        Raises CaseError for those that knobs.yaml does not have, or never allows together.
        """
        found = []
        for at, values in enumerate(self.settings.sweep.first):
            problem = _unfit(self.knobs, values)
            if problem:
                remedy = f"mend it, or take it out; workspace/{KNOBS_FILE} says what there is"
                raise CaseError(self.folder / "case.yaml", f"sweep.first.{at}", problem, remedy)
            found.append({name: typed(self.knobs[name], value) for name, value in values.items()})
        return tuple(found)

    def fixed_files(self) -> list[Path]:
        """Every file outside workspace/, sorted: whatever the contract may read decides a score.

        Left out: program.md, which is the proposers', and names with a leading dot and `__pycache__`, which tools
        leave behind.
        """
        files = (path for path in self.folder.rglob("*") if _is_file(path))
        return sorted(path for path in files if not is_unscored(path.relative_to(self.folder)))

    def required_files(self) -> list[Path]:
        """The files that a judge cannot do without, sorted: settings, contract, the suites it judges by, entry."""
        entry = self.workspace / self.settings.entry.split(":")[0]
        suites = [self.folder / "benchmarks" / f"{name}.yaml" for name in self.judged_suites]
        contract = [self.contract_file] if self.has_contract else []
        return sorted({self.folder / "case.yaml", *contract, *suites, entry})


def _unfit(knobs: Knobs, values: Mapping[str, KnobValue]) -> str | None:
    """Why these are no values of these knobs; None where they are.

    What else a constraint is about may change with the incumbent, so only those about these knobs alone count.
    """
    for name, value in values.items():
        if name not in knobs:
            return f"{name} is not a knob: {suggestion(name, knobs)}"
        if not contains(knobs[name], value):
            return f"{name} has no value {short(value)}; it takes {spell(knobs[name])}"
    return broken_by_themselves(knobs, values)


def find_case(given: str) -> Path:
    """The folder a person named: a path, or `<family>/<case>` below `cases` here or in a folder above.

    Raises UsageError.
    """
    if _is_file(Path(given) / "case.yaml"):
        return Path(given)
    folders = _cases_folders()
    for folder in folders:
        if is_inside(PurePosixPath(given)) and _is_file(folder / given / "case.yaml"):
            return folder / given
    near = next((folder for folder in folders if folder.is_dir()), folders[0])
    known = sorted(f"{p.parent.parent.name}/{p.parent.name}" for p in near.glob("[!_]*/*/case.yaml"))
    there = f"cases in {near}: {choices(given, known)}" if known else "'hillclimb new-case' stamps one"
    raise UsageError(f"no case at {given!r}: there is no case.yaml; {there}")


def find_cases_folder() -> Path:
    """The folder of all cases: `cases` here or in the nearest folder above. Raises UsageError where there is none."""
    folders = _cases_folders()
    found = next((folder for folder in folders if folder.is_dir()), None)
    if found is None:
        raise UsageError(
            f"no folder {folders[0]}, and none in the folders above; go to a checkout that has cases"
        )
    return found


def _cases_folders() -> list[Path]:
    here = Path.cwd()
    return [folder / "cases" for folder in (here, *here.parents)]


def _is_file(path: Path) -> bool:
    """Whether a file is there to be read; a name too long for one, or a folder that is closed, has none."""
    try:
        return path.is_file()
    except OSError:
        return False


def _load_settings(path: Path) -> Settings:
    try:
        return Settings.model_validate(read_yaml(path))
    except ValidationError as error:
        raise case_error(path, error, drop=TAGS, known=keys_of(Settings)) from None


def _load_suite(folder: Path, name: str, kind: type[AnySuite]) -> AnySuite:
    path = folder / "benchmarks" / f"{name}.yaml"
    try:
        return kind.model_validate(read_yaml(path))
    except ValidationError as error:
        raise case_error(path, error, known=keys_of(kind)) from None
