"""hillclimb gemm shapes, as it is typed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hillclimb.agent.cli import app
from hillclimb.harness.errors import UsageError


def typed(*words: str) -> str:
    found = CliRunner().invoke(app, ["gemm", "shapes", *words])
    if isinstance(found.exception, UsageError):
        raise found.exception
    assert found.exit_code == 0, found.output
    return found.output


def test_all_shapes_are_listed() -> None:
    lines = typed().splitlines()
    assert lines[0].split() == ["name", "m", "n", "k", "groups", "dtype", "FLOP/byte"]
    assert lines[-1] == "239 shapes"
    assert len(lines) == 241


def test_names_may_stand_by_commas_or_apart() -> None:
    two = ["down_m1_n4096_k14336", "qkv_m16_n6144_k4096"]
    found = [
        typed("--shapes", ",".join(two), "--json"),
        typed("--shapes", two[0], "--shapes", two[1], "--json"),
    ]
    assert found[0] == found[1]
    assert [shape["name"] for shape in json.loads(found[0])] == two
    assert json.loads(found[0])[0] == {
        "name": two[0], "m": 1, "n": 4096, "k": 14336, "dtype": "bf16", "groups": 1,
        "flops": 2 * 4096 * 14336, "bytes": 2 * (14336 + 4096 * 14336 + 4096),
    }  # fmt: skip


def test_layers_of_models_by_gpus_and_tokens() -> None:
    words = ("--models", "Qwen/Qwen3-32B", "--tp-sizes", "4,8", "--batch-sizes", "1,64", "--dtype", "int8")
    found = json.loads(typed(*words, "--json"))
    assert len(found) == 4 * 2 * 2
    assert {shape["m"] for shape in found} == {1, 64}
    assert {shape["dtype"] for shape in found} == {"int8"}
    apart = ("--tp-sizes", "4", "--tp-sizes", "8", "--batch-sizes", "1", "--batch-sizes", "64")
    assert json.loads(typed(*words[:2], *apart, *words[-2:], "--json")) == found


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--shapes", "qkv"], "no shape 'qkv'"),
        (["--dtype", "bfloat16"], "--dtype bfloat16: did you mean 'bf16'?"),
        (["--dtype", "x"], "--dtype x: choose among bf16, f16, fp8, int8"),
        (["--models", "Qwen/Qwen3-32B", "--tp-sizes", "0"], "--tp-sizes 0: give whole numbers above 0"),
        (["--models", "Qwen/Qwen3-32B", "--batch-sizes", "1,x"], "--batch-sizes 1,x: give whole numbers"),
        (["--batch-sizes", "1"], "--tp-sizes and --batch-sizes are of --models; name one"),
    ],
)
def test_a_slip_is_told_with_what_to_do(words: list[str], told: str) -> None:
    with pytest.raises(UsageError, match=told.replace("?", r"\?")):
        typed(*words)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"no definition file .*none\.yaml"):
        typed("--definitions", str(tmp_path / "none.yaml"))
