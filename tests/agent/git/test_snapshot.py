"""The case by git's own rules: what git calls unchanged is unchanged; what is written is what git would write."""

from __future__ import annotations

import codecs
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from hillclimb.agent.git.conversion import check_in, check_out
from hillclimb.agent.git.repository import Repository, Signature
from hillclimb.agent.git.snapshot import case_path, changed_fixed_file, find_base, store_case
from hillclimb.agent.git.trees import MaterialisedTrees
from hillclimb.agent.machine.disk import Disk
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import UsageError
from tests.fakes.night import Night, git, make_repository

WHO = Signature("a", "a@b", 1_700_000_000)
CASE = "cases/demo/toy"
WORKSPACE = f"{CASE}/workspace"
ROT13 = {"filter.vault.clean": "tr a-z n-za-m", "filter.vault.smudge": "tr n-za-m a-z"}


def configure(root: Path, settings: dict[str, str]) -> None:
    for key, value in settings.items():
        git(root, "config", key, value)


def commit(root: Path) -> Path:
    git(root, "add", "--all", "--force")
    git(root, "commit", "--quiet", "--message", "more")
    return root


def checked_out_anew(root: Path) -> Path:
    """The working tree as a checkout by today's settings would make it."""
    git(root, "rm", "-r", "--quiet", "--cached", ".")
    git(root, "reset", "--quiet", "--hard")
    return root


def encrypted(root: Path) -> Path:
    make_repository(root)
    configure(root, ROT13)
    (root / ".gitattributes").write_text(f"{WORKSPACE}/docs/** filter=vault\n")
    (root / WORKSPACE / "docs/private.md").write_text("latency of customer a\n")
    return commit(root)


def encrypted_kernel(root: Path) -> Path:
    make_repository(root)
    configure(root, ROT13)
    (root / ".gitattributes").write_text("*.py filter=vault\n*.yaml filter=vault\n")
    git(root, "add", "--renormalize", ".")
    return commit(root)


def pointer_without_program(root: Path) -> Path:
    """As LFS files lie in a clone by somebody who never installed LFS."""
    make_repository(root)
    (root / WORKSPACE / "table.bin").write_text("version https://git-lfs.github.com/spec/v1\nsize 12\n")
    commit(root)
    (root / ".gitattributes").write_text("*.bin filter=lfs -text\n")
    commit(root)
    missing = {"clean": "no-such-program clean", "smudge": "no-such-program smudge", "required": "true"}
    configure(root, {f"filter.lfs.{key}": value for key, value in missing.items()})
    return root


def pointer(root: Path) -> Path:
    make_repository(root)
    clean, smudge = ("sh -c 'cat >/dev/null; echo pointer'", "sh -c 'cat >/dev/null; echo content'")
    configure(root, {"filter.lfs.clean": clean, "filter.lfs.smudge": smudge, "filter.lfs.required": "true"})
    (root / ".gitattributes").write_text("*.bin filter=lfs -text\n")
    (root / WORKSPACE / "table.bin").write_text("content\n")
    return commit(root)


def autocrlf(root: Path) -> Path:
    make_repository(root)
    configure(root, {"core.autocrlf": "true"})
    return checked_out_anew(root)


def eol(root: Path) -> Path:
    make_repository(root)
    (root / ".gitattributes").write_text("* text=auto eol=crlf\n")
    return checked_out_anew(commit(root))


def ident(root: Path) -> Path:
    make_repository(root)
    (root / ".gitattributes").write_text("*.md ident\n")
    (root / CASE / "program.md").write_text("$Id$\n")
    return checked_out_anew(commit(root))


def encoded(root: Path) -> Path:
    make_repository(root)
    (root / ".gitattributes").write_text("*.txt text working-tree-encoding=UTF-16LE-BOM\n")
    (root / CASE / "notes.txt").write_bytes(codecs.BOM_UTF16_LE + "hello\n".encode("utf-16-le"))
    return commit(root)


def no_file_mode(root: Path) -> Path:
    make_repository(root)
    configure(root, {"core.fileMode": "false"})
    (root / WORKSPACE / "kernel.py").chmod(0o755)
    return root


def sparse(root: Path) -> Path:
    make_repository(root)
    git(root, "sparse-checkout", "set", "--no-cone", "/*", f"!/{WORKSPACE}/docs/")
    return root


def sparse_index(root: Path) -> Path:
    make_repository(root)
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index", WORKSPACE, f"{CASE}/benchmarks")
    return root


