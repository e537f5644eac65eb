"""The user's repository: nothing that a clone or a configuration brings along is run; no proposal reaches git's own.

Hooks, drivers and programs of the configuration are what a repository from elsewhere, or a coding agent with write
access, could plant. The lab reads and writes objects and refs only. Filters are the exception, for the case's own files
alone: what is committed of a file is what the user's git would commit of it.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hillclimb.agent.cli import app
from hillclimb.agent.git.edits import why_changed_outside, why_not_mutable
from hillclimb.agent.git.repository import EXECUTABLE, GITLINK, SYMLINK, Change, Repository
from hillclimb.agent.git.snapshot import store_case
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import UsageError
from tests.fakes.night import Night, git, make_repository

HOOKS = (
    "applypatch-msg commit-msg fsmonitor-watchman p4-changelist post-applypatch post-checkout post-commit "
    "post-index-change post-merge post-receive post-rewrite post-update pre-applypatch pre-auto-gc pre-commit "
    "pre-merge-commit pre-push pre-rebase pre-receive prepare-commit-msg proc-receive push-to-checkout "
    "reference-transaction sendemail-validate update"
)
"""githooks(5)."""

PROGRAMS = (
    "core.editor core.pager core.askPass core.sshCommand core.gitProxy core.fsmonitor core.alternateRefsCommand "
    "sequence.editor diff.external diff.planted.command diff.planted.textconv merge.planted.driver "
    "filter.planted.clean filter.planted.smudge filter.planted.process gpg.program gpg.ssh.program gpg.x509.program "
    "gpg.ssh.defaultKeyCommand credential.helper web.browser browser.planted.cmd man.planted.cmd help.browser "
    "trailer.planted.cmd trailer.planted.command pager.log pager.show pager.diff pager.status pager.rev-list "
    "pager.ls-files pager.cat-file pager.for-each-ref pager.diff-tree difftool.planted.cmd mergetool.planted.cmd "
    "remote.origin.uploadpack remote.origin.receivepack remote.origin.vcs uploadpack.packObjectsHook "
    "log.showSignature interactive.diffFilter submodule.planted.update init.templateDir hook.planted.command"
)
"""git-config(1): the keys whose value is run, or has something run."""


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A repository with everything in it that git would run for somebody; what runs leaves a file `ran-...`."""
    root = make_repository(tmp_path / "repository")
    hooks = tmp_path / "hooks"
    for folder in (hooks, root / ".git/hooks"):
        folder.mkdir(exist_ok=True)
        for name in HOOKS.split():
            (folder / name).write_text(f"#!/bin/sh\ntouch '{tmp_path}/ran-hook-{name}'\nexit 1\n")
            (folder / name).chmod(0o755)
    attributes = "* diff=planted merge=planted text eol=crlf ident\n/elsewhere.py filter=planted\n"
    (root / "elsewhere.py").write_text("no part of the case\n")
    (root / ".gitattributes").write_text(attributes)
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/attributes").write_text(attributes)
    (root / ".gitmodules").write_text('[submodule "planted"]\n\tpath = sub\n\turl = ext::touch\n')
    settings = {
        **{key: f"touch '{tmp_path}/ran-{key}'; false" for key in PROGRAMS.split()},
        "core.hooksPath": str(hooks),
        "core.fsmonitor": str(hooks / "fsmonitor-watchman"),
        "filter.planted.required": "true",
        "diff.planted.cachetextconv": "true",
        "commit.gpgSign": "true",
        "tag.gpgSign": "true",
        "gpg.format": "ssh",
        "log.showSignature": "true",
        "alias.update-ref": f"!touch '{tmp_path}/ran-alias'",
        "alias.ls-tree": f"!touch '{tmp_path}/ran-alias'",
        "protocol.ext.allow": "always",
        "remote.origin.url": f"ext::touch {tmp_path}/ran-remote",
        "gc.auto": "1",
        "gc.autoDetach": "false",
        "maintenance.auto": "true",
        "fetch.recurseSubmodules": "true",
        "core.untrackedCache": "true",
        "submodule.recurse": "true",
        "trailer.planted.key": "Hillclimb-Run",
        "trailer.planted.ifexists": "replace",
    }
    with (root / ".git/config").open("a") as config:
        config.writelines(setting(key, value) for key, value in settings.items())
    return root


