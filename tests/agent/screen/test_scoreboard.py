"""One figure for one thing: what a finished climb says it reached."""

from __future__ import annotations

from hillclimb.agent.notify.messages import EventHistory, TextSanitizer, end_post
from hillclimb.agent.screen.scoreboard import describe_finish
from tests.agent.notify import recorded_posts
from tests.agent.sweep.synthetic import interval


def test_the_figure_of_the_end_is_named_and_the_other_told_in_words() -> None:
    event = recorded_posts.finished().model_copy(update={"when_kept": interval(3.6)})
    said = (
        f"{interval(3.5)} over the baseline, measured again at the end "
        "(3.600x when the last win was kept, as its commit and the curve have it)"
    )
    assert any(said in line for line in describe_finish(event))
    assert ("Reached", said) in end_post(event, EventHistory(), TextSanitizer(), None).fields


def test_where_no_importance_means_anything_that_is_said() -> None:
    missing = {"importances": {}, "importances_missing": "too few observations (7 of 30)"}
    event = recorded_posts.finished().model_copy(update=missing)
    assert "knobs that mattered: too few observations (7 of 30)" in describe_finish(event)
    fields = dict(end_post(event, EventHistory(), TextSanitizer(), None).fields)
    assert "too few observations" in fields["Knobs that mattered"]


def test_where_there_is_one_measurement_one_is_told() -> None:
    assert any(
        "3.500x" in line and "again" not in line for line in describe_finish(recorded_posts.finished())
    )
    nothing = recorded_posts.finished(wins=0)
    assert "reached: nothing faster than the baseline, 0 wins of 100 candidates" in describe_finish(nothing)
