"""LayerNorm of every (batch, head) with a weight for each head. What is climbed; it starts as the baseline."""

from baseline import run as run

__all__ = ["run"]
