"""The efficiency of every kernel for every shape, as one HTML file that needs nothing else."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from hillclimb.harness.gemm.folder import write
from hillclimb.harness.gemm.heatmap.picture import COLOURS, LOWEST, order
from hillclimb.harness.gemm.portfolio.portfolio import Portfolio
from hillclimb.harness.gemm.shape import GemmShape
from hillclimb.harness.report.page import environment, style
from hillclimb.harness.report.page_packs import embed

HERE = Path(__file__).parent
SHADES = 64
"""Colours between the lowest efficiency that is told apart and 1."""


def draw_page(portfolio: Portfolio, target: Path, chosen: Sequence[str] = ()) -> Path:
    """All kernels, the best in the mean first; `chosen` ones are marked. The file appears whole or not at all."""
    target.parent.mkdir(parents=True, exist_ok=True)
    write(target, render_page(portfolio, chosen))
    return target


def render_page(portfolio: Portfolio, chosen: Sequence[str] = ()) -> str:
    """Its text."""
    script = (HERE / "page.js").read_text()
    template = environment(HERE).get_template("page.html.j2")
    return template.render(
        data=embed(page_data(portfolio, chosen)),
        script=script,
        style=style() + (HERE / "page.css").read_text(),
        script_hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        shapes=len(portfolio.shapes),
        kernels=len(portfolio.kernels),
    )


def page_data(portfolio: Portfolio, chosen: Sequence[str]) -> dict[str, object]:
    """What the script reads. A time that there is not is null; its shares are of these times."""
    columns = order(portfolio)
    times = portfolio.kernel_milliseconds[:, columns]
    return {
        "shapes": [{"name": one.name, "size": _size(one), "dtype": one.dtype} for one in portfolio.shapes],
        "kernels": [portfolio.kernels[column] for column in columns],
        "milliseconds": [[_digits(value) for value in row] for row in times],
        "chosen": list(chosen),
        "lowest": LOWEST,
        "shades": _shades(),
    }


def _size(shape: GemmShape) -> str:
    groups = f", {shape.groups} groups" if shape.groups > 1 else ""
    return f"{shape.m} x {shape.n} x {shape.k}{groups}"


def _digits(value: float) -> float | None:
    """Six of them are more than any time has."""
    return float(f"{value:.6g}") if np.isfinite(value) else None


def _shades() -> list[str]:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps[COLOURS](at / (SHADES - 1))) for at in range(SHADES)]
