"""A climb with a language model: the real controller, the real client, a real server on loopback, a simulated judge."""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pytest
from pydantic import SecretStr

from hillclimb.agent.climb import lookahead
from hillclimb.agent.climb.budget import BudgetOverrides
from hillclimb.agent.llm.client.backoff import BackoffPolicy
from hillclimb.agent.llm.client.endpoint import Endpoint
from hillclimb.agent.llm.client.settings import ModelSettings
from hillclimb.agent.llm.llm import FIRST_BACKOFF_SECONDS, MAX_FRUITLESS_REPLIES, MAX_REFUSALS, LlmProposer
from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.proposer import ProposerContext
from hillclimb.agent.proposers.ablation import AblationProposer
from hillclimb.agent.proposers.mixed import MixedProposer
from hillclimb.agent.record.entries import CalledEntry
from hillclimb.agent.screen.events import CalledEvent
from hillclimb.agent.sweep.sweep import SweepProposer
from hillclimb.harness.case.settings import Prices
from hillclimb.harness.errors import StorageError
from hillclimb.harness.records import Screening, Side, Watch
from tests.fakes.clock import SkippingClock
from tests.fakes.hinted import Hinted
from tests.fakes.night import Night, git, make_repository
from tests.fakes.openai_server import Asked, FakeOpenAI, Turn, answer, fault, openai_server

KEY = "sk-canary-3f9a1c"
BRANCH = "hillclimb/demo/toy/night"


def edit(quality: float, before: float = 1.0, flaw: str = "") -> str:
    """A reply that sets the toy's number."""
    return reply(
        f"quality {quality}",
        f"QUALITY = {before}",
        f"QUALITY = {quality}" + (f"\nFLAW = {flaw!r}" if flaw else ""),
    )


def reply(idea: str, search: str, replace: str, path: str = "kernel.py") -> str:
    block = f"<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE"
    return f"IDEA: {idea}\nFAMILY: number\nNOTE: larger is faster\nNEXT: memory: keep it all\n\nFILE: {path}\n{block}\n"


def incumbent(asked: Asked) -> float:
    """The number in the files that the last briefing shows."""
    return float(re.findall(r"^QUALITY = ([0-9.]+)$", asked.prompt, re.MULTILINE)[-1])


