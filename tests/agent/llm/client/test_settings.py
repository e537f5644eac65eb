"""Settings that cannot be, and what they show."""

from __future__ import annotations

import pytest
from pydantic import SecretStr

from hillclimb.agent.llm.client.settings import ModelSettings
from hillclimb.harness.errors import UsageError
from tests.agent.llm.client.calling import CANARY, settings


@pytest.mark.parametrize(
    "url", ["", "host/v1", "ftp://host", "http://", "http://h:99999/v1", "http://a b/", "http://["]
)
def test_a_base_url_that_is_none(url: str) -> None:
    with pytest.raises(UsageError, match="OPENAI_BASE_URL"):
        settings(url)


@pytest.mark.parametrize("url", ["https://u:sesame1234@host/v1?key=x", "https://u:sesame1234@host/v1#x"])
def test_a_base_url_that_goes_on(url: str) -> None:
    with pytest.raises(UsageError, match="https://host/v1 goes on") as caught:
        settings(url)
    assert "sesame" not in str(caught.value)


@pytest.mark.parametrize("key", ["sk-1234\n", "sk 1234", "sk-‘1234’", "\tsk-1234"])
def test_a_key_that_is_none(key: str) -> None:
    with pytest.raises(UsageError, match="OPENAI_API_KEY") as caught:
        settings("http://host/v1", api_key=SecretStr(key))
    assert "1234" not in str(caught.value)


def test_a_model_without_a_name() -> None:
    with pytest.raises(UsageError, match="HILLCLIMB_MODEL"):
        settings("http://host/v1", model=" ")


def test_settings_show_no_secret() -> None:
    shown: ModelSettings = settings("https://ada:sesame@host:8443/v1")
    assert CANARY not in repr(shown) and "sesame" not in repr(shown)
    assert shown.address == "https://host:8443/v1" and shown.login == ("ada", "sesame")


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1/v1", True),
        ("http://127.0.1.1/v1", True),
        ("http://[::1]:8/v1", True),
        ("http://localhost.example.com/v1", False),
        ("http://127.example.com/v1", False),
    ],
)
def test_whether_the_server_is_this_machine(url: str, local: bool) -> None:
    assert settings(url).is_local == local
