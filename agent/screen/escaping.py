"""Lines for a terminal that hold what others wrote: nothing in them can steer it."""

from __future__ import annotations

import os
import sys
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

_UNPRINTABLE_CATEGORIES = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


class StyledLine(NamedTuple):
    """One line on a screen, and its colour in rich's words."""

    text: str
    style: str = ""


def escape_unprintable(text: str) -> str:
    """One line in which every character that is not for display is spelled out; tabs stay."""
    return "".join(
        c if c == "\t" or unicodedata.category(c) not in _UNPRINTABLE_CATEGORIES else _spell(c) for c in text
    )


def escape_lines(text: str) -> str:
    """The same of many lines, which stay apart."""
    return "\n".join(escape_unprintable(line) for line in text.split("\n"))


def print_lines(lines: Iterable[StyledLine], *, colour: bool) -> None:
    """To stdout, in colour only where it is a terminal; a reader who leaves early is no error."""
    try:
        if colour and sys.stdout.isatty():
            _print_coloured(lines)
        else:
            sys.stdout.writelines(f"{line.text}\n" for line in lines)
            sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
        )  # else Python complains about it at exit


def _print_coloured(lines: Iterable[StyledLine]) -> None:
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for line in lines:
        console.print(Text(line.text, style=line.style), soft_wrap=True)


def _spell(character: str) -> str:
    return character.encode("unicode_escape").decode()
