"""What this machine says: keys, addresses and names from the environment, `.env` and the user's own file.

The environment goes first, the user's file last. A secret's value is in no message, notice or repr made here.
"""

from __future__ import annotations

import difflib
import logging
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from io import StringIO
from ipaddress import ip_address
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

from pydantic import SecretStr

from hillclimb.harness.errors import UsageError

OPENAI = "https://api.openai.com/v1"
FILE = ".env"
USER_FILE = Path("hillclimb", "config.env")
"""Below XDG_CONFIG_HOME, else below ~/.config; the same lines as in `.env`, for all repositories of a user."""
ENVIRONMENT = "environment"
WEBHOOK = ("HILLCLIMB_WEBHOOK_URL", "DISCORD_WEBHOOK_URL")
"""The first that is set counts; the environment goes before `.env`."""
KEY, BASE_URL, MODEL = "OPENAI_API_KEY", "OPENAI_BASE_URL", "HILLCLIMB_MODEL"
NAMES = (KEY, BASE_URL, MODEL, *WEBHOOK)
_MAX_FILE_BYTES = 65536
_WORLD_READABLE = 0o004
_MIN_NAME_SIMILARITY = 0.87


@dataclass(frozen=True)
class Config:
    """What is configured on this machine. A case and the command line go before it."""

    api_key: SecretStr | None = None
    """OPENAI_API_KEY."""
    base_url: str = OPENAI
    """OPENAI_BASE_URL."""
    model: str | None = None
    """HILLCLIMB_MODEL."""
    webhook_url: SecretStr | None = None
    """HILLCLIMB_WEBHOOK_URL, else DISCORD_WEBHOOK_URL."""
    origins: Mapping[str, str] = field(default_factory=dict)
    """Each variable that counts -> `environment`, or the path of the file."""
    notices: tuple[str, ...] = ()
    """What a person should know, and need not mend at once."""

    @property
    def secrets(self) -> tuple[SecretStr, ...]:
        """All that must not be seen."""
        return tuple(secret for secret in (self.api_key, self.webhook_url) if secret is not None)


@dataclass(frozen=True)
class _Setting:
    """One value, and where it stands."""

    name: str
    value: SecretStr
    origin: str

    @property
    def place(self) -> str:
        return f"{self.name} ({self.origin})"


def read_config(root: Path | None, environment: Mapping[str, str]) -> Config:
    """The configuration in the environment, `root/.env` and the user's file; an empty value counts as not set.

    Raises UsageError for a file that cannot be read and a value that cannot be meant.
    """
    notices: list[str] = []
    complaints: list[str] = []
    sources: list[tuple[str, Mapping[str, str]]] = [(ENVIRONMENT, environment)]
    for file in (root / FILE if root else None, user_file(environment)):
        if file is None:
            continue
        text, of_mode = _read(file)
        values, of_lines = _parse(file, text)
        notices += of_mode
        complaints += of_lines
        sources.append((str(file), values))
    key, base_url, model, webhook = (
        _find(names, sources) for names in ((KEY,), (BASE_URL,), (MODEL,), WEBHOOK)
    )
    settings = [setting for setting in (key, base_url, model, webhook) if setting]
    for setting in settings:
        _check_characters(setting)
    for address in (base_url, webhook):
        if address:
            notices += _check_url(address)
    return Config(
        api_key=key.value if key else None,
        base_url=_plain(base_url).rstrip("/") if base_url else OPENAI,
        model=_plain(model) if model else None,
        webhook_url=webhook.value if webhook else None,
        origins={setting.name: setting.origin for setting in settings},
        notices=(*notices, *complaints),
    )


def user_file(environment: Mapping[str, str]) -> Path | None:
    """The user's own file, whether it is there or not; None where the environment names no home."""
    folder, home = environment.get("XDG_CONFIG_HOME", ""), environment.get("HOME", "")
    if folder.startswith("/"):
        return Path(folder) / USER_FILE
    return Path(home) / ".config" / USER_FILE if home.startswith("/") else None


