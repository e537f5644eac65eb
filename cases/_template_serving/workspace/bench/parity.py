"""Compares the backend, under the knobs of the environment, with the untouched model: `python -m bench.parity`.

A quick look before anything is timed. What decides is the judge's own comparison.
"""

from __future__ import annotations

from backend.environment import ACCEPTED
from backend.loading import StockBackend
from backend.parity import compare, prompts
from backend.serving import create_backend
from bench.case_model import case_model

TOKENS = 32


def main() -> None:
    """A line for each prompt. Ends with status 1 where a gap is larger than what is accepted."""
    model = case_model()
    backend, stock = create_backend(model), StockBackend(model)
    print("prompt  token gap  logits' gap   in standard deviations of the logits")
    worst = 0.0
    for at, prompt in enumerate(prompts(backend.vocabulary)):
        gaps = compare(backend, stock, prompt, TOKENS)
        print(f"{at:6d}  {gaps.token:9.6f}  {gaps.logits:11.6f}")
        worst = max(worst, *gaps)
    if worst > ACCEPTED:
        raise SystemExit(f"parity is lost: {worst:.6f}, where {ACCEPTED} is accepted")
    print(f"parity holds: {worst:.6f} at the most, where {ACCEPTED} is accepted")


if __name__ == "__main__":
    main()
