"""Servers are asked in every way, and pairs are told by the median of their blocks."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hillclimb.harness.records import Block, Pair
from hillclimb.harness.surfaces.openai_http.client import ServerAddress
from scripts.experiments.against_itself import spread
from scripts.experiments.served_times import answers

ROOT = Path(__file__).resolve().parents[2]

SERVER = """
import sys
from pathlib import Path
from hillclimb.harness.serving.backends.mock_backend import MockBackend
from hillclimb.harness.serving.server import listen_on, serve

sys.modules["uvicorn.protocols.http.auto"] = None  # what is taken where another implementation is installed
serve(MockBackend(), listen_on(Path(sys.argv[1])), lambda: print("ready", flush=True))
"""


@pytest.fixture
def address(tmp_path: Path) -> Iterator[ServerAddress]:
    path = tmp_path / "socket"
    command = [sys.executable, "-c", SERVER, str(path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield ServerAddress(path, "mock", 60)
        finally:
            server.kill()


def test_a_server_is_asked_in_every_way(address: ServerAddress) -> None:
    """By HTTP/1.0, to which nobody answers in chunks, whatever else is installed."""
    found = answers(address, lambda: [1, 2, 3], 8)
    assert len(found) == 4
    assert all(value > 0 for value in found.values())


def test_a_pair_is_the_median_of_its_blocks() -> None:
    def pair(*slower: float) -> dict[str, object]:
        blocks = [Block(order="ABBA", seconds=(1.0, share, share, 1.0)) for share in slower]
        made = Pair(stage="noise", suite="main", blocks=tuple(blocks), dropped=0)
        return made.model_dump(mode="json")

    found = spread([pair(1.0, 2.0, 9.0), pair(0.5, 0.5), pair(1.0, 1.0)])
    assert found["ratios"] == [2.0, 0.5, 1.0]
    assert found["pair_sd"] == pytest.approx(0.693, abs=1e-3)
    assert found["block_sd"] == 0.0
    assert found["speedup"].startswith("1.000x")
