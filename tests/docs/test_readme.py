"""README, tutorial and guides are short, and every link of the docs leads somewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.docs.prose import FENCE, sentences, word_count

ROOT = Path(__file__).resolve().parents[2]
FRONT = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md", "CHANGELOG.md")),
    *(ROOT / "docs" / name for name in ("README.md", "tutorial.md", "glossary.md")),
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
    *(ROOT / name for name in ("prompts/README.md", "prompts/skills/hillclimb/SKILL.md", "runs/README.md")),
]

PAGES = sorted({*FRONT, *(ROOT / "docs").rglob("*.md")})

MAX_WORDS = 700
MAX_SENTENCE_WORDS = 25
GUIDES = ("write-a-case", "read-a-run", "use-a-model", "use-a-gpu", "use-a-coding-agent", "post-to-discord")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links(page: Path) -> Iterator[str]:
    """Targets within the repository, of links and pictures."""
    text = re.sub(r"`[^`\n]*`", "", FENCE.sub("", page.read_text()))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if not re.match(r"[a-z]+:", target):
            yield target


def anchors(page: Path) -> set[str]:
    """What `#...` may name: each heading in lower case, without punctuation, with hyphens for blanks."""
    headings = re.findall(r"^#+ (.*)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    texts = (re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-") for text in texts}


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().split()) <= MAX_WORDS


@pytest.mark.parametrize("page", FRONT, ids=name_of)
def test_no_sentence_is_long(page: Path) -> None:
    long = [
        f"{word_count(sentence)} words: {sentence}"
        for sentence in sentences(page.read_text())
        if word_count(sentence) > MAX_SENTENCE_WORDS
    ]
    assert not long, "\n".join(long)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert not broken


@pytest.mark.parametrize("guide", GUIDES)
def test_the_index_has_every_guide(guide: str) -> None:
    assert f"(guides/{guide}.md)" in (ROOT / "docs" / "README.md").read_text()


def test_what_counts_as_a_link_and_as_an_anchor(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b` [c](d.md), e\n\n[x](y.md#z) `[no](no.md)` [w](https://w)\n\n```\n[no](n)\n```\n")
    assert list(links(page)) == ["d.md", "y.md#z"]
    assert anchors(page) == {"a-b-c-e"}
