from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

import triton
import yaml

KNOBS = yaml.safe_load((Path(__file__).parents[1] / "knobs.yaml").read_text(encoding="utf-8"))
WARPS = int(os.environ.get("SM_WARPS", KNOBS["SM_WARPS"]["default"]))


@dataclass(frozen=True)
class Plan:
    width: int
    warps: int


@functools.lru_cache(maxsize=64)
def plan(columns: int) -> Plan:
    width = triton.next_power_of_2(columns)
    return Plan(width, WARPS if width >= 1024 else 1)
