"""What ran, compared with what a workspace claims; the rows are made by real profilers in tests/harness/surfaces."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.harness.channel.row_names import row_name
from hillclimb.harness.engagement.engagement import (
    changed_files,
    require_changes_engaged,
    require_engaged,
)
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.records import Bucket, Reason, Side

MANIFEST = """
schema: 1
families:
  gemv:
    knob: OP_GEMV
    implementations:
      mine: {kernels: [gemv], files: ["ops/*"], status: ready, tests: [tests/test_gemv.py]}
      torch: {status: stock}
"""


def write_side(place: Path, manifest: str | None = MANIFEST, **knobs: str) -> Side:
    files = {
        "ops/gemv.py": "def gemv(x):\n    return x\n",
        "ops/gemv.c": "",
        "other/gemv.py": "def gemv(x):\n    return x\n",
        "ops/kérnel.py": "def gemv(x):\n    return x\n",
        f"ops/{'d' * 90}/{'e' * 90}.py": "def gemv(x):\n    return x\n",
        "ops/odd.cu/readme.txt": "",
        "ops/gemv.cu": "namespace mine { __global__ void gemv(float* x) {} }",
        "tests/test_gemv.py": "",
        "backend.py": "",
        "knobs.yaml": "OP_GEMV: {type: choice, choices: [mine, torch], default: mine}\n",
    }
    for path, text in files.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    if manifest:
        (place / "kernel_manifest.yaml").write_text(manifest)
    return Side(tree=str(place), knobs=knobs)


def row(name: str, share: float = 0.5) -> Bucket:
    return Bucket(name=name, share=share, seconds_per_call=1.0, calls=3.0)


OWN = [
    "ops/gemv.py:gemv",
    "ops/gemv.py:gemv (worker threads)",
    "ops_gemv_c.so:gemv (worker threads)",
    row_name("ops/kérnel.py", "gemv"),
    row_name(f"ops/{'d' * 90}/{'e' * 90}.py", "gemv") + " (worker threads)",
    "gemv",
    "void mine::gemv<4>(float*)",
    "kernel_cutlass_gemv_tensorptrf32",
]

FOREIGN = [
    "torch/nn/functional.py:gemv",
    "ops/other.py:gemv",
    "other/gemv.py:gemv",
    "ops_gemv_cu.so:gemv",
    "ops/gemv.py:gemv_fallback",
    "gemv.so:gemv",
    "ops_gemv_c.so:gemv2",
    "kernel_cutlass_other_tensorptrf32",
    "void theirs::gemv<4>(float*)",
    "void gemvx::kernel<int>(float*)",
    "waiting for other threads (worker threads)",
]


@pytest.mark.parametrize("name", OWN)
def test_a_function_of_the_workspaces_own_is_seen(tmp_path: Path, name: str) -> None:
    rows = [row("other functions", 0.9), row(name, 0.1)]
    assert require_engaged(write_side(tmp_path), rows) == (rows[1],)


@pytest.mark.parametrize("name", FOREIGN)
def test_anyone_elses_is_not(tmp_path: Path, name: str) -> None:
    with pytest.raises(CandidateFault, match="gemv of gemv") as fault:
        require_engaged(write_side(tmp_path), [row(name)])
    assert fault.value.reason is Reason.NOT_ENGAGED
    assert name in fault.value.detail


def test_of_two_the_larger_share_is_told(tmp_path: Path) -> None:
    small, large = row("gemv.so:gemv", 0.1), row("ops/gemv.py:gemv", 0.2)
    assert require_engaged(write_side(tmp_path), [large, small]) == (large,)


def test_what_is_stock_claims_nothing(tmp_path: Path) -> None:
    assert require_engaged(write_side(tmp_path, OP_GEMV="torch"), []) == ()


def test_without_a_manifest_nothing_is_claimed(tmp_path: Path) -> None:
    assert require_engaged(write_side(tmp_path, None), []) == ()


def test_a_manifest_that_is_wrong_is_the_candidates(tmp_path: Path) -> None:
    with pytest.raises(CandidateFault, match="is no knob") as fault:
        require_engaged(write_side(tmp_path, MANIFEST.replace("OP_GEMV", "OP_GEMM")), [])
    assert fault.value.reason is Reason.NOT_ENGAGED


def test_a_change_of_what_does_not_run_is_refused(tmp_path: Path) -> None:
    incumbent = write_side(tmp_path / "incumbent")
    candidate = write_side(tmp_path / "candidate", OP_GEMV="torch")
    (tmp_path / "candidate" / "ops" / "gemv.cu").write_text("__global__ void gemv(float* x) { x[0] = 1; }")
    with pytest.raises(CandidateFault, match=r"ops/gemv\.cu changed") as fault:
        require_changes_engaged(candidate, incumbent)
    assert fault.value.reason is Reason.NOT_ENGAGED
    require_changes_engaged(Side(tree=candidate.tree), incumbent)
    (tmp_path / "candidate" / "backend.py").write_text("x = 1")
    require_changes_engaged(candidate, incumbent)


def test_the_same_files_with_other_knobs_are_no_change_of_idle_ones(tmp_path: Path) -> None:
    require_changes_engaged(write_side(tmp_path / "a", OP_GEMV="torch"), write_side(tmp_path / "b"))


def test_a_manifest_may_not_vanish(tmp_path: Path) -> None:
    incumbent, candidate = write_side(tmp_path / "a"), write_side(tmp_path / "b", None)
    with pytest.raises(CandidateFault, match="is gone"):
        require_changes_engaged(candidate, incumbent)
    require_changes_engaged(incumbent, candidate)


def test_large_files_are_not_read_whole(tmp_path: Path) -> None:
    one, other = write_side(tmp_path / "a"), write_side(tmp_path / "b")
    for place in (one, other):
        with (Path(place.tree) / "weights.bin").open("wb") as file:
            file.truncate((64 << 30) + (place is one))
    assert changed_files(Path(one.tree), Path(other.tree)) == ["weights.bin"]


def test_details_are_short_and_printable(tmp_path: Path) -> None:
    with pytest.raises(CandidateFault) as fault:
        require_engaged(write_side(tmp_path), [row("a\x1b[31m" + "b" * 5000)])
    assert len(fault.value.detail) <= 1000 and "\x1b" not in fault.value.detail


def test_files_that_come_and_go_are_changes(tmp_path: Path) -> None:
    write_side(tmp_path / "a")
    write_side(tmp_path / "b", None)
    (tmp_path / "a" / "ops" / "gemv.py").write_text("other")
    (tmp_path / "b" / "more.py").write_text("")
    expected = ["kernel_manifest.yaml", "more.py", "ops/gemv.py"]
    assert changed_files(tmp_path / "a", tmp_path / "b") == expected
