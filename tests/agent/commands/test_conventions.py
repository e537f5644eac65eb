"""What people expect of any command line: -h, -V, completion, a log, one place that shows what is configured."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.agent.commands import in_process
from tests.agent.commands.test_cli import hillclimb
from tests.fakes.cases import write_case
from tests.fakes.night import git

KEY = "sk-canary-77aa"
HOOK = "https://discord.com/api/webhooks/1/canary-77bb"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    root.mkdir()
    git(root, "init", "-q")
    return root


@pytest.mark.parametrize("command", [[], ["climb"], ["study"], ["study", "test"]])
def test_short_help(tmp_path: Path, command: list[str]) -> None:
    short, long = (in_process.hillclimb(*command, option, cwd=tmp_path) for option in ("-h", "--help"))
    assert short.returncode == 0 and short.stdout == long.stdout


def test_short_version(tmp_path: Path) -> None:
    assert hillclimb("-V", cwd=tmp_path).stdout == hillclimb("--version", cwd=tmp_path).stdout


def test_the_help_teaches_the_first_steps(tmp_path: Path) -> None:
    told = hillclimb("--help", cwd=tmp_path).stdout
    for command in ("check", "climb", "watch", "history", "show", "evaluate", "new-case", "config"):
        assert f"hillclimb {command}" in told


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_for_each_shell(tmp_path: Path, shell: str) -> None:
    done = hillclimb("completion", shell, cwd=tmp_path)
    assert done.returncode == 0
    assert f"_HILLCLIMB_COMPLETE=complete_{shell}" in done.stdout
    if shell == "bash":
        subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)


def test_another_shell_is_refused(tmp_path: Path) -> None:
    done = hillclimb("completion", "csh", cwd=tmp_path)
    assert done.returncode == 2
    assert "choose among bash, zsh, fish" in done.stderr


@pytest.mark.slow(1, but=["bash-typed0"])
@pytest.mark.parametrize(
    ("shell", "typed"),
    [
        ("bash", {"COMP_WORDS": "hillclimb check test/a", "COMP_CWORD": "2"}),
        ("zsh", {"_TYPER_COMPLETE_ARGS": "hillclimb check test/a"}),
        (
            "fish",
            {"_TYPER_COMPLETE_ARGS": "hillclimb check test/a", "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
        ),
    ],
)
def test_cases_are_completed(tmp_path: Path, shell: str, typed: dict[str, str]) -> None:
    write_case(tmp_path)
    program = ["hillclimb"]
    done = subprocess.run(
        program,
        cwd=tmp_path,
        env={"PATH": _path(), "HOME": str(tmp_path), "_HILLCLIMB_COMPLETE": f"complete_{shell}", **typed},
        capture_output=True,
        text=True,
    )
    assert "test/affine" in done.stdout, done.stderr


def test_every_setting_has_its_source_and_no_secret_is_shown(repository: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / "hillclimb").mkdir(parents=True)
    own = home / "hillclimb" / "config.env"
    own.write_text(f"OPENAI_API_KEY={KEY}\nHILLCLIMB_MODEL=mine\nOPENAI_BASE_URL=http://127.0.0.1:1/v1\n")
    own.chmod(0o600)
    (repository / ".env").write_text(f"HILLCLIMB_MODEL=theirs\nDISCORD_WEBHOOK_URL={HOOK}\n")
    (repository / ".env").chmod(0o600)
    environment = {"XDG_CONFIG_HOME": str(home), "HILLCLIMB_RUN_TAG": "night", "OPENAI_API_KEY": ""}
    done = hillclimb(
        "config", "--json", "--base-url", "http://127.0.0.1:2/v1", cwd=repository, environment=environment
    )
    assert done.returncode == 0, done.stderr
    found = {line["name"]: line for line in map(json.loads, done.stdout.splitlines())}
    assert {name: (one["source"], one["value"]) for name, one in found.items()} == {
        "OPENAI_API_KEY": ("user config", None),
        "OPENAI_BASE_URL": ("flag", "http://127.0.0.1:2/v1"),
        "HILLCLIMB_MODEL": (".env", "theirs"),
        "DISCORD_WEBHOOK_URL": (".env", None),
        "HILLCLIMB_RUN_TAG": ("environment", "night"),
        "HILLCLIMB_GPU": ("default", None),
    }
    assert found["OPENAI_API_KEY"]["is_set"] and found["OPENAI_API_KEY"]["file"] == str(own)
    told = hillclimb("config", cwd=repository, environment=environment)
    assert "OPENAI_API_KEY       (set, not shown)" in told.stdout
    for output in (done, told):
        assert KEY not in output.stdout + output.stderr and HOOK not in output.stdout + output.stderr


def test_without_a_repository_the_users_own_settings_are_shown(tmp_path: Path) -> None:
    done = hillclimb("config", cwd=tmp_path, environment={"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)})
    assert done.returncode == 0
    assert "OPENAI_BASE_URL" in done.stdout


def test_a_log_that_cannot_be_written_is_refused(repository: Path) -> None:
    write_case(repository)
    done = hillclimb("check", "test/affine", "--log-file", "no/such/folder/log", cwd=repository)
    assert done.returncode == 2
    assert "--log-file no/such/folder/log: cannot be written" in done.stderr


@pytest.mark.slow(5)
def test_a_log_has_phases_and_the_result_with_times(repository: Path) -> None:
    write_case(repository)
    done = hillclimb("check", "test/affine", "--log-file", "log", cwd=repository)
    lines = (repository / "log").read_text().splitlines()
    assert any(line[20:] == "phase: gate" for line in lines)
    assert done.stdout.splitlines()[0] in [line[20:] for line in lines]
    assert "phase: gate" in done.stderr.splitlines()


def _path() -> str:
    import os
    import sys

    return os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
