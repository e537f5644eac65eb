"""The schema of case.yaml and of the suites below benchmarks/."""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Annotated, Literal

from pydantic import (
    AfterValidator,
    Field,
    ValidationInfo,
    field_validator,
)

from hillclimb.harness.case.durations import Seconds
from hillclimb.harness.case.metrics import KERNEL_METRICS, SERVED_METRICS, Command, Metric, NameTuple, Section
from hillclimb.harness.knobs.constraints import KnobValue
from hillclimb.harness.wording import choices

SuiteName = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]+$")]


def is_inside(relative: PurePosixPath) -> bool:
    """Whether a path stays below where it starts: relative, no `..`, no empty or `.git` part."""
    parts = relative.parts
    return (
        bool(parts)
        and not relative.is_absolute()
        and not any(p == ".." or p.casefold() == ".git" for p in parts)
    )


def is_unscored(relative: Path) -> bool:
    """Whether a file of a case, named relative to its folder, may differ without another score."""
    parts = relative.parts
    if parts[0] in ("workspace", "program.md"):
        return True
    return any(part.startswith(".") or part == "__pycache__" for part in parts)


def _below_workspace(path: str) -> str:
    if not is_inside(PurePosixPath(path.split(":")[0])):
        raise ValueError("it must be a path below workspace/: relative, without '..'")
    return path


def _suffix(entry: str) -> str:
    return PurePosixPath(entry.partition(":")[0]).suffix


def _is_code(entry: str) -> str:
    if entry.startswith("docs/"):
        raise ValueError("no process is ever given docs/; put the kernel elsewhere below workspace/")
    return entry


COMPILED_SUFFIXES = (".c", ".cc", ".cpp", ".cxx")
"""Of sources in C and C++, which the lab compiles."""

Glob = Annotated[str, AfterValidator(_below_workspace)]

EntryText = Annotated[
    str,
    Field(pattern=rf"^[\w./-]+({'|'.join(map(re.escape, ('.py', *COMPILED_SUFFIXES)))}):[A-Za-z_]\w*$"),
    AfterValidator(_below_workspace),
    AfterValidator(_is_code),
]


class Objective(Section):
    """What fast means."""

    metric: str = "time"
    """time: seconds per call; flops: FLOP/s; bandwidth: bytes/s. Informs proposers and stands in the record; what
    decides is always time per call, since a problem's work is the same for every candidate. Of a command or a server
    one of its metrics, and that decides."""
    direction: Literal["lower", "higher"] = "lower"
    """Which way is better: lower for time, higher for flops and bandwidth, and as the metric itself says."""
    minimum_effect: float = Field(default=0.01, ge=0, lt=1)
    """The smallest relative speedup worth a commit: 0.01 keeps only what is proven over 1 % faster."""
    suite: SuiteName = "main"
    """The benchmark suite that is scored: benchmarks/<suite>.yaml."""


class Guardrail(Section):
    """A suite that must not get slower while the objective gets faster."""

    suite: SuiteName
    """benchmarks/<suite>.yaml."""
    metric: str = ""
    """Of a command or a server: which of its metrics must not get worse; left out: the objective's."""
    max_slowdown: float = Field(default=0.05, ge=0, lt=1)
    """The largest tolerated relative slowdown, or loss of another metric: 0.05 is 5 %."""


class Budgets(Section):
    """When a run ends, and what one candidate may use."""

    seconds: Seconds = Field(default=8 * 3600, gt=0)
    """Wall time of the run, over all its resumptions: seconds, or 8h, 90m, 45s, like every duration in this file."""
    candidates: int = Field(default=10_000, gt=0)
    """Candidates judged in the run."""
    patience: int = Field(default=200, gt=0)
    """Candidates in a row without a win."""
    tokens: int | None = Field(default=None, gt=0)
    """Tokens of all model calls of the run, prompt and completion; left out: no limit."""
    cost: float | None = Field(default=None, gt=0)
    """US dollars of all model calls of the run; left out: no limit."""
    prepare_seconds: Seconds = Field(default=120, gt=0)
    """One candidate's import; as long again for the first call on each problem, which may compile."""
    call_seconds: Seconds = Field(default=10, gt=0)
    """Any later call of the kernel."""
    memory_mib: int = Field(default=4096, gt=0)
    """Private memory of one candidate process."""


