"""What can be generated: each generator type is two templates and an entry here."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.shape import Dtype
from hillclimb.harness.wording import suggestion

TEMPLATES = Path(__file__).with_name("templates")


@dataclass(frozen=True)
class GeneratorType:
    """A kind of function."""

    name: str
    kernel_template: str
    """Of a source with several functions."""
    prototype_template: str
    """Of what they take, and their declarations; the source includes it."""
    dtypes: tuple[Dtype, ...]


GENERATOR_TYPES = {
    one.name: one
    for one in (
        GeneratorType(
            "simple_gemm", "simple_gemm.cu.jinja", "simple_gemm.h.jinja", ("bf16", "f16", "fp8", "int8")
        ),
    )
}


def generator_type(name: str) -> GeneratorType:
    """Raises UsageError for one that nobody knows."""
    if name not in GENERATOR_TYPES:
        raise UsageError(f"generator type {name}: {suggestion(name, GENERATOR_TYPES)}")
    return GENERATOR_TYPES[name]
