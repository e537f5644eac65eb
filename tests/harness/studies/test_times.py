from __future__ import annotations

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hillclimb.harness.errors import UsageError
from hillclimb.harness.studies.times import TimesRow, read, replace_problems, update, write

words = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]), max_size=12).map(str.strip)
names = words.filter(lambda word: word != "" and not word.startswith("#"))
floats = st.none() | st.floats(allow_nan=False, allow_infinity=False)
rows = st.builds(
    TimesRow, study=names, case=names, problem=names, variant=names, kernel=words, note=words, state=words,
    device=words, call_us=floats, speedup=floats, launches=floats,
)  # fmt: skip


keys = st.from_regex(r"[a-z_]{1,9}", fullmatch=True)


@given(st.lists(rows, max_size=5), st.dictionaries(keys, names, max_size=3))
def test_what_is_written_is_read_again(table: list[TimesRow], known: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "times.csv")
        write(file, known, table)
        assert read(file) == ({name: " ".join(value.split()) for name, value in known.items()}, table)
        assert [path.name for path in file.parent.iterdir()] == ["times.csv"]


def row(case: str, problem: str, variant: str = "baseline", state: str = "now") -> TimesRow:
    return TimesRow(study="s", case=case, problem=problem, variant=variant, kernel="k", state=state)


def test_fresh_rows_take_the_place_of_a_problems_old_ones() -> None:
    table = [row("a", "p"), row("a", "q"), row("b", "p"), row("b", "p", "optimized")]
    fresh = [row("b", "p", "baseline", "later"), row("a", "r")]
    assert replace_problems(table, fresh) == [
        row("a", "p"),
        row("a", "q"),
        row("a", "r"),
        row("b", "p", "baseline", "later"),
    ]


def test_nothing_is_lost_where_several_bring_one_table_up_to_date(tmp_path: Path) -> None:
    file, cases = tmp_path / "times.csv", "abcdefgh"

    def measure(case: str) -> None:
        for problem in "pqrst":
            update(file, {"device": case}, [row(case, problem)])

    with ThreadPoolExecutor(len(cases)) as measuring:
        list(measuring.map(measure, cases))
    assert read(file)[1] == [row(case, problem) for case in cases for problem in "pqrst"]
    assert [path.name for path in tmp_path.iterdir()] == ["times.csv"]


def test_no_table_is_an_empty_one(tmp_path: Path) -> None:
    assert read(tmp_path / "none.csv") == ({}, [])


@pytest.mark.parametrize("text", ["a,b\n1,2\n", "study,case,problem,variant,kernel,state,call_us\ns,c,p,v,k,x,fast\n",
                                  "study,case,problem,variant,kernel,state\ns,c,p,v,k,x,more\n", "\xff"])  # fmt: skip
def test_another_table_is_refused_and_left_alone(tmp_path: Path, text: str) -> None:
    file = tmp_path / "times.csv"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(UsageError, match="move"):
        read(file)
    assert file.read_bytes() == text.encode("latin-1")
