"""A real controller tells a notifier: the posts a person reads, and the fields in the ledger."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import SecretStr

from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.notify.choose import choose_notifier
from hillclimb.agent.record.entries import WebhookState
from tests.agent.notify.recorded_posts import PNG
from tests.fakes.discord_server import REPLIES, FakeDiscord
from tests.fakes.night import Night, make_repository


def draw(folder: Path) -> str:
    (folder / "progress.png").write_bytes(PNG)
    return ""


@pytest.mark.parametrize("reply", ["200", "404"])
def test_a_climb_is_told_and_its_ledger_says_so(tmp_path: Path, reply: str) -> None:
    root = make_repository(tmp_path / "repository")
    with FakeDiscord(answer=REPLIES[reply]) as fake:
        notifier = choose_notifier(SecretStr(fake.url))
        night = Night(root, notifier=notifier, draw=draw)
        finished = night.climb()
        notifier.close(0.0)
    wins = [candidate for candidate in night.ledger.candidates if candidate.judged and candidate.judged.kept]
    others = [candidate for candidate in night.ledger.candidates if candidate not in wins]
    assert len(wins) == finished.wins > 0
    assert {candidate.webhook for candidate in others} == {
        WebhookState(webhook_enabled_by_config=True, webhook_status="not due")
    }
    states = {(win.webhook.webhook_sent, win.webhook.webhook_status) for win in wins if win.webhook}
    if reply == "404":
        assert len(fake.posts) == 1
        assert states == {(False, "the webhook is gone: HTTP 404 (Discord code 10015); nothing more is sent")}
        return
    assert [title for title in fake.titles if "run night started" in title] == fake.titles[:1]
    assert f"run night ended: {finished.wins} wins" in fake.titles[-1]
    assert fake.posts[-1].files == {"progress.png": PNG}
    assert {sent for sent, _ in states} == {True}


def test_a_win_is_told_once_however_often_the_run_is_taken_up(tmp_path: Path) -> None:
    root = make_repository(tmp_path / "repository")
    with FakeDiscord(answer=REPLIES["200"]) as fake:
        for candidates in (2, 4, None, None):
            notifier = choose_notifier(SecretStr(fake.url))
            night = Night(root, notifier=notifier, draw=draw, budgets=BudgetOverrides(candidates=candidates))
            night.climb()
            notifier.close(5.0)
    kept = [c.proposal.idea for c in night.ledger.candidates if c.judged and c.judged.kept]
    assert len(kept) == 3
    told = [post.text for post in fake.posts if "started" not in post.text and "ended" not in post.text]
    assert [sum(idea in text for text in told) for idea in kept] == [1, 1, 1], fake.titles
