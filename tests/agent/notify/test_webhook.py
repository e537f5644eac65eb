"""One request against every way in which the other side may behave, on loopback."""

from __future__ import annotations

import logging
import shutil
import socket
import subprocess
import threading
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest
from pydantic import SecretStr

from hillclimb.agent.notify.post import Post
from hillclimb.agent.notify.response import WebhookResponse
from hillclimb.agent.notify.webhook import WebhookClient
from tests.agent.notify.recorded_posts import PNG
from tests.fakes.discord_server import REPLIES, TOKEN, FakeDiscord, Reply, closed_port, limited, url_at

POST = Post(
    kind="win", time=1000.0, title="a win", line="a win", text="an idea", fields=(("By", "llm"),), n=1
)

KINDS = {
    "204": "sent",
    "200": "sent",
    "slow": "sent",
    "cut": "sent",
    "endless": "sent",
    "drip-body": "sent",
    "400": "refused",
    "413": "refused",
    "400-gone": "gone",
    "401": "gone",
    "403": "gone",
    "404": "gone",
    "404-html": "gone",
    "429": "limited",
    "429-text": "limited",
    "429-bare": "limited",
    "500": "failed",
    "502": "failed",
    "html": "failed",
    "redirect": "failed",
    "garbage": "failed",
    "hang": "failed",
    "drip": "failed",
}


def deliver(reply: Reply, post: Post = POST, seconds: float = 5.0) -> tuple[WebhookResponse, FakeDiscord]:
    with FakeDiscord(answer=reply) as fake:
        return WebhookClient(SecretStr(fake.url)).deliver(post, seconds), fake


@pytest.mark.parametrize("name", sorted(REPLIES))
def test_every_reply_is_survived_within_the_deadline_and_asked_for_once(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    seconds = 0.6 if REPLIES[name].wait <= 1 else 0.3
    seconds = 0.3 if REPLIES[name].drip else seconds
    began = time.monotonic()
    with caplog.at_level(logging.DEBUG):
        answer, fake = deliver(REPLIES[name], seconds=seconds)
    assert answer.kind == KINDS[name], answer
    assert time.monotonic() - began < seconds + 5.0
    assert len(fake.posts) == 1
    assert TOKEN not in f"{answer}{caplog.text}"


def test_a_closed_port() -> None:
    answer = WebhookClient(SecretStr(url_at(closed_port()))).deliver(POST, 5.0)
    assert answer == WebhookResponse("failed", "no connection: ConnectionRefusedError")


def test_a_name_that_is_not_known() -> None:
    answer = WebhookClient(SecretStr(f"http://nowhere.invalid/{TOKEN}")).deliver(POST, 5.0)
    assert answer.kind == "failed"
    assert TOKEN not in answer.reason


@pytest.mark.parametrize(
    "url", ["http://[", "http://\udc80/x", "nonsense", "http://a b/", f"http://h:99999/{TOKEN}"]
)
def test_an_address_that_is_none(url: str) -> None:
    answer = WebhookClient(SecretStr(url)).deliver(POST, 5.0)
    assert answer.kind == "failed"
    assert TOKEN not in answer.reason


def test_a_reply_that_starts_and_drips_ends_at_the_deadline_with_its_status() -> None:
    began = time.monotonic()
    answer, _ = deliver(REPLIES["drip-body"], seconds=1.5)
    assert answer.kind == "sent"
    assert time.monotonic() - began < 15


def test_another_thread_can_end_it() -> None:
    with FakeDiscord(answer=REPLIES["hang"]) as fake:
        courier = WebhookClient(SecretStr(fake.url))
        threading.Timer(0.2, courier.abort).start()
        began = time.monotonic()
        assert courier.deliver(POST, 30.0).reason == "no reply in time"
        assert time.monotonic() - began < 20


def test_the_wait_that_discord_asks_for_is_told() -> None:
    assert deliver(limited(2.5, header=3))[0].pause_seconds == 3.0


def test_what_is_sent() -> None:
    _, fake = deliver(REPLIES["200"])
    (posted,) = fake.posts
    assert set(posted.message) == {"embeds", "allowed_mentions"}
    assert posted.message["allowed_mentions"] == {"parse": []}
    assert posted.path.startswith(f"/api/webhooks/{1234567890123456789}/{TOKEN}?wait=")
    assert (posted.embed["title"], posted.embed["description"]) == ("a win", "an idea")
    assert posted.embed["timestamp"] == "1970-01-01T00:16:40+00:00"
    assert "image" not in posted.embed


def test_the_picture_is_attached(tmp_path: Path) -> None:
    (tmp_path / "progress.png").write_bytes(PNG)
    post = Post(kind="win", time=0.0, title="w", line="w", picture=tmp_path / "progress.png")
    answer, fake = deliver(REPLIES["200"], post)
    (posted,) = fake.posts
    assert answer.kind == "sent"
    assert posted.files == {"progress.png": PNG}
    assert posted.embed["image"] == {"url": "attachment://progress.png"}
    assert posted.message["attachments"][0]["filename"] == "progress.png"
    assert posted.message["allowed_mentions"] == {"parse": []}


def test_a_thread_in_the_address_stays(tmp_path: Path) -> None:
    with FakeDiscord() as fake:
        assert WebhookClient(SecretStr(f"{fake.url}?thread_id=42")).deliver(POST, 5.0).kind == "sent"
    assert "thread_id=42" in fake.posts[0].path


def test_logging_of_other_threads_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("urllib3.connectionpool")

    def log_elsewhere() -> None:
        other = threading.Thread(target=logger.warning, args=("from elsewhere",))
        other.start()
        other.join()

    with FakeDiscord(on_post=lambda posted: log_elsewhere()) as fake, caplog.at_level(logging.DEBUG):
        WebhookClient(SecretStr(fake.url)).deliver(POST, 5.0)
        logger.warning("from here, afterwards")
    assert [record.message for record in caplog.records] == ["from elsewhere", "from here, afterwards"]


def test_http_debugging_prints_no_address(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(HTTPConnection, "debuglevel", 1)
    assert deliver(REPLIES["204"])[0].kind == "sent"
    assert TOKEN not in capsys.readouterr().out


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key and a certificate for 127.0.0.1, in one file."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl here to make a certificate with")
    folder = tmp_path_factory.mktemp("certificate")
    key, made = folder / "key.pem", folder / "certificate.pem"
    command = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=loopback"
    )
    options = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(made)]
    subprocess.run([*command.split(), *options], check=True, capture_output=True)
    made.write_text(key.read_text() + made.read_text())
    return made


