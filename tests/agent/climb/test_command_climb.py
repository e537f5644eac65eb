"""A case that is measured by a command, climbed by the real controller and the real judge."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hillclimb.agent.api.runs import read_run
from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.climb.climb import climb
from hillclimb.agent.climb.request import ClimbRequest, Tools
from hillclimb.agent.git.repository import Repository
from hillclimb.agent.notify.messages import EventHistory, TextSanitizer, win_post
from hillclimb.agent.record.recorded_runs import find_runs
from hillclimb.agent.review.reporting import write_report
from hillclimb.agent.screen.events import Event, JudgedEvent
from hillclimb.agent.sweep.sweep import SweepProposer
from hillclimb.harness.judge.pool import LocalJudge
from tests.agent.climb.climbed import git
from tests.fakes.command import SWEPT, write_command_case

CASE = "test/counted"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("climb")


@pytest.fixture(scope="module")
def events(root: Path) -> list[Event]:
    """Of a climb in which a knob wins."""
    folder = write_command_case(root, SWEPT)
    for arguments in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "start"]):
        git(root, *arguments)
    found: list[Event] = []
    climb(
        ClimbRequest(case=folder, tag="first", budgets=BudgetOverrides(candidates=1)),
        LocalJudge,
        lambda background: SweepProposer(background.case.knobs, background.seed),
        Tools(emit=found.append, draw=lambda folder: ""),
    )
    return found


@pytest.fixture(scope="module")
def won(events: list[Event]) -> JudgedEvent:
    judged = [event for event in events if isinstance(event, JudgedEvent)]
    assert [event.reason for event in judged] == [None], judged[0].detail
    return judged[0]


def test_a_knob_wins_and_its_metrics_are_told(won: JudgedEvent) -> None:
    rate = next(one for one in won.metrics if (one.suite, one.metric) == ("main", "tokens_per_second"))
    assert rate.value / rate.before == pytest.approx(100 / 60, rel=0.02)


def test_the_commit_names_them(root: Path, won: JudgedEvent) -> None:
    (run,) = find_runs(Repository.open(root), CASE)
    assert "tok/s" in run.wins[0].trailers["Measured"]
    message = git(root, "log", "-1", "--format=%B", won.commit or "")
    assert message.count("Hillclimb-Measured: ") == 6
    assert re.search(r"^Hillclimb-Measured: main tokens_per_second (79|80)", message, re.MULTILINE)
    assert "Hillclimb-Guardrail: main memory " in message


def test_table_frame_post_and_page_have_them(root: Path, won: JudgedEvent) -> None:
    folder = root / "runs" / "test" / "counted" / "first"
    head, row = (line.split("\t") for line in (folder / "results.tsv").read_text().splitlines())
    cell = json.loads(dict(zip(head, row, strict=True))["metrics"])
    assert cell["main.tokens_per_second"] == pytest.approx(133, rel=0.02)
    verdict = read_run(folder).candidates[0].verdict
    assert verdict is not None and len(verdict.metrics) == 6
    post = win_post(won, None, EventHistory(), TextSanitizer(()), None)
    assert re.match("main tokens_per_second: (79|80)", dict(post.fields)["Measured"])
    assert "tokens_per_second" in write_report(Repository.open(root), CASE, "first", None).read_text()
