"""The configuration: two sources, one answer, and no secret in anything said about it."""

from __future__ import annotations

import logging
import os
import traceback
from pathlib import Path

import pytest
from dotenv import dotenv_values
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.machine.config import ENVIRONMENT, NAMES, OPENAI, Config, read_config
from hillclimb.harness.errors import UsageError

ROOT = Path(__file__).resolve().parents[3]
CANARY = "canary-0123456789-canary"
HOOK = f"https://discord.com/api/webhooks/123456789012345678/{CANARY}"


def write(root: Path, text: str, mode: int = 0o600) -> Path:
    file = root / ".env"
    file.write_text(text)
    file.chmod(mode)
    return file


def hook(config: Config) -> str:
    return config.webhook_url.get_secret_value() if config.webhook_url else ""


def key(config: Config) -> str:
    return config.api_key.get_secret_value() if config.api_key else ""


def test_nothing_configured(tmp_path: Path) -> None:
    assert read_config(tmp_path, {}) == Config(base_url=OPENAI)


def test_the_file_is_read(tmp_path: Path) -> None:
    file = write(
        tmp_path,
        f"OPENAI_API_KEY=sk-1\nexport HILLCLIMB_MODEL='m-1'\nDISCORD_WEBHOOK_URL=\"{HOOK}\" # mine\n",
    )
    config = read_config(tmp_path, {})
    assert (key(config), config.model, hook(config)) == ("sk-1", "m-1", HOOK)
    assert config.origins == dict.fromkeys(
        ("OPENAI_API_KEY", "HILLCLIMB_MODEL", "DISCORD_WEBHOOK_URL"), str(file)
    )
    assert config.notices == ()


def test_the_environment_goes_first(tmp_path: Path) -> None:
    write(tmp_path, f"OPENAI_API_KEY=sk-file\nHILLCLIMB_WEBHOOK_URL={HOOK}/file\n")
    config = read_config(tmp_path, {"OPENAI_API_KEY": "sk-env", "DISCORD_WEBHOOK_URL": f"{HOOK}/env"})
    assert (key(config), hook(config)) == ("sk-env", f"{HOOK}/env")
    assert set(config.origins.values()) == {ENVIRONMENT}


def test_the_own_variable_goes_before_the_shared_one(tmp_path: Path) -> None:
    environment = {"DISCORD_WEBHOOK_URL": HOOK, "HILLCLIMB_WEBHOOK_URL": f"{HOOK}/own"}
    assert hook(read_config(tmp_path, environment)) == f"{HOOK}/own"


@pytest.mark.parametrize("empty", ["", "  ", "''"])
def test_an_empty_value_counts_as_not_set(tmp_path: Path, empty: str) -> None:
    write(tmp_path, f"OPENAI_API_KEY=sk-file\nHILLCLIMB_MODEL={empty}\n")
    config = read_config(tmp_path, {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": " "})
    assert (key(config), config.model, config.base_url) == ("sk-file", None, OPENAI)


def test_nothing_is_expanded(tmp_path: Path) -> None:
    write(tmp_path, "OPENAI_API_KEY=a${HOME}b$(id)\n")
    assert key(read_config(tmp_path, {})) == "a${HOME}b$(id)"


def test_a_base_url_loses_its_last_slash(tmp_path: Path) -> None:
    assert (
        read_config(tmp_path, {"OPENAI_BASE_URL": "http://127.0.0.1:8000/v1/"}).base_url
        == "http://127.0.0.1:8000/v1"
    )


BAD_VALUES = [
    ("DISCORD_WEBHOOK_URL", f"ftp://discord.com/{CANARY}", "https://"),
    ("DISCORD_WEBHOOK_URL", CANARY, "https://"),
    ("HILLCLIMB_WEBHOOK_URL", f"https:///{CANARY}", "no host"),
    ("HILLCLIMB_WEBHOOK_URL", f"https://me:{CANARY}@discord.com/", "password"),
    ("HILLCLIMB_WEBHOOK_URL", f"https://discord.com:{CANARY}/", "not an address"),
    ("HILLCLIMB_WEBHOOK_URL", f"https://[{CANARY}/", "not an address"),
    ("OPENAI_BASE_URL", f"{CANARY}", "https://"),
    ("OPENAI_BASE_URL", f"https://h/v1?key={CANARY}", "query"),
    ("OPENAI_API_KEY", f"{CANARY}\u00e9", "non-ASCII"),
    ("OPENAI_API_KEY", f"{CANARY}\n{CANARY}", "control"),
    ("OPENAI_API_KEY", f"{CANARY} {CANARY}", "blank"),
]


@pytest.mark.parametrize(("name", "value", "says"), BAD_VALUES)
@pytest.mark.parametrize("where", ["file", "environment"])
def test_a_bad_value_is_named_and_not_shown(
    tmp_path: Path, name: str, value: str, says: str, where: str
) -> None:
    if where == "file":
        write(tmp_path, f'{name}="{value}"\n')
    with pytest.raises(UsageError) as caught:
        read_config(tmp_path, {name: value} if where == "environment" else {})
    assert name in str(caught.value)
    assert says in str(caught.value)
    assert (str(tmp_path / ".env") if where == "file" else ENVIRONMENT) in str(caught.value)
    assert CANARY not in "".join(traceback.format_exception(caught.value))
    assert caught.value.__context__ is None or CANARY not in str(caught.value.__context__)


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"\xff\xfe" + CANARY.encode(), "UTF-8"), (b"A=\0" + CANARY.encode(), "text"), (b"A" * 70000, "65536")],
)
def test_a_file_that_is_no_text(tmp_path: Path, content: bytes, says: str) -> None:
    (tmp_path / ".env").write_bytes(content)
    with pytest.raises(UsageError, match=says) as caught:
        read_config(tmp_path, {})
    assert CANARY not in str(caught.value)


