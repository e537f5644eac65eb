"""Git as a store of objects and refs: plumbing only, so that the user's checkout, index and HEAD are never touched.

Blobs go in and out raw, past every filter; the index is a private file; hooks, signing and housekeeping are off;
objects are flushed to the disk before anything names them.
"""

from __future__ import annotations

import errno
import os
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import git

from harness.errors import MachineError, StorageError, UsageError

REGULAR, EXECUTABLE, SYMLINK, GITLINK = "100644", "100755", "120000", "160000"

_CONFIG = {
    "core.hooksPath": "/dev/null",
    "core.fsync": "all",
    "core.fsmonitor": "false",
    "core.splitIndex": "false",
    "core.untrackedCache": "false",
    "core.logAllRefUpdates": "false",
    "core.quotePath": "false",
    "commit.gpgSign": "false",
    "gc.auto": "0",
    "maintenance.auto": "false",
    "i18n.commitEncoding": "UTF-8",
    "i18n.logOutputEncoding": "UTF-8",
    "index.sparse": "false",
    "trailer.separators": ":",
}
_DISK_TROUBLE = (
    *(
        os.strerror(n)
        for n in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EROFS, errno.EFBIG, errno.EMFILE)
    ),
    # git does not always say why it could not write
    "Out of diskspace",
    "write error",
    "nable to write",
    "ailed to write",
    "ould not write",
)


@dataclass(frozen=True)
class Blob:
    """A file in a tree."""

    mode: str
    sha: str


@dataclass(frozen=True)
class Change:
    """One path that differs between two trees; a mode of 000000 means that it is not there."""

    path: str
    old_mode: str
    new_mode: str


@dataclass(frozen=True)
class Signature:
    """Who and when, for a commit; given, never read from the user's configuration, so that hashes repeat."""

    name: str
    email: str
    time: int


class GitFailed(MachineError):
    """Git ended with an error that is no trouble of the disk."""


