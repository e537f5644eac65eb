"""Every kind of candidate shown; what is gone is said to be gone; and nothing written by others steers a terminal."""

from __future__ import annotations

import io
import json
import math
import os
import pty
import shutil
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.git.repository import Repository
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.record.entries import CalledEntry, ProposedEntry, Samples, TokenUsage
from hillclimb.agent.review.blocks import describe_environment
from hillclimb.agent.review.candidate_view import describe_baseline, describe_candidate
from hillclimb.agent.review.show import StoredRun, show_baseline, show_candidate, summarise
from hillclimb.agent.screen.escaping import StyledLine, escape_unprintable, print_lines
from hillclimb.harness.errors import UsageError
from hillclimb.harness.records import Block, Environment, Pair
from hillclimb.harness.statistics.readings import log_ratio
from tests.fakes.night import KINDS, Night, git, make_repository
from tests.fakes.toy import kernel

HOSTILE = f"{kernel(9.0)}# \x1b]0;owned\x07\x1b[2J\u202egnp.\r\u2028\n"


class Plan:
    """One candidate whose words and files try to write to the terminal, after the usual ones."""

    def __init__(self) -> None:
        from tests.fakes.proposer import PlannedProposer

        self._usual = PlannedProposer()

    def propose(self, ledger):  # type: ignore[no-untyped-def]
        n = len(ledger.candidates) + 1
        if n <= len(KINDS):
            return self._usual.propose(ledger)
        if n == len(KINDS) + 1:
            call = {"seconds": 12.0, "model": "m\x1b[31m", "incumbent": ledger.incumbent, "cost": 0.02}
            used = TokenUsage(prompt=8000, completion=12)
            ledger.append(CalledEntry(k=1, time=1.0, outcome="proposal", usage=used, note="remember", **call))
            edits = (Edit(path="kernel.py", content=HOSTILE), Edit(path="docs/\x1b[0m.md", content="x"))
            idea = "fast\x1b]8;;http://x\x07er"
            return Proposal(author="llm", idea=idea, family="tricks", edits=edits[:1], call=1)
        return None

    def finish(self, ledger) -> None:  # type: ignore[no-untyped-def]
        pass

    def importances(self, ledger):  # type: ignore[no-untyped-def]
        return {}


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    night = Night(make_repository(tmp_path_factory.mktemp("night") / "repository"), proposer=Plan())
    night.climb()
    return night


@pytest.fixture
def shelf(night: Night) -> StoredRun:
    return StoredRun.open(Repository.open(night.root), night.folder)


@pytest.fixture
def copied(night: Night, tmp_path: Path) -> StoredRun:
    """A copy that a test may damage."""
    shutil.copytree(night.root, tmp_path / "copy")
    return StoredRun.open(Repository.open(tmp_path / "copy"), tmp_path / "copy/runs/demo/toy/night")


def text(shelf: StoredRun, n: int, *, blocks: bool = False) -> str:
    return "\n".join(line.text for line in describe_candidate(show_candidate(shelf, n, blocks=blocks)))


def test_a_win_shows_proposal_figures_samples_and_diff(shelf: StoredRun) -> None:
    shown = text(shelf, 5)
    assert shown.startswith("demo/toy/night #5: kept\n")
    for part in (
        "author      llm",
        "files       kernel.py, docs/more.md",
        "screened    1.250x on one pair, and measured afresh since",
        "speedup     1.250x [1.238, 1.262] over the incumbent",
        "over the baseline",
        "(alpha 0.00152, confirmation 2 of the run)",
        "gate        passed 8 checks, largest error 0.250 of the budget at only/normal",
        "guardrail   ragged: 1.000x [0.990, 1.010], may slow down by 5%: kept",
        "(refs/heads/hillclimb/demo/toy/night)",
        "webhook     not configured",
        "decide      main             3       3        0    1.2500x",
        "-QUALITY = 1.0\n+QUALITY = 1.25",
    ):
        assert part in shown, part


@pytest.mark.parametrize("n", range(1, len(KINDS) + 2))
def test_every_candidate_can_be_shown_in_words_and_as_json(shelf: StoredRun, n: int) -> None:
    found = show_candidate(shelf, n, blocks=True)
    document = json.loads(found.model_dump_json())
    judged = found.judged
    assert judged is not None
    assert (document["n"], document["state"]) == (n, "kept" if judged.kept else "rejected")
    assert (judged.reason or "kept") in text(shelf, n)
    for line in describe_candidate(found):
        assert "\n" not in line.text
        assert not any(unicodedata.category(c) in ("Cc", "Cf", "Zl") for c in line.text.replace("\t", ""))


def test_what_was_not_built_shows_its_edits_as_proposed(shelf: StoredRun) -> None:
    found = show_candidate(shelf, 3, blocks=False)
    assert found.diff_missing == "no tree was built: the edits as proposed"
    assert found.diff == "--- a/../contract.py\n+++ b/../contract.py\n@@ -0,0 +1 @@\n+pass\n"
    assert found.samples_missing == "nothing was timed"


