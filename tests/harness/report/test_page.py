"""What report.html is made of: lenient reading, rows, packs, samples and words; without a browser."""

from __future__ import annotations

import base64
import json
import random
import re
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hillclimb.harness.records import Reason
from hillclimb.harness.report import page_text
from hillclimb.harness.report.page import PageSources, render
from hillclimb.harness.report.page_costs import add_up_costs, list_phases
from hillclimb.harness.report.page_knobs import (
    MAX_ROWS_PER_KNOB,
    KnobFacts,
    TriedConfiguration,
    describe_knobs,
)
from hillclimb.harness.report.page_ledger import read_history, safe_text
from hillclimb.harness.report.page_packs import Diff, embed, pack_diffs, pack_facts
from hillclimb.harness.report.page_profile import describe_profiles
from hillclimb.harness.report.page_samples import read_stages
from hillclimb.harness.report.plots import _subtitle
from hillclimb.harness.report.progress_data import read_progress
from tests.harness.report.page_night import Night


@pytest.fixture(scope="module")
def night(tmp_path_factory: pytest.TempPathFactory) -> Night:
    return Night(tmp_path_factory.mktemp("night"), 30).write()


def make_page(folder: Path, lines: list[dict[str, Any]] | str) -> str:
    whole = lines if isinstance(lines, str) else "".join(f"{json.dumps(line)}\n" for line in lines)
    (folder / "ledger.jsonl").write_text(whole)
    return render(PageSources(folder, read_history(folder / "ledger.jsonl"))).decode()