class Prices(Section):
    """What the model's provider charges, US dollars per million tokens."""

    prompt: float = Field(ge=0)
    completion: float = Field(ge=0)
    cached: float | None = Field(default=None, ge=0)
    """Prompt tokens read from the provider's cache; without it, they count as prompt."""


class Llm(Section):
    """How a language model is asked for proposals. The endpoint and its key are the machine's, in `.env`."""

    model: str = ""
    """The model's name as the endpoint knows it; empty leaves it to HILLCLIMB_MODEL or --model."""
    temperature: float | None = Field(default=None, ge=0, le=2)
    """Left out: the provider's own."""
    reasoning_effort: str | None = None
    """minimal, low, medium, high, or what else the provider takes; left out: the provider's own."""
    deadline_seconds: Seconds = Field(default=600, gt=0)
    """One call, all its attempts and pauses included."""
    in_flight: int = Field(default=2, ge=1, le=16)
    """Calls under way at the same time."""
    repairs: int = Field(default=2, ge=0)
    """Times a reply that does not apply, load or pass the gate goes back with the error."""
    briefing_tokens: int = Field(default=48_000, ge=2_000)
    """Largest briefing; what does not fit is cut by stated rules, and the briefing says so."""
    reply_tokens: int = Field(default=32_000, ge=500)
    """Largest reply, reasoning included."""
    prices: Prices | None = None
    """Without them, and where the provider does not tell the cost, there is no cost budget."""


class Policy(Section):
    """What a kernel may use to get fast. Everything is forbidden unless allowed."""

    library_calls: bool = False
    """Calling a vendor's or framework's finished operator (BLAS, cuDNN, torch.matmul) from the kernel. Held by a
    reading of the source."""
    weight_caches: bool = False
    """Keeping values derived from an input between calls. No code reads it, it informs proposers; held by fresh
    inputs for every call, checked or timed."""
    graphs: bool = False
    """Capturing and replaying launches inside the kernel. Held by a reading of the source; on a CPU there is nothing
    to hold."""
    reduced_precision: bool = False
    """Arithmetic in fewer bits than the inputs' dtype. It informs proposers, and is held by gate.error_budget as far as
    fewer bits cost accuracy: `hillclimb check` tries that."""
    imports: NameTuple = ("math", "os", "typing", "functools", "numpy", "numba", "yaml")
    """Top-level modules workspace code may import, besides the workspace's own. An entry with a dot, such as
    numpy.polyval, allows what is not on the lab's own list of what may be used of the module; numpy.* allows all."""

    @property
    def modules(self) -> tuple[str, ...]:
        """The top-level modules of `imports`."""
        return tuple(dict.fromkeys(entry.partition(".")[0] for entry in self.imports))


class Duel(Section):
    """How hard a win must be proven."""

    alpha: float = Field(default=0.01, gt=0, lt=1)
    """Chance of even one false win in the whole run."""
    segment_ms: float = Field(default=10.0, gt=0)
    """Milliseconds a timed segment should last at the incumbent's speed."""
    screen_blocks: int = Field(default=12, ge=3)
    """Most blocks spent on the screening pair."""
    pair_blocks: int = Field(default=5, ge=1)
    """Blocks in each fresh pair; their median is the pair's one value. From 3 on, up to four times as many are taken
    where they scatter too much to tell the minimum effect."""
    max_pairs: int = Field(default=20, ge=3)
    """Most fresh pairs before an undecided candidate is rejected."""
    report_pairs: int = Field(default=5, ge=3)
    """Fresh pairs from which the speedup is reported after acceptance."""


