from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hillclimb.agent.machine.disk import Disk
from hillclimb.agent.proposal import Edit, Proposal
from hillclimb.agent.record.entries import (
    ENTRY,
    ConfirmingEntry,
    Entry,
    FinishedEntry,
    JudgedEntry,
    OpenedEntry,
    ProposedEntry,
    SessionEntry,
    SettledEntry,
)
from hillclimb.agent.record.ledger import Ledger
from hillclimb.harness.errors import UsageError
from hillclimb.harness.records import Interval, Reason
from tests.fakes.judge import PROVENANCE

OPENED = OpenedEntry(
    schema_version=1,
    time=100.0,
    case="demo/toy",
    case_path="cases/demo/toy",
    tag="night",
    seed=3,
    alpha=0.01,
    base="b" * 40,
    snapshot=False,
    provenance=PROVENANCE,
)


def proposed(n: int) -> ProposedEntry:
    edit = Edit(path="kernel.py", content="line\nüñí\u2028\n")
    return ProposedEntry(
        n=n, time=100.0 + n, proposal=Proposal(author="llm", idea=f"idea {n}", edits=(edit,))
    )


def judged(n: int, *, kept: bool, parent: str = "b" * 40) -> JudgedEntry:
    gain = Interval(estimate=1.5, low=1.4, high=1.6, pairs=5)
    return JudgedEntry(
        n=n,
        time=100.5 + n,
        kept=kept,
        reason=None if kept else Reason.SLOWER,
        cumulative=gain if kept else None,
        parent=parent,
        commit=f"{n:040d}",
        ref="refs/x",
    )


ENTRIES: list[Entry] = [
    OPENED,
    SessionEntry(time=100.0, pid=1, host="h"),
    proposed(1),
    ConfirmingEntry(n=1, k=1, alpha=0.006),
    judged(1, kept=True),
    SettledEntry(n=1),
    proposed(2),
    judged(2, kept=False),
    SettledEntry(n=2),
    proposed(3),
]


def written(path: Path, entries: list[Entry]) -> Ledger:
    ledger = Ledger.open(path, Disk())
    for entry in entries:
        ledger.append(entry)
    return ledger


def state(ledger: Ledger) -> tuple[object, ...]:
    return (
        ledger.opened,
        ledger.candidates,
        ledger.wins,
        ledger.confirmations,
        ledger.spans,
        ledger.finished,
    )


def test_reading_back_gives_what_appending_gave(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    assert state(written(path, ENTRIES)) == state(Ledger.open(path, Disk())) == state(Ledger.read(path))


def test_what_the_lines_add_up_to(tmp_path: Path) -> None:
    ledger = written(tmp_path / "ledger.jsonl", ENTRIES)
    assert ledger.pending is not None and ledger.pending.n == 3
    assert [win.n for win in ledger.wins] == [1]
    assert ledger.incumbent == f"{1:040d}"
    assert (ledger.cumulative, ledger.judged, ledger.candidates_since_win, ledger.confirmations) == (
        1.5,
        2,
        1,
        1,
    )


def test_a_kept_candidate_is_no_win_before_its_ref_is_written(tmp_path: Path) -> None:
    ledger = written(tmp_path / "ledger.jsonl", ENTRIES[:5])
    assert ledger.wins == [] and ledger.incumbent == OPENED.base
    assert ledger.pending is not None and ledger.pending.judged is not None


def test_finished_holds_until_the_climb_goes_on(tmp_path: Path) -> None:
    ledger = written(tmp_path / "ledger.jsonl", [*ENTRIES[:9], FinishedEntry(time=200.0, reason="done")])
    ledger.append(SessionEntry(time=300.0, pid=2, host="h"))
    assert ledger.finished is not None
    ledger.append(proposed(3))
    assert ledger.finished is None


@settings(max_examples=60)
@given(
    cut=st.integers(min_value=0),
    garbage=st.sampled_from([b"", b'{"kind":', b"\0" * 7, b"\xff\n", b"not json\n"]),
)
def test_whatever_a_crash_leaves_at_the_end_is_cut_off(
    tmp_path_factory: pytest.TempPathFactory, cut: int, garbage: bytes
) -> None:
    path = tmp_path_factory.mktemp("torn") / "ledger.jsonl"
    lines = [ENTRY.dump_json(entry) + b"\n" for entry in ENTRIES]
    whole = b"".join(lines)
    kept = whole[: cut % (len(whole) + 1)]
    sound = kept[: kept.rfind(b"\n") + 1]
    torn = kept if kept != sound else kept + garbage
    path.write_bytes(torn)
    seen = Ledger.read(path)
    assert path.read_bytes() == torn
    ledger = Ledger.open(path, Disk())
    assert path.read_bytes() == sound
    assert state(seen) == state(ledger)
    for entry in ENTRIES[sound.count(b"\n") :]:
        ledger.append(entry)
    assert path.read_bytes() == whole


@pytest.mark.parametrize("line", range(1, len(ENTRIES)))
def test_damage_before_the_end_names_its_line(tmp_path: Path, line: int) -> None:
    path = tmp_path / "ledger.jsonl"
    lines = [ENTRY.dump_json(entry) for entry in ENTRIES]
    lines[line - 1] = lines[line - 1][:-5]
    path.write_bytes(b"\n".join(lines) + b"\n")
    before = path.read_bytes()
    with pytest.raises(UsageError, match=rf"line {line} .*--tag"):
        Ledger.open(path, Disk())
    assert path.read_bytes() == before


def test_a_line_of_another_version_is_never_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(ENTRY.dump_json(OPENED) + b'\n{"kind":"from the future"}\n')
    with pytest.raises(UsageError, match=r"line 2 .*the version that wrote it"):
        Ledger.open(path, Disk())
    assert path.read_bytes().count(b"\n") == 2


@pytest.mark.parametrize(
    "entries",
    [
        [OPENED, OPENED],
        [OPENED, proposed(2)],
        [OPENED, proposed(1), proposed(2)],
        [OPENED, proposed(1), SettledEntry(n=1)],
        [OPENED, proposed(1), judged(1, kept=True), judged(1, kept=False)],
        [OPENED, judged(1, kept=False)],
    ],
)
def test_lines_out_of_order_are_damage(tmp_path: Path, entries: list[Entry]) -> None:
    path = tmp_path / "ledger.jsonl"
    path.write_bytes(b"".join(ENTRY.dump_json(entry) + b"\n" for entry in entries))
    with pytest.raises(UsageError, match=f"line {len(entries)} "):
        Ledger.read(path)


def test_a_ledger_opened_for_reading_refuses_to_grow(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="opened for reading"):
        Ledger.read(tmp_path / "none").append(OPENED)


def test_a_ledger_of_another_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    line = OPENED.model_dump_json().replace('"schema_version":1', '"schema_version":2')
    path.write_text(f"{line}\n")
    with pytest.raises(UsageError, match=r"line 1.*use the version that wrote it"):
        Ledger.read(path)
