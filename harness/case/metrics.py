"""What is measured where it is no kernel: metrics, the section `command` of case.yaml, and suites of both surfaces."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from hillclimb.harness.case.durations import Seconds

NameTuple = Annotated[tuple[str, ...], Field(strict=False)]
"""A YAML list of strings."""

WRONG = "wrong"
"""Key under which a command says in words that what it measured is not right."""

WALL = "wall"
"""The metric of every command that the judge's own clock gives: seconds from its start to its end."""

MetricName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.%/-]{0,63}$")]


class Section(BaseModel):
    """What every section of case.yaml is: frozen, strict, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Metric(Section):
    """A figure above 0 that is measured of a segment."""

    unit: str = Field(pattern=r"^[^\s\x00-\x1f]{1,16}$")
    """As it is shown: tok/s, ms, GiB."""
    direction: Literal["lower", "higher"]
    """Which way is better."""


WALL_METRIC = Metric(unit="s", direction="lower")


KERNEL_METRICS = {"time": "lower", "flops": "higher", "bandwidth": "higher"}
"""What is told of a kernel, and which way is better."""

SERVED_METRICS = {
    "tokens_per_second": Metric(unit="tok/s", direction="higher"),
    "ttft": Metric(unit="s", direction="lower"),
    "ttft_p99": Metric(unit="s", direction="lower"),
    "tpot": Metric(unit="s", direction="lower"),
    "latency": Metric(unit="s", direction="lower"),
    "latency_p99": Metric(unit="s", direction="lower"),
    "memory": Metric(unit="MiB", direction="lower"),
}
"""Of a server: tokens of all answers over the time for all; time to the first token, time per token after it, and time
of a whole answer, each the median or the 99th percentile over requests; resident memory of its process."""


class Command(Section):
    """What is run to measure a workspace. It is the case's own, as a contract is."""

    run: NameTuple = Field(min_length=1)
    """Program and arguments. `python` is the lab's own; names of files of the case become their paths."""
    seconds: Seconds = Field(default=600, gt=0)
    """For one run, at the most."""
    metrics: dict[MetricName, Metric] = Field(default_factory=dict)
    """What it prints, by name: every run prints all of them."""

    @field_validator("metrics")
    @classmethod
    def _leaves_names(cls, metrics: dict[str, Metric]) -> dict[str, Metric]:
        if WALL in metrics:
            raise ValueError(f"{WALL!r} is the judge's own clock, which every case has; take another name")
        if WRONG in metrics:
            raise ValueError(f"{WRONG!r} is where a command says what is wrong; take another name")
        return metrics

    @property
    def all_metrics(self) -> dict[str, Metric]:
        """Those, and the judge's clock."""
        return {**self.metrics, WALL: WALL_METRIC}


class CommandSuite(Section):
    """benchmarks/<suite>.yaml of a case whose surface is shell_json."""

    arguments: NameTuple = ()
    """Put after those of `command.run`."""
    doc: str = ""


class RequestSuite(Section):
    """benchmarks/<suite>.yaml of a case whose surface is openai_http: what is asked of the server in a segment."""

    prompt_tokens: int = Field(ge=1)
    """Of each request; they are drawn at random."""
    answer_tokens: int = Field(ge=2)
    """Of each answer: no fewer are made, and no more."""
    concurrency: int = Field(default=1, ge=1, le=256)
    """Requests under way at once."""
    requests: int = Field(default=1, ge=1, le=4096)
    """In all; rounded up to a multiple of `concurrency`."""
    doc: str = ""

    @property
    def count(self) -> int:
        """Requests of a segment."""
        return -(-self.requests // self.concurrency) * self.concurrency
