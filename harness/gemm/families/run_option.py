"""What is chosen when a generated kernel is called, and how that is named."""

from __future__ import annotations

import re
from dataclasses import dataclass

from hillclimb.harness.gemm.families.collective_point import CollectivePoint
from hillclimb.harness.gemm.families.point import KernelPoint, RowOperand
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupPoint
from hillclimb.harness.gemm.families.warpgroup_rules import FLEXIBLE_FORMS

CHOICE, ALONG_ROWS, ALONG_COLUMNS = 0, 1, 2

CACHES = {0: "usual", 1: "first", 2: "last"}
WAY_WORDS = re.compile(
    r"((?P<rows>tokens|features)_(?P<down>[1-9])x(?P<across>[1-9])_)?raster(?P<raster>[0-2])(_splits(?P<splits>[1-9]\d{0,3}))?(?P<persistent>_persistent)?"
    r"(_swizzle(?P<swizzle>[1-9]\d{0,3}))?(_steps(?P<steps>[1-9]\d{0,3}))?(?P<promotion>_fetch128)?"
    r"(_(?P<first>usual|first|last)_(?P<second>usual|first|last))?(?P<dependent>_pdl)?"
)


@dataclass(frozen=True)
class RunOption:
    """What is chosen when a kernel is called."""

    raster: int = CHOICE
    splits: int = 1
    """Of K, by stream-K, or by a flexible kernel's cluster."""
    is_dependent: bool = False
    """Programmatic dependent launch: it begins while the kernel before it ends."""
    rows: RowOperand = "tokens"
    cluster: tuple[int, int] = (1, 1)
    """Thread blocks along rows and columns. These and what follows are a warpgroup kernel's."""
    swizzle: int = 1
    steps: int = 0
    """In flight; 0 for as many as fit."""
    caches: tuple[int, int] = (0, 0)
    """What becomes of both operands in the L2 cache."""
    promotion: int = 0
    """1 for 128 bytes that the cache takes from memory at once, instead of 256."""
    is_persistent: bool = False
    """Whether a block of a flexible kernel takes one tile after another."""


def way_name(point: KernelPoint, option: RunOption) -> str:
    """Of a kernel that is run so."""
    words = [point.name]
    if isinstance(point, WarpgroupPoint):
        words += [option.rows, "x".join(map(str, option.cluster))]
    words.append(f"raster{option.raster}")
    if isinstance(point, CollectivePoint) or _is_flexible(point):
        words.append(f"splits{option.splits}")
    if option.is_persistent:
        words.append("persistent")
    if option.swizzle > 1:
        words.append(f"swizzle{option.swizzle}")
    if option.steps:
        words.append(f"steps{option.steps}")
    if option.promotion:
        words.append("fetch128")
    if option.caches != (0, 0):
        words += [CACHES[cache] for cache in option.caches]
    return "_".join([*words, *(["pdl"] if option.is_dependent else [])])


def compiled_name(kernel: str) -> str:
    """Of a name by `way_name`, the part that says what is compiled; any other name is one as a whole."""
    found = re.fullmatch(rf"(?P<compiled>.+?)_{WAY_WORDS.pattern}", kernel)
    return found["compiled"] if found else kernel


def option_named(point: KernelPoint, words: str) -> RunOption | None:
    """What `way_name` calls so, behind the kernel's own name; None where it calls nothing so."""
    found = WAY_WORDS.fullmatch(words)
    if found is None:
        return None
    rows = point.rows if isinstance(point, CollectivePoint) else found["rows"]
    option = RunOption(
        raster=int(found["raster"]),
        splits=int(found["splits"] or 1),
        is_dependent=bool(found["dependent"]),
        rows="features" if rows == "features" else "tokens",
        cluster=(int(found["down"] or 1), int(found["across"] or 1)),
        swizzle=int(found["swizzle"] or 1),
        steps=int(found["steps"] or 0),
        caches=(_cache(found["first"]), _cache(found["second"])),
        promotion=int(bool(found["promotion"])),
        is_persistent=bool(found["persistent"]),
    )
    forms = FLEXIBLE_FORMS if _is_flexible(point) else ((option.splits, False),)
    if (option.splits, option.is_persistent) not in forms:
        return None
    return option if way_name(point, option) == f"{point.name}_{words}" else None


def as_run(point: WarpgroupPoint, option: RunOption) -> WarpgroupPoint:
    """What it is when it is run so: of a flexible kernel the fixed one."""
    return point.fixed(option.splits, is_persistent=option.is_persistent) if point.is_flexible else point


def _is_flexible(point: KernelPoint) -> bool:
    return isinstance(point, WarpgroupPoint) and point.is_flexible


def _cache(word: str | None) -> int:
    return next((cache for cache, name in CACHES.items() if name == word), 0)
