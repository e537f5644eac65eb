"""Between a blob and the file in the user's working tree: line ends, encodings and filters, by git's rules."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import IO

from hillclimb.agent.git.failure import GitFailed
from hillclimb.agent.git.process import read_line
from hillclimb.agent.git.repository import Repository
from hillclimb.harness.errors import UsageError

FILTER_FAILED = "external filter"
"""In what git says of a filter that failed and need not have run."""
_CONVERSIONS = {"text", "crlf", "eol", "ident", "filter", "working-tree-encoding"}
"""Attributes by which a file in the working tree is not its blob."""
_END = secrets.token_hex(16)
"""Names no object: what git says of it comes behind the last line of a file."""


def check_out(repository: Repository, blobs: Mapping[str, str]) -> list[bytes]:
    """The contents of blobs by their paths relative to the root, in order, as they would lie in the working tree.

    A file that lies there as its blob has it, byte for byte, is taken so: it was never converted. Raises UsageError
    where a filter that git needs fails.
    """
    stored = repository.read(list(blobs.values()))
    return [
        _check_out(repository, path, sha, content)
        for (path, sha), content in zip(blobs.items(), stored, strict=True)
    ]


def check_in(repository: Repository, path: str, content: bytes) -> str:
    """Write the blob of a file that would lie at a path relative to the root, as `git add` would; its hash.

    Raises GitFailed where a filter fails.
    """
    if not _is_converted(repository, path):
        return repository.store(content)
    command = ("hash-object", "-w", "--stdin", "--path", path)
    sha, said = repository.run_with_messages(*command, input=content)
    if FILTER_FAILED in said:
        raise GitFailed(f"git hash-object: {path}: {said.splitlines()[0]}")
    return sha.decode().strip()


def _check_out(repository: Repository, path: str, sha: str, stored: bytes) -> bytes:
    try:
        converted = _convert(repository, path, sha)
    except GitFailed as error:
        if _lies_there(repository, path, stored):
            return stored
        raise UsageError(
            f"{path}: git's filter for this file failed ({error}); mend the filter, or take the file out of the case"
        ) from None
    return stored if converted == stored or _lies_there(repository, path, stored) else converted


def _convert(repository: Repository, path: str, sha: str) -> bytes:
    end = f"{_END} missing\n".encode()

    def read(answer: IO[bytes]) -> bytes:
        read_line(answer)  # the object's name
        lines: list[bytes] = []
        while (line := answer.readline()) != end:
            if not line:
                raise EOFError
            lines.append(line)
        return b"".join(lines)[:-1]

    return repository.ask("check out", os.fsencode(f"{sha} {path}\n{_END}\n"), read)


def _lies_there(repository: Repository, path: str, content: bytes) -> bool:
    with suppress(OSError):
        return (repository.root / path).read_bytes() == content
    return False


def _is_converted(repository: Repository, path: str) -> bool:
    """Whether git may change a file at this path as it goes in."""
    if repository.setting("core.autocrlf") not in ("", "false"):
        return True
    attributes = repository.attributes(path)
    return any(attributes.get(name, "unset") != "unset" for name in _CONVERSIONS)
