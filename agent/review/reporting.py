"""Gathers what report.html is made from, and writes it: the ledger, raw samples, git objects, the case as it began."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pydantic import ValidationError

from hillclimb.agent.git.failure import GitFailed
from hillclimb.agent.git.repository import Repository
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.record.recorded_runs import find_runs
from hillclimb.agent.record.run import LEDGER, run_folder
from hillclimb.agent.review.patches import read_patches
from hillclimb.agent.review.rebuilding import find_run
from hillclimb.agent.review.told_by_commits import read_commits
from hillclimb.harness.case.knob_reads import unread_knobs
from hillclimb.harness.case.settings import Settings
from hillclimb.harness.errors import CaseError, StorageError, UsageError
from hillclimb.harness.knobs.knobs import KNOBS_FILE, FloatKnob, Knob, Knobs, environment_text, parse_knobs
from hillclimb.harness.report.page import PAGE, PageSources, render
from hillclimb.harness.report.page_knobs import KnobFacts
from hillclimb.harness.report.page_ledger import (
    CandidateHistory,
    RunHistory,
    as_list,
    as_object,
    read_history,
    safe_text,
)
from hillclimb.harness.report.page_packs import Diff
from hillclimb.harness.yaml_errors import parse_yaml

MAX_REJECTED_DIFF_CHARACTERS = 6 << 10
"""Characters of a rejected candidate's diff."""
MAX_WIN_DIFF_CHARACTERS = 64 << 10
"""Characters of a win's."""


def write_report(repository: Repository, case: str, tag: str | None, output: Path | None) -> Path:
    """Write the page about a run, whole or not at all; its path.

    That is `report.html` in the run's folder by default. A clone without that folder has the wins by their trailers,
    and `hillclimb-<family>-<case>-<tag>.html` in the working directory.

    Raises UsageError where there is no such run or `output` is a folder, StorageError where the disk refuses.
    """
    sources, usual = _find_sources(repository, case, tag)
    target = output or usual
    if target.is_dir():
        raise UsageError(f"{target}: is a folder; name the file to write, such as {target / PAGE}")
    page = render(sources)
    try:
        Disk().make_folder(target.parent)
        Disk().replace(target, page)
    except StorageError:
        target.with_name(f".{target.name}.new").unlink(missing_ok=True)
        raise
    return target


def _find_sources(repository: Repository, case: str, tag: str | None) -> tuple[PageSources, Path]:
    """What is known of a run, by its ledger or else by its commits; and where its page is usually written."""
    try:
        folder = find_run(repository, case, tag)
    except UsageError as missing:
        run = next((run for run in find_runs(repository, case) if run.wins and tag in (None, run.tag)), None)
        if run is None:
            raise missing
        folder = run_folder(repository, case, run.tag)
        sources = replace(_gather(repository, folder, read_commits(repository, run)), is_told_by_commits=True)
        return sources, Path(f"hillclimb-{case.replace('/', '-')}-{run.tag}.html")
    return gather(repository, folder), folder / PAGE


def gather(repository: Repository, folder: Path) -> PageSources:
    """Everything the page about the run in `folder` shows. What cannot be read any more is named, and left out."""
    return _gather(repository, folder, read_history(folder / LEDGER))


def _gather(repository: Repository, folder: Path, chronicle: RunHistory) -> PageSources:
    then = _CaseAtStart(repository, chronicle)
    return PageSources(
        folder,
        chronicle,
        diffs=collect_diffs(repository, chronicle),
        settings=then.settings,
        knobs=tuple(_knob_facts(then.knobs, then.knobs_now, then.unread_knobs)),
        defaults={name: environment_text(knob.default) for name, knob in then.knobs_edited.items()},
        taken_back=_taken_back(repository, chronicle),
    )


def _taken_back(repository: Repository, chronicle: RunHistory) -> frozenset[int]:
    """The run's wins that commits of HEAD or of its own branch revert."""
    case, tag, base = (safe_text(chronicle.opened.get(name), 400) for name in ("case", "tag", "base"))
    if not (case and _is_hash(base)):
        return frozenset()
    wins = (win for run in find_runs(repository, case) if run.tag == tag for win in run.wins)
    return frozenset(win.n for win in wins if win.is_taken_back and win.trailers.get("Base") == base)


