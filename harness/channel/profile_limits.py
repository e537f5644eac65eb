"""How much a profile may say: enforced by the judge, kept to by the candidate's profilers."""

from __future__ import annotations

import re

MOST_ROWS = 40

LONGEST_NAME = 160

UNNAMEABLE = re.compile(r"[^\w.,:;<>/'{}\[\]() *+=?-]", re.ASCII)
"""What a name holds a `?` for: it goes to prompts, pages and terminals."""


MOST_KERNELS, MOST_FILES, MOST_ACCESSES, MOST_LOOPS = 32, 32, 160, 80
"""Rows that are told; with names of the greatest length they fit one packet of hillclimb.harness.channel.wire."""
