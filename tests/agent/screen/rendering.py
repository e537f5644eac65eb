"""Answers as a model would write them, and random answers to write."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

from hillclimb.agent.llm.replies.replies import DeleteFile, FileChange, ParsedReply, SearchReplace, WholeFile
from hillclimb.agent.record.entries import Idea


def render(answer: ParsedReply, style: set[str] | frozenset[str] = frozenset()) -> str:
    """A reply that says this answer, with the decorations that `style` names."""
    mark = "**" if "bold" in style else ""
    remarks = [("IDEA", answer.idea), ("FAMILY", answer.family)]
    remarks += [("NOTE", note) for note in answer.notes]
    remarks += [("NEXT", f"{idea.family}: {idea.idea}") for idea in answer.next_ideas]
    remarks += [("KNOB", f"{name}={value}") for name, value in answer.knobs.items()]
    parts = [f"{mark}{keyword}:{mark} {value}\n" for keyword, value in remarks]
    parts += [_render_change(change, style) for change in answer.changes]
    text = ("It takes too long, so:\n\n" if "prose" in style else "").join(parts)
    text = f"```\n{text}```\n" if "wrapped" in style else text
    return text.replace("\n", "\r\n") if "crlf" in style else text


def _render_change(change: FileChange, style: set[str] | frozenset[str]) -> str:
    mark, tick = "**" if "bold" in style else "", "`" if "ticks" in style else ""
    if isinstance(change, DeleteFile):
        return f"{mark}DELETE: {tick}{change.path}{tick}{mark}\n"
    head = f"{mark}FILE:{mark} {tick}{change.path}{tick}\n"
    if isinstance(change, WholeFile):
        return f"{head}```python\n{change.content}```\n"
    block = block_of(change)
    return head + (f"```\n{block}```\n" if "fenced" in style else block)


def block_of(change: SearchReplace) -> str:
    """A SEARCH/REPLACE block."""
    return f"<<<<<<< SEARCH\n{change.search}=======\n{change.replace}>>>>>>> REPLACE\n"


_WORDS = (
    "x = 1",
    "for i in range(n):",
    "    total += a[i]",
    "",
    "\treturn total",
    "# NOTE: here",
    "@njit",
    "é 漢 ✓",
)
_LINE = st.sampled_from(_WORDS) | st.text(st.characters(exclude_categories=("Cs", "Cc")), max_size=12).filter(
    lambda line: not line.lstrip().startswith(("`", "~", "<", ">", "=", "@@", "&lt"))
)
TEXTS = st.lists(_LINE, max_size=8).map(lambda lines: "".join(f"{line}\n" for line in lines))
_REMARK = st.text(st.sampled_from("abc XYZ19()/-+=.'é"), min_size=1, max_size=30).filter(
    lambda text: text == " ".join(text.split()) and any(c.isalnum() for c in text)
)
_SLUG = st.from_regex("[a-z0-9]{1,8}(-[a-z0-9]{1,8})?", fullmatch=True)


def _settled(text: str) -> str:
    """As a whole file ends: with one newline."""
    body = text.rstrip("\n")
    return f"{body}\n" if body.strip() else ""


def _changes(path: str) -> st.SearchStrategy[list[FileChange]]:
    blocks: Callable[..., FileChange] = SearchReplace
    return (
        st.lists(st.builds(blocks, st.just(path), TEXTS, TEXTS), min_size=1, max_size=3)
        | st.builds(WholeFile, st.just(path), TEXTS.map(_settled)).map(lambda change: [change])
        | st.just([DeleteFile(path)])
    )


@st.composite
def answers(draw: st.DrawFn) -> ParsedReply:
    """Any answer that can be read."""
    paths = draw(
        st.lists(st.sampled_from(["a.py", "__init__.py", "d/b.cu", "k.yaml"]), unique=True, min_size=1)
    )
    return ParsedReply(
        idea=draw(_REMARK),
        family=draw(_SLUG),
        notes=tuple(draw(st.lists(_REMARK, max_size=5))),
        next_ideas=tuple(draw(st.lists(st.builds(Idea, family=_SLUG, idea=_REMARK), max_size=3))),
        knobs=draw(
            st.dictionaries(st.from_regex("[A-Z]{1,5}", fullmatch=True), st.sampled_from(["1", "x=y"]))
        ),
        changes=tuple(change for path in paths for change in draw(_changes(path))),
    )
