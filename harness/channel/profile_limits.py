"""How much a profile may say: enforced by the judge, kept to by the candidate's profilers."""

from __future__ import annotations

import re

MAX_ROWS = 40

MAX_KEPT = 160
"""Rows more, of functions that were asked for; with all others they fit one packet."""

MAX_NAME_CHARS = 160

REST = "other functions"
"""A row of all that have none of their own."""

CUT = "..."
"""Stands for the middle of a longer name."""

UNNAMEABLE = re.compile(r"[^\w.,:;<>/'{}\[\]() *+=?-]", re.ASCII)
"""What a name holds a `?` for: it goes to prompts, pages and terminals."""


MAX_KERNELS, MAX_FILES, MAX_ACCESSES, MAX_LOOPS = 32, 32, 160, 80
"""Rows that are told; with names of the greatest length they fit one packet of hillclimb.harness.channel.wire."""
