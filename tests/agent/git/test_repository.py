"""Git in all the states that users have it in: a climb works, and their side is as it was."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from hillclimb.agent.climb.climb import climb
from hillclimb.agent.climb.request import ClimbRequest, Tools
from hillclimb.agent.git.conversion import check_out
from hillclimb.agent.git.failure import GitFailed
from hillclimb.agent.git.repository import Repository, Signature, TreeEntry, is_ref
from hillclimb.agent.git.snapshot import store_case
from hillclimb.agent.record.recorded_runs import find_runs
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import UsageError
from tests.fakes.judge import SimulatedJudge
from tests.fakes.night import Night, git, make_repository
from tests.fakes.proposer import PlannedProposer
from tests.fakes.toy import write_toy

PLAN = ("both", "crash", "tune")
WHO = Signature("a", "a@b", 1_700_000_000)


def users_side(root: Path, git_dir: Path) -> dict[str, bytes]:
    def is_users(path: Path) -> bool:
        return path.is_file() and path.relative_to(root).parts[0] not in (".git", "runs")

    own = {name: (git_dir / name).read_bytes() for name in ("HEAD", "index") if (git_dir / name).exists()}
    return {str(path): path.read_bytes() for path in root.rglob("*") if is_users(path)} | own


def hostile(root: Path) -> Path:
    """Hooks that veto, a filter that scrambles, signing without a key, odd indexes and encodings."""
    make_repository(root)
    hooks = root / "hooks"
    hooks.mkdir()
    for name in ("pre-commit", "reference-transaction", "post-index-change", "fsmonitor", "commit-msg"):
        (hooks / name).write_text(f"#!/bin/sh\ntouch '{root}/hook-ran'\nexit 1\n")
        (hooks / name).chmod(0o755)
    (root / ".gitattributes").write_text("cases/** filter=scramble text eol=crlf\n*.md ident\n")
    for key, value in {
        "core.hooksPath": str(hooks),
        "core.fsmonitor": str(hooks / "fsmonitor"),
        "core.autocrlf": "true",
        "core.splitIndex": "true",
        "core.logAllRefUpdates": "always",
        "commit.gpgSign": "true",
        "gpg.program": "/bin/false",
        "filter.scramble.clean": "tr a-z n-za-m",
        "filter.scramble.smudge": "tr n-za-m a-z",
        "filter.scramble.required": "true",
        "i18n.commitEncoding": "ISO-8859-1",
        "trailer.separators": "=",
        "log.showSignature": "true",
        "core.quotePath": "true",
        "diff.renames": "copies",
        "core.abbrev": "4",
        "color.ui": "always",
        "gc.auto": "1",
    }.items():
        git(root, "config", key, value)
    return root


def scrambled(root: Path) -> Path:
    """The same, its files committed by those rules."""
    hostile(root)
    plain = ("-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false")
    git(root, *plain, "add", "--renormalize", "--all")
    git(root, *plain, "commit", "--quiet", "--no-gpg-sign", "--message", "by rule")
    return root


def unborn(root: Path) -> Path:
    return make_repository(root, commits=False)


def detached(root: Path) -> Path:
    make_repository(root)
    git(root, "checkout", "--quiet", "--detach")
    return root


def worktree(root: Path) -> Path:
    main = make_repository(root.parent / "main worktree")
    git(main, "worktree", "add", "--quiet", "-b", "side", str(root))
    return root


def spaced(root: Path) -> Path:
    return make_repository(root.parent / "a b" / "ü [x]* 'q'")


def sha256(root: Path) -> Path:
    root.mkdir()
    git(root, "init", "--quiet", "--object-format=sha256", "--initial-branch=main")
    return make_repository(root)


def crlf(root: Path) -> Path:
    make_repository(root)
    git(root, "config", "core.autocrlf", "true")
    path = root / "cases/demo/toy/workspace/docs/notes.md"
    path.write_bytes(b"one\r\ntwo\r\n")
    return root


@pytest.mark.parametrize(
    "make", [make_repository, hostile, scrambled, unborn, detached, worktree, spaced, sha256, crlf]
)
def test_a_climb_works_and_leaves_the_users_side_alone(make: Callable[[Path], Path], tmp_path: Path) -> None:
    root = make(tmp_path / "repo")
    git_dir = Path(git(root, "rev-parse", "--absolute-git-dir").strip())
    before = users_side(root, git_dir)
    finished = Night(root, plan=PLAN).climb()
    assert finished.wins == 2
    assert users_side(root, git_dir) == before
    assert not (root / "hook-ran").exists()
    repository = Repository.open(root)
    branch = find_runs(repository, "demo/toy")[0]
    assert [win.n for win in branch.wins] == [1, 3]
    baseline = repository.list_files(f"{branch.commit}~2:cases/demo/toy")
    files = {f"cases/demo/toy/{name}": blob.sha for name, blob in baseline.items()}
    for name, content in zip(files, check_out(repository, files), strict=True):
        assert content.replace(b"\r\n", b"\n") == (root / name).read_bytes().replace(b"\r\n", b"\n")


def test_the_branch_starts_at_head_when_the_case_is_committed(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    (root / "elsewhere").write_text("changed, but no part of the case\n")
    night = Night(root, plan=PLAN)
    night.climb()
    opened = night.ledger.opened
    assert opened and not opened.snapshot and opened.base == git(root, "rev-parse", "HEAD").strip()


def test_the_branch_starts_with_a_snapshot_when_it_is_not(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    case = root / "cases/demo/toy"
    (case / "program.md").unlink()
    (case / "workspace/new.py").write_text("new\n")
    (case / "workspace/__pycache__").mkdir()
    (case / "workspace/__pycache__/x.pyc").write_bytes(b"cache")
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/exclude").write_text("secret\n")
    (case / "secret").write_text("token\n")
    night = Night(root, plan=PLAN)
    night.climb()
    opened = night.ledger.opened
    assert opened and opened.snapshot
    assert git(root, "rev-parse", f"{opened.base}^") == git(root, "rev-parse", "HEAD")
    names = git(root, "diff", "--name-status", "HEAD", opened.base).split("\n")
    assert names == ["D\tcases/demo/toy/program.md", "A\tcases/demo/toy/workspace/new.py", ""]


def test_runs_do_not_show_in_git_status_without_an_ignore_rule(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    (root / ".gitignore").unlink()
    before = git(root, "status", "--porcelain")
    Night(root, plan=PLAN).climb()
    assert git(root, "status", "--porcelain") == before


def test_history_reads_the_wins_from_any_clone(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    Night(root).climb()
    git(tmp_path, "clone", "--quiet", str(root), "clone")
    repository = Repository.open(tmp_path / "clone")
    [branch] = find_runs(repository, "demo/toy")
    assert branch.ref == "refs/remotes/origin/hillclimb/demo/toy/night"
    wins = branch.wins
    ledger = Night(root).ledger
    assert [(win.n, win.idea, win.author) for win in wins] == [
        (win.n, win.proposal.idea, win.proposal.author) for win in ledger.wins
    ]
    for win, told in zip(ledger.wins, wins, strict=True):
        assert win.judged and told.cumulative and told.commit == win.judged.commit
        assert told.speedup.pairs == 5 and win.judged.cumulative
        assert told.cumulative.estimate == pytest.approx(win.judged.cumulative.estimate, abs=1e-4)
        assert told.trailers["Contract"] == "c" * 64


def test_a_run_on_top_of_another_runs_wins_tells_only_its_own(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    Night(root, plan=("tune",)).climb()
    git(root, "merge", "--quiet", "--ff-only", "hillclimb/demo/toy/night")
    Night(root, tag="second", plan=("crash",)).climb()
    repository = Repository.open(root)
    second = next(run for run in find_runs(repository, "demo/toy") if run.tag == "second")
    assert second.wins == ()


def test_no_repository_is_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    case = write_toy(tmp_path)
    with pytest.raises(UsageError, match=r"not in a git repository.*git init"):
        climb(
            ClimbRequest(case),
            lambda case, log: SimulatedJudge(),
            lambda background: PlannedProposer(),
            Tools(emit=lambda event: None),
        )


@pytest.mark.parametrize("odd", ["link", "ignored contract", "submodule"])
def test_what_cannot_be_part_of_a_case_is_named(tmp_path: Path, odd: str) -> None:
    root = make_repository(tmp_path / "repo")
    case = root / "cases/demo/toy"
    if odd == "link":
        (case / "workspace/more.py").symlink_to("/etc/passwd")
    elif odd == "ignored contract":
        git(root, "rm", "--quiet", "--cached", str(case / "contract.py"))
        (root / ".git/info").mkdir(exist_ok=True)
        (root / ".git/info/exclude").write_text("contract.py\n")
    else:
        make_repository(case / "workspace/upstream")
        git(root, "add", str(case))
    repository = Repository.open(root)
    said = {"link": r"more\.py: is a symbolic link", "ignored contract": r"contract\.py: git ignores"}
    with pytest.raises(UsageError, match=said.get(odd, r"upstream: is a git repository of its own")):
        store_case(repository, Case(case))


def test_a_name_that_cannot_be_in_a_ref_is_refused(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    shutil.move(root / "cases/demo/toy", root / "cases/demo/my toy")
    with pytest.raises(UsageError, match="'my toy' cannot be part of a branch's name"):
        climb(
            ClimbRequest(root / "cases/demo/my toy", tag="t"),
            lambda case, log: SimulatedJudge(),
            lambda background: PlannedProposer(),
            Tools(emit=lambda event: None),
        )


@pytest.mark.parametrize("name", ["nov21", "nov21-2", "a.b_c", "_template", "v1.0"])
def test_good_ref_parts(name: str) -> None:
    assert is_ref(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a..b", "a/b", "a b", "-a", "a.lock", "a.", ".a", "a~1", "ä", "a\n"]
)
def test_bad_ref_parts(name: str) -> None:
    assert not is_ref(name)


def test_graft_sets_removes_and_keeps(tmp_path: Path) -> None:
    repository = Repository.open(make_repository(tmp_path / "repo"))
    blob = TreeEntry("100644", repository.store(b"\r\nraw\0\xff"))
    first = repository.update_tree(None, {"a/b": blob, "c": blob})
    second = repository.update_tree(first, {"a/b": None, "d/e/f": blob})
    assert repository.list_files(second) == {"c": blob, "d/e/f": blob}
    assert repository.read([blob.sha, blob.sha]) == [b"\r\nraw\0\xff"] * 2
    assert {change.path: change.new_mode for change in repository.changes(first, second)} == {
        "a/b": "000000",
        "d/e/f": "100644",
    }


def test_the_same_commit_has_the_same_hash_whatever_the_user_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = []
    for number, zone in enumerate(("UTC", "Asia/Tokyo")):
        monkeypatch.setenv("TZ", zone)
        monkeypatch.setenv("GIT_AUTHOR_NAME", f"user {number}")
        repository = Repository.open(make_repository(tmp_path / str(number), commits=False))
        tree = repository.update_tree(None, {})
        hashes.append(repository.commit(tree, [], "message\n\nümlaut: ü\n", WHO, WHO))
    assert len(set(hashes)) == 1


def test_update_of_a_ref_demands_the_expected_old_value(tmp_path: Path) -> None:
    repository = Repository.open(make_repository(tmp_path / "repo"))
    head = repository.resolve("HEAD")
    assert head
    repository.update_ref("refs/heads/x", head, None)
    with pytest.raises(GitFailed, match="update-ref"):
        repository.update_ref("refs/heads/x", head, None)


def random_tree(repository: Repository, rng: random.Random, base: str | None) -> str:
    """A tree some edits away from another: files, folders, links and submodules that come, go and change kinds."""
    names = ["a", "a.b", "a-b", "b", "ü", "with space"]
    blobs = [repository.store(f"{n}\n".encode()) for n in range(4)]
    edits: dict[str, TreeEntry | None] = {}
    for _ in range(rng.randint(1, 5)):
        path = "/".join(rng.choice(names) for _ in range(rng.randint(1, 3)))
        inside = any(path.startswith(f"{other}/") or other.startswith(f"{path}/") for other in edits)
        if not inside:
            odd = rng.choice([TreeEntry(mode, rng.choice(blobs)) for mode in ("100644", "100755", "120000")])
            submodule = TreeEntry("160000", rng.choice("12") * 40)  # of a commit that is elsewhere
            edits[path] = rng.choice([None, odd, odd, submodule, TreeEntry("100644", rng.choice(blobs))])
    return repository.update_tree(base, edits)


def by_git(root: Path, index: Path, tree: str | None, edits: dict[str, TreeEntry | None]) -> str:
    """What git's own index makes of the same edits."""
    environment = {**os.environ, "GIT_INDEX_FILE": str(index)}

    def run(*arguments: str, text: str = "") -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(
            command, input=text, env=environment, capture_output=True, text=True, check=True
        ).stdout

    run("read-tree", tree or "--empty")
    removed = [f"0 {'0' * 40}\t{path}\0" for path, blob in edits.items() if blob is None]
    added = [f"{blob.mode} {blob.sha}\t{path}\0" for path, blob in edits.items() if blob]
    run("update-index", "--replace", "-z", "--index-info", text="".join(removed + added))
    return run("write-tree").strip()


