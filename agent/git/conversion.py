"""Between a blob and the file in the user's working tree: filters, encodings and line ends, by git's rules."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import IO

from hillclimb.agent.git.failure import GitFailed
from hillclimb.agent.git.process import read_line
from hillclimb.agent.git.repository import Repository
from hillclimb.harness.errors import UsageError

_CONVERSIONS = {"text", "crlf", "eol", "ident", "filter", "working-tree-encoding"}
"""Attributes by which a file in the working tree is not its blob."""
_REWRITES = ("filter", "working-tree-encoding")
"""Those by which it says something else. Line ends and `$Id$` make no other file of it: what is judged has them as git
has them, so that it is the same whatever lies in the working tree."""
_END = secrets.token_hex(16)
"""Names no object: what git says of it comes behind the last line of a file."""


def check_out(repository: Repository, blobs: Mapping[str, str]) -> list[bytes]:
    """The contents of blobs by their paths relative to the root, in order, their filters undone.

    A file that lies in the working tree as its blob has it, byte for byte, was never filtered. Raises UsageError where
    a filter that git needs fails.
    """
    stored = repository.read(list(blobs.values()))
    attributes = repository.attributes(blobs)
    return [
        _check_out(repository, path, sha, content) if _has(attributes[path], _REWRITES) else content
        for (path, sha), content in zip(blobs.items(), stored, strict=True)
    ]


def check_in(repository: Repository, path: str, content: bytes, before: str | None = None) -> str:
    """Write the blob of a file that would lie at a path relative to the root, as `git add` would; its hash.

    `before`: the blob that it takes the place of. Raises GitFailed where a filter fails.
    """
    attributes = repository.attributes([path])[path]
    is_automatic = repository.setting("core.autocrlf") not in ("", "false")
    if not is_automatic and not _has(attributes, _CONVERSIONS):
        return repository.store(content)
    options: tuple[str, ...] = ()
    # git leaves line ends alone that were committed so, unless attributes say for sure that a file is text
    if before and _is_text_by_guess(attributes) and b"\r\n" in repository.read([before])[0]:
        if not _has(attributes, (*_REWRITES, "ident")):
            return repository.store(content)
        options = ("-c", "core.autocrlf=false")
    command = (*options, "hash-object", "-w", "--stdin", "--path", path)
    sha, said = repository.run_with_messages(*command, input=content)
    if trouble := filter_trouble(said):
        raise GitFailed(f"git hash-object: {path}: {trouble}")
    return sha.decode().strip()


def filter_trouble(said: str) -> str:
    """What git says of a filter that failed, as far as it goes on without; empty where it says nothing of the kind."""
    return next((line for line in said.splitlines() if line.startswith("error:")), "")


def filter_of(repository: Repository, path: str) -> str:
    """The filter that attributes name for a path; empty where they name none."""
    named = repository.attributes([path])[path].get("filter", "unset")
    return "" if named in ("unset", "unspecified", "set") else named


def _check_out(repository: Repository, path: str, sha: str, stored: bytes) -> bytes:
    if "\n" in path:
        raise UsageError(f"{path!r}: has a line break in its name; rename it")
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


def _is_text_by_guess(attributes: Mapping[str, str]) -> bool:
    return attributes.get("text") == "auto" or not _has(attributes, ("text", "crlf", "eol"))


def _has(attributes: Mapping[str, str], names: Iterable[str]) -> bool:
    return any(attributes.get(name, "unset") != "unset" for name in names)
