"""The whole notifier: it delays nothing, ends in time, and tells what a reader needs."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import SecretStr

from hillclimb.agent.notify.choose import choose_notifier
from hillclimb.agent.notify.discord import DiscordNotifier
from hillclimb.agent.notify.limits import NotifyLimits
from hillclimb.agent.notify.notifier import Notifier, SilentNotifier
from hillclimb.agent.record.entries import WebhookState
from tests.agent.notify import recorded_posts
from tests.agent.notify.recorded_posts import PNG
from tests.fakes.discord_server import REPLIES, FakeDiscord, Reply, closed_port, limited, url_at

QUICK = NotifyLimits(
    first_retry_seconds=0.02,
    max_retry_seconds=0.1,
    outage_seconds=30.0,
    picture_wait_seconds=0.0,
    request_timeout_seconds=5.0,
)


@contextmanager
def discord(url: str, pace: NotifyLimits = QUICK) -> Iterator[DiscordNotifier]:
    made = DiscordNotifier(SecretStr(url), limits=pace)
    try:
        yield made
    finally:
        made.close(0.0)
    assert not [thread for thread in threading.enumerate() if thread.name == "discord"], "it went on"


def begin(notifier: Notifier, folder: Path | str = "/nowhere") -> None:
    notifier.notify(recorded_posts.opened(folder))
    notifier.notify(recorded_posts.baselined())


def win(notifier: Notifier, n: int) -> None:
    notifier.notify(recorded_posts.proposed(n, f"idea {n}"))
    notifier.notify(recorded_posts.judged(n, wins=n))


def test_a_climb_from_start_to_end(tmp_path: Path) -> None:
    (tmp_path / "progress.png").write_bytes(PNG)
    with FakeDiscord(answer=REPLIES["200"]) as fake, discord(fake.url) as notifier:
        begin(notifier, tmp_path)
        fake.wait_for(1)
        win(notifier, 1)
        fake.wait_for(2)
        notifier.notify(recorded_posts.judged(2, kept=False))
        notifier.notify(recorded_posts.turned("near_ties"))
        fake.wait_for(3)
        notifier.notify(recorded_posts.trouble())
        fake.wait_for(4)
        notifier.notify(recorded_posts.finished())
        notifier.close()
    assert fake.titles == [
        "demo/toy: run night started",
        "demo/toy, run night: win 1, 2.500x over the baseline",
        "Plateau: on to edit on tiling",
        "demo/toy, run night: trouble",
        "demo/toy, run night ended: 1 win, 3.500x over the baseline",
    ]
    assert [list(posted.files) for posted in fake.posts] == [[], ["progress.png"], [], [], ["progress.png"]]
    assert dict(notifier.outcomes())[1].webhook_status == "sent"


@pytest.mark.parametrize("fault", ["closed", "hang", "drip", "slow", "502", "404", "429-text"])
def test_telling_returns_at_once_and_closing_in_its_seconds(fault: str) -> None:
    with FakeDiscord(answer=REPLIES.get(fault, REPLIES["204"])) as fake:
        url = url_at(closed_port()) if fault == "closed" else fake.url
        with discord(url) as notifier:
            times = []
            for n in range(1, 200):
                for event in (
                    recorded_posts.proposed(n),
                    recorded_posts.progress(),
                    recorded_posts.judged(n, wins=n),
                    recorded_posts.trouble(str(n)),
                ):
                    began = time.perf_counter()
                    notifier.notify(event)
                    times.append(time.perf_counter() - began)
                notifier.webhook(n, kept=True)
            began = time.monotonic()
            notifier.notify(recorded_posts.finished())
            notifier.close(0.6)
            took = time.monotonic() - began
            outcomes = notifier.outcomes()
    assert max(times) < 10, "a busy machine may take its time, but nothing waits for the other side"
    assert took < 0.6 + 10
    assert sorted(n for n, _ in outcomes) == list(range(1, 200))


def test_telling_is_quick_with_a_dead_server() -> None:
    with FakeDiscord(answer=REPLIES["hang"]) as fake, discord(fake.url) as notifier:
        begin(notifier)
        fake.wait_for(1)
        times = []
        for n in range(1, 300):
            began = time.perf_counter()
            notifier.notify(recorded_posts.judged(n, wins=n))
            times.append(time.perf_counter() - began)
    assert sum(times) < 10, "nothing waits for it"


@pytest.mark.parametrize("fault", ["401", "404", "404-html", "400-gone"])
def test_one_request_and_no_more_once_the_webhook_is_gone(fault: str) -> None:
    with FakeDiscord([REPLIES[fault]]) as fake, discord(fake.url) as notifier:
        begin(notifier)
        fake.wait_for(1)
        for n in range(1, 6):
            win(notifier, n)
        time.sleep(0.15)
        notifier.notify(recorded_posts.finished())
        notifier.close(1.0)
        status = notifier.webhook(3, kept=True)
        assert len(notifier.outcomes()) == 5
    assert len(fake.posts) == 1
    assert "the webhook is gone: HTTP 4" in status.webhook_status
    assert (status.webhook_attempted, status.webhook_sent) == (False, False)


def test_a_rate_limit_is_honoured_by_the_thread() -> None:
    with FakeDiscord([limited(0.7, header=0)]) as fake, discord(fake.url) as notifier:
        begin(notifier)
        first = fake.wait_for(1)[0]
        win(notifier, 1)
        second = fake.wait_for(2)[1]
    assert second.time - first.time >= 0.7


def test_an_outage_becomes_one_digest_when_the_server_is_back() -> None:
    port = closed_port()
    with discord(url_at(port), replace(QUICK, max_retry_seconds=0.4)) as notifier:
        begin(notifier)
        for n in range(1, 8):
            win(notifier, n)
            time.sleep(0.03)
        with FakeDiscord(port=port) as fake:
            fake.wait_for(1)
            time.sleep(0.5)
            assert fake.titles == ["While posts could not be sent: 1 start, 7 wins"]
            assert notifier.webhook(7, kept=True).webhook_status == "sent in a digest"


def test_the_digest_of_the_morning_comes_through_at_the_last_moment() -> None:
    """Whatever backing off there was: the end is tried at once, everything missed in it."""
    port = closed_port()
    with discord(url_at(port), replace(QUICK, first_retry_seconds=60.0, max_retry_seconds=300.0)) as notifier:
        begin(notifier)
        for n in range(1, 5):
            win(notifier, n)
        time.sleep(0.2)
        with FakeDiscord(port=port) as fake:
            notifier.notify(recorded_posts.finished(wins=4))
            notifier.close(3.0)
    (posted,) = fake.posts
    assert "run night ended: 4 wins" in posted.text
    assert "Not posted before: 1 start, 4 wins" in posted.text
    assert {webhook.webhook_status for _, webhook in notifier.outcomes()} == {"sent in a digest"}


def test_a_hanging_request_makes_way_for_the_digest() -> None:
    with (
        FakeDiscord([REPLIES["hang"]]) as fake,
        discord(fake.url, replace(QUICK, request_timeout_seconds=30.0)) as notifier,
    ):
        begin(notifier)
        win(notifier, 1)
        fake.wait_for(1)
        notifier.notify(recorded_posts.finished())
        notifier.close(2.0)
    assert "run night ended" in fake.titles[-1]
    assert dict(notifier.outcomes())[1].webhook_sent


def test_a_rate_limit_longer_than_the_end_is_not_broken() -> None:
    with FakeDiscord([limited(60)]) as fake, discord(fake.url) as notifier:
        begin(notifier)
        fake.wait_for(1)
        win(notifier, 1)
        notifier.notify(recorded_posts.finished())
        began = time.monotonic()
        notifier.close(2.0)
        assert time.monotonic() - began < 30, "it does not wait for what cannot come"
    assert len(fake.posts) == 1
    assert dict(notifier.outcomes())[1] == WebhookState(
        webhook_enabled_by_config=True,
        webhook_expected=True,
        webhook_status="not sent: the climb ended first; last: rate limited (HTTP 429)",
    )


def test_an_end_without_a_word_still_sends_what_was_held_back() -> None:
    """The climb ended with an error: no `finished` event comes."""
    with FakeDiscord() as fake, discord(fake.url) as notifier:
        notifier.notify(recorded_posts.opened())
        notifier.notify(recorded_posts.trouble("one"))
        notifier.notify(recorded_posts.trouble("the climb ended with an error"))
        notifier.close(2.0)
    assert fake.titles == [
        "demo/toy: run night started",
        "demo/toy, run night: trouble",
        "demo/toy, run night: trouble",
    ]
    assert "ended with an error" in fake.posts[-1].text


def test_after_closing_nothing_is_taken() -> None:
    with FakeDiscord() as fake, discord(fake.url) as notifier:
        begin(notifier)
        notifier.close(2.0)
        notifier.close(2.0)
        win(notifier, 1)
        notifier.notify(recorded_posts.finished())
    assert len(fake.posts) == 1
    assert notifier.outcomes() == []


def test_a_post_that_cannot_be_worded_ends_nothing_and_is_owned_up_to(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    with FakeDiscord() as fake, discord(fake.url) as notifier:
        monkeypatch.setattr("hillclimb.agent.notify.composer.win_post", fail)
        win(notifier, 1)
        assert dict(notifier.outcomes())[1].webhook_status == "no post could be made of it: ZeroDivisionError"
        monkeypatch.undo()
        win(notifier, 2)
        fake.wait_for(1)


def test_a_thread_that_cannot_start_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    fake = FakeDiscord()
    with fake, discord(fake.url) as notifier:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            begin(notifier)
        win(notifier, 1)
        assert len(fake.wait_for(2)) == 2


def test_what_is_not_configured_or_switched_off_posts_nothing() -> None:
    url = SecretStr(url_at(1))
    fields = [
        tuple(choose_notifier(*given, switched_off=off).webhook(1, kept=True).model_dump().values())
        for given, off in (((None,), False), ((None,), True), ((url,), True))
    ]
    assert fields == [
        (False, False, False, False, False, "not configured"),
        (False, True, False, False, False, "not configured"),
        (True, True, False, False, False, "switched off"),
    ]
    silent = SilentNotifier()
    silent.notify(recorded_posts.finished())
    silent.close()
    assert silent.outcomes() == []
    chosen = choose_notifier(url)
    assert isinstance(chosen, DiscordNotifier)
    chosen.close(0.0)


def test_a_slow_server_gets_everything_in_order() -> None:
    slow = Reply(204, wait=0.05)
    with FakeDiscord(answer=slow) as fake, discord(fake.url) as notifier:
        begin(notifier)
        for n in range(1, 4):
            win(notifier, n)
        notifier.notify(recorded_posts.finished(wins=3))
        notifier.close(4.0)
    assert len(fake.posts) == 5
    assert "ended" in fake.titles[-1]