def setting(key: str, value: str) -> str:
    section, _, name = key.rpartition(".")
    kind, _, of = section.partition(".")
    heading = f'{kind} "{of}"' if of else kind
    quoted = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'[{heading}]\n\t{name} = "{quoted}"\n'


def ran(root: Path) -> list[str]:
    return sorted(path.name for path in root.parent.glob("ran-*"))


def test_nothing_that_a_repository_brings_along_is_run(
    planted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    night = Night(planted, plan=("both", "crash", "tune"))
    assert night.climb().wins == 2
    monkeypatch.chdir(planted)
    for words in (("history", "--json"), ("show", "1"), ("report",)):
        done = CliRunner().invoke(app, [words[0], str(night.case), *words[1:]])
        assert done.exit_code == 0, (words, done.output)
    assert ran(planted) == []


def test_git_itself_runs_it(planted: Path) -> None:
    """What the test above has planted is not duds."""
    for words in (("status",), ("add", "--all"), ("fetch",), ("update-ref", "refs/heads/x", "HEAD")):
        subprocess.run(
            ["git", "-C", str(planted), *words], capture_output=True, stdin=subprocess.DEVNULL, timeout=60
        )
    assert {"filter.planted.process", "hook-fsmonitor-watchman", "remote", "hook-reference-transaction"} <= {
        name.removeprefix("ran-") for name in ran(planted)
    }


NAMES_OF_GIT = (
    ".git/hooks/post-commit .git/config .GIT/config .gIt/config .git .gitattributes .gitmodules .gitignore "
    ".git/info/attributes docs/.gitattributes a/.git/config .git./config .git/../x git~1/config GIT~1/hooks/x git~2 "
    ".git::$INDEX_ALLOCATION/x .\u200cgit/config .g\u200dit/config .git\u200b/config ../.git/config "
    "./.git/config docs/../.git/config /etc/passwd docs//x ../../contract.py .env docs/.env.local"
)
ODD_NAMES = (
    "a\n.git/config", "a\0b", "\x1b]0;owned\x07", "a\x1b[2Jb", "a\u202egnp.py", "a\\..\\..\\b", " x", "x ", "x.", "C:x",
    "a\rb", "\ud800x", "",
)  # fmt: skip


@pytest.mark.parametrize("path", [*NAMES_OF_GIT.split(), *ODD_NAMES], ids=ascii)
def test_no_proposal_names_a_file_of_gits_own(path: str) -> None:
    reason = why_not_mutable(path, ["**", "**/*", ".*", "*"])
    assert reason is not None
    assert reason.isprintable()


@pytest.mark.parametrize("mode", [EXECUTABLE, SYMLINK, GITLINK])
def test_no_tree_that_somebody_made_has_links_modules_or_programs(mode: str) -> None:
    change = Change("cases/demo/toy/workspace/kernel.py", "100644", mode)
    assert why_changed_outside([change], "cases/demo/toy/workspace", ["**"], ["kernel.py"]) is not None
    above = Change("cases/demo/toy/.gitattributes", "000000", "100644")
    assert why_changed_outside([above], "cases/demo/toy/workspace", ["**"], []) is not None


def test_a_name_of_two_lines_takes_no_file_from_elsewhere(tmp_path: Path) -> None:
    """Git is told names line by line: the second line would be a file of its own."""
    root = make_repository(tmp_path / "repository")
    (tmp_path / "key").write_text("the user's key")
    odd = root / "cases/demo/toy/workspace" / f"x\n{str(tmp_path)[1:]}"
    odd.mkdir(parents=True)
    (odd / "key").write_text("harmless")
    repository = Repository.open(root)
    with pytest.raises(UsageError, match="line break") as refused:
        store_case(repository, Case(root / "cases/demo/toy"))
    assert str(refused.value).isprintable()
    key = git(root, "hash-object", str(tmp_path / "key")).strip()
    assert repository.resolve(f"{key}^{{blob}}") is None
