"""What candidates change, as unified diffs out of git, many to a process; commits may be gone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from hillclimb.agent.git.failure import GitFailed
from hillclimb.agent.git.repository import Repository

BATCH = 500
"""Candidates compared by one git process."""
MAX_FILE_SIZE = "256k"
"""Larger files are said to differ, without their lines."""
MAX_PROCESSES = 400
"""In one reading, however damaged the repository is."""

_COMMAND = (
    "diff-tree",
    "--stdin",
    "-r",
    "-p",
    "-U3",
    "--no-color",
    "--no-ext-diff",
    "--no-textconv",
    "--no-renames",
    "--src-prefix=a/",
    "--dst-prefix=b/",
)
_ENVIRONMENT = {
    "GIT_CONFIG_COUNT": "1",
    "GIT_CONFIG_KEY_0": "core.bigFileThreshold",
    "GIT_CONFIG_VALUE_0": MAX_FILE_SIZE,
    "GIT_NO_LAZY_FETCH": "1",
}


def read_patches(
    repository: Repository, pairs: Mapping[int, tuple[str, str]], folder: str
) -> Iterator[tuple[int, str]]:
    """(n, diff) for each (commit, parent), paths relative to `folder`; those that git no longer has are left out."""
    whole = _present(repository, pairs)
    numbers = [n for n, pair in pairs.items() if whole.issuperset(pair)]
    batches = [numbers[at : at + BATCH] for at in range(0, len(numbers), BATCH)][::-1]
    left = len(batches) + MAX_PROCESSES
    while batches and left:
        batch, left = batches.pop(), left - 1
        try:
            yield from _read(repository, {n: pairs[n] for n in batch}, folder)
        except GitFailed:  # a tree or a file of one of them is gone: the others are still there to be told
            if len(batch) > 1:
                batches += [batch[len(batch) // 2 :], batch[: len(batch) // 2]]


def _present(repository: Repository, pairs: Mapping[int, tuple[str, str]]) -> set[str]:
    """Of the commits named, those that are in the repository."""
    names = sorted({sha for pair in pairs.values() for sha in pair})
    asked = "".join(f"{sha}\n" for sha in names).encode()
    answers = repository.run("cat-file", "--batch-check=%(objecttype)", input=asked, environment=_ENVIRONMENT)
    kinds = answers.decode(errors="replace").splitlines()
    return {sha for sha, kind in zip(names, kinds, strict=True) if kind == "commit"}


def _read(
    repository: Repository, pairs: Mapping[int, tuple[str, str]], folder: str
) -> Iterator[tuple[int, str]]:
    """One git process. Each diff follows a line that is its commit's hash, which no line of a diff is."""
    asked = "".join(f"{commit} {parent}\n" for commit, parent in pairs.values()).encode()
    command = (*_COMMAND, f"--relative={folder}/") if folder else _COMMAND
    output = repository.run(*command, input=asked, environment=_ENVIRONMENT).decode(errors="replace")
    yield from _split(output, pairs)


def _split(output: str, pairs: Mapping[int, tuple[str, str]]) -> Iterator[tuple[int, str]]:
    """In the order asked for; a commit without a change has no line of its own."""
    lines = output.split("\n")
    starts = _starts(lines, [(n, commit) for n, (commit, _) in pairs.items()])
    ordered = sorted(starts.values())
    following = dict(zip(ordered, [*ordered[1:], len(lines)], strict=False))
    for n in pairs:
        at = starts.get(n)
        yield n, "" if at is None else "\n".join(lines[at + 1 : following[at]]).strip("\n")


def _starts(lines: Sequence[str], wanted: Sequence[tuple[int, str]]) -> dict[int, int]:
    """Where each candidate's diff begins: its commit's hash alone on a line, unlike any line of a diff."""
    at_line = {line: at for at, line in enumerate(lines) if len(line) in (40, 64)}
    return {n: at_line[commit] for n, commit in wanted if commit in at_line}
