"""Claimed kernels on a GPU: their workspace's kernel gives the product in every way to run it, as the bench's did."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hillclimb.harness.gemm.claims.claim import knob_values
from hillclimb.harness.gemm.families.run_option import RunOption
from hillclimb.harness.gemm.generator.types import chosen_points, refusal
from hillclimb.harness.knobs.knobs import KnobValue, broken_constraint, load_knobs, to_environment
from tests.agent.commands.test_gemm_claim_command import claimed
from tests.cases.workspace import CASES

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("gpu")]

KNOBS = load_knobs(CASES / "_template_gemm" / "workspace" / "knobs.yaml")
TILES = {(64, 8), (128, 96), (256, 176)}


def settings() -> list[dict[str, KnobValue]]:
    """Of each of these tiles one kernel of each way to share work, the operands and clusters by turns."""
    found: dict[object, dict[str, KnobValue]] = {}
    for at, point in enumerate(chosen_points("warpgroup_gemm", "hopper", "bf16")):
        way = (point.tile, *point.words[1:]) if point.tile[:2] in TILES else None
        option = RunOption(
            raster=1 + at % 2,
            rows=("tokens", "features")[at % 2],  # type: ignore[arg-type]
            cluster=((1, 1), (2, 1), (1, 2))[at % 3],
            is_dependent=at % 4 < 2,
        )
        knobs = knob_values(point, option)  # type: ignore[arg-type]
        if way is not None and not refusal(point) and broken_constraint(KNOBS, knobs) is None:
            found.setdefault(way, knobs)
    return list(found.values())


@pytest.mark.timeout(900)
def test_a_workspace_gives_the_product_in_every_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    workspace = claimed(tmp_path) / "workspace"
    wrong = []
    tried = settings()
    assert len(tried) > 10
    for knobs in tried:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "tests"],
            cwd=workspace,
            env={**os.environ, **to_environment(knobs)},
            capture_output=True,
            text=True,
        )
        if "3 passed" not in done.stdout:
            wrong.append(f"{knobs}: {done.stdout[-1500:]}")
    assert not wrong, "\n".join(wrong[:3])
