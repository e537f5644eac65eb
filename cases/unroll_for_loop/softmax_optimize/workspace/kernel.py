"""y = softmax(x) along rows. What is climbed; it starts as the baseline."""

from baseline import run as run

__all__ = ["run"]
