"""The kernel that is climbed: the baseline, a loop over time. What this file defines as `run` is what is timed."""

from baseline import run as run

__all__ = ["run"]