class Cuda(Section):
    """How kernels run on a GPU; read where `device` is cuda."""

    launch: Literal["graph", "eager"] = "graph"
    """graph: the calls of a segment are captured once and replayed, so that launching costs nothing; eager: they are
    launched one by one, and the time of a short kernel is that of its launch."""
    cache: Literal["cold", "hot"] = "cold"
    """cold: nothing of a call's inputs is in the L2 cache when it starts; hot: they are, where they fit into it."""
    architecture: int = Field(default=90, ge=70, lt=200)
    """Compute capability times ten that Triton compiles for where there is no GPU to ask."""
    connections: int = Field(default=2, ge=1, le=32)
    """Streams of a kernel's own that can be at work at the same time; every one makes a process longer to start."""
    sanitizers: Annotated[
        tuple[Literal["memcheck", "racecheck", "initcheck", "synccheck"], ...], Field(strict=False)
    ] = ("memcheck",)
    """compute-sanitizer's tools that look at a would-be win before it is kept."""


class Sweep(Section):
    """How knobs are swept."""

    first: Annotated[tuple[dict[str, KnobValue], ...], Field(strict=False, max_length=256)] = ()
    """Knob values to try before any search, in this order; knobs that are left out stay as they are."""


class Serving(Section):
    """How `model` is served by the workspace's own backend."""

    backend: EntryText = "backend.py:create_backend"
    """File in the workspace and function in it, which is told of the model and returns its backend."""
    context: int | None = Field(default=None, ge=2)
    """Tokens of a prompt and its answer, at the most; left out: what the backend takes."""
    slots: int = Field(default=1, ge=1)
    """Answers that are made at once."""

    @field_validator("backend")
    @classmethod
    def _is_python(cls, backend: str) -> str:
        if _suffix(backend) != ".py":
            raise ValueError("a backend is a .py file")
        return backend


class Gate(Section):
    """How widely right is checked."""

    seeds: int = Field(default=2, ge=1)
    """Secret seeds per problem and distribution; one in a screening, which decides nothing."""
    error_budget: float = Field(default=4.0, gt=0)
    """Allowed error, in multiples of what the baseline's own dtype can reach on the same inputs."""
    contract_seconds: Seconds = Field(default=120, gt=0)
    """One call of a contract's method; longer ones count as endless."""


class Suite(Section):
    """benchmarks/<suite>.yaml: the problems timed together, with equal weight in the geometric mean."""

    problems: NameTuple = Field(min_length=1)
    """Names out of the contract's problems."""
    distribution: str
    """The contract's input distribution used for timing."""
    doc: str = ""


