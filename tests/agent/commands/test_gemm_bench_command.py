"""hillclimb gemm bench, as it is typed; the GPU and the providers' processes are stand-ins."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hillclimb.agent.cli import app
from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.bench import bench
from hillclimb.harness.gemm.bench.rounds import GpuReading
from hillclimb.harness.gemm.folder import locked
from hillclimb.harness.gemm.results import GpuCard, read_results
from tests import fakes
from tests.agent.commands.gemm_commands import typed_gemm


@contextmanager
def held() -> Iterator[bench.HeldGpu]:
    yield bench.HeldGpu(GpuCard(name="NVIDIA H200", driver="580.1"), "GPU-1", GpuReading)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "kernels").write_text(json.dumps({"a": 5000.0, "b": "wrong"}))
    provider = str(Path(fakes.__file__).with_name("gemm_provider.py"))
    monkeypatch.setattr(bench, "held_gpu", held)
    monkeypatch.setattr(
        bench, "worker_command", lambda name, *_, **__: [sys.executable, provider, str(tmp_path / "kernels")]
    )
    monkeypatch.chdir(tmp_path)
    return tmp_path


def typed(*words: str, status: int = 0) -> str:
    return typed_gemm("bench", *words, status=status)


def shapes_of(path: Path) -> list[tuple[int, int, int]]:
    return [(one.m, one.n, one.k) for one in read_results(path).results]


def test_generated_kernels_are_timed_where_there_are_some(folder: Path) -> None:
    typed("shapes", "--shapes", "qkv_m16_n6144_k4096", "--rounds", "1", "--output-dir", "without")
    assert not list(Path("without").glob("generated*"))
    (folder / "some").mkdir()
    (folder / "some" / "kernels.json").write_text("{}")
    words = ("--kernels", "some", "--rounds", "1", "--output-dir", "with")
    typed("shapes", "--shapes", "qkv_m16_n6144_k4096", *words)
    assert Path("with/generated_results.json").exists()


RANGE = ("--dim-start", "256", "--dim-end", "600", "--dim-increment", "256", "--rounds", "1")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["square", *RANGE], [(256, 256, 256), (512, 512, 512)]),
        (["range", *RANGE, "--m-constant", "1", "--k-constant", "64"], [(1, 256, 64), (1, 512, 64)]),
        (["range", *RANGE, "--m-constant", "1", "--n-constant", "8", "--k-constant", "64"], [(1, 8, 64)]),
        (["shapes", "--shapes", "qkv_m16_n6144_k4096", "--rounds", "1"], [(16, 6144, 4096)]),
    ],
)
def test_each_mode_has_its_shapes(
    folder: Path, words: list[str], expected: list[tuple[int, int, int]]
) -> None:
    told = json.loads(typed(*words, "--output-dir", "out", "--json", "--providers", "one,two"))
    assert told == {
        "timed": len(expected),
        "left": [],
        "results": ["out/one_results.json", "out/two_results.json"],
        "same_kernel_twice": {"mean": 0.0, "worst": 0.0},
    }
    assert shapes_of(folder / "out" / "two_results.json") == expected


def test_winners_are_timed_in_all_rounds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "kernels").write_text(json.dumps({"a": 61.0, "b": 40.0, "c": 30.0, "d": 50.0}))
    (folder / "some").mkdir()
    (folder / "some" / "kernels.json").write_text("{}")
    asked = []
    command = bench.worker_command
    monkeypatch.setattr(bench, "worker_command", lambda *words, **_: asked.append(words) or command(*words))
    common = (
        "--shapes",
        "qkv_m16_n6144_k4096",
        "--kernels",
        "some",
        "--rounds",
        "2",
        "--providers",
        "generated",
    )
    typed("shapes", *common, "--output-dir", "first", "--finalists", "1")
    (found,) = read_results(Path("first/generated_results.json")).results
    typed("shapes", *common, "--output-dir", "second", "--winners", "first/generated_results.json")
    assert [words[2] for words in asked] == [[], [found.kernel]] == [[], ["c"]]
    results = read_results(Path("second/generated_results.json")).results
    assert {one.kernel for one in results} == {"b", "c", "d"}
    words = (
        "--output-dir",
        "third",
        "--winners",
        "first/generated_results.json",
        "--providers",
        "cublas,generated",
    )
    typed("shapes", *common[:-2], *words)
    counts = [
        len(read_results(Path(f"third/{name}_results.json")).results) for name in ("cublas", "generated")
    ]
    assert counts == [1, 3]


def test_winners_of_a_dispatch(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "some").mkdir()
    (folder / "some" / "kernels.json").write_text("{}")
    asked = []
    command = bench.worker_command
    monkeypatch.setattr(bench, "worker_command", lambda *words, **_: asked.append(words) or command(*words))
    words = ("shapes", "--shapes", "qkv_m16_n6144_k4096", "--kernels", "some", "--rounds", "1")
    for name, only in (("generated:", ["b", "c"]), ("triton:", None)):
        table = {"schema": 2, "kernels": [f"{name}c", f"{name}b"], "fall_back": 0, "known": []}
        (folder / "dispatch.json").write_text(json.dumps(table))
        choice = (*words, "--providers", "generated", "--winners", "dispatch.json", "--output-dir", "out")
        if only:
            typed(*choice)
            assert asked[-1][2] == only
            (folder / "won.txt").write_text("d\nb\n")
            typed(*choice[:-1], "both", "--winners", "won.txt")
            assert asked[-1][2] == [*only, "d"]
            continue
        with pytest.raises(
            UsageError, match="is of triton; --winners takes a file of the provider generated"
        ):
            typed(*choice)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            '{"schema": 2, "kernels": ["generated:c"], "fall_back": 3, "known": []}',
            "fall_back 3 is none of the 1",
        ),
        (
            '{"schema": 1, "provider": "generated", "gpu": {"name": "a"}}',
            "has no kernel that may be a winner",
        ),
        ('{"schema": 1, "provider": "cublas", "gpu": {"name": "a"}}', "is of cublas"),
        ("{", "gemm-results.json says what a file holds"),
    ],
)
def test_winners_that_are_none(folder: Path, text: str, told: str) -> None:
    (folder / "file.json").write_text(text)
    words = ("shapes", "--shapes", "qkv_m16_n6144_k4096", "--providers", "cublas", "--rounds", "1")
    with pytest.raises(UsageError, match=told):
        typed(*words, "--output-dir", "out", "--winners", "file.json")


def test_nobody_generates_what_is_timed(folder: Path) -> None:
    """Also not a first kernel of another type or dtype, in a folder of its own."""
    (folder / "some" / "simple_gemm_bf16").mkdir(parents=True)
    (folder / "some" / "simple_gemm_bf16" / "kernels.json").write_text("{}")
    words = ("shapes", "--shapes", "qkv_m16_n6144_k4096", "--kernels", "some", "--providers", "generated")
    for held in (Path("some"), Path("some/simple_gemm_bf16")):
        with locked(held), pytest.raises(UsageError, match=f"another process is at work in {held};"):
            typed(*words, "--output-dir", "out")
    with locked(Path("some"), shared=True):
        typed(*words, "--output-dir", "out", "--rounds", "1")
        generated = CliRunner().invoke(app, ["gemm", "generate", "--output-dir", "some"])
    assert isinstance(generated.exception, UsageError) and "at work in some;" in str(generated.exception)


def test_winners_are_of_generated_kernels(folder: Path) -> None:
    words = ("shapes", "--shapes", "qkv_m16_n6144_k4096", "--rounds", "1", "--providers", "cublas")
    typed(*words, "--output-dir", "first")
    with pytest.raises(UsageError, match="is of cublas; --winners takes a file of the provider generated"):
        typed(*words, "--output-dir", "second", "--winners", "first/cublas_results.json")


def test_the_layers_of_a_model_but_for_its_experts(folder: Path) -> None:
    typed(
        *[
            "model",
            "--models",
            "Qwen/Qwen3-32B",
            "--tp-sizes",
            "4",
            "--batch-sizes",
            "1",
            "--rounds",
            "1",
            "--providers",
            "one",
        ]
    )
    found = shapes_of(folder / "artifacts" / "gemm_bench" / "one_results.json")
    assert (1, 2560, 5120) in found and {m for m, _, _ in found} == {1}
    with pytest.raises(UsageError, match="bench model needs --models"):
        typed("model")


def test_products_of_experts_are_asked_for(folder: Path) -> None:
    words = ("--batch-sizes", "16", "--rounds", "1", "--providers", "one", "--output-dir", "times")
    typed("model", "--models", "Qwen/Qwen3-30B-A3B,Qwen/Qwen3-32B", *words, "--grouped")
    found = read_results(folder / "times" / "one_results.json").results
    assert {(one.m, one.n, one.k, one.groups) for one in found} == {
        (128, 1536, 2048, 128),
        (128, 2048, 768, 128),
    }
    assert (folder / "times" / "bf16_e128_m128_n1536_k2048.json").exists()
    typed(
        "range",
        "--dim-start",
        "1536",
        "--dim-end",
        "1536",
        "--dim-increment",
        "1",
        "--m-constant",
        "128",
        "--k-constant",
        "2048",
        *words[2:],
    )
    assert [one.groups for one in read_results(folder / "times" / "one_results.json").results] == [1]
    with pytest.raises(UsageError, match="no products of experts among these shapes; leave --grouped out"):
        typed("model", "--models", "Qwen/Qwen3-32B", *words, "--grouped")
    with pytest.raises(UsageError, match="--shapes names them, those of experts too; leave --grouped out"):
        typed("shapes", "--shapes", "qkv_m16_n6144_k4096", "--grouped")


def test_what_is_left_is_told_and_goes_on(folder: Path) -> None:
    words = ("square", *RANGE, "--providers", "one")
    told = typed(*words, "--seconds", "0.000001", status=1).splitlines()
    assert told[-1] == "2 shapes left; the same command goes on with m256_n256_k256"
    assert typed(*words).startswith("2 shapes timed; written to artifacts/gemm_bench/one_results.json")


def test_a_range_that_ends_before_it_starts_is_told() -> None:
    with pytest.raises(UsageError, match="--dim-end 1 is below --dim-start 2"):
        typed("square", "--dim-start", "2", "--dim-end", "1", "--dim-increment", "1")