class Repository:
    """One git repository with a working tree. Every call runs one git process, out of reach of Ctrl-C."""

    def __init__(self, root: Path, git_dir: Path, common_dir: Path) -> None:
        self.root, self.common_dir = root, common_dir
        self._git = git.Git(str(root))
        self._environment = {"GIT_DIR": str(git_dir), "GIT_WORK_TREE": str(root)}
        self.inside = lru_cache(maxsize=64)(self._inside)
        """The object at a path in a commit or tree, by full hash; None where there is none. Remembered."""
        self.listing = lru_cache(maxsize=16)(self._listing)
        """Every file below a tree or `<commit>:<path>`, by path. Remembered: a hash never changes its meaning."""
        self._options = [part for key, value in _CONFIG.items() for part in ("-c", f"{key}={value}")]

    @classmethod
    def open(cls, folder: Path) -> Repository:
        """The repository that `folder` lies in. Raises UsageError where there is none."""
        try:
            with git.Repo(folder, search_parent_directories=True) as found:
                if found.working_tree_dir is None:
                    raise UsageError(
                        f"{folder}: the git repository there is bare; clone it and climb in the clone"
                    )
                root, git_dir, common = found.working_tree_dir, found.git_dir, found.common_dir
        except (git.InvalidGitRepositoryError, git.NoSuchPathError):
            raise UsageError(
                f"{folder}: not in a git repository, and wins are commits; run 'git init' in the folder above cases/"
            ) from None
        return cls(Path(root).resolve(), Path(git_dir).resolve(), Path(common).resolve())

    def run(self, *arguments: str, input: bytes = b"", environment: Mapping[str, str] | None = None) -> bytes:
        """Standard output of one git command. Raises StorageError for a refusing disk, else GitFailed."""
        process = self._git.execute(
            ["git", *self._options, *arguments],
            istream=subprocess.PIPE,
            as_process=True,
            env={**self._environment, **(environment or {})},
            process_group=0,
        )
        output, complaint = process.communicate(input)
        if process.returncode:
            raise _failure(arguments, complaint.decode(errors="replace").strip())
        return bytes(output)

    def resolve(self, name: str) -> str | None:
        """The object that a ref or revision names; None where it does not exist."""
        try:
            return self.run("rev-parse", "--verify", "--quiet", "--end-of-options", name).decode().strip()
        except GitFailed:
            return None

    def _inside(self, whole: str, path: str) -> str | None:
        return self.resolve(f"{whole}:{path}")

    def _listing(self, tree: str) -> Mapping[str, Blob]:
        found = {}
        for line in _records(self.run("ls-tree", "-r", "-z", "--full-tree", tree)):
            facts, _, path = line.partition("\t")
            mode, _, sha = facts.split(" ")
            found[path] = Blob(mode, sha)
        return found

    def changes(self, old: str, new: str) -> list[Change]:
        """What differs between two trees, renames taken apart."""
        fields = _records(self.run("diff-tree", "-r", "-z", "--raw", "--no-renames", old, new))
        pairs = zip(fields[::2], fields[1::2], strict=True)
        return [Change(path, facts[1:7], facts[8:14]) for facts, path in pairs]

    def read(self, shas: Sequence[str]) -> list[bytes]:
        """The contents of blobs, in order, byte for byte."""
        if not shas:
            return []
        output = self.run("cat-file", "--batch", input="".join(f"{sha}\n" for sha in shas).encode())
        contents, at = [], 0
        for _ in shas:
            end = output.index(b"\n", at)
            size = int(output[at:end].split(b" ")[2])
            contents.append(output[end + 1 : end + 1 + size])
            at = end + size + 2
        return contents

    def store(self, content: bytes) -> str:
        """Write a blob."""
        return self.run("hash-object", "-w", "--no-filters", "--stdin", input=content).decode().strip()

    def store_files(self, paths: Iterable[Path]) -> list[str]:
        """Write the contents of files as blobs, past every filter."""
        names = "".join(f"{path}\n" for path in paths)
        return (
            self.run("hash-object", "-w", "--no-filters", "--stdin-paths", input=os.fsencode(names))
            .decode()
            .split()
        )

    def graft(self, tree: str | None, changes: Mapping[str, Blob | None], index: Path) -> str:
        """The tree with some paths set, or removed where the value is None; `index` is a private scratch file.

        `tree` is its full hash, or None for an empty one.
        """
        private = {"GIT_INDEX_FILE": str(index)}
        self.run("read-tree", tree or "--empty", environment=private)
        nothing = "0" * len(tree or "")
        removed = [f"0 {nothing}\t{path}\0" for path, blob in changes.items() if blob is None]
        added = [f"{blob.mode} {blob.sha}\t{path}\0" for path, blob in changes.items() if blob]
        lines = os.fsencode("".join(removed + added))
        self.run("update-index", "--replace", "-z", "--index-info", input=lines, environment=private)
        return self.run("write-tree", environment=private).decode().strip()

    def commit(
        self, tree: str, parents: Sequence[str], message: str, author: Signature, by: Signature
    ) -> str:
        """Write a commit object; no ref moves."""
        arguments = ["commit-tree", tree, *(part for parent in parents for part in ("-p", parent))]
        environment = _identity("AUTHOR", author) | _identity("COMMITTER", by)
        return self.run(*arguments, input=message.encode(), environment=environment).decode().strip()

    def move(self, ref: str, new: str, old: str | None) -> None:
        """Point a ref at `new` if it still points at `old` (None: if it does not exist yet)."""
        self.run("update-ref", "--no-deref", ref, new, old or "0" * len(new))

    def refs(self, prefix: str) -> dict[str, str]:
        """Every ref below a prefix, and what it points at."""
        lines = self.run("for-each-ref", "--format=%(refname) %(objectname)", prefix).decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines)

    def checked_out_at(self, ref: str) -> str:
        """The folder of the working tree whose HEAD is this branch; empty where there is none."""
        return self.run("for-each-ref", "--format=%(worktreepath)", ref).decode().strip()

    def ignores(self, path: Path) -> bool:
        """Whether the user's ignore rules cover a path."""
        try:
            self.run("check-ignore", "--quiet", "--no-index", str(path))
        except GitFailed:
            return False
        return True

    def visible_files(self, folder: str) -> list[str]:
        """Files below a folder that are tracked or not ignored, relative to the root; some may be gone from disk."""
        listing = ("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", folder)
        output = self.run(*listing, environment={"GIT_LITERAL_PATHSPECS": "1"})
        return sorted(set(_records(output)))


def is_ref(name: str) -> bool:
    """Whether one path component may stand in a ref that this project makes: letters, digits, `_`, `-` and `.`."""
    plain = re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}", name)
    return bool(plain) and ".." not in name and not name.endswith((".", ".lock"))


def _records(output: bytes) -> list[str]:
    return os.fsdecode(output).split("\0")[:-1]


def _identity(role: str, who: Signature) -> dict[str, str]:
    return {
        f"GIT_{role}_NAME": who.name,
        f"GIT_{role}_EMAIL": who.email,
        f"GIT_{role}_DATE": f"{who.time} +0000",
    }


def _failure(arguments: Sequence[str], complaint: str) -> MachineError:
    said = complaint.splitlines()[-1] if complaint else "no message"
    if any(trouble in complaint for trouble in _DISK_TROUBLE):
        return StorageError(f"git {arguments[0]}: {said}; free or mend the disk that the repository is on")
    return GitFailed(f"git {arguments[0]}: {said}")