def test_trees_differ_and_are_grafted_as_git_itself_has_it(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    repository, rng = Repository.open(root), random.Random(7)
    trees = [repository.update_tree(None, {})]
    for _ in range(25):
        trees.append(random_tree(repository, rng, rng.choice(trees)))
    for _ in range(25):
        old, new = rng.choice(trees), rng.choice(trees)
        raw = git(root, "diff-tree", "-r", "-z", "--raw", "--no-renames", old, new).split("\0")[:-1]
        told = {path: (facts[1:7], facts[8:14]) for facts, path in zip(raw[::2], raw[1::2], strict=True)}
        found = {change.path: (change.old_mode, change.new_mode) for change in repository.changes(old, new)}
        assert found == told
    assert {len(repository.changes(trees[0], tree)) for tree in trees} >= {0, 1, 3}
    blob = TreeEntry("100644", repository.store(b"new\n"))
    for tree in trees[::3]:
        paths = [*repository.list_files(tree), "a", "b/c", "new/folder/file"]
        for path in paths:
            for edits in ({path: None}, {path: blob}, {path: None, "a.b/x/y": blob}):
                if not any(other.startswith(f"{path}/") for other in edits):
                    assert repository.update_tree(tree, edits) == by_git(
                        root, tmp_path / "index", tree, dict(edits)
                    )
        listed = git(root, "ls-tree", "-r", "-z", "--full-tree", tree).split("\0")[:-1]
        told = {line.partition("\t")[2]: line.partition("\t")[0].split(" ")[::2] for line in listed}
        assert {path: [b.mode, b.sha] for path, b in repository.list_files(tree).items()} == told


def test_a_commit_is_what_commit_tree_makes(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    repository = Repository.open(root)
    tree, head = repository.resolve("HEAD^{tree}"), repository.resolve("HEAD")
    assert tree and head
    message = "subject ü\n\nbody\n\nHillclimb-Run: a/b/c\n"
    environment = {f"GIT_{role}_{key}": value for role in ("AUTHOR", "COMMITTER") for key, value in
                   (("NAME", WHO.name), ("EMAIL", WHO.email), ("DATE", f"{WHO.time} +0000"))}  # fmt: skip
    command = ["git", "-C", str(root), "commit-tree", tree, "-p", head]
    done = subprocess.run(
        command, input=message, env={**os.environ, **environment}, capture_output=True, text=True
    )
    assert repository.commit(tree, [head], message, WHO, WHO) == done.stdout.strip()
    with pytest.raises(GitFailed, match="NUL"):
        repository.commit(tree, [head], "half\0hidden", WHO, WHO)


def test_git_that_was_killed_is_started_again(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    repository = Repository.open(root)

    def work(n: int) -> str:
        blob = TreeEntry("100644", repository.store(f"{n}".encode()))
        commit = repository.commit(repository.update_tree(None, {"a/b": blob}), [], f"{n}\n", WHO, WHO)
        repository.update_ref(f"refs/heads/x{n}", commit, None)
        assert repository.read([blob.sha]) == [f"{n}".encode()]
        return commit

    others = set(children("git"))
    assert work(1)
    gits = set(children("git")) - others
    assert len(gits) >= 5
    for pid in gits:
        os.kill(pid, signal.SIGKILL)
    commit = work(2)
    assert git(root, "rev-parse", "x2").strip() == commit
    git(root, "gc", "--quiet", "--prune=now")
    assert work(3) and repository.resolve("refs/heads/x1")
    repository.close()
    assert set(children("git")) <= others


def children(name: str) -> list[int]:
    """Living processes of this one that have a name."""
    tasks = Path(f"/proc/{os.getpid()}/task")
    pids = [pid for task in tasks.iterdir() for pid in (task / "children").read_text().split()]
    return [int(pid) for pid in pids if Path(f"/proc/{pid}/comm").read_text().strip() == name]


def test_a_ref_that_points_at_a_ref_is_moved_itself(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repo")
    repository = Repository.open(root)
    head = repository.resolve("HEAD")
    assert head
    other = repository.commit(repository.update_tree(None, {}), [], "other\n", WHO, WHO)
    git(root, "symbolic-ref", "refs/heads/link", "refs/heads/main")
    repository.update_ref("refs/heads/link", other, head)
    assert (repository.resolve("refs/heads/main"), repository.resolve("refs/heads/link")) == (head, other)


@pytest.mark.parametrize("kept", ["blob:none", "tree:0"])
def test_a_partial_clone_is_grafted_without_the_objects_that_it_lacks(tmp_path: Path, kept: str) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    git(origin, "init", "-q")
    git(origin, "config", "uploadpack.allowFilter", "true")
    for path in ("cases/f/c/kernel.py", "elsewhere/large.bin", "README.md"):
        (origin / path).parent.mkdir(parents=True, exist_ok=True)
        (origin / path).write_text(f"the text of {path}\n")
    git(origin, "add", "-A")
    git(origin, "commit", "-q", "-m", "start")
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", f"--filter={kept}", "--no-checkout", f"file://{origin}", str(clone))
    git(clone, "sparse-checkout", "set", "cases/f")
    git(clone, "checkout", "-q", "HEAD")
    git(clone, "remote", "remove", "origin")
    lacking = git(clone, "rev-list", "--objects", "--all", "--missing=print").count("?")
    assert lacking, "the test would see nothing"
    repository = Repository.open(clone)
    changed = TreeEntry("100644", repository.store(b"faster\n"))
    tree = repository.update_tree(
        git(clone, "rev-parse", "HEAD^{tree}").strip(), {"cases/f/c/kernel.py": changed}
    )
    assert git(clone, "diff", "--name-only", "HEAD", tree).split() == ["cases/f/c/kernel.py"]
