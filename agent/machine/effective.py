"""Every setting in force on this machine, with where it comes from; a secret's value is never among them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hillclimb.agent.machine.config import (
    BASE_URL,
    ENVIRONMENT,
    FILE,
    KEY,
    MODEL,
    WEBHOOK,
    Config,
)
from hillclimb.harness.records import Record

ENVIRONMENT_ONLY = ("HILLCLIMB_RUN_TAG", "HILLCLIMB_GPU")
"""Variables that no file sets."""


class EffectiveSetting(Record):
    """One setting."""

    name: str
    value: str | None
    """None where it is not set, and for a secret."""
    is_set: bool
    is_secret: bool = False
    source: str
    """default, user config, .env, environment or flag."""
    file: str = ""
    """The file it stands in; empty elsewhere."""


def effective_settings(
    config: Config, environment: Mapping[str, str], flags: Mapping[str, str | None]
) -> list[EffectiveSetting]:
    """What a command would go by that is given these flags, by the names of their variables."""
    values = {BASE_URL: config.base_url, MODEL: config.model}
    found = [_of_file(config, KEY, None, is_set=config.api_key is not None, is_secret=True)]
    for name, value in values.items():
        flag = flags.get(name)
        found.append(_flag(name, flag) if flag else _of_file(config, name, value, is_set=value is not None))
    webhook = next((name for name in WEBHOOK if name in config.origins), WEBHOOK[0])
    found.append(_of_file(config, webhook, None, is_set=config.webhook_url is not None, is_secret=True))
    for name in ENVIRONMENT_ONLY:
        flag, value = flags.get(name), environment.get(name) or None
        source = ENVIRONMENT if value else "default"
        setting = EffectiveSetting(name=name, value=value, is_set=value is not None, source=source)
        found.append(_flag(name, flag) if flag else setting)
    return found


def show_settings(settings: list[EffectiveSetting]) -> str:
    """One setting a line: name, value, source."""
    rows = [
        (one.name, _shown(one), f"{one.source} ({one.file})" if one.file else one.source) for one in settings
    ]
    widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
    return "\n".join(f"{name:<{widths[0]}}  {value:<{widths[1]}}  {source}" for name, value, source in rows)


def _shown(setting: EffectiveSetting) -> str:
    if not setting.is_set:
        return "(not set)"
    return "(set, not shown)" if setting.is_secret else setting.value or ""


def _flag(name: str, value: str) -> EffectiveSetting:
    return EffectiveSetting(name=name, value=value, is_set=True, source="flag")


def _of_file(
    config: Config, name: str, value: str | None, *, is_set: bool, is_secret: bool = False
) -> EffectiveSetting:
    origin = config.origins.get(name, "default")
    is_file = origin not in (ENVIRONMENT, "default")
    source = origin
    if is_file:
        source = FILE if Path(origin).name == FILE else "user config"
    return EffectiveSetting(
        name=name,
        value=value,
        is_set=is_set,
        is_secret=is_secret,
        source=source,
        file=origin if is_file else "",
    )