class _CaseAtStart:
    """The case's files as the run began, and the knobs of its best tree, out of git; empty where they are gone."""

    def __init__(self, repository: Repository, chronicle: RunHistory) -> None:
        self._repository, opened = repository, chronicle.opened
        base, self._path = safe_text(opened.get("base"), 64), safe_text(opened.get("case_path"), 4096)
        best = next((safe_text(win.judged.get("commit"), 64) for win in reversed(chronicle.wins)), base)
        self.settings = self._settings(base)
        self.knobs = self._knobs(base)
        self.knobs_now = self._knobs(best) if best != base else self.knobs
        self.unread_knobs = unread_knobs(self._workspace(best), self.knobs_now)
        """Of the best tree."""
        edited = (win for win in reversed(chronicle.wins) if as_list(win.proposal.get("edits")))
        source = next((safe_text(win.judged.get("commit"), 64) for win in edited), base)
        self.knobs_edited = self._knobs(source) if source != base else self.knobs
        """Of the present source: the last win that edited files."""

    def _settings(self, commit: str) -> Settings | None:
        try:
            found = self._text(commit, "case.yaml")
            return Settings.model_validate(parse_yaml(found, Path("case.yaml"))) if found else None
        except (CaseError, ValidationError):
            return None

    def _knobs(self, commit: str) -> Knobs:
        try:
            return parse_knobs(self._text(commit, f"workspace/{KNOBS_FILE}"), Path(KNOBS_FILE))
        except CaseError:
            return {}

    def _workspace(self, commit: str) -> dict[str, str]:
        """The text files of a commit's workspace; none where they are gone."""
        tree = self._repository.resolve(f"{commit}:{self._path}/workspace") if _is_hash(commit) else None
        blobs = self._repository.list_files(tree) if tree else {}
        contents = self._repository.read([blob.sha for blob in blobs.values()])
        return {path: text.decode(errors="replace") for path, text in zip(blobs, contents, strict=True)}

    def _text(self, commit: str, name: str) -> str:
        blob = self._repository.resolve(f"{commit}:{self._path}/{name}") if _is_hash(commit) else None
        return self._repository.read([blob])[0].decode(errors="replace") if blob else ""


def _knob_facts(knobs: Knobs, now: Knobs, unread: tuple[str, ...]) -> Iterator[KnobFacts]:
    """Knobs of the start, then those that wins brought."""
    for name in dict.fromkeys([*knobs, *now]):
        knob = now.get(name) or knobs[name]
        yield KnobFacts(
            name,
            knob.type,
            _domain(knob),
            environment_text(knobs[name].default) if name in knobs else "",
            environment_text(now[name].default) if name in now else "",
            safe_text(knob.doc, 300),
            name in unread,
        )


def _domain(knob: Knob) -> str:
    if isinstance(knob, FloatKnob):
        return f"{knob.low:g} to {knob.high:g}"
    values = [environment_text(value) for value in knob.values()]
    return ", ".join(values) if len(values) <= 8 else f"{values[0]} to {values[-1]}"


def collect_diffs(repository: Repository, chronicle: RunHistory) -> dict[int, Diff]:
    """Every candidate's change against the incumbent it met, as far as git still has it."""
    pairs = {seen.n: pair for seen in chronicle.candidates if (pair := _commits(seen))}
    prefix = safe_text(chronicle.opened.get("case_path"), 4096)
    try:
        patches = dict(read_patches(repository, pairs, f"{prefix}/workspace" if prefix else ""))
    except GitFailed:
        patches = {}
    return {seen.n: _diff(seen, pairs, patches) for seen in chronicle.candidates}


def _commits(seen: CandidateHistory) -> tuple[str, str] | None:
    commit, parent = (safe_text(seen.judged.get(name), 64) for name in ("commit", "parent"))
    return (commit, parent) if _is_hash(commit) and _is_hash(parent) else None


def _is_hash(name: str) -> bool:
    return bool(re.fullmatch(r"[0-9a-f]{40}|[0-9a-f]{64}", name))


def _diff(seen: CandidateHistory, pairs: dict[int, tuple[str, str]], patches: dict[int, str]) -> Diff:
    if seen.n in patches:
        commit = pairs[seen.n][0]
        return _cut(_code_first(patches[seen.n]), seen.kept, f"git show {commit}")
    proposed = _proposed(seen)
    if not seen.judged:
        return _cut(proposed, seen.kept, "the ledger", "Not judged yet: the files as they were proposed. ")
    if seen.n in pairs:
        gone = f"Commit {pairs[seen.n][0]} or its parent is gone from this repository"
    else:
        gone = "No tree could be built from it"
    told = "; these are the files as they were proposed. " if proposed else ", and it edits no file. "
    return _cut(proposed, seen.kept, "the ledger", gone + told)


def _cut(diff: str, kept: bool, whole: str, note: str = "") -> Diff:
    most = MAX_WIN_DIFF_CHARACTERS if kept else MAX_REJECTED_DIFF_CHARACTERS
    if len(diff) <= most:
        return Diff(safe_text(diff, most), note.strip(), kept)
    end = max(diff.rfind("\n", 0, most), most // 2)
    told = f"{note}Cut: {end:,} of {len(diff):,} characters; {whole} has all of it."
    return Diff(safe_text(diff[:end], most), told, kept)


def _code_first(patch: str) -> str:
    """The workspace's notes, which a win may carry along, after its code."""
    parts = re.split(r"^(?=diff --git )", patch, flags=re.MULTILINE)
    return "".join(
        sorted((f"{part}\n" if not part.endswith("\n") else part for part in parts if part), key=_is_note)
    )


def _is_note(part: str) -> bool:
    return part.startswith("diff --git a/docs/")


def _proposed(seen: CandidateHistory) -> str:
    """The edits of the ledger, each a file that is added or taken away."""
    parts = []
    for edit in map(as_object, as_list(seen.proposal.get("edits"))):
        path, content = safe_text(edit.get("path"), 400).replace("\n", "‹newline›"), edit.get("content")
        lines = content.split("\n") if isinstance(content, str) else []
        parts.append(f"diff --git {path}" if lines else f"diff --git {path} (removed)")
        parts += [f"@@ -0,0 +1,{len(lines)} @@", *(f"+{line}" for line in lines)] if lines else []
    return "\n".join(parts)
