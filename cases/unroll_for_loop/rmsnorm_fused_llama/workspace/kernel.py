"""y = x / sqrt(mean(x^2) + eps) * weight of each token, float16. What is climbed; it starts as the baseline."""

from baseline import run as run

__all__ = ["run"]
