"""Which events become posts, and what the posts say."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from hillclimb.agent.notify.composer import PostComposer, WinPostComposer
from hillclimb.agent.notify.limits import NotifyLimits
from hillclimb.agent.notify.post import Post
from hillclimb.agent.screen.events import Event
from tests.agent.notify import recorded_posts

PACE = NotifyLimits()


def tell(*events: Event, story: PostComposer | None = None, now: float = 0.0) -> list[Post]:
    story = story or PostComposer(PACE)
    return [post for event in events for post in story.take_event(event, now)]


def begun() -> PostComposer:
    story = PostComposer(PACE)
    tell(recorded_posts.opened("/runs/x"), recorded_posts.baselined(), story=story)
    return story


def read(post: Post) -> str:
    return "\n".join([post.title, post.text, *(f"{name}: {value}" for name, value in post.fields)])


def test_the_start_waits_for_the_baseline() -> None:
    assert tell(recorded_posts.opened()) == []
    (post,) = tell(recorded_posts.opened(), recorded_posts.baselined())
    said = read(post)
    assert post.kind == "start"
    for part in (
        "demo/toy",
        "night",
        recorded_posts.BRANCH,
        "Loopback CPU",
        "18.2 µs",
        "1.000x",
        "1 h 00 min",
        "90 candidates",
    ):
        assert part in said


def test_a_run_taken_up_is_told_with_what_it_has_once_it_goes_on() -> None:
    taken_up = recorded_posts.opened(
        resumed=True, candidates=41, best=(1.5, 2.0), cumulative=recorded_posts.interval(2.0)
    )
    assert tell(taken_up) == []
    (post,) = tell(taken_up, recorded_posts.proposed(42))
    assert "taken up" in post.title
    assert "41 candidates, 2 wins, 2.000x" in read(post)


def test_the_start_is_told_once_however_often_the_run_is_opened() -> None:
    story = begun()
    assert tell(recorded_posts.opened(resumed=True), recorded_posts.opened(resumed=True), story=story) == []


def test_a_finished_run_with_nothing_left_to_do_is_no_news() -> None:
    assert tell(recorded_posts.opened(resumed=True), recorded_posts.finished()) == []


def test_a_candidate_that_is_waited_for_is_told_only_where_it_is_kept() -> None:
    story = WinPostComposer(NotifyLimits())
    assert (
        tell(
            recorded_posts.opened(),
            recorded_posts.proposed(1),
            recorded_posts.judged(1, kept=False),
            recorded_posts.finished(),
            story=story,
        )
        == []
    )
    (post,) = tell(
        recorded_posts.proposed(2), recorded_posts.judged(2), recorded_posts.finished(), story=story
    )
    assert post.kind == "win"


def test_trouble_before_the_baseline_comes_after_the_start() -> None:
    assert [post.kind for post in tell(recorded_posts.opened(), recorded_posts.trouble())] == [
        "start",
        "trouble",
    ]


def test_a_win() -> None:
    story = begun()
    (post,) = tell(recorded_posts.proposed(7), recorded_posts.judged(7, wins=3), story=story)
    assert (post.kind, post.n, post.picture) == ("win", 7, Path("/runs/x/progress.png"))
    said = read(post)
    for part in (
        "win 3",
        "2.500x over the baseline",
        "keep C in registers",
        "llm, registers",
        "1.250x [1.238, 1.262]",
    ):
        assert part in said
    assert "`abcdef012345`" in said


def test_a_win_of_an_earlier_sessions_idea_is_told_without_it() -> None:
    (post,) = tell(recorded_posts.judged(7), story=begun())
    assert "candidate 7" in post.line


def test_what_is_not_worth_a_post() -> None:
    quiet = (
        recorded_posts.proposed(1),
        recorded_posts.judged(1, kept=False),
        recorded_posts.called(),
        recorded_posts.turned(),
        recorded_posts.progress(),
    )
    assert tell(*quiet, story=begun()) == []


def test_plateaus_are_rare_and_say_what_was_left_out() -> None:
    story = begun()
    assert [post.kind for post in tell(recorded_posts.turned("near_ties"), story=story, now=0.0)] == ["turn"]
    assert (
        tell(recorded_posts.turned("near_ties"), recorded_posts.turned("near_ties"), story=story, now=1799.0)
        == []
    )
    (post,) = tell(
        recorded_posts.turned("stale_profile", reason="the top bucket stays"), story=story, now=1800.0
    )
    assert "on to edit on tiling" in post.title
    assert "stale\\_profile" in read(post)
    assert "2 times before" in read(post)
    assert "the top bucket stays" in read(post)


def test_troubles_are_told_together_after_the_first() -> None:
    story = begun()
    assert len(tell(recorded_posts.trouble("one"), story=story, now=0.0)) == 1
    assert (
        tell(
            recorded_posts.trouble("two"),
            recorded_posts.trouble("two"),
            recorded_posts.trouble("three"),
            story=story,
            now=10.0,
        )
        == []
    )
    assert story.next_due_at() == 600.0
    assert story.due_posts(599.0) == []
    (post,) = story.due_posts(600.0)
    assert "3 troubles" in post.title
    assert post.text == "- two\n- three"
    assert story.next_due_at() == float("inf")


def test_the_end_comes_after_what_was_held_back() -> None:
    story = begun()
    tell(recorded_posts.trouble("one"), story=story)
    assert [
        post.kind for post in tell(recorded_posts.trouble("two"), recorded_posts.finished(), story=story)
    ] == [
        "trouble",
        "end",
    ]


def test_the_end() -> None:
    story = begun()
    tell(
        recorded_posts.called(),
        recorded_posts.called(fault=True),
        recorded_posts.turned("near_ties"),
        recorded_posts.trouble(),
        story=story,
    )
    for n, speedup in ((1, 1.1), (2, 2.0), (3, 1.4)):
        tell(
            recorded_posts.proposed(n, f"idea {n}"),
            recorded_posts.judged(n, speedup=speedup, wins=n),
            story=story,
        )
    (post,) = tell(recorded_posts.finished(wins=3), story=story)
    said = read(post)
    for part in (
        "3 wins, 3.500x over the baseline",
        "the budget of 100 candidates is used up",
        "3.500x [3.465, 3.535]",
        "Candidates: 100, 3 wins",
        "2 h 59 min",
        "123456 tokens, $1.50; 2 calls this session, 1 failed",
        "MM\\_TILE 70%",
        "moved on 1 time",
        "1 trouble this session",
        f"`git log {recorded_posts.BRANCH}`",
        "`hillclimb report demo/toy --tag night`",
        f"`hillclimb review {recorded_posts.BRANCH}`",
    ):
        assert part in said
    assert said.index("idea 2") < said.index("idea 3") < said.index("idea 1")
    assert post.picture == Path("/runs/x/progress.png")


def test_an_interrupted_run_and_one_without_wins() -> None:
    (post,) = tell(
        recorded_posts.finished(wins=0, interrupted=True, reason="interrupted by SIGINT"), story=begun()
    )
    said = read(post)
    assert "interrupted: 0 wins" in post.title
    assert "nothing faster than the baseline" in said
    assert "goes on from here" in said


def test_an_end_before_anything_began() -> None:
    (post,) = tell(recorded_posts.finished(wins=0))
    assert "the run ended" in post.title


def test_foreign_text_is_defused_and_secrets_are_blotted_out_everywhere() -> None:
    secret = SecretStr("https://discord.com/api/webhooks/1/token-token-token-token")
    bad = f"@everyone **{secret.get_secret_value()}** `x`\x00\n<@1>"
    story = PostComposer(PACE, (secret,))
    posts = tell(
        recorded_posts.opened(case=bad, tag=bad, branch=bad),
        recorded_posts.baselined(),
        recorded_posts.trouble(bad),
        recorded_posts.turned(bad, reason=bad),
        recorded_posts.proposed(1, bad, bad),
        recorded_posts.judged(1),
        recorded_posts.finished(reason=bad).model_copy(update={"branch": bad, "importances": {bad: 1.0}}),
        story=story,
    )
    assert {post.kind for post in posts} == {"start", "trouble", "turn", "win", "end"}
    for post in posts:
        said = f"{read(post)}\n{post.line}"
        assert "token-token" not in said
        assert "\x00" not in said
        assert "@everyone" not in said
        assert "<@1>" not in said
        assert "hidden" not in said or "\\*\\*\\[hidden\\]" in said