def skipped(root: Path) -> Path:
    make_repository(root)
    git(root, "update-index", "--skip-worktree", f"{CASE}/program.md")
    (root / CASE / "program.md").write_text("of this machine alone\n")
    return root


def tracked_keys(root: Path) -> Path:
    make_repository(root)
    (root / CASE / ".env").write_text("KEY=1\n")
    (root / WORKSPACE / "__pycache__").mkdir()
    (root / WORKSPACE / "__pycache__/kept.txt").write_text("x\n")
    return commit(root)


def staged_and_put_back(root: Path) -> Path:
    make_repository(root)
    path = root / WORKSPACE / "kernel.py"
    before = path.read_text()
    path.write_text(before + "# staged\n")
    git(root, "add", str(path))
    path.write_text(before)
    return root


def submodule(root: Path) -> Path:
    origin = make_repository(root.parent / "origin")
    above = root.parent / "above"
    above.mkdir()
    git(above, "init", "--quiet")
    allowed = ("-c", "protocol.file.allow=always")
    git(above, *allowed, "submodule", "--quiet", "add", str(origin), root.name)
    return above / root.name


def partial_clone(root: Path) -> Path:
    origin = make_repository(root.parent / "origin")
    configure(origin, {"uploadpack.allowFilter": "true"})
    git(root.parent, "clone", "--quiet", "--filter=blob:none", f"file://{origin}", str(root))
    git(root, "remote", "set-url", "origin", "file:///nowhere")
    return root


def names_by_case(root: Path) -> Path:
    make_repository(root)
    for name in ("a.md", "A.md"):
        (root / WORKSPACE / "docs" / name).write_text(name)
    commit(root)
    configure(root, {"core.ignoreCase": "true"})
    return root


CLEAN: list[Callable[[Path], Path]] = [
    encrypted,
    encrypted_kernel,
    pointer_without_program,
    pointer,
    autocrlf,
    eol,
    ident,
    encoded,
    no_file_mode,
    sparse,
    sparse_index,
    skipped,
    tracked_keys,
    staged_and_put_back,
    submodule,
    partial_clone,
    names_by_case,
]


def plain(content: bytes) -> bytes:
    """As git has it: line ends and `$Id$` make no other file of it."""
    return re.sub(rb"\$Id[^$]*\$", b"$Id$", content.replace(b"\r\n", b"\n"))


@pytest.mark.parametrize("make", CLEAN)
def test_what_git_calls_unchanged_is_unchanged(make: Callable[[Path], Path], tmp_path: Path) -> None:
    root = make(tmp_path / "repo")
    head = git(root, "rev-parse", "HEAD").strip()
    repository, case = Repository.open(root), Case(root / CASE)
    base = find_base(repository, case, store_case(repository, case), WHO)
    assert not base.is_snapshot and base.commit == head
    tree = repository.resolve(f"{head}:{CASE}")
    assert tree
    made = MaterialisedTrees(repository, Disk(), tmp_path / "trees").case(tree, CASE)
    for path in made.rglob("*"):
        there = case.folder / path.relative_to(made)
        if path.is_file() and there.exists() and make is not skipped:
            assert plain(path.read_bytes()) == plain(there.read_bytes()), path
    assert not list(made.rglob(".env"))
    assert changed_fixed_file(repository, head, Case(made), case.folder) is None


@pytest.mark.parametrize("make", [encrypted_kernel, autocrlf, sparse, pointer_without_program, tracked_keys])
def test_a_climb_changes_on_its_branch_what_it_won_with_and_nothing_else(
    make: Callable[[Path], Path], tmp_path: Path
) -> None:
    root = make(tmp_path / "repo")
    assert Night(root, plan=("both", "tune")).climb().wins == 2
    ours = ("HEAD", "hillclimb/demo/toy/night", "--", ".", f":!{WORKSPACE}/docs")
    changed = git(root, "diff", "--name-only", *ours).split()
    assert set(changed) == {f"{WORKSPACE}/{name}" for name in ("kernel.py", "knobs.yaml")}
    assert int(git(root, "diff", "--shortstat", *ours).split()[3]) <= 4
    stored = git(root, "show", f"hillclimb/demo/toy/night:{WORKSPACE}/kernel.py")
    assert ("QUALITY" if make is not encrypted_kernel else "QUALITY".translate(_ROT)) in stored
    assert "\r" not in stored
    later = Night(root, plan=("crash",))
    assert later.climb().wins == 2  # the run is taken up: nothing fixed has changed


_ROT = str.maketrans("abcdefghijklmnopqrstuvwxyz", "nopqrstuvwxyzabcdefghijklm")


