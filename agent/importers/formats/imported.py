"""An import as data: what a file says, what running it showed, and the case that comes of both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict

DeviceKind = Literal["cpu", "cuda"]
Sizes = dict[str, Any]


class _ImportedPart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OperatorPlan(_ImportedPart):
    """What of the source is computed; hillclimb.harness.sources.operators."""

    kind: Literal["Function", "NumpyFunction", "Module"]
    name: str
    is_unpacked: bool = True
    sizes_from: str = ""


class ArrayPlan(_ImportedPart):
    """hillclimb.harness.sources.draws.DrawnArray."""

    shape: list[str | int]
    dtype: str
    fill: Literal["normal", "integers", "booleans"] = "normal"
    low: float = 0.0
    high: float = 1.0


class DrawPlan(_ImportedPart):
    """Where arguments come from: a function of the source, or arrays."""

    function: str = ""
    arrays: dict[str, ArrayPlan] = {}
    scalars: list[str] = []
    order: list[str] = []


class Plan(_ImportedPart):
    """What a file says of an operator, read without running it."""

    format: str
    title: str
    """One line: what is computed."""
    source: str
    """Text of source.py."""
    beside: dict[str, str] = {}
    """Other files that source.py imports, by name."""
    operator: OperatorPlan
    draw: DrawPlan
    problems: dict[str, Sizes]
    """The first is the one that small ones are made of."""
    timed: list[str]
    constants: list[str] = []
    """Constants of the source among the sizes."""
    changeable: list[str] = []
    """Sizes that may be made smaller."""
    fixed: list[str] = []
    """Of these, those that also say what the operator is made of: they are lowered last."""
    argument_names: list[str] = []
    output_names: list[str] = []
    attribute_names: list[str] = []
    """Of what the module is made with."""
    has_own_sizes: bool = False
    """Whether the source may be right for its own sizes alone, so that no others are made up."""
    may_redraw: bool = False
    """Whether arguments may be drawn by their shapes and ranges where the source gives the same ones each time."""
    rule: str = ""
    """The source's own function that says whether outputs are right."""
    default_device: DeviceKind = "cuda"
    example: list[Any] = []
    """Texts of arrays that a person gave."""
    told: list[str] = []
    """What was not carried over, a line each."""


class WeightPlace(_ImportedPart):
    """A weight: its name in the module, the kernel's name for it, and whether it has no dimensions."""

    name: str
    argument: str


class Findings(_ImportedPart):
    """What running the source showed."""

    input_names: list[str]
    unread: list[str] = []
    output_names: list[str]
    attribute_names: list[str] = []
    constant_weights: list[str] = []
    output_dtypes: dict[str, str] = {}
    is_in_place: bool = False
    mode: Literal["train", "eval"] = "train"
    problems: dict[str, Sizes]
    draw: DrawPlan
    timed: list[str]
    constants: list[str] = []
    neighbours: dict[str, list[Sizes]] = {}
    distributions: list[str]
    excused: dict[str, str] = {}
    """Wrong results that the contract is right to accept, and why."""
    unmixed: str = ""
    weights: list[WeightPlace] = []
    arguments_text: str
    """Python text of the operator's arguments, in the kernel's names."""
    result_paths: list[str] = [""]
    """Where each output is in what the operator gives, as Python writes it: `[0]`, `['y']`."""
    sizes_text: str = ""
    """Of what its module is made with."""
    public_bytes: int = 0
    told: list[str] = []


@dataclass(frozen=True)
class ImportRequest:
    """What a person asked to import."""

    path: Path
    name: str = ""
    """The function or class in it, where the format does not say."""
    device: DeviceKind | None = None
    examples: tuple[str, ...] = ()
    """As x=float32[4096,1024]."""


@dataclass(frozen=True)
class KnobPlan:
    """knobs.yaml of a tuning space."""

    text: str
    told: tuple[str, ...]
    source: str
    """The space's own text, kept beside the case."""


@dataclass(frozen=True)
class ImportedCase:
    """All that the files of a case are written from."""

    plan: Plan
    findings: Findings
    device: DeviceKind
    told: tuple[str, ...]
    files: Mapping[str, str] = field(default_factory=dict)
    """Text by path below the case's folder."""


class Importer(Protocol):
    """One format; a module of this room."""

    LABEL: str
    """What a file of it is, in words."""

    def can_read(self, request: ImportRequest) -> bool:
        """Whether it looks like a file of this format. Runs nothing of it."""

    def read(self, request: ImportRequest) -> Plan:
        """What it says. Raises UsageError."""
