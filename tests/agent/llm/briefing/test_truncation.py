"""What gives way to the budget, and in which order."""

from __future__ import annotations

from dataclasses import asdict, fields

from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.llm.briefing.truncation import STEPS, Extent, cut_above, largest, newest, shrink

NAMES = [field.name for field in fields(Extent)]
EXTENTS = st.builds(Extent, **{name: st.integers(0, 60) for name in NAMES})


def size(extent: Extent) -> int:
    return sum(asdict(extent).values())


@given(EXTENTS, st.integers(0, 900))
def test_it_fits_or_nothing_is_left(extent: Extent, budget: int) -> None:
    small = shrink(extent, lambda tried: size(tried) <= budget)
    assert size(small) <= budget or size(small) == 0
    assert all(
        0 <= after <= before
        for before, after in zip(asdict(extent).values(), asdict(small).values(), strict=True)
    )


@given(EXTENTS, st.integers(0, 900))
def test_no_more_is_cut_than_must_be_of_what_is_cut_last(extent: Extent, budget: int) -> None:
    small = shrink(extent, lambda tried: size(tried) <= budget)
    if small != extent and size(small):
        assert size(small) == budget


def test_each_step_is_exhausted_before_the_next() -> None:
    start = Extent(**dict.fromkeys(NAMES, 14))
    touched: list[str] = []
    for budget in range(size(start), -1, -1):
        small = asdict(shrink(start, lambda tried, most=budget: size(tried) <= most))  # type: ignore[misc]
        touched += [name for name in NAMES if small[name] < 14 and name not in touched]
    assert touched == list(dict.fromkeys(name for name, _ in STEPS))
    assert sorted(touched) == sorted(NAMES)


def test_what_fits_is_left_alone() -> None:
    start = Extent(**dict.fromkeys(NAMES, 5))
    assert shrink(start, lambda tried: True) is start


def test_a_cut_list_says_how_much_is_gone() -> None:
    lines = ["one", "two", "three"]
    assert newest(lines, 3, "wins").text == "- one\n- two\n- three"
    cut = newest(lines, 1, "wins")
    assert (cut.text, cut.cuts) == ("[cut: 2 older wins]\n- three", ("2 older wins",))
    cut = largest(lines, 2, "entries")
    assert (cut.text, cut.cuts) == ("- one\n- two\n[cut: 1 smaller entries]", ("1 smaller entries",))
    assert newest([], 0, "wins").cuts == largest([], 0, "entries").cuts == ()
    assert cut_above(["- one"], "").text == "- one"
