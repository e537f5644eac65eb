"""C = A B in float16. What is climbed: the start is the kernel of baseline.py, in the schedule that a knob names."""

from baseline import run as run

__all__ = ["run"]
