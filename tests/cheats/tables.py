"""The tables of README.md, out of what the candidates declare: `python -m tests.cheats.tables` writes them."""

from __future__ import annotations

from collections.abc import Iterator

from tests.cheats.declared import FOLDER, Candidate, Verdict, find
from tests.cheats.families import FAMILIES, NO_KERNEL

README = FOLDER / "README.md"
BEGINNING = "<!-- written by `python -m tests.cheats.tables` -->\n"


def tables() -> str:
    return "\n".join([*_cheats(), "", "## Honest, and accepted", "", *_honest(), ""])


def write() -> None:
    """Replace what follows the mark in README.md."""
    README.write_text(_above() + BEGINNING + "\n" + tables())


def is_current() -> bool:
    return README.read_text() == _above() + BEGINNING + "\n" + tables()


def _above() -> str:
    return README.read_text().partition(BEGINNING)[0]


def _cheats() -> Iterator[str]:
    cheats = [(place, cheat) for place in ("cpu", "gpu") for cheat in find(place)]
    for family, does in FAMILIES.items():
        yield from ("", f"### {family}", "", f"{does[0].upper()}{does[1:]}.", "")
        if family in NO_KERNEL:
            yield "Files rather than kernels: `test_landing.py`."
            continue
        yield from ("| candidate | what it does | entries | reason | unread |", "|---|---|---|---|---|")
        for place, cheat in cheats:
            if cheat.declared.family == family:
                yield _row(place, cheat)


def _row(place: str, cheat: Candidate) -> str:
    told, unread = cheat.declared, cheat.declared.unread
    entries = ", ".join(map(str, told.entries))
    cells = (
        f"`{place}/{cheat.name}`",
        cheat.does,
        entries,
        _verdict(told),
        _verdict(unread) if unread else "",
    )
    return f"| {' | '.join(cells)} |"


def _honest() -> Iterator[str]:
    yield from ("| candidate | what it does | family that it looks like |", "|---|---|---|")
    for place in ("honest/cpu", "honest/gpu"):
        for candidate in find(place):
            yield f"| `{place}/{candidate.name}` | {candidate.does} | {candidate.declared.family} |"


def _verdict(verdict: Verdict) -> str:
    reasons = " or ".join(f"`{reason}`" for reason in verdict.reason)
    return reasons if verdict.stage == "gate" else f"{reasons} ({verdict.stage})"


if __name__ == "__main__":
    write()
