"""`hillclimb config`."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from hillclimb.agent.commands.options import JsonOption
from hillclimb.harness.errors import UsageError


def config(
    model: Annotated[str | None, typer.Option(help="As for climb.")] = None,
    base_url: Annotated[str | None, typer.Option(help="As for climb.")] = None,
    tag: Annotated[str | None, typer.Option(help="As for climb.")] = None,
    json: JsonOption = False,
) -> None:
    """Show every setting of this machine and where it comes from. Keys and webhooks are never shown.

    A flag goes before the environment, that before `.env` in the repository's root, and that before
    `$XDG_CONFIG_HOME/hillclimb/config.env` (`~/.config/hillclimb/config.env`). What a case says is in its case.yaml.

    Examples:

    - `hillclimb config`

    - `hillclimb config --model gpt-5 --json`
    """
    from hillclimb.agent.git.repository import Repository
    from hillclimb.agent.machine.config import BASE_URL, MODEL, read_config
    from hillclimb.agent.machine.effective import effective_settings, show_settings

    try:
        root = Repository.open(Path.cwd()).root
    except UsageError:
        root = None
    found = read_config(root, os.environ)
    for notice in found.notices:
        print(f"hillclimb: {notice}", file=sys.stderr)
    flags = {MODEL: model, BASE_URL: base_url, "HILLCLIMB_RUN_TAG": tag}
    settings = effective_settings(found, os.environ, flags)
    if json:
        for setting in settings:
            print(setting.model_dump_json())
    else:
        print(show_settings(settings))
