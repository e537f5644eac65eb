"""Kernels that were chosen before, by the files that say which."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from hillclimb.harness.errors import UsageError

WinnersOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--winners",
        metavar="FILE",
        help="Only the best of each shape in these results, those of a dispatch.json, or names one a line, as of "
        "`gemm won`; may be repeated. A kernel's name without a way to run it stands for its likeliest ways.",
    ),
]


def read_winners(paths: Iterable[Path]) -> list[str]:
    """Of generated kernels, as a bench names them: each with its way to run it, or without.

    Raises UsageError for a file that names none, or those of another provider.
    """
    return sorted({name for path in paths for name in _names(path)})


def _names(path: Path) -> Sequence[str]:
    from hillclimb.harness.gemm.portfolio.dispatch import read_dispatch
    from hillclimb.harness.gemm.results import GENERATED, read_results

    if (table := read_dispatch(path)) is not None:
        named = [name.partition(":") for name in table.kernels]
        providers, chosen = {provider for provider, _, _ in named}, {kernel for _, _, kernel in named}
    elif lines := _lines(path):
        providers, chosen = {GENERATED}, set(lines)
    else:
        results = read_results(path)
        providers, chosen = {results.provider}, {one.kernel for one in results.best().values()}
    if others := sorted(providers - {GENERATED}):
        raise UsageError(
            f"{path} is of {', '.join(others)}; --winners takes a file of the provider {GENERATED}"
        )
    if not chosen:
        raise UsageError(f"{path} has no kernel that may be a winner; give one with times, or none")
    return sorted(chosen)


def _lines(path: Path) -> list[str]:
    """Names, one a line; empty for what has anything else."""
    from hillclimb.harness.gemm.results import GENERATED

    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    names = [line.strip().removeprefix(f"{GENERATED}:") for line in lines if line.strip()]
    return names if all(name.isidentifier() for name in names) else []
