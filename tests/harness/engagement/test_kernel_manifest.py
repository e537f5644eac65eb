"""kernel_manifest.yaml: what it says that runs, and what is wrong with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.harness.engagement.kernel_manifest import MAX_CLAIMED, read_chosen
from hillclimb.harness.errors import CaseError

MANIFEST = """
schema: 1
families:
  norm:
    knob: OP_NORM
    doc: a norm and what follows it
    implementations:
      c: {kernels: [norm_rows], files: ["ops/c/*"], tests: [tests/test_norm.py], status: ready}
      numba: {kernels: [norm_numba], files: [ops/norm.py], status: draft}
      torch: {status: stock}
  attention:
    default: plain
    implementations:
      plain: {kernels: [attend, combine], files: [ops/attention.py], tests: [tests/test_norm.py], status: ready}
"""

KNOBS = "OP_NORM: {type: choice, choices: [c, numba, torch], default: c}\n"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for path in ("ops/c/norm.c", "ops/norm.py", "ops/attention.py", "tests/test_norm.py"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text("")
    (tmp_path / "kernel_manifest.yaml").write_text(MANIFEST)
    (tmp_path / "knobs.yaml").write_text(KNOBS)
    return tmp_path


def test_a_workspace_without_one_claims_nothing(tmp_path: Path) -> None:
    assert read_chosen(tmp_path, {}) is None


@pytest.mark.parametrize(
    ("knobs", "claimed"),
    [
        ({}, {"norm_rows": "norm", "attend": "attention", "combine": "attention"}),
        ({"OP_NORM": "numba"}, {"norm_numba": "norm", "attend": "attention", "combine": "attention"}),
        ({"OP_NORM": "torch"}, {"attend": "attention", "combine": "attention"}),
    ],
)
def test_knobs_and_their_defaults_choose(
    workspace: Path, knobs: dict[str, str], claimed: dict[str, str]
) -> None:
    ops = read_chosen(workspace, knobs)
    assert ops is not None and ops.kernels == claimed


def test_a_promoted_default_chooses_too(workspace: Path) -> None:
    (workspace / "knobs.yaml").write_text(KNOBS.replace("default: c", "default: torch"))
    ops = read_chosen(workspace, {})
    assert ops is not None and "norm_rows" not in ops.kernels


def test_files_of_what_does_not_run_are_idle(workspace: Path) -> None:
    ops = read_chosen(workspace, {})
    assert ops is not None
    assert ops.has_idle("ops/norm.py")
    assert not ops.has_idle("ops/c/norm.c") and not ops.has_idle("backend.py")


READY = "tests: [tests/test_norm.py], status: ready}"
READY_BY_DEFAULT = MANIFEST[MANIFEST.rindex(READY) :].rstrip()

WRONG = {
    "an unknown key": ("doc: a norm", "docs: a norm", "docs"),
    "a status that there is not": ("status: draft", "status: done", "status"),
    "no kernels": ("kernels: [norm_numba], ", "", "names no kernels"),
    "stock with a kernel": ("{status: stock}", "{status: stock, kernels: [mm]}", "is stock"),
    "a name that no function has": ("norm_rows", "norm-rows", "kernels"),
    "a default that there is not": ("default: plain", "default: fast", "choose one of plain"),
    "neither default nor knob": ("    default: plain\n", "", "either `default`"),
    "both": ("knob: OP_NORM\n", "knob: OP_NORM\n    default: c\n", "either `default`"),
    "no such knob": ("OP_NORM", "OP_NORMS", "OP_NORMS is no knob"),
    "values that differ": ("torch: {status", "aten: {status", "differ"),
    "a file that is not there": ("ops/norm.py", "ops/norms.py", "'ops/norms.py' is no file"),
    "a test that is not there": (READY, READY.replace("tests/test_norm.py", "t.py"), "'t.py' is no file"),
    "ready without a test": (READY, "status: ready}", "is empty"),
    "a draft by default": (READY_BY_DEFAULT, "status: draft}", "is a draft"),
    "another schema": ("schema: 1", "schema: 2", "schema"),
    "no families": (MANIFEST[MANIFEST.index("families") :], "families: {}\n", "families"),
    "too many kernels": ("[attend, combine]", str([f"k{i}" for i in range(MAX_CLAIMED)]), "name at most 32"),
}  # fmt: skip


@pytest.mark.parametrize(("old", "new", "told"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_is_named(workspace: Path, old: str, new: str, told: str) -> None:
    text = MANIFEST.replace(old, new, 1)
    assert text != MANIFEST
    (workspace / "kernel_manifest.yaml").write_text(text)
    with pytest.raises(CaseError, match=r"kernel_manifest\.yaml") as error:
        read_chosen(workspace, {})
    assert told in str(error.value)


def test_a_draft_may_be_tried_but_not_promoted(workspace: Path) -> None:
    (workspace / "knobs.yaml").write_text(KNOBS.replace("default: c", "default: numba"))
    with pytest.raises(CaseError, match="is a draft and runs by default"):
        read_chosen(workspace, {"OP_NORM": "c"})
