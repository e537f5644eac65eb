"""A profile of a model as data: what was asked, and what its modules took."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from hillclimb.harness.records import Record

StepKind = Literal["decode", "prefill", "call"]
"""One token after a prompt, the prompt itself, or one call of a module that is no language model."""


EXTRACTED = "extracted.json"
"""Of a case that was made of a model's operator."""


class ProfileQuestion(Record):
    """What to run, and how often."""

    model: str
    """A snapshot, or a Python file."""
    name: str = ""
    """Of the class or function in that file."""
    phase: StepKind = "decode"
    device: str = "cpu"
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    prompt_tokens: int = Field(default=32, ge=1)
    steps: int = Field(default=16, ge=1)
    """Timed at a time."""
    write: tuple[str, ...] = ()
    """Names of operators whose source is wanted."""


class OperatorShare(Record):
    """Modules of one class that are called with tensors of one kind, and what they take of a step."""

    name: str
    """By which it is chosen."""
    module: str
    """Its class."""
    places: tuple[str, ...]
    """Names under which it stands in the model."""
    calls: int
    """In a step."""
    seconds: float
    """Of a step, with all that it calls."""
    share: float
    bound: float
    """How many times as fast a step would be if it took no time (Amdahl's law)."""
    inputs: tuple[str, ...]
    """Such as float32[1,1,128]."""
    parameters: tuple[str, ...]
    unfit: str = ""
    """Why it cannot be a case."""


class OperatorFile(Record):
    """An operator as a file of its own, and what of it is what of the model."""

    text: str
    """Of Python."""
    weights: dict[str, str]
    """Name in the file -> name below the module, such as gate_proj.weight."""
    sizes: dict[str, int]
    """Name of what it is made with -> its value."""
    inputs: tuple[str, ...]
    output: str
    """Such as float32[1,1,128]."""


class ExtractedOperator(Record):
    """`extracted.json` of a case: where its kernel belongs."""

    module: str
    """The class that it computes."""
    inputs: tuple[str, ...]
    output: str
    weights: dict[str, str]
    """The kernel's name of each -> name below the module, in the order in which the kernel is called with them."""
    shapes: dict[str, str]
    """Name below the module -> such as float32[384,128], of parameters."""
    attributes: dict[str, int]


class ModelProfile(Record):
    """What `extract` found."""

    model: str
    device: str
    phase: StepKind
    seconds: float
    """Of a step, median."""
    operators: tuple[OperatorShare, ...]
    """The largest share first. They contain each other, so shares do not add up."""
    sources: dict[str, OperatorFile] = Field(default={})
    """Those that were asked for, by name."""


class Extraction(Record):
    """A profile, and the cases that were made."""

    profile: ModelProfile
    cases: tuple[str, ...] = ()
    """`<family>/<case>` of each."""
    told: tuple[str, ...] = ()
    """What could not be carried over, a line each."""
