"""The kernel that is climbed; it starts as the baseline."""

from baseline import run as run

__all__ = ["run"]
