"""hillclimb gemm won, as it is typed, on branches as climbs leave them."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from hillclimb.harness.errors import UsageError
from hillclimb.harness.gemm.results import GpuCard, Measured, ProviderResults
from hillclimb.harness.knobs.knobs import KnobValue, replace_defaults
from tests.agent.commands.gemm_commands import typed_gemm

START = "warpgroup_gemm_bf16_64x8x128_1x1_split4_once_by1_features_1x1_raster2_swizzle4_pdl"
WON = "warpgroup_gemm_bf16_64x40x128_1x1_split2_once_by1_features_1x1_raster2_swizzle4_pdl"
WORKSPACE = Path("cases/gemm/one_bf16/workspace")
BRANCH = "hillclimb/gemm/one_bf16/sweep"


def git(*words: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@localhost")
    subprocess.run(["git", *who, *words], check=True, capture_output=True)


def commit(branch: str) -> None:
    git("checkout", "-q", "-B", branch)
    git("add", "-A")
    git("commit", "-q", "--allow-empty", "-m", branch)


def set_knobs(**values: KnobValue) -> None:
    file = WORKSPACE / "knobs.yaml"
    file.write_text(replace_defaults(file.read_text(), values))


@pytest.fixture(autouse=True)
def claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    git("init", "-q", "-b", "main")
    one = Measured(name="one", m=40, n=264, k=272, dtype="bf16", runtime_ms=1, kernel=START)
    file = ProviderResults(schema=1, provider="generated", gpu=GpuCard(name="NVIDIA H200"), results=(one,))
    (tmp_path / "times.json").write_text(file.model_dump_json(by_alias=True))
    typed_gemm("claim", "times.json", "--shapes", "one")
    commit("main")
    set_knobs(GEMM_COLUMNS=40, GEMM_SPLITS=2)
    commit(BRANCH)


def test_a_climb_of_knobs_ends_with_a_kernel_of_the_generator() -> None:
    git("checkout", "-q", "main")
    assert typed_gemm("won", BRANCH) == f"{WON}\n"
    git("branch", "hillclimb/gemm/one_bf16/idle", "main")
    branches = (BRANCH, "hillclimb/gemm/one_bf16/idle", BRANCH)
    assert typed_gemm("won", *branches).split() == [WON, START]
    assert json.loads(typed_gemm("won", *branches, "--json")) == {BRANCH: WON, branches[1]: START}


def test_it_is_read_where_the_branch_is_alone() -> None:
    git("checkout", "-q", "--orphan", "other")
    git("rm", "-rfq", ".")
    git("commit", "-q", "--allow-empty", "-m", "nothing")
    git("branch", "-D", "main")
    assert typed_gemm("won", BRANCH) == f"{WON}\n"


@pytest.mark.parametrize("file", ["gemm.cu", "kernel.py", "launch.py", "plan.py", "knobs.py", "more.cu"])
def test_edited_code_has_no_name(file: str) -> None:
    with (WORKSPACE / file).open("a") as code:
        code.write("\n")
    commit(BRANCH)
    with pytest.raises(UsageError, match=rf"{BRANCH}: {file} is not what this version's claims have"):
        typed_gemm("won", BRANCH)


def test_notes_and_tests_may_be_edited() -> None:
    for file in ("docs/notes.md", "tests/test_kernel.py", "tests/more.py"):
        with (WORKSPACE / file).open("a") as text:
            text.write("\n")
    commit(BRANCH)
    assert typed_gemm("won", BRANCH) == f"{WON}\n"


def test_knobs_that_are_no_text_are_told() -> None:
    (WORKSPACE / "knobs.yaml").write_bytes(b"\xff")
    commit(BRANCH)
    with pytest.raises(UsageError, match=rf"{BRANCH}: knobs\.yaml is no text"):
        typed_gemm("won", BRANCH)


@pytest.mark.parametrize("name", ["main", "hillclimb/gemm/one_bf16/other", "nothing"])
def test_what_is_no_branch_of_a_climb_is_told(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name} is no branch of a climb here"):
        typed_gemm("won", name)


def test_a_case_that_is_no_claim_is_told() -> None:
    git("rm", "-q", str(WORKSPACE / "gemm.cu"))
    commit(BRANCH)
    with pytest.raises(UsageError, match=r"has no cases/gemm/one_bf16/workspace/gemm\.cu; it is no climb"):
        typed_gemm("won", BRANCH)
