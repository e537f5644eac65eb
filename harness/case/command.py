"""The section `command` of case.yaml: what a case of the surface shell_json runs, and the metrics that it prints."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from hillclimb.harness.case.durations import Seconds

NameTuple = Annotated[tuple[str, ...], Field(strict=False)]
"""A YAML list of strings."""

WALL = "wall"
"""The metric of every command that the judge's own clock gives: seconds from its start to its end."""

MetricName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_.%/-]{0,63}$")]


class Section(BaseModel):
    """What every section of case.yaml is: frozen, strict, and without unknown keys."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Metric(Section):
    """A figure above 0 that a run of the command gives."""

    unit: str = Field(pattern=r"^[^\s\x00-\x1f]{1,16}$")
    """As it is shown: tok/s, ms, GiB."""
    direction: Literal["lower", "higher"]
    """Which way is better."""


WALL_METRIC = Metric(unit="s", direction="lower")


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
    def _leaves_wall(cls, metrics: dict[str, Metric]) -> dict[str, Metric]:
        if WALL in metrics:
            raise ValueError(f"{WALL!r} is the judge's own clock, which every case has; take another name")
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
