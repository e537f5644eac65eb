"""Text of others, shown as data: it cannot leave its quotes, its fence or its line."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from hillclimb.agent.llm.briefing.quoting import (
    REPLACEMENT_CHARACTER,
    clean,
    clip_middle,
    fenced,
    outline,
    quoted,
)
from hillclimb.harness.wording import count

TEXTS = st.text(st.characters(exclude_categories=()), max_size=300) | st.text(
    '`#\n"[]x \u202e\ud800', max_size=80
)


@given(TEXTS)
def test_what_is_shown_can_be_sent_and_holds_no_control_character(text: str) -> None:
    shown = clean(text)
    shown.encode()
    assert all(char in "\n\t" or char.isprintable() or char.isspace() for char in shown)


def test_plain_text_stays_as_it_is() -> None:
    text = "def f(x):\n\treturn 'größer'  # ≥ 1\u00a0ms\n"
    assert clean(text) == text
    assert (
        clean("a\r\nb\x1b[2J\u2028\ud800")
        == f"a\nb{REPLACEMENT_CHARACTER}[2J{REPLACEMENT_CHARACTER}{REPLACEMENT_CHARACTER}"
    )


@given(TEXTS)
def test_a_quotation_is_one_line_that_ends_where_it_ends(text: str) -> None:
    shown = quoted(text, 100)
    assert len(shown.splitlines()) == 1
    assert shown[0] == shown[-1] == '"'
    assert '"' not in shown[1:-1]
    assert len(shown) <= 102


@given(TEXTS)
def test_no_text_closes_its_fence(text: str) -> None:
    first, *inside, last = fenced(text).split("\n")
    assert first == f"{last}text"
    assert set(last) == {"`"}
    assert not any(last in line for line in inside)
    assert "\n".join(inside) == clean(text).removesuffix("\n")


@given(TEXTS, st.integers(20, 200))
def test_a_clipped_text_says_how_much_is_gone(text: str, longest: int) -> None:
    shown, lost = clip_middle(text, longest)
    assert (lost == 0) == (len(clean(text)) <= longest)
    if lost:
        assert f"[cut: {count(lost, 'character')}]" in shown
        assert len(shown) - len(f"\n[cut: {count(lost, 'character')}]\n") + lost == len(clean(text))


def test_an_outline_keeps_what_a_file_is_made_of() -> None:
    text = "import os\n\nX = 1\n\ndef f(x):\n    y = 1\n    return y\n\nclass A:\n    def g(self):\n        pass\n"
    shown, lost = outline(text)
    assert [line for line in shown.splitlines() if "not shown" not in line] == [
        "import os",
        "X = 1",
        "def f(x):",
        "class A:",
        "    def g(self):",
    ]
    assert lost == 6
    assert sum(int(n) for n in re.findall(r"\[(\d+) lines? not shown\]", shown)) == lost


def test_an_outline_has_an_end() -> None:
    shown, lost = outline("".join(f"x{i} = {i}\n" for i in range(1000)))
    assert lost == 940
    assert "[940 lines not shown]" in shown
    assert outline("\n".join(" indented" for _ in range(70)))[1] == 10
