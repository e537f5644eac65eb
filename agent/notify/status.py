"""Says whether a Discord webhook is configured, by what, and whether it works; never the address itself."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pydantic import SecretStr

from hillclimb.agent.machine.config import WEBHOOK, Config, read_config
from hillclimb.agent.notify.choose import choose_notifier
from hillclimb.agent.notify.response import WebhookResponse
from hillclimb.agent.record.entries import WebhookState
from hillclimb.harness.errors import UsageError

READY, NOT_READY, USAGE = 0, 1, 2
_POST_TIMEOUT_SECONDS = 20.0
_ID = re.compile(r"/webhooks/(\d+)(?:/|$)")
_MEANINGS = {
    "webhook_enabled_by_config": "a webhook is configured",
    "webhook_disabled_by_flag": "it was switched off for the call, with --no-webhook",
    "webhook_expected": "a post is due: configured, not switched off, and the candidate was kept",
    "webhook_attempted": "at least one request was sent",
    "webhook_sent": "Discord took it",
    "webhook_status": "in words",
}
_HELP = """\
Reads .env in the repository's root and the environment as 'hillclimb climb' does, and says what is configured for
posts to Discord: the host and a masked id, never the token.

  check_webhook_status.py                 what is configured, and what the next record would say
  check_webhook_status.py --send          one real post, and what came back
  check_webhook_status.py --json          the same for programs

Exit status: 0 configured (with --send: and Discord took the post), 1 not configured or the post was not taken,
2 wrong usage or a configuration that cannot be meant.

To configure one: in Discord, a channel's settings, Integrations, Webhooks, New Webhook, Copy Webhook URL; then put
  DISCORD_WEBHOOK_URL=<the URL>
into .env (see .env.example) and run 'chmod 600 .env'. HILLCLIMB_WEBHOOK_URL goes before it, the environment before
.env."""


@dataclass(frozen=True)
class WebhookStatus:
    """What there is to say; no secret in it."""

    configured: bool
    root: str
    variable: str
    """The one that counts; empty where none is set."""
    origin: str
    """`environment` or the file's path; empty where none is set."""
    webhook: str
    """Host and masked id."""
    fields: dict[str, object]
    """What the record of a win would say at first."""
    notices: tuple[str, ...]
    sent: str = ""
    """What came of --send; empty without it."""


def mask(url: SecretStr) -> str:
    """Where a webhook is, and which, without what it takes to post there: `discord.com, webhook 1234...89`."""
    parts = urlsplit(url.get_secret_value())
    host = f"{parts.hostname}:{parts.port}" if parts.port else f"{parts.hostname}"
    found = _ID.search(parts.path)
    number = found[1] if found else ""
    shown = f"{number[:4]}...{number[-2:]}" if len(number) >= 12 else "id not shown"
    return f"{host}, webhook {shown}"


def describe(config: Config, root: Path) -> WebhookStatus:
    """The state of the configuration."""
    variable = next((name for name in WEBHOOK if name in config.origins), "")
    return WebhookStatus(
        configured=config.webhook_url is not None,
        root=str(root),
        variable=variable,
        origin=config.origins.get(variable, ""),
        webhook=mask(config.webhook_url) if config.webhook_url else "",
        fields=_first_record(config.webhook_url).model_dump(),
        notices=config.notices,
    )


def _first_record(url: SecretStr | None) -> WebhookState:
    notifier = choose_notifier(url)
    try:
        return notifier.webhook(1, kept=True)
    finally:
        notifier.close(0.0)


def try_post(url: SecretStr, seconds: float = _POST_TIMEOUT_SECONDS) -> WebhookResponse:
    """One real post."""
    from hillclimb.agent.notify.post import Post
    from hillclimb.agent.notify.webhook import WebhookClient

    text = "Starts, wins, plateaus, failures and the morning digest of climbs will be posted here."
    post = Post(
        kind="start", time=time.time(), title="hillclimb: this webhook works", line="a test", text=text
    )
    return WebhookClient(url).deliver(post, seconds)


def show(status: WebhookStatus) -> str:
    """For a person."""
    if not status.configured:
        looked = f"{' or '.join(WEBHOOK)}, in the environment or {status.root}/.env"
        lines = [f"no webhook is configured: set {looked} ('--help' says how)"]
    else:
        lines = [f"webhook: {status.webhook}", f"set by: {status.variable} ({status.origin})"]
    lines += [f"notice: {notice}" for notice in status.notices]
    lines.append("a win's record would say at first:")
    lines += [f"  {name}: {json.dumps(value)}  ({_MEANINGS[name]})" for name, value in status.fields.items()]
    if status.sent:
        lines.append(f"test post: {status.sent}")
    return "\n".join(lines)


def find_root(start: Path, fallback: Path) -> Path:
    """The repository that `start` lies in, else the fallback."""
    return next((folder for folder in (start, *start.parents) if (folder / ".git").exists()), fallback)


def main(arguments: list[str], environment: Mapping[str, str], fallback: Path) -> int:
    """Run it; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="check_webhook_status.py",
        description=_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--send", action="store_true", help="try one real post and say what came back")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument(
        "--root", type=Path, metavar="DIR", help="the repository (default: that of this folder)"
    )
    wanted = parser.parse_args(arguments)
    root = (wanted.root or find_root(Path.cwd(), fallback)).resolve()
    try:
        config = read_config(root, environment)
    except UsageError as error:
        print(f"check_webhook_status.py: {error}", file=sys.stderr)
        return USAGE
    return _report(config, describe(config, root), send=wanted.send, as_json=wanted.json)


def _report(config: Config, status: WebhookStatus, *, send: bool, as_json: bool) -> int:
    taken = status.configured
    if send and config.webhook_url is not None:
        answer = try_post(config.webhook_url)
        taken = answer.kind == "sent"
        said = f"taken ({answer.reason})" if taken else f"not taken: {answer.reason}"
        status = WebhookStatus(**{**asdict(status), "sent": said})
    print(json.dumps(asdict(status)) if as_json else show(status))
    return READY if taken else NOT_READY


if __name__ == "__main__":
    sys.exit(main(sys.argv[2:], os.environ, Path(sys.argv[1])))
