"""What the name of a CUTLASS operation says of it. The columns of the profiler's CSV may say otherwise.

The names are those of cutlass_library: of 3.x, of 3.x before 3.8, whose instruction stands before `gemm`, and of 2.x.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

TileSizes = tuple[int, int, int]
"""Of m, n and k."""

NAME_3X = re.compile(
    r"cutlass3x_sm(?P<arch>\d+)_\w*?gemm(?:_grouped)?_(?P<types>(?:[a-z][a-z0-9]*_)+)"
    r"(?P<tile>\d+x\d+x\d+)_(?P<cluster>\d+x\d+x\d+)_(?P<stages>\d+)_(?P<layout>[tn]{3})_align(?P<align>\d+)"
    r"(?P<rest>(?:_[a-z0-9]+)*)"
)
NAME_2X = re.compile(
    r"cutlass_\w*?gemm_(?P<types>(?:[a-z][a-z0-9]*_)*)"
    r"(?P<tile>\d+x\d+)_(?P<k>\d+)x(?P<stages>\d+)_(?P<layout>[tn]{2})_align(?P<align>\d+)"
)
EPILOGUE = re.compile(r"_epi_(?P<epilogue>[a-z0-9_]+)$")


@dataclass(frozen=True)
class KernelName:
    """None is what the name does not say."""

    arch: int | None = None
    """Compute capability times ten: 90."""
    tile: TileSizes | None = None
    """Of one thread block."""
    cluster: TileSizes | None = None
    """Thread blocks of one cluster; None where it is chosen at run time, or where the name is of another kind."""
    stages: int | None = None
    """Of the pipeline; None where the builder chose."""
    layout: str = ""
    """t is row-major and n column-major, of A and B, and of C where three stand there."""
    align: int | None = None
    """Elements by which A and B are aligned."""
    schedule: str = ""
    """How the kernel's warps share the work, such as warpspecialized_pingpong."""
    epilogue: str = ""
    is_stream_k: bool = False

    @property
    def is_known(self) -> bool:
        """Whether the name is of a known kind."""
        return self.tile is not None


def parse_name(operation: str) -> KernelName:
    """Nothing is guessed: of a name of another kind nothing is known."""
    if found := NAME_3X.fullmatch(operation):
        return _of_3x(found)
    if found := NAME_2X.fullmatch(operation):
        m, n = (int(size) for size in found["tile"].split("x"))
        tile = (m, n, int(found["k"]))
        stages, align = int(found["stages"]), int(found["align"])
        return KernelName(tile=tile, cluster=(1, 1, 1), stages=stages, layout=found["layout"], align=align)
    return KernelName()


def _of_3x(found: re.Match[str]) -> KernelName:
    rest = found["rest"]
    epilogue = EPILOGUE.search(rest)
    schedule = rest[: epilogue.start()] if epilogue else rest
    is_stream_k = schedule.startswith("_stream_k")
    cluster = _sizes(found["cluster"])
    return KernelName(
        arch=int(found["arch"]),
        tile=_sizes(found["tile"]),
        cluster=cluster if all(cluster) else None,
        stages=int(found["stages"]) or None,
        layout=found["layout"],
        align=int(found["align"]),
        schedule=schedule.removeprefix("_stream_k").strip("_"),
        epilogue=epilogue["epilogue"] if epilogue else "",
        is_stream_k=is_stream_k,
    )


def _sizes(text: str) -> TileSizes:
    m, n, k = (int(size) for size in text.split("x"))
    return m, n, k
