"""Messages stay inside Discord's limits."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.notify.batch import DroppedPosts, PostBatch
from hillclimb.agent.notify.post import MAX_PICTURE_BYTES, Post, embed, read_picture
from hillclimb.agent.notify.sanitize import units
from tests.agent.notify.recorded_posts import PNG

TEXTS = st.text(alphabet="a\\*\U0001f600 é", max_size=30).flatmap(
    lambda text: st.integers(0, 400).map(lambda times: text * times)
)


def assert_within_limits(made: dict[str, object]) -> None:
    fields = made["fields"]
    assert isinstance(fields, list)
    title, text = str(made["title"]), str(made["description"])
    assert units(title) <= 256
    assert units(text) <= 4096
    assert len(fields) <= 25
    assert all(0 < units(field["name"]) <= 256 and 0 < units(field["value"]) <= 1024 for field in fields)
    assert units(title) + units(text) + sum(units(f["name"]) + units(f["value"]) for f in fields) <= 6000


@given(TEXTS, TEXTS, st.lists(st.tuples(st.just("name"), TEXTS), max_size=30))
def test_any_post_fits(title: str, text: str, fields: list[tuple[str, str]]) -> None:
    made = embed(Post(kind="win", time=0.0, title=title, line="", text=text, fields=tuple(fields)))
    assert_within_limits(made)


@given(st.lists(TEXTS, min_size=1, max_size=64), st.booleans(), st.integers(0, 500))
def test_any_digest_fits_and_counts_everything(lines: list[str], with_end: bool, folded: int) -> None:
    tally = DroppedPosts()
    for n in range(folded):
        tally.add(Post(kind="win", time=0.0, title="", line="", n=n))
    posts = [Post(kind="win", time=0.0, title="w", line=line, n=1000 + n) for n, line in enumerate(lines)]
    end = Post(kind="end", time=1.0, title="the end", line="the end", fields=(("a", "b" * 1024),) * 4)
    batch = PostBatch(tuple([*posts, end] if with_end else posts), tally)
    made = embed(batch.message())
    assert_within_limits(made)
    assert len(batch.candidates) == len(lines) + folded
    if with_end:
        assert made["title"] == "the end"
    elif len(lines) + folded > 1:
        assert f"{len(lines) + folded} wins" in made["title"]


@pytest.mark.parametrize("time", [1e12, -1e18, float("nan"), float("inf")])
def test_a_time_that_no_calendar_has_is_left_out(time: float) -> None:
    assert embed(Post(kind="win", time=time, title="w", line="w"))["timestamp"] is None


def test_a_post_alone_is_itself() -> None:
    post = Post(kind="win", time=0.0, title="w", line="l", n=1)
    assert PostBatch((post,)).message() is post


@pytest.mark.parametrize(
    "content", [b"", b"GIF89a", PNG + b"\0" * MAX_PICTURE_BYTES], ids=["empty", "a GIF", "too large"]
)
def test_what_is_no_picture_or_too_large_is_not_attached(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "progress.png"
    path.write_bytes(content)
    assert read_picture(path) is None


def test_a_picture_is_attached_and_its_absence_is_no_trouble(tmp_path: Path) -> None:
    (tmp_path / "progress.png").write_bytes(PNG)
    assert read_picture(tmp_path / "progress.png") == PNG
    assert read_picture(tmp_path / "nothing.png") is None
    assert read_picture(tmp_path) is None
    assert read_picture(None) is None