def climbing(asked: Asked) -> Turn:
    """A model that always makes the number larger by a quarter."""
    before = incumbent(asked)
    return answer(
        edit(round(before * 1.25, 4), before), usage={"prompt_tokens": 900, "completion_tokens": 100}
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_repository(tmp_path / "repository")


@contextmanager
def night(root: Path, server: FakeOpenAI, candidates: int = 3, **options: object) -> Iterator[Night]:
    """A night whose ideas come from the server."""
    opened: list[Endpoint] = []
    deadline, pauses = options.pop("deadline", 5.0), options.pop("pauses", None)
    settings = ModelSettings(
        model="fake-1",
        base_url=server.base_url,
        api_key=SecretStr(KEY),
        deadline_seconds=float(str(deadline)),
        prices=Prices(prompt=1.0, completion=10.0),
    )

    def make(background: ProposerContext) -> LlmProposer:
        opened.append(Endpoint(settings, random.Random(0), pauses))  # type: ignore[arg-type]
        return LlmProposer(background, opened[-1], settings)

    budgets = options.pop("budgets", BudgetOverrides(candidates=candidates))
    try:
        yield Night(root, make_proposer=make, budgets=budgets, clock=SkippingClock(), **options)  # type: ignore[arg-type]
    finally:
        for endpoint in opened:
            endpoint.close()


def set_rules(root: Path, **rules: object) -> None:
    """Say more in the case's llm section."""
    path = root / "cases/demo/toy/case.yaml"
    path.write_text(path.read_text() + f"llm: {{{', '.join(f'{k}: {v}' for k, v in rules.items())}}}\n")
    git(root, "commit", "--quiet", "--all", "--message", "rules")


def outcomes(night: Night) -> list[tuple[str, int | None, int]]:
    return [(call.outcome, call.repairs, call.turn) for call in night.ledger.calls]


def reasons(night: Night) -> list[str]:
    return [str(c.judged.reason or "kept") for c in night.ledger.candidates if c.judged]


def test_replies_that_wait_are_announced_to_a_judge_on_a_gpu(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookahead, "usable_cpus", lambda: 16)
    set_rules(root, in_flight=3)
    numbers = count(90)

    class Patient(Hinted):
        """Measures for as long as the model takes for all that it was asked."""

        def screen(self, candidate: Side, incumbent: Side, watch: Watch) -> Screening:
            time.sleep(0.3)
            return super().screen(candidate, incumbent, watch)

    judge = Patient()
    options = {"judge": lambda: judge}
    with (
        openai_server(lambda asked: answer(edit(next(numbers) / 1000, incumbent(asked)))) as server,
        night(root, server, candidates=6, **options) as climb,
    ):
        climb.climb()
    assert reasons(climb) == ["slower"] * 6
    early = 0
    for number, (what, side) in enumerate(judge.heard):
        if what == "hint":
            rest = [later for kind, later in judge.heard[number:] if kind == "screen"]
            early += side in rest[1:]
    assert early >= 3, "told of a reply while another candidate had yet to be measured"
    assert not climb.ledger.dropped


def test_what_a_capable_model_proposes_wins(root: Path) -> None:
    with openai_server(climbing) as server, night(root, server) as climb:
        finished = climb.climb()
    assert finished.wins >= 2 and reasons(climb)[0] == "kept"
    assert git(root, "show", f"{BRANCH}:cases/demo/toy/workspace/kernel.py").startswith("QUALITY = 1.")
    message = git(root, "log", "-1", "--format=%B", BRANCH)
    assert "Hillclimb-Author: llm\n" in message and "Hillclimb-Family: number\n" in message
    assert "Hillclimb-Tokens: 900 prompt, 100 completion\n" in message
    assert "Hillclimb-Cost: 0.001900 USD\n" in message and "Hillclimb-Model: fake-1\n" in message
    notes = git(root, "show", f"{BRANCH}:cases/demo/toy/workspace/docs/notes.md")
    assert notes.startswith("nothing yet\n") and "larger is faster" in notes and "quality 1.25" in notes
    assert "keep it all" in git(root, "show", f"{BRANCH}:cases/demo/toy/workspace/docs/candidates.md")


def test_every_call_is_in_the_ledger_with_what_it_cost(root: Path) -> None:
    with openai_server(climbing) as server, night(root, server) as climb:
        climb.climb()
    ledger = climb.ledger
    answered = [call for call in ledger.calls if call.outcome == "proposal"]
    assert len(answered) >= 3 and all(call.usage.total == 1000 and call.cost == 0.0019 for call in answered)
    told = [event for event in climb.events if isinstance(event, CalledEvent)]
    assert len(told) == len(ledger.calls) and told[-1].run_tokens == ledger.tokens
    for call in answered:
        text = (climb.folder / f"calls/{call.k}.json").read_text()
        assert "Make the number in kernel.py larger" in text and "IDEA: quality" in text


def test_a_reply_that_does_not_apply_goes_back_with_the_error(root: Path) -> None:
    set_rules(root, in_flight=1)
    script = [reply("from memory", "QUALITY = 9", "QUALITY = 10"), edit(1.25)]
    with openai_server(script) as server, night(root, server, 1) as climb:
        climb.climb()
        second = server.requests[1].messages
    assert outcomes(climb)[:2] == [("unusable", None, 0), ("proposal", 1, 1)]
    assert second[-2]["role"] == "assistant" and "from memory" in second[-2]["content"]
    assert "kernel.py" in second[-1]["content"] and climb.ledger.calls[0].detail in second[-1]["content"]
    assert reasons(climb) == ["kept"]


def test_a_candidate_that_fails_the_gate_goes_back_with_the_reason(root: Path) -> None:
    set_rules(root, in_flight=1)
    script = [edit(2.0, flaw="wrong_result"), edit(1.5)]
    with openai_server(script) as server, night(root, server, 2) as climb:
        climb.climb()
        second = server.requests[1].messages
    assert reasons(climb) == ["wrong_result", "kept"]
    assert "wrong_result: simulated wrong_result" in second[-1]["content"]
    assert climb.ledger.calls[1].repairs == 1


def test_repairs_are_bounded_and_a_fresh_briefing_follows(root: Path) -> None:
    set_rules(root, in_flight=1, repairs=2)
    script = ["no change in here", "nor here", "nor here", edit(1.25)]
    with openai_server(script) as server, night(root, server, 1) as climb:
        climb.climb()
    assert outcomes(climb)[:4] == [
        ("unusable", None, 0),
        ("unusable", 1, 1),
        ("unusable", 2, 2),
        ("proposal", None, 0),
    ]


def test_the_same_idea_is_not_judged_twice(root: Path) -> None:
    set_rules(root, in_flight=1, repairs=0)
    again = edit(0.5).replace("QUALITY = 0.5\n", "QUALITY = 0.5  # not the same text\n")
    script = [edit(0.5), again, again, edit(1.25)]
    with openai_server(script) as server, night(root, server, 2) as climb:
        climb.climb()
    assert reasons(climb) == ["slower", "kept"]
    dropped = climb.ledger.dropped
    assert [d.reason for d in dropped.values()] == ["duplicate", "duplicate"]
    assert "candidate #1, which was rejected: slower" in dropped[2].detail


def test_a_reply_about_an_older_incumbent_is_merged_or_dropped(root: Path) -> None:
    set_rules(root, in_flight=3, repairs=0)
    more = "IDEA: notes\nFAMILY: other\nKNOB: TILE=32\n"
    script = [edit(1.25), edit(1.3), more, edit(1.5, 1.25)]
    with openai_server(script) as server, night(root, server, 3) as climb:
        climb.climb()
    ideas = {c.proposal.idea: str(c.judged.reason or "kept") for c in climb.ledger.candidates if c.judged}
    assert "stale" in [d.reason for d in climb.ledger.dropped.values()]
    assert ideas["notes"] == "kept"  # made for the baseline, and still good on what came meanwhile


@pytest.mark.parametrize("name", ["quota", "unauthorised", "no_model"])
def test_what_no_further_call_can_mend_ends_the_asking(root: Path, name: str) -> None:
    set_rules(root, in_flight=1)
    with openai_server([fault(name)]) as server, night(root, server, 50) as climb:
        finished = climb.climb()
        asked = len(server.requests)
    assert "no further model calls" in finished.reason and asked == 1 and len(climb.troubles) == 1


@pytest.mark.parametrize(("name", "more"), [("quota", 1), ("unauthorised", MAX_REFUSALS)])
def test_a_key_that_worked_before_is_tried_again_and_a_quota_is_not(root: Path, name: str, more: int) -> None:
    set_rules(root, in_flight=1)
    with openai_server([edit(1.25), fault(name)]) as server, night(root, server, 50) as climb:
        finished = climb.climb()
        asked = len(server.requests)
    assert "no further model calls" in finished.reason and finished.wins == 1
    assert asked == 1 + more


def test_an_outage_is_waited_out(root: Path) -> None:
    set_rules(root, in_flight=1)
    script = [fault("r500"), fault("r500"), fault("html200"), edit(1.25)]
    with openai_server(script) as server, night(root, server, 1, deadline=0.4) as climb:
        finished = climb.climb()
    assert finished.wins == 1
    assert [call.outcome for call in climb.ledger.calls].count("fault") >= 1
    clock = climb.clock
    assert isinstance(clock, SkippingClock) and sum(clock.slept) >= FIRST_BACKOFF_SECONDS * 0.9


@pytest.mark.slow(4, only=["hang"])
@pytest.mark.parametrize("name", ["html200", "r503", "hang"])
def test_a_long_outage_is_waited_out_too(root: Path, name: str) -> None:
    set_rules(root, in_flight=1)
    script = [fault(name)] * (MAX_FRUITLESS_REPLIES + 1) + [answer(edit(1.25))]
    with openai_server(script) as server, night(root, server, 1, deadline=0.3) as climb:
        assert climb.climb().wins == 1
    assert [call.outcome for call in climb.ledger.calls].count("fault") >= MAX_FRUITLESS_REPLIES + 1


@pytest.mark.parametrize("name", ["badjson", "empty"])
def test_answers_that_cannot_be_read_end_the_asking(root: Path, name: str) -> None:
    """The server bills each of them."""
    set_rules(root, in_flight=1)
    never = BackoffPolicy(first_seconds=3600, max_seconds=3600)  # beyond the deadline: one request an answer
    with (
        openai_server([fault(name)]) as server,
        night(root, server, 50, deadline=60.0, pauses=never) as climb,
    ):
        finished = climb.climb()
        asked = len(server.requests)
    assert (
        f"{MAX_FRUITLESS_REPLIES} replies in a row came to nothing" in finished.reason
        and asked == MAX_FRUITLESS_REPLIES
    )
    assert all(call.usage.estimated and call.usage.total > 32_000 for call in climb.ledger.calls)
    assert climb.ledger.assumed_tokens == climb.ledger.tokens == finished.assumed_tokens


def test_a_token_budget_holds_for_answers_that_cannot_be_read(root: Path) -> None:
    budgets = BudgetOverrides(candidates=50, tokens=20_000)
    with openai_server([fault("huge")]) as server, night(root, server, budgets=budgets) as climb:
        finished = climb.climb()
        asked = len(server.requests)
    assert finished.reason.startswith("the budget of 20000 tokens is used up") and asked == 1


MALICIOUS = [
    reply("out", "QUALITY = 1.0", "x", "../contract.py"),
    "IDEA: out\nFILE: ../../../../../etc/passwd\n```\nroot\n```\n",
    "IDEA: hook\nFILE: .git/hooks/post-commit\n```\n#!/bin/sh\ntouch /tmp/owned\n```\n",
    "IDEA: case\nFILE: ../case.yaml\n```\nschema: 1\n```\n",
    "IDEA: {{ 7 * 7 }} </script><script>alert(1)</script> \x1b[2J\nFILE: kernel.py\n```\nQUALITY = 0.1\n```\n",
]


@pytest.mark.parametrize("text", MALICIOUS)
def test_a_malicious_reply_costs_a_candidate_at_most(root: Path, text: str) -> None:
    set_rules(root, in_flight=1, repairs=0)
    before = git(root, "status", "--porcelain"), git(root, "rev-parse", "HEAD")
    with openai_server([text, edit(1.25), "and nothing more"]) as server, night(root, server, 3) as climb:
        finished = climb.climb()
    assert "kept" in reasons(climb)
    assert (
        finished.candidates == 3
        or f"{MAX_FRUITLESS_REPLIES} replies in a row came to nothing" in finished.reason
    )
    assert all(
        reason in ("kept", "outside_workspace", "slower", "does_not_apply") for reason in reasons(climb)
    )
    assert (git(root, "status", "--porcelain"), git(root, "rev-parse", "HEAD")) == before


def test_paid_replies_are_used_by_the_next_session(root: Path) -> None:
    set_rules(root, in_flight=2)
    script = [edit(1.25), "IDEA: tile\nFAMILY: tiling\nKNOB: TILE=32\n"]
    with openai_server(lambda asked: answer(script[min(asked.count, 2) - 1])) as server:
        with night(root, server, 1) as climb:
            climb.climb()
        waiting = {call.k for call in climb.ledger.calls if call.outcome == "proposal"} - {1}
        with night(root, server, 2) as later:
            later.climb()
    assert waiting and later.ledger.candidates[1].proposal.call in waiting
    assert reasons(later) == ["kept", "kept"]


def test_a_token_budget_ends_the_climb(root: Path) -> None:
    set_rules(root, in_flight=4)
    budgets = BudgetOverrides(candidates=50, tokens=2500)
    with openai_server(climbing) as server, night(root, server, budgets=budgets) as climb:
        finished = climb.climb()
    assert finished.reason.startswith("the budget of 2500 tokens is used up")
    assert climb.ledger.tokens == 3000, "passed by less than one call, and none was begun beyond it"


@pytest.mark.parametrize(
    ("budgets", "calls"),
    [
        (BudgetOverrides(candidates=1, tokens=40_000), 2),
        (BudgetOverrides(candidates=1, tokens=1_000_000), 3),
        (BudgetOverrides(candidates=1, cost=0.4), 2),
        (BudgetOverrides(candidates=1, cost=10.0), 3),
    ],
)
def test_calls_are_begun_side_by_side_where_the_budget_holds_them_all(
    root: Path, budgets: BudgetOverrides, calls: int
) -> None:
    """Each may take about 33,000 tokens or 0.32 dollars; one that is alone is begun while anything is left."""
    set_rules(root, in_flight=3)

    def slow(asked: Asked) -> Turn:
        return climbing(asked) if asked.count == 1 else fault("hang")

    with openai_server(slow) as server, night(root, server, budgets=budgets) as climb:
        climb.climb()
    assert [call.outcome for call in climb.ledger.calls] == ["proposal"] + ["fault"] * (calls - 1)


def test_a_cost_budget_ends_the_climb(root: Path) -> None:
    budgets = BudgetOverrides(candidates=50, cost=0.004)
    with openai_server(climbing) as server, night(root, server, budgets=budgets) as climb:
        finished = climb.climb()
    assert finished.reason.startswith("the budget of $0.0040 is used up")


def test_a_call_given_up_at_the_end_is_counted(root: Path) -> None:
    set_rules(root, in_flight=2)

    def slow(asked: Asked) -> Turn:
        return climbing(asked) if asked.count == 1 else fault("hang")

    with openai_server(slow) as server, night(root, server, 1) as climb:
        climb.climb()
    last = climb.ledger.calls[-1]
    assert (last.outcome, last.fault) == ("fault", "given_up")
    assert last.usage.estimated and last.usage.prompt > 500 and last.usage.completion == 32_000


def test_a_disk_that_refuses_at_the_end_loses_no_call(root: Path) -> None:
    """The seconds run out while a model thinks, and what is under way is given up once the disk takes writes."""
    set_rules(root, in_flight=2)
    disk = Refusing(1)
    options = {"disk": disk, "deadline": 60.0, "budgets": BudgetOverrides(candidates=50, seconds=2.0)}
    with openai_server([fault("hang")]) as server, night(root, server, **options) as climb:
        climb.climb()
        asked = len(server.requests)
    assert disk.left == 0 and asked == 2
    assert [call.fault for call in climb.ledger.calls] == ["given_up"] * asked
    assert not [thread for thread in threading.enumerate() if thread.name == "model endpoint"]


def test_the_key_is_nowhere(root: Path) -> None:
    def echo(asked: Asked) -> Turn:
        return climbing(asked) if asked.count != 2 else fault("key_echo")

    with openai_server(echo) as server, night(root, server, 2) as climb:
        climb.climb()
        assert any(KEY in str(request.headers) for request in server.requests)
    for path in (path for path in root.rglob("*") if path.is_file()):
        assert KEY.encode() not in path.read_bytes(), path
    assert not any(KEY in event.model_dump_json() for event in climb.events)
    assert all(isinstance(call, CalledEntry) for call in climb.ledger.calls)


@pytest.mark.parametrize("in_flight", [1, 2, 16])
def test_a_model_that_repeats_itself_is_given_up(root: Path, in_flight: int) -> None:
    set_rules(root, in_flight=in_flight)
    with openai_server([edit(0.5)]) as server, night(root, server, 50) as climb:
        finished = climb.climb()
        asked = len(server.requests)
    assert "replies in a row came to nothing" in finished.reason and reasons(climb) == ["slower"]
    assert asked <= 1 + MAX_FRUITLESS_REPLIES + 2 * in_flight


def test_faults_in_between_do_not_hide_that_nothing_comes_of_it(root: Path) -> None:
    set_rules(root, in_flight=1)
    script = lambda asked: fault("r500") if asked.count % 3 == 0 else answer("garbage")  # noqa: E731
    with openai_server(script) as server, night(root, server, 50, deadline=0.3) as climb:
        assert "replies in a row came to nothing" in climb.climb().reason


def test_a_refusal_without_words_is_told_too(root: Path) -> None:
    set_rules(root, in_flight=1)
    with openai_server([answer(None, refusal="\n")]) as server, night(root, server, 50) as climb:
        assert "replies in a row came to nothing" in climb.climb().reason


def test_an_exchange_that_is_gone_is_not_mended_and_ends_nothing(root: Path) -> None:
    set_rules(root, in_flight=1)
    with openai_server([edit(2.0, flaw="wrong_result"), edit(1.5)]) as server:
        with night(root, server, 1) as climb:
            climb.climb()
        for path in (climb.folder / "calls").iterdir():
            path.unlink()
        with night(root, server, 2) as later:
            finished = later.climb()
    assert finished.wins == 1
    assert any("not mended" in message for message in later.troubles)


def test_one_404_after_good_answers_is_a_hiccup(root: Path) -> None:
    set_rules(root, in_flight=1)
    script = [edit(1.25), fault("no_model"), edit(1.5, 1.25)]
    with openai_server(script) as server, night(root, server, 2) as climb:
        assert climb.climb().wins == 2


def test_replies_survive_a_disk_that_refuses_them_for_a_while(root: Path) -> None:
    set_rules(root, in_flight=2)
    disk = Refusing(3)
    with openai_server(climbing) as server, night(root, server, 2, disk=disk) as climb:
        climb.climb()
        asked = len(server.requests)
    assert disk.left == 0 and reasons(climb) == ["kept", "kept"]
    assert len(climb.ledger.calls) == asked
    assert not [thread for thread in threading.enumerate() if thread.name == "model endpoint"]


class Refusing(Disk):
    """A disk that is full for the first exchanges."""

    def __init__(self, times: int) -> None:
        self.left = times

    def replace(self, path: Path, data: bytes, mode: int = 0o644) -> None:
        if path.parent.name == "calls" and self.left:
            self.left -= 1
            raise StorageError(f"{path}: no space left on device; free some")
        super().replace(path, data, mode)


def test_while_the_endpoint_is_down_the_sweep_goes_on(root: Path) -> None:
    with openai_server([fault("r500")]) as server, night(root, server, 14, deadline=0.2) as climb:
        make = climb.make_proposer
        assert make
        climb.make_proposer = lambda background: MixedProposer(
            background,
            SweepProposer(background.case.knobs, 0),
            make(background),
            AblationProposer(background),  # type: ignore[arg-type]
        )
        climb.climb()
    assert len(reasons(climb)) == 14
    assert "edit" in [turn.phase for turn in climb.ledger.turns]
