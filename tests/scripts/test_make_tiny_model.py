"""Snapshots that the script makes, as the judge reads them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from hillclimb.harness.case.contracts.llama.model import LlamaShape, seeded_weights
from hillclimb.harness.case.contracts.llama.snapshot import read_any_snapshot
from tests.fakes.cases import write_case
from tests.fakes.session import write_session_for_gpu

pytest.importorskip("transformers")

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make_tiny_model.py"
SHAPE = LlamaShape(layers=2, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=320, head_dim=32, tied=False)


def make(folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, SCRIPT, folder, *options], capture_output=True, text=True)


def session(root: Path, vocab: int) -> Path:
    folder = write_session_for_gpu(root)
    text = (folder / "contract.py").read_text()
    changed = text.replace("vocab=256, head_dim=16", f"vocab={vocab}, head_dim=32, tied=False")
    assert changed != text
    (folder / "contract.py").write_text(changed)
    return folder


@pytest.mark.slow(20)
def test_a_model_like_a_session_has_its_weights(tmp_path: Path) -> None:
    made = make(tmp_path / "model", "--like", str(session(tmp_path, 320)), "--seed", "3")
    assert made.returncode == 0, made.stderr
    shape, weights = read_any_snapshot(tmp_path / "model", torch.bfloat16, torch.device("cpu"))
    assert shape == SHAPE
    wanted = seeded_weights(SHAPE, torch.bfloat16, torch.Generator().manual_seed(3))
    assert set(weights) == set(wanted)
    torch.testing.assert_close(weights.pop("frequencies"), wanted.pop("frequencies"))
    assert [name for name in wanted if not torch.equal(weights[name], wanted[name])] == []


@pytest.mark.slow(20)
def test_what_is_no_session_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    kernel = write_case(tmp_path / "kernel")
    for case, said in (
        (kernel, "has no contract of a session"),
        (session(tmp_path / "few", 260), "needs 261 tokens"),
        (tmp_path, "there is no case.yaml"),
    ):
        made = make(tmp_path / "model", "--like", str(case))
        assert made.returncode == 2 and said in made.stderr
        assert not (tmp_path / "model").exists()
