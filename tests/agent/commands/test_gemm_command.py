"""hillclimb gemm shapes, gemm compare and gemm select, as they are typed."""

from __future__ import annotations

import json
import sys
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
        (["--dtype", "x"], "--dtype x: choose among bf16, f16, fp8, int8, scaled_fp8, scaled_int8"),
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


def results(path: Path, provider: str, **milliseconds: float) -> str:
    """A file of times by shape, square ones of the size that the name ends with."""
    file = {
        "schema": 1, "provider": provider, "gpu": {"name": "NVIDIA H200", "driver": "580"},
        "results": [
            {"name": name, **dict.fromkeys("mnk", int(name[1:])), "dtype": "bf16", "runtime_ms": ms}
            for name, ms in milliseconds.items()
        ],
    }  # fmt: skip
    path.write_text(json.dumps(file))
    return str(path)


def compared(*words: str) -> tuple[int, str]:
    found = CliRunner().invoke(app, ["gemm", "compare", *words])
    if isinstance(found.exception, UsageError):
        raise found.exception
    return found.exit_code, found.output


def test_providers_stand_beside_a_baseline(tmp_path: Path) -> None:
    base = results(tmp_path / "cublas", "cublas", s1024=0.01, s2048=0.05)
    mine = results(tmp_path / "mine", "mine", s1024=0.008, s2048=0.06)
    status, text = compared("--baseline", base, mine)
    assert status == 0
    assert "1.250x+" in text
    assert "0.833x-" in text
    assert compared("--baseline", base, mine, "--fail-on", "slower")[0] == 1
    assert compared("--baseline", base, mine, "--fail-on", "slower", "--shapes", "s1024")[0] == 0
    status, text = compared("--baseline", base, mine, "--json")
    assert json.loads(text)["shapes"][0]["cells"]["mine"]["speedup"] == pytest.approx(1.25)
    assert compared("--baseline", base, mine, "--format", "markdown")[1].startswith(
        "| shape | cublas TFLOP/s |"
    )


def test_a_gap_is_named_and_ends_with_1(tmp_path: Path) -> None:
    base = results(tmp_path / "cublas", "cublas", s1024=0.01, s2048=0.05)
    status, text = compared("--baseline", base, results(tmp_path / "mine", "mine", s1024=0.01))
    assert status == 1
    assert "missing: mine, s2048: no record; measure it" in text
    with pytest.raises(UsageError, match="No such file"):
        compared("--baseline", base, str(tmp_path / "none"))


@pytest.fixture
def tiles(tmp_path: Path) -> str:
    """Three kernels: one for few rows, one for many, and one in between for all."""
    file = {
        "schema": 1, "provider": "mine", "gpu": {"name": "a card"},
        "results": [
            {"name": f"m{m}", "m": m, "n": 512, "k": 512, "dtype": "bf16", "kernel": kernel, "runtime_ms": ms}
            for kernel, times in {"low": (1, 2, 8), "all": (1.1, 1.5, 3.1), "high": (3, 2, 3)}.items()
            for m, ms in zip((8, 64, 512), times, strict=True)
        ],
    }  # fmt: skip
    path = tmp_path / "mine.json"
    path.write_text(json.dumps(file))
    return str(path)


def selected(*words: str) -> str:
    """What is for the user; with --json nothing else is said."""
    found = CliRunner().invoke(app, ["gemm", "select", *words])
    if isinstance(found.exception, UsageError):
        raise found.exception
    assert found.exit_code == 0, found.output
    assert bool(found.stderr) != ("--json" in words)
    return found.stdout


def test_a_selection_says_on_stderr_what_it_is_at(tiles: str) -> None:
    told = CliRunner().invoke(app, ["gemm", "select", tiles, "--best", "2"]).stderr.splitlines()
    assert told == ["choosing of 3 kernels for 3 shapes", "making the dispatch"]


def test_few_kernels_are_selected(tiles: str) -> None:
    assert json.loads(selected(tiles, "--json"))["kernels"] == ["mine:low", "mine:all", "mine:high"]
    assert json.loads(selected(tiles, "--min-gemm-efficiency", "0.9", "--json"))["kernels"] == ["mine:all"]
    lines = selected(tiles, "--best", "1", "--curve", "3", "--held-out-m", "64").splitlines()
    assert lines[0] == "mine:all"
    assert lines[2] == "chosen for: 2 shapes, mean 0.9384, worst 0.9091 at m8"
    assert lines[3] == "held out: 1 shape, mean 1.0000, worst 1.0000 at m64"
    assert [line.partition(":")[0] for line in lines[4:-1]] == ["best 1", "best 2"]
    assert lines[-1] == "1 kernel; what nothing is known of gets mine:all"


def test_kernels_may_be_required_forbidden_and_shapes_weighted(tiles: str, tmp_path: Path) -> None:
    assert (
        "mine:all" not in json.loads(selected(tiles, "--best", "2", "--forbid", "*:all", "--json"))["kernels"]
    )
    assert (
        "mine:high"
        in json.loads(selected(tiles, "--best", "1", "--require", "mine:high", "--json"))["kernels"]
    )
    calls = tmp_path / "calls.yaml"
    calls.write_text("m8: 1000\nm512: 0.5\n")
    found = json.loads(selected(tiles, "--best", "1", "--calls", str(calls), "--json"))
    assert found["kernels"] == ["mine:low"]
    assert found["on_shapes"]["shapes"] == 2
    calls.write_text("m8: often\n")
    with pytest.raises(UsageError, match="often"):
        selected(tiles, "--calls", str(calls))
    with pytest.raises(UsageError, match="ask one of them"):
        selected(tiles, "--best", "1", "--min-gemm-efficiency", "0.9")


def test_the_dispatch_is_written_in_three_forms(tiles: str, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "chosen"
    assert f"written to {folder}" in selected(tiles, "--output", str(folder))
    assert sorted(path.name for path in folder.iterdir()) == ["dispatch.hpp", "dispatch.json", "dispatch.py"]
    assert json.loads((folder / "dispatch.json").read_text())["kernels"] == [
        "mine:low",
        "mine:all",
        "mine:high",
    ]


@pytest.mark.parametrize(
    ("words", "kernels"), [([], 3), (["--select-kernels", "*:all"], 1), (["--plot-all-ops"], 3)]
)
def test_the_heatmap_is_drawn(tiles: str, tmp_path: Path, words: list[str], kernels: int) -> None:
    picture = tmp_path / "new" / "map.svg"
    found = CliRunner().invoke(app, ["gemm", "heatmap", tiles, "--save-file", str(picture), *words])
    assert found.exit_code == 0, found.output
    assert (
        sum(f"<!-- mine:{kernel} -->" in picture.read_text() for kernel in ("low", "all", "high")) == kernels
    )
    assert sorted(path.name for path in picture.parent.iterdir()) == ["map.svg"]


def test_only_a_dispatch_takes_what_is_learnt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A heatmap has none, so it is drawn without scikit-learn, too."""
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    many = Path(__file__).parents[3] / "docs" / "evidence" / "gemm_portfolio_h200" / "generated.json.gz"
    picture = tmp_path / "map.svg"
    found = CliRunner().invoke(app, ["gemm", "heatmap", str(many), "--save-file", str(picture)])
    assert found.exit_code == 0, found.output
    assert picture.exists()
    with pytest.raises(UsageError, match="scikit-learn"):
        selected(str(many))
