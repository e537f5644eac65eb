"""How a profile's row of a function is called: the profiler writes such names, and the judge looks for them."""

from __future__ import annotations

from pathlib import PurePath

from hillclimb.harness.channel.profile_limits import CUT, MAX_NAME_CHARS, UNNAMEABLE

WORKERS = " (worker threads)"
"""At the end of a row of threads other than the first."""


def row_name(place: str, function: str) -> str:
    """`place:function`. A long place loses its middle."""
    place, function = UNNAMEABLE.sub("?", place), UNNAMEABLE.sub("?", function)
    most = MAX_NAME_CHARS - len(WORKERS) - len(":")
    function = function[: most - 2 * len(CUT)]
    room = most - len(function)
    if len(place) > room:
        half = (room - len(CUT)) // 2
        place = f"{place[:half]}{CUT}{place[len(place) - half :]}"
    return f"{place}:{function}"


def library_name(source: PurePath) -> str:
    """What the library is called that is built of a source file, told by its path below the workspace."""
    return f"{'_'.join(source.parts).replace('.', '_')}.so"
