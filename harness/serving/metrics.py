"""What a server counts, in the form of Prometheus."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from hillclimb.harness.serving.engine import Engine

CONTENT_TYPE = CONTENT_TYPE_LATEST
FIRST_TOKEN_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
TOKEN_BUCKETS = (0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)


class Metrics:
    """Of one server."""

    def __init__(self, engine: Engine) -> None:
        self._registry = CollectorRegistry()
        self.requests = Counter(
            "hillclimb_requests",
            "Requests by endpoint and status.",
            ["endpoint", "status"],
            registry=self._registry,
        )
        self.prompt_tokens = Counter("hillclimb_prompt_tokens", "Tokens of prompts.", registry=self._registry)
        self.answer_tokens = Counter(
            "hillclimb_generation_tokens", "Tokens of answers.", registry=self._registry
        )
        self.first_token = Histogram(
            "hillclimb_time_to_first_token_seconds",
            "From a request to the first token of an answer.",
            buckets=FIRST_TOKEN_BUCKETS,
            registry=self._registry,
        )
        self.token = Histogram(
            "hillclimb_time_per_output_token_seconds",
            "From a token of an answer to the next.",
            buckets=TOKEN_BUCKETS,
            registry=self._registry,
        )
        running = Gauge("hillclimb_requests_running", "Answers that are being made.", registry=self._registry)
        waiting = Gauge(
            "hillclimb_requests_waiting", "Answers that wait for a slot.", registry=self._registry
        )
        running.set_function(lambda: engine.running)
        waiting.set_function(lambda: engine.waiting)

    def text(self) -> bytes:
        """Of GET /metrics."""
        return generate_latest(self._registry)
