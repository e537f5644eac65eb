"""Pauses, outages and digests over hours, told by a hand-wound clock against a real server."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from hillclimb.agent.notify.limits import NotifyLimits
from hillclimb.agent.notify.post import Post
from hillclimb.agent.notify.post_queue import NEVER, PostQueue
from hillclimb.agent.notify.response import WebhookResponse
from hillclimb.agent.notify.webhook import WebhookClient
from tests.agent.notify.recorded_posts import PNG
from tests.fakes.discord_server import (
    REPLIES,
    FakeDiscord,
    Reply,
    banned,
    closed_port,
    emptied,
    limited,
    url_at,
)


def win(n: int) -> Post:
    return Post(kind="win", time=float(n), title=f"win {n}", line=f"win {n}", n=n)


def plain(kind: str, title: str) -> Post:
    return Post(kind=kind, time=0.0, title=title, line=title)  # type: ignore[arg-type]


@dataclass
class Night:
    """A postman, a courier and a clock that jumps to the next thing to do."""

    url: str
    pace: NotifyLimits = field(default_factory=NotifyLimits)
    now: float = 0.0
    requests: list[float] = field(default_factory=list)
    """When each was made."""

    def __post_init__(self) -> None:
        self.postman = PostQueue(self.pace)
        self.courier = WebhookClient(SecretStr(self.url))

    def add(self, *posts: Post) -> None:
        self.postman.add(posts, self.now)

    def until(self, end: float) -> None:
        """Do all that is due before `end`."""
        while (wait := self.postman.wait_seconds(self.now)) <= end - self.now:
            if wait > 0:
                self.now += wait
                continue
            batch = self.postman.take(self.now)
            self.requests.append(self.now)
            self.postman.record_response(batch, self.courier.deliver(batch.message(), 0.5), self.now)
            self.now += 0.001
        self.now = end

    def status(self, n: int) -> str:
        return self.postman.webhook(n, kept=True).webhook_status


def test_posts_go_out_one_by_one_in_order() -> None:
    with FakeDiscord() as fake:
        night = Night(fake.url)
        night.add(plain("start", "start"), win(1), win(2), win(3), win(4), win(5))
        night.until(1.0)
    assert fake.titles == ["start", "win 1", "win 2", "win 3", "win 4", "win 5"]
    assert [n for n, _ in night.postman.outcomes()] == [1, 2, 3, 4, 5]
    assert night.postman.outcomes() == []


def test_a_dead_hour_becomes_one_digest() -> None:
    port = closed_port()
    night = Night(url_at(port))
    for n in range(1, 21):
        night.add(win(n))
        night.until(n * 180.0)
    assert len(night.requests) < 30, "it backs off"
    assert night.status(20) == "no connection: ConnectionRefusedError; it is tried again"
    with FakeDiscord(port=port) as fake:
        night.until(2 * 3600.0)
        night.add(win(21))
        night.until(3 * 3600.0)
    assert fake.titles == ["While posts could not be sent: 20 wins", "win 21"]
    assert all(f"- win {n}" in fake.posts[0].text for n in range(1, 21))
    outcomes = dict(night.postman.outcomes())
    assert sorted(outcomes) == list(range(1, 22))
    assert all(webhook.webhook_sent for webhook in outcomes.values())
    assert (outcomes[1].webhook_status, outcomes[21].webhook_status) == ("sent in a digest", "sent")


@pytest.mark.parametrize("fault", ["500", "502", "html", "redirect", "garbage"])
def test_failures_are_backed_off_from(fault: str) -> None:
    with FakeDiscord(answer=REPLIES[fault]) as fake:
        night = Night(fake.url)
        night.add(win(1))
        night.until(3600.0)
    gaps = [b - a for a, b in zip(night.requests, night.requests[1:], strict=False)]
    assert [round(gap) for gap in gaps[:9]] == [1, 2, 4, 8, 16, 32, 64, 128, 256]
    assert {round(gap) for gap in gaps[9:]} == {300}
    assert len(fake.posts) == len(night.requests)


def test_few_posts_after_a_short_outage_go_out_as_they_were_meant() -> None:
    with FakeDiscord([REPLIES["502"], REPLIES["502"]]) as fake:
        night = Night(fake.url)
        night.add(win(1), win(2), win(3))
        night.until(60.0)
    assert fake.titles == ["win 1", "win 1", "win 1", "win 2", "win 3"]


def test_more_than_three_after_a_short_outage_become_a_digest() -> None:
    with FakeDiscord([REPLIES["502"]]) as fake:
        night = Night(fake.url)
        night.add(win(1), win(2), plain("trouble", "t"), win(4))
        night.until(60.0)
    assert fake.titles == ["win 1", "While posts could not be sent: 3 wins, 1 failure"]


@pytest.mark.parametrize(
    ("reply", "seconds"),
    [(limited(0.3), 1.0), (limited(7.5), 8.0), (limited(1.5, header=30), 30.0), (banned(600), 600.0)],
)
def test_no_request_before_a_rate_limit_is_over(reply: Reply, seconds: float) -> None:
    with FakeDiscord([reply]) as fake:
        night = Night(fake.url)
        night.add(win(1))
        night.until(0.9 * seconds)
        assert len(fake.posts) == 1
        night.add(win(2))
        night.until(0.99 * seconds)
        assert len(fake.posts) == 1
        night.until(seconds + 1)
    assert len(fake.posts) >= 2
    assert night.requests[1] >= seconds


def test_a_ban_for_a_day_is_kept_for_an_hour_and_costs_one_request_an_hour() -> None:
    with FakeDiscord(answer=banned(86400)) as fake:
        night = Night(fake.url)
        for n in range(1, 100):
            night.add(win(n))
            night.until(n * 100.0)
    assert len(fake.posts) == 3
    assert [round(t) for t in night.requests] == [0, 3600, 7200]


def test_a_limit_that_names_no_time_is_backed_off_from() -> None:
    with FakeDiscord(answer=banned(None)) as fake:
        night = Night(fake.url)
        night.add(win(1))
        night.until(16.0)
    assert len(fake.posts) == 5


def test_an_emptied_bucket_is_waited_for() -> None:
    with FakeDiscord([emptied(5.0)]) as fake:
        night = Night(fake.url)
        night.add(win(1), win(2), win(3), win(4), win(5))
        night.until(10.0)
    assert night.requests[1] >= 5.0
    assert fake.titles == ["win 1", "win 2", "win 3", "win 4", "win 5"], "that is no outage"


@pytest.mark.parametrize("fault", ["401", "403", "404", "404-html", "400-gone"])
def test_after_a_webhook_is_gone_nothing_is_sent(fault: str) -> None:
    with FakeDiscord([REPLIES[fault]]) as fake:
        night = Night(fake.url)
        night.add(win(1), win(2))
        night.until(10.0)
        night.add(win(3))
        night.postman.retry_now(night.now)
        night.until(7 * 86400.0)
    assert len(fake.posts) == 1
    assert night.postman.is_idle
    outcomes = dict(night.postman.outcomes())
    assert [outcomes[n].webhook_attempted for n in (1, 2, 3)] == [True, False, False]
    assert not any(webhook.webhook_sent for webhook in outcomes.values())
    for n in (1, 2, 3, 4):
        assert "the webhook is gone: HTTP 4" in night.status(n)


def test_a_refused_post_is_dropped_and_the_next_goes_out() -> None:
    with FakeDiscord([REPLIES["400"]]) as fake:
        night = Night(fake.url)
        night.add(win(1), win(2))
        night.until(10.0)
    assert fake.titles == ["win 1", "win 2"]
    assert [webhook.webhook_status for _, webhook in night.postman.outcomes()] == [
        "refused: HTTP 400",
        "sent",
    ]


def test_a_post_refused_with_its_picture_is_tried_without(tmp_path: Path) -> None:
    (tmp_path / "progress.png").write_bytes(PNG)
    with FakeDiscord([REPLIES["413"]]) as fake:
        night = Night(fake.url)
        night.add(replace(win(1), picture=tmp_path / "progress.png"))
        night.until(20.0)
    assert [bool(posted.files) for posted in fake.posts] == [True, False]
    assert night.status(1) == "sent"


def test_a_win_waits_a_moment_for_its_picture(tmp_path: Path) -> None:
    path = tmp_path / "progress.png"
    with FakeDiscord() as fake:
        night = Night(fake.url)
        night.add(replace(win(1), time=1e12, picture=path))
        night.until(9.0)
        assert fake.posts == []
        night.until(11.0)
        path.write_bytes(PNG)
        os.utime(path, (2e9, 2e9))
        night.add(replace(win(2), time=2e9 - 1, picture=path))
        night.until(11.1)
    assert [bool(posted.files) for posted in fake.posts] == [False, True]


def test_more_than_the_queue_holds_is_counted_and_the_end_is_kept() -> None:
    port = closed_port()
    night = Night(url_at(port), NotifyLimits(max_queued_posts=8))
    night.add(plain("end", "the end"))
    for n in range(1, 101):
        night.add(win(n))
        night.until(night.now + 1.0)
        assert len(night.postman._pending) <= 8
    with FakeDiscord(port=port) as fake:
        night.until(3600.0)
    assert fake.titles == ["the end"]
    assert "100 wins" in fake.posts[0].text
    assert "- 93 before these" in fake.posts[0].text
    assert sorted(n for n, _ in night.postman.outcomes()) == list(range(1, 101))


def test_fields_in_each_state() -> None:
    with FakeDiscord([REPLIES["502"]]) as fake:
        night = Night(fake.url)
        seen = [night.postman.webhook(1, kept=False), night.postman.webhook(2, kept=True)]
        night.add(win(2))
        seen.append(night.postman.webhook(2, kept=True))
        night.until(0.5)
        seen.append(night.postman.webhook(2, kept=True))
        night.until(5.0)
        seen.append(night.postman.webhook(2, kept=True))
    assert [tuple(webhook.model_dump().values()) for webhook in seen] == [
        (True, False, False, False, False, "not due"),
        (True, False, True, False, False, "queued"),
        (True, False, True, False, False, "queued"),
        (True, False, True, True, False, "HTTP 502; it is tried again"),
        (True, False, True, True, True, "sent"),
    ]


ANSWERS = st.sampled_from(
    [
        WebhookResponse("sent", "HTTP 204"),
        WebhookResponse("sent", "HTTP 204", 2.0),
        WebhookResponse("limited", "rate limited", 3.0),
        WebhookResponse("limited", "rate limited"),
        WebhookResponse("failed", "HTTP 502"),
        WebhookResponse("refused", "refused: HTTP 400"),
        WebhookResponse("gone", "the webhook is gone: HTTP 404"),
    ]
)


@given(st.lists(st.tuples(st.integers(0, 6), ANSWERS, st.floats(0, 400)), max_size=40), st.booleans())
def test_whatever_happens_each_win_comes_to_exactly_one_end(
    steps: list[tuple[int, WebhookResponse, float]], under_way: bool
) -> None:
    postman, now, n, dead = PostQueue(NotifyLimits(max_queued_posts=5)), 0.0, 0, False
    outcomes: list[int] = []
    for arrivals, answer, pause in steps:
        for _ in range(arrivals):
            n += 1
            postman.add([win(n)], now)
        wait = postman.wait_seconds(now)
        assert len(postman._pending) <= 5
        if wait <= 0:
            assert not dead
            postman.record_response(postman.take(now), answer, now)
            dead = dead or answer.kind == "gone"
        outcomes += [number for number, _ in postman.outcomes()]
        now += pause
    if under_way and postman.wait_seconds(now) <= 0:
        postman.take(now, hurried=True)
    postman.drop_all("over")
    outcomes += [number for number, _ in postman.outcomes()]
    assert sorted(outcomes) == list(range(1, n + 1))
    assert postman.wait_seconds(now) == NEVER