def test_a_hostile_candidate_is_shown_in_letters(shelf: StoredRun) -> None:
    shown = text(shelf, len(KINDS) + 1)
    assert "idea        fast\\x1b]8;;http://x\\x07er" in shown
    assert "+# \\x1b]0;owned\\x07\\x1b[2J\\u202egnp.\\r\\u2028" in shown
    assert "call        1 to m\\x1b[31m: 12 s, 8012 tokens, $0.0200 (calls/1.json)" in shown
    assert "note        remember" in shown


def test_attributes_and_configuration_of_the_repository_hide_nothing(copied: StoredRun) -> None:
    root = copied.repository.root
    (root / ".git/info").mkdir(exist_ok=True)
    (root / ".git/info/attributes").write_text("*.py binary\n*.py diff=evil\n")
    for name in ("diff.external", "diff.evil.command", "diff.evil.textconv", "core.pager"):
        git(root, "config", name, f"touch {root}/ran")
    for name in ("diff.noprefix", "color.ui"):
        git(root, "config", name, "always" if name == "color.ui" else "true")
    assert "--- a/cases/demo/toy/workspace/kernel.py" in text(copied, 5)
    assert "+QUALITY = 1.25" in text(copied, 5)
    assert not (root / "ran").exists()


def test_lost_samples_and_commits_are_said_to_be_lost(copied: StoredRun) -> None:
    (copied.folder / "samples/5.json").unlink()
    (copied.folder / "samples/1.json").write_text("{")
    root = copied.repository.root
    git(root, "update-ref", "-d", "refs/heads/hillclimb/demo/toy/night")
    for ref in copied.repository.refs("refs/hillclimb/"):
        git(root, "update-ref", "-d", ref)
    git(root, "gc", "--quiet", "--prune=now")
    shown = text(StoredRun.open(Repository.open(root), copied.folder), 5)
    assert "samples     5.json is not there" in shown
    assert "is gone from this repository: the edits as proposed" in shown
    assert "+QUALITY = 1.25" in shown
    assert "samples     1.json is damaged" in text(copied, 1)


def test_a_pending_candidate_shows_what_is_known(copied: StoredRun) -> None:
    n = len(copied.ledger.candidates) + 1
    proposal = Proposal(
        author="human", idea="try", edits=(Edit(path="kernel.py", content="QUALITY = 3.0\n"),)
    )
    line = ProposedEntry(n=n, time=1.0, proposal=proposal).model_dump_json()
    with (copied.folder / "ledger.jsonl").open("a") as ledger:
        ledger.write(f"{line}\n")
    shown = text(StoredRun.open(copied.repository, copied.folder), n)
    assert shown.startswith(f"demo/toy/night #{n}: pending")
    assert "diff        not judged yet: as proposed" in shown
    assert "+QUALITY = 3.0" in shown


def test_the_baseline_shows_its_time_and_noise(shelf: StoredRun) -> None:
    found = show_baseline(shelf, blocks=True)
    shown = "\n".join(line.text for line in describe_baseline(found))
    assert "time        1 ms a call" in shown
    assert "noise       1.000x [0.990, 1.010] over itself; one pair scatters by 0.20%" in shown
    assert "profile     100.0%  kernel.py:run" in shown
    assert "pair 1: noise, main, 0 dropped" in shown
    assert json.loads(found.model_dump_json())["baselined"]["seconds_per_call"] == 1e-3


def test_a_number_that_is_not_there_is_told(shelf: StoredRun) -> None:
    for n in (0, 99):
        with pytest.raises(
            UsageError, match=f"has no candidate {n}; it has 1 to {len(KINDS) + 1}, and 'base"
        ):
            show_candidate(shelf, n, blocks=False)


def test_every_block_is_listed_when_asked_for(shelf: StoredRun) -> None:
    assert "  ABBA" in text(shelf, 5, blocks=True)
    assert "  ABBA" not in text(shelf, 5)
    assert len(show_candidate(shelf, 5, blocks=True).pairs) == 4


def test_figures_of_a_stage_are_those_of_its_pairs() -> None:
    def block(a: float, b: float) -> Block:
        return Block(order="BAAB", seconds=(b, a, a, b))

    assert log_ratio(block(1.0, 2.0)) == pytest.approx(math.log(2))
    pairs = [
        Pair(stage="decide", suite="main", blocks=(block(1.0, 2.0), block(1.0, 8.0)), dropped=1),
        Pair(stage="decide", suite="main", blocks=(block(1.0, 1.0),)),
        Pair(stage="guardrail", suite="ragged", blocks=()),
    ]
    decide, rail = summarise(pairs)
    assert (decide.pairs, decide.blocks, decide.dropped) == (2, 3, 1)
    assert decide.median == pytest.approx(math.log(2))
    assert decide.between_pairs == pytest.approx(math.log(4) / math.sqrt(2))
    assert rail.blocks == 0 and math.isnan(rail.median)


@given(st.text())
def test_nothing_that_steers_is_left(given_text: str) -> None:
    plain = escape_unprintable(given_text)
    assert all(c == "\t" or unicodedata.category(c) not in ("Cc", "Cf", "Cs", "Zl", "Zp") for c in plain)
    plain.encode()