def data_of(page: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    assert found
    return json.loads(found[1])


def unpack(packed: str) -> Any:
    return json.loads(zlib.decompress(base64.b64decode(packed)))


# -- reading


def test_what_a_proposal_says_is_no_markup(night: Night, tmp_path: Path) -> None:
    """Of what is written into the page itself; what a script draws is tried in a browser."""
    evil = "<img src=x onerror=alert(1)>"
    lines = [json.loads(line) for line in night.ledger.read_text().splitlines()]
    for line in lines:
        if line["kind"] == "proposed":
            line["proposal"]["idea"] = evil
        if line["kind"] == "opened":
            line["tag"] = line["case"] = evil
    page = make_page(tmp_path, lines)
    assert "<img src=x" not in page
    assert "&lt;img src=x" in page


def test_a_torn_line_is_counted_and_said(night: Night, tmp_path: Path) -> None:
    page = make_page(tmp_path, night.ledger.read_text() + '{"kind":"judg')
    assert "1 line of the ledger could not be read" in page
    assert len(data_of(page)["rows"]) == 30


def test_line_separators_inside_a_text_do_not_split_a_line(tmp_path: Path) -> None:
    line = {"kind": "proposed", "n": 1, "time": 1.0, "proposal": {"author": "llm", "idea": "a\u2028b\x85c"}}
    (tmp_path / "ledger.jsonl").write_text(json.dumps(line, ensure_ascii=False) + "\n")
    chronicle = read_history(tmp_path / "ledger.jsonl")
    assert (len(chronicle.candidates), chronicle.unreadable_lines) == (1, 0)


def test_a_later_session_takes_back_the_end(tmp_path: Path) -> None:
    lines: list[dict[str, Any]] = [
        {"kind": "session", "time": 10.0},
        {"kind": "finished", "time": 20.0, "reason": "patience", "importances": {"TILE": 0.5}},
        {"kind": "session", "time": 100.0},
        {"kind": "proposed", "n": 1, "time": 130.0, "proposal": {}},
    ]
    page = make_page(tmp_path, lines)
    chronicle = read_history(tmp_path / "ledger.jsonl")
    assert chronicle.finished == {}
    assert chronicle.importances == {"TILE": 0.5}
    assert chronicle.elapsed == 40.0
    assert "<b>Unfinished.</b>" in page


def test_a_knob_that_the_best_tree_never_reads_is_said_to_be_unread(tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").write_text("")
    history = read_history(tmp_path / "ledger.jsonl")
    knobs = [
        KnobFacts(name, "int", "8 to 64", "8", "8", is_unread=name == "TILE") for name in ("TILE", "UNROLL")
    ]
    page = render(PageSources(tmp_path, history, knobs=tuple(knobs))).decode()
    assert page.count("never read by the best tree") == 1


def test_too_few_observations_are_said_in_place_of_shares(tmp_path: Path) -> None:
    end = {"kind": "finished", "time": 2.0, "reason": "patience"}
    lines = [
        end | {"importances": {"TILE": 0.5}},
        end | {"importances_missing": "too few observations (7 of 30)"},
    ]
    (tmp_path / "ledger.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    history = read_history(tmp_path / "ledger.jsonl")
    assert history.importances == {}
    page = render(PageSources(tmp_path, history, knobs=(KnobFacts("TILE", "int", "8 to 64", "8", "8"),)))
    assert "Importance: too few observations (7 of 30)." in page.decode()


def test_an_interrupted_run_says_so(tmp_path: Path) -> None:
    lines = [{"kind": "opened"}, {"kind": "finished", "reason": "Ctrl-C", "interrupted": True}]
    assert "<b>Interrupted.</b> <bdi>Ctrl-C</bdi>" in make_page(tmp_path, lines)


def test_figures_that_are_not_finite_are_left_out(tmp_path: Path) -> None:
    judged = {"kind": "judged", "n": 1, "kept": True, "screened": "NaN", "seconds": "Infinity", "parent": "0"}
    judged |= {"cumulative": {"estimate": "Infinity", "low": "NaN", "high": 2.0}, "speedup": None}
    page = make_page(tmp_path, [{"kind": "proposed", "n": 1, "proposal": {"idea": "x"}}, judged])
    (row,) = data_of(page)["rows"]
    assert row[7:14] == [None, None, 2.0, None, None, None, None]


def test_a_dropped_reply_is_told_by_its_reason(tmp_path: Path) -> None:
    lines = [
        {
            "kind": "called",
            "k": 1,
            "outcome": "proposal",
            "model": "m",
            "usage": {"prompt": 5, "completion": 2},
        },
        {"kind": "dropped", "k": 1, "reason": "duplicate", "detail": "as #3"},
    ]
    make_page(tmp_path, lines)
    costs = add_up_costs(read_history(tmp_path / "ledger.jsonl"))
    assert list(costs.outcomes) == ["duplicate"]
    assert (costs.total.tokens, costs.total.paid) == (7, None)


def test_the_headline_is_the_measurement_of_the_last_win(night: Night, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in night.ledger.read_text().splitlines()]
    assert "first commit against last, measured again" in make_page(tmp_path, lines)
    stale = [line | {"commit": "0" * 40} if line["kind"] == "remeasured" else line for line in lines]
    page = make_page(tmp_path, stale)
    assert "as measured when the last win was kept" in page
    assert "The curve ends at" not in page, "there is one figure then"
    assert "first against an earlier win" in page


def test_two_measurements_of_one_thing_are_told_apart(night: Night, tmp_path: Path) -> None:
    lines = [json.loads(line) for line in night.ledger.read_text().splitlines()]
    again, last = {"estimate": 1.789, "low": 1.7, "high": 1.8}, {"estimate": 1.803, "low": 1.8, "high": 1.81}
    for line in lines:
        if line["kind"] == "remeasured":
            line["speedup"] = again
        if line["kind"] == "judged" and line["kept"]:
            line["cumulative"] = last
    page = make_page(tmp_path, lines)
    assert '<span class="best">1.789×</span>' in page
    assert (
        "The curve ends at 1.803×; the figure at the top, 1.789×, is the same comparison over other pairs"
        in page
    )
    story = read_progress(tmp_path)
    assert story.best == 1.789
    told = _subtitle(story)
    assert "measured again at the end: 1.789× [1.700, 1.800]" in told
    assert "the curve ends at 1.803×, as measured when that win was kept" in told


def test_old_ledgers_without_the_newer_kinds(night: Night, tmp_path: Path) -> None:
    old = [json.loads(line) for line in night.ledger.read_text().splitlines()]
    old = [line for line in old if line["kind"] not in ("profiled", "turned", "called", "notified")]
    for line in old:
        line.get("proposal", {}).pop("family", None)
        line.pop("webhook", None)
    page = make_page(tmp_path, old)
    for words in ("No model was asked", "No profile was taken", "This run knows no phases"):
        assert words in page
    assert len(data_of(page)["rows"]) == 30


@settings(max_examples=8, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32), junk=st.sampled_from([None, 5, "x", [], {}, [1], {"a": 1}, True, "NaN", -1])
)
def test_no_ledger_is_too_odd(night: Night, tmp_path: Path, seed: int, junk: Any) -> None:
    """Any value anywhere in a ledger may be something else: the page is made all the same."""
    draw = random.Random(seed)
    lines = [json.loads(line) for line in night.ledger.read_text().splitlines()]
    for line in draw.sample(lines, 12):
        at = line
        while True:
            key = draw.choice([key for key in at if key != "kind"] or ["more"])
            inner = at.get(key)
            if not isinstance(inner, dict) or not inner or draw.random() < 0.4:
                break
            at = inner
        at[key] = junk
    assert make_page(tmp_path, lines).endswith("</html>")


# -- data in the page


@given(st.text())
def test_embedded_json_reads_back_and_ends_nothing(whole: str) -> None:
    found = embed({"a": whole.replace("\ud800", "")})
    assert json.loads(found) == {"a": whole.replace("\ud800", "")}
    assert not re.search("[<>&\u2028\u2029]", found)


def test_packs_read_back() -> None:
    packs = pack_facts({n: {"idea": f"{n} </script>"} for n in range(1, 251)})
    assert [len(group) for group in packs.places] == [100, 100, 50]
    assert unpack(packs.elements["facts-2"])["250"] == {"idea": "250 </script>"}


def test_wins_keep_their_diffs_when_room_is_short() -> None:
    draw = random.Random(1)
    noise = {n: "".join(chr(draw.randrange(33, 1000)) for _ in range(4000)) for n in range(1, 301)}
    packs = pack_diffs({n: Diff(noise[n], is_win=n % 10 == 0) for n in noise}, most=700_000)
    kept = {n for group in packs.places for n in group}
    wins = {n for n in noise if n % 10 == 0}
    assert wins <= kept
    assert kept - wins == set(sorted(set(noise) - wins)[-len(kept - wins) :])
    assert 0 < len(kept - wins) < 270
    assert sum(map(len, packs.elements.values())) <= 700_000


def test_the_page_says_which_diffs_were_left_out(night: Night, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_diffs, "__defaults__", (0,))
    page = render(PageSources(night.folder, read_history(night.ledger), {3: Diff("x"), 5: Diff("y")}))
    assert data_of(page.decode())["undiffed"] == [3, 5]


def test_nothing_is_loaded_and_one_script_may_run(night: Night) -> None:
    page = render(PageSources(night.folder, read_history(night.ledger))).decode()
    assert not re.search(r'(?:src|href)="(?!#|data:,)', page)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
    assert "@import" not in page
    assert "url(" not in page
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', page)
    assert policy
    assert policy[1].startswith("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-")


# -- words


def test_every_reason_is_explained() -> None:
    assert set(page_text.REASON_TEXTS) == set(Reason)
    assert {group for group, _ in page_text.REASON_TEXTS.values()} == {"slow", "stopped"}


@pytest.mark.parametrize(
    ("say", "value", "expected"),
    [
        (page_text.say_speedup, 1.03456, "1.035×"),
        (page_text.say_speedup, 3.421, "3.42×"),
        (page_text.say_speedup, 31.24, "31.2×"),
        (page_text.say_speedup, 1234.5, "1,234×"),
        (page_text.say_speedup, "NaN", "–"),
        (page_text.say_interval, {"low": 1.9484, "high": 2.0712}, "[1.948, 2.071]"),
        (page_text.say_interval, None, ""),
        (page_text.say_seconds, 9.81e-3, "9.81 ms"),
        (page_text.say_seconds, 4.2e-7, "420 ns"),
        (page_text.say_seconds, 0.0, "0 ns"),
        (page_text.say_duration, 45.0, "45 s"),
        (page_text.say_duration, 8000, "2 h 13 min"),
        (page_text.say_share, 0.0042, "0.42 %"),
        (page_text.say_share, 0.463, "46 %"),
        (page_text.say_money, 0.0123, "$0.0123"),
        (page_text.say_money, 2.918, "$2.92"),
        (page_text.say_money, None, "unknown"),
        (page_text.say_when, 1e300, "–"),
        (page_text.say_count, 12345, "12,345"),
    ],
)
def test_figures_in_words(say: Any, value: Any, expected: str) -> None:
    assert say(value) == expected


def test_characters_that_deceive_are_spelled_out() -> None:
    assert safe_text("a\u202eb\x00\r\nc\td\ud800") == "a‹U+202E›b‹U+0000›\nc\td‹U+D800›"
    assert safe_text("x" * 50, 10) == "x" * 9 + "…"


# -- sections


def test_samples_are_boiled_down(tmp_path: Path) -> None:
    block = {"order": "ABBA", "seconds": [1.0, 2.0, 2.0, 1.0], "environment": {"steal": 0.1, "others": 0.5}}
    turned = {"order": "BAAB", "seconds": [3.0, 1.0, 1.0, 3.0]}
    pairs = [
        {"stage": "screen", "suite": "main", "blocks": [block, block], "dropped": 2},
        {"stage": "screen", "suite": "main", "blocks": [turned]},
        {"stage": "screen", "suite": "main", "blocks": [{"order": "ABBA", "seconds": [0, "NaN", 1, 1]}]},
    ]
    (tmp_path / "1.json").write_text(json.dumps({"screening": {"pairs": pairs}, "confirmation": None}))
    assert read_stages(tmp_path / "1.json") == [["screen", "main", 3, 4, 2, 2.5, 2.0, 3.0, 0.1, 0.5]]
    assert read_stages(tmp_path / "2.json") == []
    (tmp_path / "3.json").write_text('{"screening": {"pai')
    assert read_stages(tmp_path / "3.json") == []


def test_phases_and_what_they_led_to(night: Night) -> None:
    rows = list_phases(read_history(night.ledger))
    assert [(row.phase, row.first, row.last, row.wins) for row in rows] == [
        ("sweep", 1, 11, 1),
        ("edit", 12, 23, 1),
        ("sweep", 24, 30, 1),
    ]
    assert rows[-1].best > rows[0].best > 1


def test_knobs_by_value() -> None:
    facts = [KnobFacts("TILE", "int", "1 to 8", "1", "4"), KnobFacts("ODD", "choice", "a, b", "a", "a")]
    seen = [
        TriedConfiguration(n, {"TILE": str(n), "ODD": "a"}, None if n == 3 else float(n))
        for n in (1, 2, 3, 4)
    ]
    tile, odd = describe_knobs(facts, seen, {"TILE": 0.9, "GONE": 0.1})[0::2]
    assert [(row.label, row.middle, row.failed, row.is_now) for row in tile.rows] == [
        ("1", 1.0, 0, False),
        ("2", 2.0, 0, False),
        ("3", None, 1, False),
        ("4", 4.0, 0, True),
    ]
    assert (tile.rows[1].left, tile.rows[3].mark) == (50.0, 100.0)
    assert (odd.rows[0].tried, odd.rows[0].failed, odd.rows[0].low, odd.rows[0].high) == (4, 1, 1.0, 4.0)


@pytest.mark.parametrize("spell", [str, lambda n: f"name{n}"])
def test_many_values_are_put_together(spell: Any) -> None:
    facts = [KnobFacts("K", "", "", "", "")]
    (panel,) = describe_knobs(facts, [TriedConfiguration(n, {"K": spell(n)}, 1.0) for n in range(100)], {})
    assert len(panel.rows) <= MAX_ROWS_PER_KNOB + 1
    assert sum(row.tried for row in panel.rows) == 100


def test_headroom_is_time_over_what_the_ceilings_allow() -> None:
    problem = {"problem": "p", "seconds_per_call": 1.0, "flops": 100.0, "bytes": 10.0}
    ceilings = {"flops": 1000.0, "bytes": 20.0, "how": "measured"}
    before = {"problems": [problem], "buckets": [{"name": "a", "share": 1.0}], "ceilings": ceilings}
    after = {"problems": [problem | {"seconds_per_call": 0.75}], "buckets": [], "ceilings": ceilings}
    panel = describe_profiles([{"profile": before}, {"profile": after}])
    assert panel
    (row,) = panel.problems
    assert (row.limit, row.headroom_before, row.headroom) == ("memory", 2.0, 1.5)
    assert row.gain == pytest.approx(4 / 3)
    assert [(bucket.before, bucket.after) for bucket in panel.buckets] == [(1.0, None)]