def test_a_changed_file_goes_through_its_filter(tmp_path: Path) -> None:
    root = encrypted(tmp_path / "repo")
    (root / WORKSPACE / "docs/private.md").write_text("latency of customer b\n")
    (root / WORKSPACE / "docs/new.md").write_text("customer c\n")
    repository, case = Repository.open(root), Case(root / CASE)
    files = store_case(repository, case)
    base = find_base(repository, case, files, WHO)
    shown = {
        name: git(root, "show", f"{base.commit}:{WORKSPACE}/docs/{name}") for name in ("private.md", "new.md")
    }
    assert shown == {"private.md": "yngrapl bs phfgbzre o\n", "new.md": "phfgbzre p\n"}
    path = f"{WORKSPACE}/docs/private.md"
    assert check_out(repository, {path: files[path].sha}) == [b"latency of customer b\n"]
    plain = git(root, "hash-object", f"{WORKSPACE}/docs/private.md", "--no-filters").strip()
    assert repository.resolve(f"{plain}^{{blob}}") is None


@pytest.mark.parametrize("required", ["true", "false"])
def test_a_filter_that_fails_is_told_by_the_name_of_its_file(tmp_path: Path, required: str) -> None:
    """Where git would commit the plain text with a warning, nothing is committed."""
    root = encrypted(tmp_path / "repo")
    configure(root, {"filter.vault.clean": "no-such-program", "filter.vault.required": required})
    (root / WORKSPACE / "docs/private.md").write_text("latency of customer b\n")
    with pytest.raises(UsageError, match=r"docs/\w+\.md.*filter"):
        store_case(Repository.open(root), Case(root / CASE))


@pytest.mark.parametrize("required", ["true", "false"])
def test_a_process_filter_that_is_missing_leaves_no_plain_text_behind(tmp_path: Path, required: str) -> None:
    root = encrypted(tmp_path / "repo")
    configure(root, {"filter.vault.process": "no-such-program", "filter.vault.required": required})
    path = root / WORKSPACE / "docs/private.md"
    path.write_text("latency of customer b\n")
    repository = Repository.open(root)
    with pytest.raises(UsageError, match=r"docs/\w+\.md: git's filter for this file failed"):
        store_case(repository, Case(root / CASE))
    raw = git(root, "hash-object", "--no-filters", str(path)).strip()
    assert repository.resolve(f"{raw}^{{blob}}") is None


def test_a_filter_that_is_not_set_up_here_is_told_and_nothing_is_committed_plain(tmp_path: Path) -> None:
    root = encrypted(tmp_path / "repo")
    git(root, "config", "--remove-section", "filter.vault")
    path = root / WORKSPACE / "docs/new.md"
    path.write_text("customer c\n")
    repository = Repository.open(root)
    with pytest.raises(UsageError, match=r"docs/\w+\.md: .*'vault', is not set up here"):
        store_case(repository, Case(root / CASE))
    assert repository.resolve(git(root, "hash-object", str(path)).strip() + "^{blob}") is None


@pytest.mark.parametrize("ends", ["\n", "\r\n"])
@pytest.mark.parametrize(
    "attributes", ["", "text=auto", "text=auto eol=lf", "text=auto eol=crlf", "text", "-text", "eol=lf"]
)
@pytest.mark.parametrize("before", ["a\r\nb\r\n", "a\nb\n", "a\r\nb\n"])
def test_line_ends_are_taken_in_as_git_add_takes_them(
    tmp_path: Path, before: str, attributes: str, ends: str
) -> None:
    git(tmp_path, "init", "-q")
    file = tmp_path / "kernel.py"
    file.write_bytes(before.encode())
    git(tmp_path, "add", "kernel.py")
    (tmp_path / ".gitattributes").write_text(f"*.py {attributes}\n" if attributes else "")
    content = (before + f"c{ends}").encode()
    file.write_bytes(content)
    repository = Repository.open(tmp_path)
    taken = check_in(repository, "kernel.py", content, git(tmp_path, "rev-parse", ":kernel.py").strip())
    git(tmp_path, "add", "kernel.py")
    assert taken == git(tmp_path, "rev-parse", ":kernel.py").strip()


