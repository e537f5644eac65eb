"""The webhook's token and the model's key are nowhere: a climb is told through every fault, in a process of its own
with all logging on, and every byte that comes of it is searched."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback
from contextlib import ExitStack
from pathlib import Path

import pytest
from pydantic import SecretStr

from hillclimb.agent.machine.config import read_config
from hillclimb.agent.notify.choose import choose_notifier
from hillclimb.agent.notify.discord import DiscordNotifier
from hillclimb.agent.notify.post import Post
from hillclimb.agent.notify.webhook import WebhookClient
from hillclimb.harness.errors import UsageError
from tests.fakes.discord_server import ID, REPLIES, FakeDiscord, closed_port, url_at

ROOT = Path(__file__).resolve().parents[3]
TOKEN, KEY = "canary-token-0123456789abcdef-canary", "sk-canary-key-0123456789abcdef"

PROGRAM = """
import faulthandler, http.client, logging, os, sys, threading, time
from dataclasses import replace
from pathlib import Path

faulthandler.enable()
logging.basicConfig(level=logging.DEBUG, filename="debug.log")
logging.getLogger().addHandler(logging.StreamHandler(sys.stdout))
http.client.HTTPConnection.debuglevel = 1

from hillclimb.agent.machine.config import read_config
from hillclimb.agent.notify.discord import DiscordNotifier
from hillclimb.agent.notify.limits import NotifyLimits
from tests.agent.notify import recorded_posts

QUICK = NotifyLimits(
    first_retry_seconds=0.02, max_retry_seconds=0.1, picture_wait_seconds=0.0, request_timeout_seconds=0.3
)


def tell(folder):
    config = read_config(folder, os.environ)
    print(config, config.notices)
    notifier = DiscordNotifier(config.webhook_url, limits=QUICK, secrets=config.secrets)
    leak = " ".join(secret.get_secret_value() for secret in config.secrets)
    events = [recorded_posts.opened(folder), recorded_posts.baselined(), recorded_posts.trouble(f"no route to {leak}")]
    for n in range(1, 7):
        events += [recorded_posts.proposed(n, f"idea with {leak}", leak), recorded_posts.judged(n, wins=n)]
    events += [recorded_posts.turned("near_ties", reason=leak), recorded_posts.finished(reason=f"ended over {leak}")]
    for event in events:
        notifier.notify(event)
        time.sleep(0.02)
    print(repr(notifier), vars(notifier), notifier.webhook(1, True), file=sys.stderr)
    notifier.close(1.0)
    with open(folder / "outcomes.jsonl", "w") as lines:
        for n, webhook in notifier.outcomes():
            print(n, webhook.model_dump_json(), file=lines)


threads = [threading.Thread(target=tell, args=(Path(name).resolve(),)) for name in sys.argv[1:]]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(threading.enumerate())
"""


def search(text: str | bytes, where: str) -> None:
    found = text.encode(errors="surrogateescape") if isinstance(text, str) else text
    for canary in (TOKEN, KEY):
        assert canary.encode() not in found, f"{canary} in {where}"


def search_folder(folder: Path) -> int:
    files = [path for path in folder.rglob("*") if path.is_file() and path.name != ".env"]
    for path in files:
        search(path.read_bytes(), str(path))
    return len(files)


def configure(folder: Path, url: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / ".env").write_text(f"DISCORD_WEBHOOK_URL={url}\nOPENAI_API_KEY={KEY}\n")


def run(folder: Path, program: str, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-X", "dev", "-W", "error::ResourceWarning", "-c", program, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, timeout=60)


SCRIPTS = {
    "taken": ("204", "slow", "cut", "hang"),
    "failing": ("500", "502", "html", "drip"),
    "limited": ("429", "429-text", "429-bare", "200"),
    "odd": ("garbage", "redirect", "400", "413"),
    "long": ("endless", "drip-body", "401"),
    "403": ("403",),
    "404": ("404",),
    "404-html": ("404-html",),
    "400-gone": ("400-gone",),
}


def test_every_behaviour_is_tried() -> None:
    assert {name for script in SCRIPTS.values() for name in script} == set(REPLIES)


def test_no_byte_holds_a_secret(tmp_path: Path) -> None:
    with ExitStack() as stack:
        fakes = {}
        for name, script in SCRIPTS.items():
            fake = FakeDiscord([REPLIES[each] for each in script], token=TOKEN)
            fakes[name] = stack.enter_context(fake)
            configure(tmp_path / name, fake.url)
        configure(tmp_path / "closed", url_at(closed_port(), TOKEN))
        done = run(tmp_path, PROGRAM, *fakes, "closed")
    assert done.returncode == 0, done.stderr.decode()
    search(done.stdout + done.stderr, "what it printed")
    assert done.stdout.count(b"SecretStr('**********')") >= 2 * len(fakes), "the configurations were printed"
    assert search_folder(tmp_path) == len(fakes) + 2
    for name in (*fakes, "closed"):
        assert len((tmp_path / name / "outcomes.jsonl").read_text().splitlines()) == 6, name
    for name, fake in fakes.items():
        assert fake.posts, name
        for posted in fake.posts:
            search(posted.raw, f"a post of {name}")
    assert any("[hidden" in post.text.replace("\\", "") for fake in fakes.values() for post in fake.posts)


def test_the_search_finds_what_is_there(tmp_path: Path) -> None:
    """The same program without the notifier's care: logging of an HTTP library alone gives the token away."""
    careless = """
import logging, os, sys, requests
from pathlib import Path
logging.basicConfig(level=logging.DEBUG, filename="debug.log")
from hillclimb.agent.machine.config import read_config
requests.post(read_config(Path.cwd(), os.environ).webhook_url.get_secret_value(), json={}, timeout=5)
"""
    with FakeDiscord(token=TOKEN) as fake:
        configure(tmp_path, fake.url)
        assert run(tmp_path, careless).returncode == 0
    with pytest.raises(AssertionError, match="canary-token"):
        search_folder(tmp_path)


def test_an_exception_in_the_thread_tells_its_type_only(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    from tests.agent.notify import recorded_posts

    def fail(self: WebhookClient, post: Post, seconds: float) -> None:
        raise KeyError(self._url.get_secret_value())

    monkeypatch.setattr(WebhookClient, "deliver", fail)
    notifier = DiscordNotifier(SecretStr(f"http://127.0.0.1:1/api/webhooks/{ID}/{TOKEN}"))
    with caplog.at_level(logging.DEBUG):
        notifier.notify(recorded_posts.judged(1))
        notifier.close(2.0)
    printed = capfd.readouterr()
    search(printed.out + printed.err + caplog.text, "what it printed")
    ((n, webhook),) = notifier.outcomes()
    assert (n, webhook.webhook_status) == (1, "no reply to the request: the notifier failed: KeyError")


@pytest.mark.parametrize(
    "bad",
    [f"ftp://x/{TOKEN}", f"https://{TOKEN}:x@h/", f"https://h:{TOKEN}", TOKEN, f"https://h/{TOKEN}\x07"],
)
def test_errors_about_the_configuration_show_nothing(tmp_path: Path, bad: str) -> None:
    with pytest.raises(UsageError) as caught:
        choose_notifier(read_config(tmp_path, {"DISCORD_WEBHOOK_URL": bad}).webhook_url)
    search("".join(traceback.format_exception(caught.value)), "the traceback")
    seen: BaseException | None = caught.value
    while seen is not None:
        search(f"{seen!r}", "a chained exception")
        seen = seen.__cause__ or seen.__context__