class Settings(Section):
    """case.yaml."""

    schema_version: Literal[1] = Field(alias="schema")
    """Version of this format."""
    summary: str
    """One line: what is optimised."""
    model: str = ""
    """The model or operator family this comes from."""
    model_path: str = ""
    """Where the model's files lie, for cases that serve one, and for sessions that read its weights: absolute, below ~,
    or below the case's folder."""
    hardware: str = ""
    """The target, in words."""
    device: Literal["cpu", "cuda"] = "cpu"
    """Where the kernel runs: NumPy arrays on CPUs, or torch tensors on one NVIDIA GPU."""
    surface: Literal["kernel", "session", "openai_http", "shell_json"] = "kernel"
    """What is timed: kernel is a function called with tensors; session is one with a model's weights as parameters and
    its cache as state, which are read from `model_path` if that is given; openai_http is the server of `serving`;
    shell_json is the case's own command."""
    command: Command | None = Field(default=None, validate_default=True)
    """Of the surface shell_json, and of no other."""
    entry: EntryText = "kernel.py:run"
    """File in the workspace and function in it, called as run(*inputs, *outputs, **attributes); with parameters it
    returns what is called so. On a CPU it may be a C or C++ file, which is compiled."""
    mutable: Annotated[tuple[Glob, ...], Field(strict=False)] = ("*.py", "knobs.yaml", "docs/**")
    """Globs, relative to workspace/, of the files a proposal may add or change."""
    objective: Objective = Field(default=Objective(), validate_default=True)
    guardrails: Annotated[tuple[Guardrail, ...], Field(strict=False)] = ()
    budgets: Budgets = Budgets()
    policy: Policy = Policy()
    llm: Llm = Llm()
    sweep: Sweep = Sweep()
    gate: Gate = Gate()
    duel: Duel = Duel()
    cuda: Cuda = Cuda()
    serving: Serving | None = Field(default=None, validate_default=True)
    """Left out: the case has no backend of its own."""

    @property
    def is_compiled(self) -> bool:
        """Whether the entry is C or C++."""
        return _suffix(self.entry) in COMPILED_SUFFIXES

    @field_validator("entry")
    @classmethod
    def _is_for_its_device(cls, entry: str, info: ValidationInfo) -> str:
        if _suffix(entry) in COMPILED_SUFFIXES and info.data.get("device") == "cuda":
            raise ValueError("C and C++ are compiled for a CPU; device cuda takes a .py file")
        return entry

    @property
    def has_contract(self) -> bool:
        """Whether contract.py says what right means; elsewhere a command does, or the model that is served."""
        return self.surface in ("kernel", "session")

    @property
    def metrics(self) -> dict[str, Metric]:
        """What is measured where there is no contract, by name."""
        if self.surface == "openai_http":
            return SERVED_METRICS
        return self.command.all_metrics if self.command else {}

    @field_validator("serving")
    @classmethod
    def _serves_what_is_measured(cls, serving: Serving | None, info: ValidationInfo) -> Serving | None:
        if info.data.get("surface") != "openai_http":
            return serving
        if serving is None:
            raise ValueError("the surface openai_http measures a server; say which backend it has")
        if not info.data.get("model_path"):
            raise ValueError("the surface openai_http compares with a model's own weights; set model_path")
        if serving.backend != info.data.get("entry"):
            raise ValueError(f"entry must be the backend's: set entry: {serving.backend}")
        return serving

    @field_validator("command")
    @classmethod
    def _command_fits_surface(cls, command: Command | None, info: ValidationInfo) -> Command | None:
        surface = info.data.get("surface")
        if surface == "shell_json" and command is None:
            raise ValueError("the surface shell_json runs a command; say which one")
        if surface not in ("shell_json", None) and command is not None:
            raise ValueError(f"the surface {surface} runs no command; set surface: shell_json, or remove it")
        return command

    @field_validator("objective")
    @classmethod
    def _objective_is_measured(cls, objective: Objective, info: ValidationInfo) -> Objective:
        known = _directions(info)
        if known is None:
            return objective
        right = known.get(objective.metric)
        if right is None:
            raise ValueError(f"metric {objective.metric!r} must be one of {choices(objective.metric, known)}")
        if objective.direction != right:
            raise ValueError(f"direction must be {right!r} for metric {objective.metric!r}")
        return objective

    @field_validator("guardrails")
    @classmethod
    def _guardrails_differ(
        cls, guardrails: tuple[Guardrail, ...], info: ValidationInfo
    ) -> tuple[Guardrail, ...]:
        objective, known = info.data.get("objective"), _metrics(info) or {}
        seen: set[tuple[str, str]] = set()
        for guardrail in guardrails:
            if guardrail.metric and guardrail.metric not in known:
                remedy = (
                    f"one of {choices(guardrail.metric, known)}" if known else "left out: what counts is time"
                )
                raise ValueError(f"metric {guardrail.metric!r} must be {remedy}")
            measured = guardrail.suite, guardrail.metric or (objective.metric if objective else "")
            what = f"suite {guardrail.suite!r}" + (f", metric {measured[1]!r}," if known else "")
            if measured in seen:
                raise ValueError(f"{what} has two guardrails; keep one of them")
            if objective is not None and measured == (objective.suite, objective.metric):
                raise ValueError(
                    f"{what} is the objective's own, which must get faster anyway; remove its guardrail"
                )
            seen.add(measured)
        return guardrails


def _directions(info: ValidationInfo) -> dict[str, str] | None:
    """What can be the objective, and which way is better; None where the command is wrong, which is told."""
    if info.data.get("surface") in ("kernel", "session"):
        return dict(KERNEL_METRICS)
    known = _metrics(info)
    return {name: metric.direction for name, metric in known.items()} if known else None


def _metrics(info: ValidationInfo) -> dict[str, Metric] | None:
    """Of a server or a command; None where there are none."""
    if info.data.get("surface") == "openai_http":
        return SERVED_METRICS
    command = info.data.get("command")
    return command.all_metrics if command else None
