"""The model as transformers reads it: tokenizer, weights and a step that is right."""

from __future__ import annotations

from backend.environment import DEVICE, DTYPE

from hillclimb.harness.serving.backends.backend import ServedModel
from hillclimb.harness.serving.backends.transformers_backend import TransformersBackend


class StockBackend(TransformersBackend):
    """Nothing in it is the workspace's."""

    def __init__(self, model: ServedModel) -> None:
        """Raises UsageError for a snapshot that cannot be read."""
        super().__init__(
            model.path, model=model.name, device=DEVICE, dtype=DTYPE, context=model.context, slots=model.slots
        )
