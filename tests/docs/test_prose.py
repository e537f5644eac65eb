"""The pages that explain, state and decide are written in short sentences."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.prose import sentences, word_count

DOCS = Path(__file__).resolve().parents[2] / "docs"
FOLDERS = ("reference", "explanation", "results", "decisions")
MAX_WORDS = 25


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_sentence_is_long(folder: str) -> None:
    pages = sorted((DOCS / folder).glob("*.md"))
    assert pages
    long = [
        f"{page.name}: {word_count(sentence)} words: {sentence}"
        for page in pages
        for sentence in sentences(page.read_text())
        if word_count(sentence) > MAX_WORDS
    ]
    assert not long, "\n".join(long)


def test_the_splitter() -> None:
    page = "# A heading. Not counted\n\nOne `a b. C` [two](x.md). Three\nfour 1.5 x.\n\n- Five.\n- Six\n\n| a. B |\n"
    assert list(sentences(page)) == ["One CODE two.", "Three four 1.5 x.", "Five.", "Six"]
    assert word_count("A - b 1.5") == 3