def test_colour_is_for_terminals_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    print_lines([StyledLine("kept", "bold green")], colour=True)
    assert stream.getvalue() == "kept\n"


@pytest.mark.parametrize(("options", "coloured"), [((), True), (("--no-color",), False)])
def test_a_terminal_sees_colours_unless_told_not_to(
    night: Night, options: tuple[str, ...], coloured: bool
) -> None:
    master, slave = pty.openpty()
    command = [
        sys.executable,
        "-c",
        "from hillclimb.agent.cli import main; main()",
        "show",
        "demo/toy",
        "5",
        *options,
    ]
    environment = {**os.environ, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path)}
    environment.pop("NO_COLOR", None)
    with os.fdopen(master, "rb") as reader:
        with os.fdopen(slave, "wb") as terminal:
            subprocess.run(command, cwd=night.root, stdout=terminal, check=True, env=environment, timeout=60)
        seen = os.read(reader.fileno(), 65536)
    assert (b"\x1b[" in seen) is coloured
    assert b"kept" in seen


def test_a_reader_who_leaves_early_is_no_error(night: Night) -> None:
    program = (
        "import sys; from hillclimb.agent.cli import main; sys.argv[1:] = ['show', 'demo/toy', '5']; main()"
    )
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-c", program],
            cwd=night.root,
            stdout=closed,
            stderr=subprocess.PIPE,
            timeout=60,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
    assert (done.returncode, done.stderr) == (0, b"")


def test_samples_are_read_as_written(shelf: StoredRun) -> None:
    written = Samples.model_validate_json((shelf.folder / "samples/5.json").read_bytes())
    assert written.confirmation is not None
    assert set(written.confirmation.pairs) <= set(show_candidate(shelf, 5, blocks=True).pairs)


class TestTwoClocks:
    """Blocks of a GPU: device events beside the judge's clock, and what the GPU was doing."""

    PAIR = Pair(
        stage="decide",
        suite="main",
        dropped=2,
        blocks=tuple(
            Block(
                order="ABBA",
                seconds=(1.1e-5, 2.1e-5, 2.1e-5, 1.1e-5),
                events=(1.0e-5, 2.0e-5, 2.0e-5, 1.0e-5),
                environment=Environment(
                    sm_mhz=(1980, mhz), celsius=50, watts=watts, throttle=throttle, tenants=0, crowded=crowded
                ),
            )
            for mhz, watts, throttle, crowded in ((1980, 400, (), None), (1935, 690, ("sw_power_cap",), 1))
        ),
    )

    def told(self, copied: StoredRun, *, blocks: bool) -> str:
        path = copied.folder / "samples/5.json"
        samples = Samples.model_validate_json(path.read_bytes())
        assert samples.confirmation
        confirmation = samples.confirmation.model_copy(update={"pairs": (self.PAIR,)})
        path.write_text(samples.model_copy(update={"confirmation": confirmation}).model_dump_json())
        return text(copied, 5, blocks=blocks)

    def test_events_decide_and_the_judge_s_clock_stands_beside_them(self, copied: StoredRun) -> None:
        (stage,) = summarise([self.PAIR])
        assert math.exp(stage.median) == pytest.approx(2.0)
        assert stage.clock is not None and math.exp(stage.clock) == pytest.approx(2.1 / 1.1)
        shown = self.told(copied, blocks=False)
        assert "decide      main             1       2        2    2.0000x    1.9091x" in shown
        assert "SM 1935-1980 MHz, 50 C, 400-690 W, sw_power_cap in 1 of 2 blocks" in shown
        assert "by device events, which decide while the judge's own clock bears them out" in shown

    def test_every_block_shows_both_and_its_machine(self, copied: StoredRun) -> None:
        shown = self.told(copied, blocks=True).splitlines()
        at = next(number for number, line in enumerate(shown) if line.startswith("pair 2: decide"))
        assert shown[at].endswith("2 dropped")
        first, clock, second, _ = shown[at + 1 : at + 5]
        assert first.split()[0] == "ABBA" and "2.0000x" in first and "SM 1980 MHz  50 C  400 W" in first
        assert clock.split()[0] == "clock" and "1.9091x" in clock
        assert "held down by sw_power_cap  1 segments begun late" in second

    def test_one_clock_is_shown_as_one(self, shelf: StoredRun) -> None:
        shown = text(shelf, 5, blocks=True)
        assert "clock" not in shown and "MHz" not in shown

    def test_what_is_not_told_is_not_shown(self) -> None:
        assert describe_environment(Environment()) == "steal 0.0%  others 0.00"
        assert describe_environment(Environment(tenants=2)).endswith("2 others on the GPU")


def test_a_win_that_was_profiled_shows_its_headroom(shelf: StoredRun) -> None:
    assert "headroom    only: " in text(shelf, 5)
    assert "the ceilings allow" in text(shelf, 5)
    assert "headroom" not in text(shelf, 4)
