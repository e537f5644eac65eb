"""Sources of kernels, by templates: as many alike in one file as share most of what a compiler does for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

from hillclimb.harness.gemm.generator.types import TEMPLATES, AnyPoint, generator_type

if TYPE_CHECKING:
    from jinja2 import Environment

ALIKE = 12
"""Kernels of one file."""


def grouped(points: Iterable[AnyPoint]) -> list[tuple[AnyPoint, ...]]:
    """Files: kernels that are alike, twelve at the most."""
    alike: dict[tuple[object, ...], list[AnyPoint]] = {}
    for point in points:
        alike.setdefault(point.alike, []).append(point)
    return [tuple(group[at : at + ALIKE]) for group in alike.values() for at in range(0, len(group), ALIKE)]


def render(points: Sequence[AnyPoint]) -> str:
    """The source of one file. All of its kernels are alike."""
    kind = generator_type(points[0].generator)
    values = kind.values(points)
    prototypes = render_template(kind.prototype_template, values)
    return render_template(kind.kernel_template, {**values, "prototypes": prototypes})


def render_template(name: str, values: Mapping[str, object]) -> str:
    """One of the folder's templates."""
    return _environment().get_template(name).render(values)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    return Environment(
        loader=FileSystemLoader(TEMPLATES), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
