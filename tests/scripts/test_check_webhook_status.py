"""The script says what is configured, tries it, and never shows the address."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from hillclimb.agent.notify.status import _MEANINGS, main
from hillclimb.agent.record.entries import WebhookState
from tests.fakes.discord_server import REPLIES, TOKEN, FakeDiscord, closed_port, url_at
from tests.scripts.scripts_repo import make_repo

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "scripts" / "check_webhook_status.py"
HOOK = f"https://discord.com/api/webhooks/123456789012345678/{TOKEN}"


@dataclass
class Checked:
    status: int
    stdout: str
    stderr: str


@pytest.fixture
def check(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., Checked]:
    """What the script runs, in this process and in a repository of its own."""
    (tmp_path / ".git").mkdir()
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **environment: str) -> Checked:
        try:
            status = main(list(arguments), environment, ROOT)
        except SystemExit as end:
            status = int(end.code or 0)
        printed = capsys.readouterr()
        assert TOKEN not in printed.out + printed.err
        return Checked(status, printed.out, printed.err)

    return run


def run_script(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    clean = {"PATH": os.environ["PATH"], **environment}
    return subprocess.run(
        [SCRIPT, *arguments], cwd=folder, env=clean, capture_output=True, text=True, timeout=60
    )


def test_the_script_sends_one_post_and_hands_on_the_status(tmp_path: Path) -> None:
    with FakeDiscord(answer=REPLIES["200"]) as fake:
        done = run_script(tmp_path, "--send", "--json", "--root", str(tmp_path), DISCORD_WEBHOOK_URL=fake.url)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sent"] == "taken (HTTP 200)"
    assert TOKEN not in done.stdout + done.stderr
    assert fake.titles == ["hillclimb: this webhook works"]


def test_nothing_is_configured(tmp_path: Path, check: Callable[..., Checked]) -> None:
    done = check()
    assert done.status == 1
    assert "no webhook is configured" in done.stdout
    assert f"{tmp_path}/.env" in done.stdout
    assert 'webhook_status: "not configured"' in done.stdout


@pytest.mark.parametrize("where", ["file", "environment"])
def test_what_is_configured_and_by_what(tmp_path: Path, check: Callable[..., Checked], where: str) -> None:
    if where == "file":
        (tmp_path / ".env").write_text(f"DISCORD_WEBHOOK_URL={HOOK}\n")
        (tmp_path / "deeper").mkdir()
    done = check(**({"DISCORD_WEBHOOK_URL": HOOK} if where == "environment" else {}))
    assert done.status == 0, done.stderr
    assert "discord.com, webhook 1234...78" in done.stdout
    origin = "environment" if where == "environment" else f"{tmp_path}/.env"
    assert f"set by: DISCORD_WEBHOOK_URL ({origin})" in done.stdout
    assert 'webhook_status: "queued"' in done.stdout


def test_it_looks_where_a_climb_in_this_folder_would(
    tmp_path: Path, check: Callable[..., Checked], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text(f"HILLCLIMB_WEBHOOK_URL={HOOK}\n")
    deeper = tmp_path / "cases" / "demo"
    deeper.mkdir(parents=True)
    monkeypatch.chdir(deeper)
    assert json.loads(check("--json").stdout)["variable"] == "HILLCLIMB_WEBHOOK_URL"


def test_json_holds_the_six_fields_and_the_notices(tmp_path: Path, check: Callable[..., Checked]) -> None:
    (tmp_path / ".env").write_text(f"DISCORD_WEBHOOK_URL={HOOK}\n")
    (tmp_path / ".env").chmod(0o644)
    said = json.loads(check("--json").stdout)
    assert said["configured"] is True
    assert set(said["fields"]) == set(WebhookState.model_fields) == set(_MEANINGS)
    assert "chmod 600" in said["notices"][0]


@pytest.mark.parametrize(
    ("reply", "status", "says"),
    [
        ("204", 0, "taken (HTTP 204)"),
        ("200", 0, "taken (HTTP 200)"),
        ("404", 1, "not taken: the webhook is gone: HTTP 404 (Discord code 10015)"),
        ("429-text", 1, "not taken: rate limited (HTTP 429)"),
        ("html", 1, "not taken: HTTP 200 with a web page"),
        ("closed", 1, "not taken: no connection: ConnectionRefusedError"),
    ],
)
def test_send(check: Callable[..., Checked], reply: str, status: int, says: str) -> None:
    with FakeDiscord(answer=REPLIES.get(reply, REPLIES["204"])) as fake:
        url = url_at(closed_port()) if reply == "closed" else fake.url
        done = check("--send", DISCORD_WEBHOOK_URL=url)
    assert (done.status, says in done.stdout) == (status, True), done.stdout + done.stderr
    assert len(fake.posts) == (reply != "closed")


def test_send_without_a_webhook(check: Callable[..., Checked]) -> None:
    assert check("--send").status == 1


@pytest.mark.parametrize(
    ("arguments", "environment"),
    [((), {"DISCORD_WEBHOOK_URL": f"ftp://h/{TOKEN}"}), (("--sned",), {}), (("--s",), {})],
)
def test_wrong_usage(
    check: Callable[..., Checked], arguments: tuple[str, ...], environment: dict[str, str]
) -> None:
    done = check(*arguments, **environment)
    assert done.status == 2
    assert done.stderr


def test_help_teaches(tmp_path: Path, check: Callable[..., Checked]) -> None:
    done = check("--help")
    assert done.status == 0
    for part in (
        "--send",
        "--json",
        "Exit status: 0",
        "Copy Webhook URL",
        "chmod 600",
        "DISCORD_WEBHOOK_URL=",
    ):
        assert part in done.stdout


def test_without_an_environment_it_says_what_to_do(tmp_path: Path) -> None:
    done = make_repo(tmp_path).run("scripts/check_webhook_status.py")
    assert done.returncode == 3
    assert "run scripts/setup" in done.stderr