def test_keys_that_are_tracked_stay_on_the_branch_and_new_ones_come_to_no_object(tmp_path: Path) -> None:
    root = tracked_keys(tmp_path / "repo")
    (root / CASE / ".env").write_text("KEY=2\n")
    (root / WORKSPACE / ".env.local").write_text("KEY=3\n")
    (root / CASE / "program.md").write_text("changed\n")
    repository, case = Repository.open(root), Case(root / CASE)
    base = find_base(repository, case, store_case(repository, case), WHO)
    assert git(root, "diff", "--name-only", "HEAD", base.commit).split() == [f"{CASE}/program.md"]
    for name in (f"{CASE}/.env", f"{WORKSPACE}/.env.local"):
        assert repository.resolve(git(root, "hash-object", name).strip() + "^{blob}") is None


def ignored_helper(root: Path) -> None:
    (root / WORKSPACE / "shapes.py").write_text("TILE = 8\n")
    (root / ".gitignore").write_text("/runs/\nshapes.py\n")
    (root / WORKSPACE / "kernel.py").write_text("from shapes import TILE\nQUALITY = 1.0\n")


def ignored_package(root: Path) -> None:
    (root / WORKSPACE / "shapes").mkdir()
    (root / WORKSPACE / "shapes/tile.py").write_text("TILE = 8\n")
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text("shapes/\n")
    (root / WORKSPACE / "kernel.py").write_text("import shapes.tile\nQUALITY = 1.0\n")


def ignored_helper_of_the_contract(root: Path) -> None:
    (root / CASE / "reference").mkdir()
    (root / CASE / "reference/__init__.py").write_text("")
    (root / ".gitignore").write_text("/runs/\n/cases/demo/toy/reference\n")
    (root / CASE / "contract.py").write_text("import reference\n")


def nested(root: Path) -> None:
    make_repository(root / WORKSPACE / "lib")


def nested_and_empty(root: Path) -> None:
    (root / WORKSPACE / "lib").mkdir()
    git(root / WORKSPACE / "lib", "init", "--quiet")
    (root / WORKSPACE / "lib/a.py").write_text("x = 1\n")


def linked_folder(root: Path) -> None:
    (root / "shared_lib").mkdir()
    (root / WORKSPACE / "lib").symlink_to("../../../../shared_lib")


def conflict(root: Path) -> None:
    path = root / WORKSPACE / "kernel.py"
    git(root, "checkout", "--quiet", "-b", "other")
    path.write_text("QUALITY = 2.0\n")
    git(root, "commit", "--quiet", "--all", "--message", "a")
    git(root, "checkout", "--quiet", "main")
    path.write_text("QUALITY = 3.0\n")
    git(root, "commit", "--quiet", "--all", "--message", "b")
    with pytest.raises(Exception, match="merge"):
        git(root, "merge", "--quiet", "other")


REFUSED: dict[Callable[[Path], None], str] = {
    ignored_helper: r"workspace/shapes\.py: git ignores this file \(.*\.gitignore:2: shapes\.py\)",
    ignored_package: r"workspace/shapes/tile\.py: git ignores this file \(.*exclude:1: shapes/\)",
    ignored_helper_of_the_contract: r"toy/reference/__init__\.py: git ignores this file",
    nested: r"workspace/lib: is a git repository of its own",
    nested_and_empty: r"workspace/lib: is a git repository of its own",
    linked_folder: r"workspace/lib: is a symbolic link",
    conflict: r"workspace/kernel\.py: has an unresolved merge conflict",
}


