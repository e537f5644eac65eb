"""`hillclimb extract` on a tiny Llama and on a module of a file: the table, and cases that `check` takes."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.agent.commands.test_cli import hillclimb

BLOCK = """
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.wide = nn.RMSNorm(24), nn.Linear(24, 40, bias=False)

    def forward(self, x):
        return nn.functional.silu(self.wide(self.norm(x)))


def example_inputs():
    return [torch.randn(2, 24)]


def made():
    return Block(), example_inputs()


def alone():
    return 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "block.py").write_text(BLOCK)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return tmp_path / "block.py"


@pytest.mark.slow(12)
def test_a_llamas_operators_are_listed(tiny: Path, tmp_path: Path) -> None:
    done = hillclimb("extract", str(tiny), "--steps", "3", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    profile = json.loads(done.stdout)["profile"]
    found = {one["name"]: one for one in profile["operators"]}
    assert profile["phase"] == "decode" and profile["seconds"] > 0
    assert found["llama_mlp"]["calls"] == 4 and found["llama_rms_norm"]["calls"] == 9
    assert found["llama_mlp"]["inputs"] == ["float32[1,1,128]"]
    assert found["llama_mlp"]["parameters"] == ["float32[384,128]", "float32[384,128]", "float32[128,384]"]
    assert "lm_head" in {place for one in found.values() for place in one["places"]}
    assert found["llama_attention"]["unfit"] and not found["llama_mlp"]["unfit"]
    shares = [one["share"] for one in profile["operators"]]
    assert shares == sorted(shares, reverse=True) and all(0 < share <= 1 for share in shares)


@pytest.mark.slow(12)
def test_a_prompt_has_other_sizes(tiny: Path, tmp_path: Path) -> None:
    options = ("--phase", "prefill", "--prompt-tokens", "7", "--steps", "2")
    done = hillclimb("extract", str(tiny), *options, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert "ms a prompt" in lines[0]
    assert next(line for line in lines if line.startswith("llama_mlp")).endswith("float32[1,7,128]")


@pytest.mark.slow(90)
def test_a_chosen_operator_is_a_sound_case(tiny: Path, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    chosen = ("--write", "llama_mlp", "--write", "llama_rms_norm", "--family", "tiny", "--steps", "2")
    done = hillclimb("extract", str(tiny), *chosen, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "tiny/llama_mlp is made" in done.stdout
    program = (tmp_path / "cases" / "tiny" / "llama_mlp" / "program.md").read_text()
    assert "LlamaMLP of tiny: 4 calls a step" in program
    for case in ("tiny/llama_mlp", "tiny/llama_rms_norm"):
        checked = hillclimb("check", case, cwd=tmp_path)
        assert checked.returncode == 0, checked.stdout + checked.stderr


@pytest.mark.slow(10, but=["class"])
@pytest.mark.parametrize("name", ["Block", "made"], ids=["class", "function"])
def test_a_module_of_a_file(file: Path, name: str) -> None:
    done = hillclimb("extract", f"block.py:{name}", "--steps", "2", "--json", cwd=file.parent)
    assert done.returncode == 0, done.stderr
    profile = json.loads(done.stdout)["profile"]
    assert profile["phase"] == "call"
    assert {one["name"] for one in profile["operators"]} == {"rms_norm", "linear"}


@pytest.mark.slow(3, but=["nothing"])
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (("nowhere/model",), "is no snapshot, no FILE.py:NAME and no case"),
        (("block.py:alone",), "alone is no torch.nn.Module"),
        (("block.py:missing",), "missing is no torch.nn.Module"),
        (("block.py:Block", "--write", "conv"), "--write 'conv' is no operator of the model; there are"),
        ((".",), "transformers cannot read it"),
    ],
    ids=["nothing", "a number", "no name", "no operator", "no snapshot"],
)
def test_what_cannot_be_done_is_named(file: Path, typed: tuple[str, ...], said: str) -> None:
    done = hillclimb("extract", *typed, cwd=file.parent)
    assert done.returncode == 2
    assert said in done.stderr and "Traceback" not in done.stderr
