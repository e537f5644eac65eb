"""Kernels of a folder as operators of torch: one module, which stands alone beside their libraries."""

from __future__ import annotations

from hillclimb.harness.gemm.families.collective_point import CollectivePoint
from hillclimb.harness.gemm.families.run_option import CACHES, WAY_WORDS
from hillclimb.harness.gemm.generator.catalog import GeneratedKernel, KernelCatalog
from hillclimb.harness.gemm.generator.interface import PREPARE, RUN, WORKSPACE, GemmRequest
from hillclimb.harness.gemm.generator.source import render_template
from hillclimb.harness.gemm.shape import SCALED_DTYPES

TORCH_OPS = "torch_ops.py"


def torch_ops(catalog: KernelCatalog) -> str:
    """Its source. Kernels that are not sound are left out."""
    kernels = [_kernel(one) for one in catalog.kernels if one.is_sound]
    example = kernels[0] if kernels else {"name": "NAME", "dtype": "bf16"}
    return render_template(
        f"{TORCH_OPS}.jinja",
        {
            "kernels": kernels,
            "example": example["name"],
            "example_dtype": example["dtype"],
            "example_scales": ", x_scales, w_scales" if example["dtype"] in SCALED_DTYPES else "",
            "way": repr(WAY_WORDS.pattern),
            "caches": repr(CACHES),
            "actions": f"{WORKSPACE}, {PREPARE}, {RUN}",
            "fields": [(name, kind.__name__) for name, kind, *_ in GemmRequest._fields_],
        },
    )


def _kernel(one: GeneratedKernel) -> dict[str, str]:
    rows = one.point.rows if isinstance(one.point, CollectivePoint) else ""
    return {"name": one.point.name, "library": one.library, "dtype": one.point.dtype, "rows": rows}