def test_a_folder_in_its_place(tmp_path: Path) -> None:
    (tmp_path / ".env").mkdir()
    with pytest.raises(UsageError, match="not a file"):
        read_config(tmp_path, {})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file(tmp_path: Path) -> None:
    write(tmp_path, "A=b", 0o000)
    with pytest.raises(UsageError, match="cannot be read"):
        read_config(tmp_path, {})


def test_a_file_that_the_system_refuses(tmp_path: Path) -> None:
    (tmp_path / ".env").symlink_to(".env")
    with pytest.raises(UsageError, match="cannot be read"):
        read_config(tmp_path, {})


def test_a_file_that_everybody_can_read_is_noticed(tmp_path: Path) -> None:
    write(tmp_path, "OPENAI_API_KEY=sk-1\n", 0o644)
    config = read_config(tmp_path, {})
    assert key(config) == "sk-1"
    assert [notice for notice in config.notices if "chmod 600" in notice]


def test_a_misspelt_name_and_a_broken_line_are_noticed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, f"DISCORD_WEBHOK_URL={CANARY}\n{CANARY}\n'{CANARY} = =\nSOMETHING_ELSE={CANARY}\n")
    with caplog.at_level(logging.DEBUG):
        notices = read_config(tmp_path, {}).notices
    assert any("DISCORD_WEBHOK_URL" in notice and "DISCORD_WEBHOOK_URL" in notice for notice in notices)
    assert any("line 3 cannot be read" in notice for notice in notices)
    assert CANARY not in "".join(notices)
    assert not caplog.records


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "[::1]"])
def test_http_on_this_machine_is_fine(tmp_path: Path, host: str) -> None:
    assert read_config(tmp_path, {"DISCORD_WEBHOOK_URL": f"http://{host}:8000/x"}).notices == ()


def test_http_to_another_machine_is_noticed(tmp_path: Path) -> None:
    url = f"http://example.org/api/webhooks/1/{CANARY}"
    notices = read_config(tmp_path, {"DISCORD_WEBHOOK_URL": url}).notices
    assert len(notices) == 1
    assert CANARY not in notices[0]


def test_an_address_that_is_no_webhook_is_noticed(tmp_path: Path) -> None:
    (notice,) = read_config(tmp_path, {"DISCORD_WEBHOOK_URL": f"https://example.org/{CANARY}"}).notices
    assert "does not look like a webhook" in notice and CANARY not in notice


def test_a_repr_shows_no_secret(tmp_path: Path) -> None:
    config = read_config(tmp_path, {"OPENAI_API_KEY": CANARY, "DISCORD_WEBHOOK_URL": HOOK})
    assert CANARY not in f"{config!r} {config} {config.secrets}"
    assert len(config.secrets) == 2


def test_the_example_names_everything_and_sets_nothing() -> None:
    found = dotenv_values(ROOT / ".env.example", interpolate=False)
    assert set(found) == set(NAMES)
    assert not any(found.values())


@given(st.text(max_size=200))
def test_any_text_gives_a_configuration_or_a_usage_error(text: str) -> None:
    from hillclimb.agent.machine.config import _parse

    values, notices = _parse(Path("x"), text)
    assert all(values.values())
    assert all(isinstance(notice, str) for notice in notices)