@pytest.mark.parametrize(("spoil", "said"), REFUSED.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_what_a_case_may_not_hold_is_refused_by_name(
    spoil: Callable[[Path], None], said: str, tmp_path: Path
) -> None:
    root = make_repository(tmp_path / "repo")
    spoil(root)
    with pytest.raises(UsageError, match=said):
        store_case(Repository.open(root), Case(root / CASE))


def test_what_nothing_imports_may_be_ignored(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text("*.dat\nscratch.py\n")
    for name in ("table.dat", "scratch.py"):
        (root / WORKSPACE / name).write_text("1\n")
    repository, case = Repository.open(root), Case(root / CASE)
    assert not find_base(repository, case, store_case(repository, case), WHO).is_snapshot


def test_what_is_ignored_and_needed_by_nobody_is_no_error(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text(
        ".#*\n._*\nscratch.py\nlocal.*\n/cases/demo/toy/workspace/local.py\n"
    )
    for name in (
        ".#contract.py",
        "._contract.py",
        "scratch.py",
        "benchmarks/local.yaml",
        "workspace/local.py",
    ):
        (root / CASE / name).write_text("problems: [only]\ndistribution: normal\n")
    (root / WORKSPACE / "docs/tool.py").write_text("import local\n")
    (root / WORKSPACE / "pkg").mkdir()
    (root / WORKSPACE / "pkg/__init__.py").write_text("from .inner import x\n")
    (root / WORKSPACE / "pkg/inner.py").write_text("x = 1\n")
    files = store_case(Repository.open(root), Case(root / CASE))
    assert f"{WORKSPACE}/pkg/inner.py" in files and f"{CASE}/scratch.py" not in files


def test_an_ignored_part_of_a_package_is_named(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    (root / ".gitignore").write_text("/runs/\ninner.py\n")
    (root / WORKSPACE / "pkg").mkdir()
    (root / WORKSPACE / "pkg/__init__.py").write_text("from . import inner\n")
    (root / WORKSPACE / "pkg/inner.py").write_text("x = 1\n")
    with pytest.raises(UsageError, match=r"pkg/inner\.py: git ignores this file"):
        store_case(Repository.open(root), Case(root / CASE))


@pytest.mark.parametrize("becomes", ["folder", "file"])
def test_a_file_and_a_folder_may_change_places(tmp_path: Path, becomes: str) -> None:
    root = make_repository(tmp_path / "repo")
    place = root / WORKSPACE / "lib"
    if becomes == "folder":
        place.write_text("x = 1\n")
    else:
        place.mkdir()
        (place / "x.py").write_text("x = 1\n")
    commit(root)
    if becomes == "folder":
        place.unlink()
        place.mkdir()
        (place / "x.py").write_text("x = 1\n")
    else:
        shutil.rmtree(place)
        place.write_text("x = 1\n")
    files = store_case(Repository.open(root), Case(root / CASE))
    found = {name.removeprefix(f"{WORKSPACE}/") for name in files if "/lib" in name}
    assert found == ({"lib/x.py"} if becomes == "folder" else {"lib"})


def test_a_run_goes_on_whatever_line_ends_lie_in_the_working_tree(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    (root / ".gitattributes").write_text("* text=auto eol=crlf\n")
    commit(root)
    assert Night(root, plan=("both",)).climb().wins == 1
    shutil.rmtree(root / "cases")
    git(root, "checkout", "--quiet", ".")
    assert b"\r\n" in (root / CASE / "contract.py").read_bytes()
    later = Night(root, plan=("both", "tune"))
    assert later.climb().wins == 2
    opened = later.ledger.opened
    made = root / "runs/demo/toy/night/trees"
    assert opened and all(b"\r" not in path.read_bytes() for path in made.rglob("contract.py"))


def test_line_ends_that_were_committed_stay(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    path = root / WORKSPACE / "knobs.yaml"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    commit(root)
    configure(root, {"core.autocrlf": "input"})
    assert Night(root, plan=("tune",)).climb().wins == 1
    ours = ("HEAD", "hillclimb/demo/toy/night", "--", f"{WORKSPACE}/knobs.yaml")
    assert "1 insertion(+), 1 deletion(-)" in git(root, "diff", "--shortstat", *ours)


def test_what_a_hook_of_another_repository_hands_down_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, other = make_repository(tmp_path / "repo"), make_repository(tmp_path / "other", commits=False)
    git(root, "update-index", "--skip-worktree", f"{CASE}/program.md")
    (root / CASE / "program.md").unlink()
    monkeypatch.setenv("GIT_INDEX_FILE", str(other / ".git/index"))
    monkeypatch.setenv("GIT_OBJECT_DIRECTORY", str(other / ".git/objects"))
    for name in ("GIT_GLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"):
        monkeypatch.setenv(name, "1")
    repository, case = Repository.open(root), Case(root / CASE)
    assert not find_base(repository, case, store_case(repository, case), WHO).is_snapshot


def test_somebody_elses_repository_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_repository(tmp_path / "repo")
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    with pytest.raises(UsageError, match=r"dubious ownership.*safe\.directory"):
        Repository.open(root)


def test_the_users_index_is_never_written(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    (root / WORKSPACE / "kernel.py").write_text("QUALITY = 2.0\n")
    index = root / ".git/index"
    before = index.read_bytes(), index.stat().st_mtime_ns
    time.sleep(0.01)
    repository = Repository.open(root)
    store_case(repository, Case(root / CASE))
    assert (index.read_bytes(), index.stat().st_mtime_ns) == before
    assert case_path(repository, root / CASE) == CASE


def test_a_repository_without_an_index_has_a_case_all_the_same(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo", commits=False)
    shutil.rmtree(root / ".git/index", ignore_errors=True)
    repository, case = Repository.open(root), Case(root / CASE)
    assert f"{WORKSPACE}/kernel.py" in store_case(repository, case)
