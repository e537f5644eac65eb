"""What the judge lays out for its canary, and the form of an attempt."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass

SECRET = "the canary's secret"

OUTLIVES_SECONDS = 2.0
"""Far longer than the judge needs to look."""


@dataclass(frozen=True)
class Bait:
    """What the judge has laid out, and what the rung under test promises."""

    judge: int
    session: int
    descriptor: int
    """Number of a descriptor of the judge's, open on the secret."""
    address: int
    """Where the secret lies in the judge's memory."""
    folder: str
    """Outside the border: holds `secret`, `victim`, `socket`, `drop/`, `.env`, `repository/`."""
    marks: Sequence[str]
    """Files that must not be left behind, in folders shared by everybody."""
    hidden: Sequence[str]
    """Parts of the lab that must be invisible."""
    workspace: str
    kernels: str
    """Granted for reading: what was compiled for another side."""
    decoy: int
    """A process of the judge's, there to be ended."""
    port: int
    abstract: str
    host: str
    namespaces: Mapping[str, str]
    """Of the judge: those that the candidate must not share."""
    variables: Sequence[str]
    """All that may be set in the candidate's environment."""
    descriptors: Sequence[int]
    """All that may be open."""
    capabilities: int
    """All that may be held."""
    memory_bytes: int
    scratch_bytes: int
    scratch_is_bounded: bool

    def to_json(self) -> str:
        return json.dumps(asdict(self))


Attempt = Callable[[Bait], object]
"""False or an exception: held in. Anything else: out."""
