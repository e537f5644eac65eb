"""The rungs, as their own tests have them."""

from __future__ import annotations

from tests.harness.sandbox.conftest import rung, start, workspace

__all__ = ["rung", "start", "workspace"]