def test_https_is_checked_against_the_authorities(certificate: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeDiscord(certificate=certificate) as fake:
        unknown = WebhookClient(SecretStr(fake.url)).deliver(POST, 5.0)
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
        known = WebhookClient(SecretStr(fake.url)).deliver(POST, 5.0)
    assert (unknown.kind, unknown.reason) == ("failed", "no connection: SSLCertVerificationError")
    assert known.kind == "sent"
    assert len(fake.posts) == 1


def test_a_handshake_that_never_comes_ends_at_the_deadline() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = url_at(silent.getsockname()[1]).replace("http:", "https:")
        began = time.monotonic()
        answer = WebhookClient(SecretStr(url)).deliver(POST, 0.3)
        assert time.monotonic() - began < 10
    assert answer == WebhookResponse("failed", "no reply in time")


def test_a_librarys_own_deadline_says_the_same_as_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both are as long; which of them is looked at first is chance."""
    monkeypatch.setattr("threading.Timer.start", lambda self: None)
    with FakeDiscord(answer=REPLIES["hang"]) as fake:
        answer = WebhookClient(SecretStr(fake.url)).deliver(POST, 0.3)
    assert answer == WebhookResponse("failed", "no reply in time")


def test_a_proxy_is_used_and_held_to_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    with FakeDiscord([REPLIES["204"], REPLIES["hang"]]) as fake:
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("http_proxy", fake.url.partition("/api")[0])
        courier = WebhookClient(SecretStr(f"http://discord.invalid/api/webhooks/1/{TOKEN}"))
        assert courier.deliver(POST, 5.0).kind == "sent"
        assert courier.deliver(POST, 2.0).reason == "no reply in time"
    assert fake.posts[0].path.startswith("http://discord.invalid/")
