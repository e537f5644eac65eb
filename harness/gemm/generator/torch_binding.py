"""Generated kernels as operators of torch: one module, which stands alone beside their folders."""

from __future__ import annotations

from pathlib import Path

from hillclimb.harness.gemm.families.collective_point import CollectivePoint
from hillclimb.harness.gemm.families.run_option import CACHES, WAY_WORDS
from hillclimb.harness.gemm.families.warpgroup_point import WarpgroupPoint
from hillclimb.harness.gemm.folder import write
from hillclimb.harness.gemm.generator.catalog import GeneratedKernel, read_catalogs
from hillclimb.harness.gemm.generator.interface import PREPARE, RUN, WORKSPACE, GemmRequest
from hillclimb.harness.gemm.generator.source import render_template
from hillclimb.harness.gemm.shape import UNSCALED

TORCH_OPS = "torch_ops.py"


def write_torch_ops(folder: Path) -> None:
    """Of all kernels in it that are sound. Raises UsageError where there are none at all."""
    kernels = [
        _kernel(one, catalog_folder.relative_to(folder))
        for catalog_folder, catalog in read_catalogs(folder).items()
        for one in catalog.kernels
        if one.is_sound
    ]
    example = {"name": "NAME", "dtype": "bf16", "is_grouped": False}
    example = min(kernels, key=lambda kernel: bool(kernel["is_grouped"]), default=example)
    scales = ("x_scales", "w_scales") if example["dtype"] in UNSCALED else ()
    groups = ("group_ends=group_ends",) if example["is_grouped"] else ()
    values = {
        "kernels": kernels,
        "example": example["name"],
        "example_dtype": example["dtype"],
        "example_operands": ", ".join(("x", "w", *scales, *groups)),
        "example_is_grouped": example["is_grouped"],
        "way": repr(WAY_WORDS.pattern),
        "caches": repr(CACHES),
        "actions": f"{WORKSPACE}, {PREPARE}, {RUN}",
        "fields": [(name, kind.__name__) for name, kind, *_ in GemmRequest._fields_],
    }
    write(folder / TORCH_OPS, render_template(f"{TORCH_OPS}.jinja", values))


def _kernel(one: GeneratedKernel, folder: Path) -> dict[str, object]:
    point = one.point
    is_collective = isinstance(point, CollectivePoint)
    return {
        "name": point.name,
        "library": str(folder / one.library),
        "dtype": point.dtype,
        "rows": point.rows if isinstance(point, CollectivePoint) else "",
        "may_depend": not (is_collective and "stream_k" in point.words),
        "is_grouped": point.is_grouped,
        "is_flexible": isinstance(point, WarpgroupPoint) and point.is_flexible,
    }