def _read(file: Path) -> tuple[str, list[str]]:
    """The file's text, empty where there is none, and what is to be said of its mode."""
    try:
        mode = file.stat().st_mode
        if not stat.S_ISREG(mode):
            raise UsageError(
                f"{file}: not a file; put lines NAME=value into a file of that name, or remove it"
            )
        with file.open("rb") as stream:
            content = stream.read(_MAX_FILE_BYTES + 1)
    except (FileNotFoundError, NotADirectoryError):
        return "", []
    except OSError as error:
        raise UsageError(
            f"{file}: cannot be read ({error.strerror}); mend its permissions or remove it"
        ) from None
    text = content.decode("utf-8-sig", errors="replace")
    if len(content) > _MAX_FILE_BYTES or "\ufffd" in text or "\0" in text:
        raise UsageError(
            f"{file}: not a text file of at most {_MAX_FILE_BYTES} bytes in UTF-8; see .env.example"
        )
    if mode & _WORLD_READABLE:
        return text, [f"{file}: every user of this machine can read it; run 'chmod 600 {file}'"]
    return text, []


class _ParserWarnings(logging.Filter):
    """Collects the lines that the parser could not read, which it would log otherwise."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[object] = []

    def filter(self, record: logging.LogRecord) -> bool:
        self.lines += record.args if isinstance(record.args, tuple) else ()
        return False


def _parse(file: Path, text: str) -> tuple[dict[str, str], list[str]]:
    """The values, and notices about lines that say nothing. An unknown name is not shown: it may be a secret."""
    from dotenv import dotenv_values

    complaints, logger = _ParserWarnings(), logging.getLogger("dotenv.main")
    logger.addFilter(complaints)
    try:
        found = dotenv_values(stream=StringIO(text), interpolate=False)
    finally:
        logger.removeFilter(complaints)
    notices = [f"{file}: line {line} cannot be read; write NAME=value" for line in complaints.lines]
    for name in found:
        nearest = difflib.get_close_matches(name, NAMES, n=1, cutoff=_MIN_NAME_SIMILARITY)
        if nearest and name not in NAMES:
            notices.append(f"{file}: {name} is not known here; did you mean {nearest[0]}?")
    return {name: value for name, value in found.items() if value}, notices


def _find(names: tuple[str, ...], sources: Sequence[tuple[str, Mapping[str, str]]]) -> _Setting | None:
    """The first of the names that has a value in the first of the sources."""
    for origin, values in sources:
        for name in names:
            value = values.get(name, "").strip()
            if value:
                return _Setting(name, SecretStr(value), origin)
    return None


def _plain(setting: _Setting) -> str:
    return setting.value.get_secret_value()


def _check_characters(setting: _Setting) -> None:
    """Raises UsageError for what would break a request, and would then be quoted by whoever it breaks."""
    value = _plain(setting)
    if not (value.isascii() and value.isprintable() and " " not in value):
        raise UsageError(f"{setting.place}: holds a blank, a control or a non-ASCII character; copy it anew")


def _check_url(setting: _Setting) -> list[str]:
    """Notices about an address. Raises UsageError for one that cannot be meant; the value is not shown."""
    parts = _split(setting)
    if parts.scheme not in ("http", "https"):
        raise UsageError(
            f"{setting.place}: must begin with https:// (or http:// on this machine); copy it anew"
        )
    if not parts.hostname:
        raise UsageError(f"{setting.place}: names no host; copy it anew")
    if parts.username is not None or parts.password is not None:
        raise UsageError(f"{setting.place}: holds a user name or password before the host; take it out")
    if setting.name == BASE_URL and (parts.query or parts.fragment):
        raise UsageError(f"{setting.place}: ends in a query or fragment; take it out")
    if is_local(parts.hostname):
        return []
    notices = []
    if parts.scheme == "http":
        notices.append(
            f"{setting.place}: http:// to another machine; everybody on the way can read it; use https://"
        )
    if setting.name in WEBHOOK and "/webhooks/" not in parts.path:
        notices.append(
            f"{setting.place}: does not look like a webhook (.../api/webhooks/<id>/<token>); copy it anew"
        )
    return notices


def _split(setting: _Setting) -> SplitResult:
    try:
        parts = urlsplit(_plain(setting))
        sound = parts.port is None or parts.port > 0
    except ValueError:  # what it says quotes the value
        sound = False
    if not sound:
        raise UsageError(f"{setting.place}: is not an address; copy it anew")
    return parts


def is_local(host: str) -> bool:
    """Whether a host, in lower case, is this machine."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
