"""Git as a store of objects and refs: plumbing only, so that the user's checkout, index and HEAD are never touched.

Files go in and out by git's own rules for their paths (attributes, filters, line ends); hooks, signing and housekeeping
are off; objects are flushed to the disk before anything names them. What a climb asks again and again is asked of git
processes that stay.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, TypeVar
from weakref import finalize

import git

from hillclimb.agent.git.environment import CONFIG, NEUTRAL_ENVIRONMENT
from hillclimb.agent.git.failure import GitFailed, NoRepository, git_failure
from hillclimb.agent.git.process import GitExited, GitProcess, read_exactly, read_line
from hillclimb.harness.errors import MachineError, UsageError
from hillclimb.harness.os_errors import translated_os_errors

T = TypeVar("T")

REGULAR, EXECUTABLE, SYMLINK, GITLINK = "100644", "100755", "120000", "160000"
FOLDER = "40000"
ABSENT = "000000"
_KINDS = ("blob", "tree", "commit", "tag")

_BATCH_COMMANDS = {
    "find": ("cat-file", "--batch-check"),
    "read": ("cat-file", "--batch"),
    "check out": ("cat-file", "--batch=%(objectname)", "--filters"),
    "store": ("hash-object", "-w", "--no-filters", "--stdin-paths"),
    "commit": ("hash-object", "-w", "--no-filters", "-t", "commit", "--stdin-paths"),
    "plant": ("mktree", "-z", "--batch", "--missing"),  # a partial clone lacks objects
    "move": ("update-ref", "--no-deref", "--stdin"),
}
"""What is asked of git processes that stay, and the command of each; git 2.31 knows all of them."""


@dataclass(frozen=True)
class TreeEntry:
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


class Repository:
    """One git repository with a working tree. Its git processes are out of reach of Ctrl-C, and end with it."""

    def __init__(self, root: Path, git_dir: Path, common_dir: Path) -> None:
        self.root, self.common_dir = root, common_dir
        self._git = git.Git(str(root))
        self.index_file = git_dir / "index"
        """The user's index; it may not exist yet."""
        self._environment = {
            "GIT_DIR": str(git_dir),
            "GIT_WORK_TREE": str(root),
            "GIT_INDEX_FILE": str(self.index_file),
            "GIT_OBJECT_DIRECTORY": str(common_dir / "objects"),
            **NEUTRAL_ENVIRONMENT,
        }
        self.object_at = lru_cache(maxsize=64)(self._object_at)
        """The object at a path in a commit or tree, by full hash; None where there is none. Remembered."""
        self.list_files = lru_cache(maxsize=16)(self._list_files)
        """Every file below a tree or `<commit>:<path>`, by path. Remembered: a hash never changes its meaning."""
        self._attributes: dict[str, Mapping[str, str]] = {}
        self.setting = lru_cache(maxsize=16)(self._setting_of)
        """A setting of git's as the user has it; empty where it is not made. Remembered."""
        self._entries = lru_cache(maxsize=128)(self._read_tree)
        self._options = [part for key, value in CONFIG.items() for part in ("-c", f"{key}={value}")]
        staying = {
            verb: GitProcess(["git", *self._options, *command], root, self._environment)
            for verb, command in _BATCH_COMMANDS.items()
        }
        self._processes = staying
        self.close = finalize(self, _close, tuple(staying.values()))
        """End the git processes that stay; done by itself when nobody has the repository any more."""

    @classmethod
    def open(cls, folder: Path, *, for_reading: bool = False) -> Repository:
        """The repository that `folder` lies in; a bare one only `for_reading`, its own folder then in place of a tree.

        Raises NoRepository where there is none, UsageError where it is bare.
        """
        try:
            with git.Repo(folder, search_parent_directories=True) as found:
                _require_trusted(found, folder)
                root, git_dir, common = found.working_tree_dir, found.git_dir, found.common_dir
                if root is None and not for_reading:
                    raise UsageError(
                        f"{folder}: the git repository there is bare; clone it and climb in the clone"
                    )
        except (git.InvalidGitRepositoryError, git.NoSuchPathError):
            raise NoRepository(
                f"{folder}: not in a git repository, and wins are commits; run 'git init' in the folder above cases/"
            ) from None
        return cls(Path(root or git_dir).resolve(), Path(git_dir).resolve(), Path(common).resolve())

    def run(self, *arguments: str, input: bytes = b"", environment: Mapping[str, str] | None = None) -> bytes:
        """Standard output of one git command. Raises StorageError for a refusing disk, else GitFailed."""
        return self.run_with_messages(*arguments, input=input, environment=environment)[0]

    def run_with_messages(
        self, *arguments: str, input: bytes = b"", environment: Mapping[str, str] | None = None
    ) -> tuple[bytes, str]:
        """Standard output and standard error of one git command; raises as `run` does."""
        with translated_os_errors(f"git {arguments[0]}"):
            process = self._git.execute(
                ["git", *self._options, *arguments],
                istream=subprocess.PIPE,
                as_process=True,
                env={**self._environment, **(environment or {})},
                process_group=0,
            )
            output, complaint = process.communicate(input)
        said = complaint.decode(errors="replace").strip()
        if process.returncode:
            raise git_failure(arguments, said)
        return bytes(output), said

    def user_identity(self) -> str:
        """`Name <address>` of whoever commits here; empty where git knows nobody."""
        try:
            return self.run("var", "GIT_AUTHOR_IDENT").decode(errors="replace").rpartition("> ")[0] + ">"
        except MachineError:
            return ""

    def ask(self, verb: str, question: bytes, read: Callable[[IO[bytes]], T]) -> T:
        """The answer of a git process that stays. Raises StorageError for a refusing disk, else GitFailed."""
        process = self._processes[verb]
        try:
            if verb in ("store", "commit"):
                return process.ask_with_content(question, read)
            return process.ask(question, read)
        except GitExited as ended:
            raise git_failure(_BATCH_COMMANDS[verb], ended.complaint) from None

    def resolve(self, name: str) -> str | None:
        """The object that a ref or revision names; None where it does not exist."""
        if "\n" in name:
            raise GitFailed(f"{name!r}: a name of an object has no line break")
        facts = self.ask("find", os.fsencode(f"{name}\n"), read_line).split(" ")
        return facts[0] if len(facts) == 3 and facts[1] in _KINDS else None

    def _object_at(self, whole: str, path: str) -> str | None:
        return self.resolve(f"{whole}:{path}")

    def _list_files(self, tree: str) -> Mapping[str, TreeEntry]:
        sha = self.resolve(f"{tree}^{{tree}}" if ":" not in tree else tree)
        if sha is None:
            raise GitFailed(f"{tree}: there is no such tree")
        return dict(self._files(sha))

    def _files(self, tree: str, prefix: str = "") -> Iterator[tuple[str, TreeEntry]]:
        """Every file below a tree, by its path, in git's order."""
        for name, entry in self._entries(tree).items():
            if entry.mode == FOLDER:
                yield from self._files(entry.sha, f"{prefix}{name}/")
            else:
                yield prefix + name, entry

    def _read_tree(self, tree: str) -> Mapping[str, TreeEntry]:
        """What one tree object says, by name; subfolders have the mode FOLDER."""
        content, found, at = self._read_object(tree, "tree"), {}, 0
        size = len(tree) // 2
        while at < len(content):
            end = content.index(b"\0", at)
            mode, _, name = content[at:end].partition(b" ")
            found[os.fsdecode(name)] = TreeEntry(mode.decode(), content[end + 1 : end + 1 + size].hex())
            at = end + 1 + size
        return found

    def changes(self, old: str, new: str) -> list[Change]:
        """What differs between two trees, named by their full hashes, renames taken apart."""
        return list(self._compare(old, new, ""))

    def _compare(self, old: str | None, new: str | None, prefix: str) -> Iterator[Change]:
        before = self._entries(old) if old else {}
        after = self._entries(new) if new else {}
        for name in sorted({*before, *after}):
            was, now = before.get(name), after.get(name)
            if was != now:
                yield from self._compare_entries(was, now, prefix + name)

    def _compare_entries(self, was: TreeEntry | None, now: TreeEntry | None, path: str) -> Iterator[Change]:
        """A folder on one side is compared with whatever folder there is on the other, a file likewise."""
        folders = [entry.sha if entry and entry.mode == FOLDER else None for entry in (was, now)]
        if any(folders):
            yield from self._compare(folders[0], folders[1], f"{path}/")
        modes = [entry.mode if entry and entry.mode != FOLDER else ABSENT for entry in (was, now)]
        if modes != [ABSENT, ABSENT]:
            yield Change(path, modes[0], modes[1])

    def read(self, shas: Sequence[str]) -> list[bytes]:
        """The contents of blobs, in order, byte for byte."""
        return [self._read_object(sha, "blob") for sha in shas]

    def _read_object(self, sha: str, kind: str) -> bytes:
        def read(answer: IO[bytes]) -> bytes | None:
            facts = read_line(answer).split(" ")
            if len(facts) != 3 or facts[1] not in _KINDS:
                return None
            content = read_exactly(answer, int(facts[2]) + 1)[:-1]
            return content if facts[1] == kind else None

        content = self.ask("read", f"{sha}\n".encode(), read)
        if content is None:
            raise GitFailed(f"git cat-file: {sha} is no {kind} that is there")
        return content

    def store(self, content: bytes) -> str:
        """Write a blob, byte for byte."""
        return self.ask("store", content, read_line)

    def attributes(self, paths: Iterable[str]) -> Mapping[str, Mapping[str, str]]:
        """path relative to the root -> its git attributes by their names. Remembered."""
        fresh = [path for path in paths if path not in self._attributes]
        if fresh:
            listing = os.fsencode("".join(f"{path}\0" for path in fresh))
            facts = _records(self.run("check-attr", "-z", "--all", "--stdin", input=listing))
            found: dict[str, dict[str, str]] = {path: {} for path in fresh}
            for path, name, value in zip(facts[::3], facts[1::3], facts[2::3], strict=True):
                found[path][name] = value
            self._attributes |= found
        return self._attributes

    def _setting_of(self, name: str) -> str:
        try:
            return self.run("config", "--get", name).decode().strip()
        except GitFailed:
            return ""

    def hash_files(self, paths: Iterable[Path]) -> list[str]:
        """The hashes that the contents of files have as blobs, byte for byte; nothing is written."""
        names = "".join(f"{path}\n" for path in paths)
        command = ("hash-object", "--no-filters", "--stdin-paths")
        return self.run(*command, input=os.fsencode(names)).decode().split()

    def update_tree(self, tree: str | None, changes: Mapping[str, TreeEntry | None]) -> str:
        """The tree with some paths set, or removed where the value is None; what a file is put on gives way.

        `tree` is its full hash, or None for an empty one.
        """
        return self._updated_tree(
            tree, {tuple(path.split("/")): blob for path, blob in changes.items()}
        ) or self._write_tree({})

    def _updated_tree(
        self, tree: str | None, changes: Mapping[tuple[str, ...], TreeEntry | None]
    ) -> str | None:
        """None where nothing is left: git knows no empty folders."""
        entries = dict(self._entries(tree)) if tree else {}
        below: dict[str, dict[tuple[str, ...], TreeEntry | None]] = {}
        for (name, *rest), blob in changes.items():
            if rest:
                below.setdefault(name, {})[tuple(rest)] = blob
            elif blob is None and name in entries and entries[name].mode != FOLDER:
                del entries[name]
        for name, inside in below.items():
            self._update_subtree(entries, name, inside)
        entries |= {path[0]: blob for path, blob in changes.items() if len(path) == 1 and blob is not None}
        return self._write_tree(entries) if entries else None

    def _update_subtree(
        self, entries: dict[str, TreeEntry], name: str, changes: Mapping[tuple[str, ...], TreeEntry | None]
    ) -> None:
        there = entries.get(name)
        folder = there.sha if there and there.mode == FOLDER else None
        grafted = self._updated_tree(folder, changes)
        if grafted:
            entries[name] = TreeEntry(FOLDER, grafted)
        elif folder:
            del entries[name]

    def _write_tree(self, entries: Mapping[str, TreeEntry]) -> str:
        """Write one tree object."""
        kinds = {FOLDER: "tree", GITLINK: "commit"}
        lines = [f"{e.mode} {kinds.get(e.mode, 'blob')} {e.sha}\t{name}\0" for name, e in entries.items()]
        return self.ask("plant", os.fsencode("".join(lines) + "\0"), read_line)

    def commit(
        self, tree: str, parents: Sequence[str], message: str, author: Signature, by: Signature
    ) -> str:
        """Write a commit object; no ref moves."""
        lines = [f"tree {tree}", *(f"parent {parent}" for parent in parents)]
        lines += [f"author {_identity(author)}", f"committer {_identity(by)}", "", message]
        if "\0" in message:
            raise GitFailed(
                "a commit's message cannot hold a NUL byte; git would show what is before it only"
            )
        return self.ask("commit", "\n".join(lines).encode(), read_line)

    def update_ref(self, ref: str, new: str, old: str | None) -> None:
        """Point a ref at `new` if it still points at `old` (None: if it does not exist yet)."""
        words = ("start", f"update {ref} {new} {old or '0' * len(new)}", "prepare", "commit")
        if any("\n" in part or " " in part for part in (ref, new, old or "")):
            raise GitFailed(f"{ref!r}: the name of a ref has no blanks")

        def read(answer: IO[bytes]) -> None:
            for _ in ("start", "prepare", "commit"):
                read_line(answer)

        self.ask("move", "".join(f"{word}\n" for word in words).encode(), read)

    def refs(self, prefix: str) -> dict[str, str]:
        """Every ref below a prefix, and what it points at."""
        lines = self.run("for-each-ref", "--format=%(refname) %(objectname)", prefix).decode().splitlines()
        return dict(line.rsplit(" ", 1) for line in lines)

    def checked_out_at(self, ref: str) -> str:
        """The folder of the working tree whose HEAD is this branch; empty where there is none."""
        return self.run("for-each-ref", "--format=%(worktreepath)", ref).decode().strip()

    def ignores(self, path: Path) -> bool:
        """Whether the user's ignore rules cover a path."""
        return bool(self.why_ignored(path))

    def why_ignored(self, path: Path) -> str:
        """The rule of the user's that ignores a path, as `FILE:LINE: PATTERN`; empty where none does."""
        question = os.fsencode(f"{path}\0")
        try:
            told = self.run("check-ignore", "--verbose", "--no-index", "-z", "--stdin", input=question)
        except GitFailed:
            return ""
        file, line, pattern, _ = _records(told)
        return "" if pattern.startswith("!") else f"{file}:{line}: {pattern}"

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


def _identity(who: Signature) -> str:
    """As git writes it: what would end a field early is left out."""
    name, email = (re.sub(r"[<>\n\0]", "", text).strip() or "unknown" for text in (who.name, who.email))
    return f"{name} <{email}> {who.time} +0000"


def _require_trusted(found: git.Repo, folder: Path) -> None:
    """Raises UsageError where git itself would not run in this repository, such as somebody else's."""
    try:
        found.git.rev_parse("--git-dir")
    except git.GitCommandError as error:
        said = str(error.stderr).strip().strip("'").removeprefix("stderr: '").partition("\n")[0]
        raise UsageError(
            f"{folder}: git does not run there ({said}); see safe.directory of git-config"
        ) from None


def _close(processes: Sequence[GitProcess]) -> None:
    for process in processes:
        process.close()
