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


@pytest.mark.timeout(60)
def test_aliases_do_not_multiply(workspace: Path) -> None:
    entries = "\n".join("    - z/z/t" for _ in range(3000))
    body = "\n        status: draft\n        kernels:\n        - k\n        files: *f"
    lines = [f"      n{i}:{body}" for i in range(2500)]
    text = f"schema: 1\nfamilies:\n  a:\n    default: n0\n    doc: &f\n{entries}\n    implementations:\n"
    (workspace / "kernel_manifest.yaml").write_text(text + "\n".join(lines))
    with pytest.raises(CaseError, match="has 2500 entries"):
        read_chosen(workspace, {})
    (workspace / "kernel_manifest.yaml").write_text(text + "\n".join(lines[:16]))
    with pytest.raises(CaseError, match=r"has 33 entries|patterns|is no file|valid string"):
        read_chosen(workspace, {})


def test_a_long_name_is_refused(workspace: Path) -> None:
    (workspace / "kernel_manifest.yaml").write_text(MANIFEST.replace("ops/norm.py", "o" * 900_000))
    with pytest.raises(CaseError, match="900000 characters") as error:
        read_chosen(workspace, {})
    assert len(str(error.value)) < 1000


@pytest.mark.parametrize("version", ["true", "1.0", "'1'"])
def test_versions_are_not_converted(workspace: Path, version: str) -> None:
    (workspace / "kernel_manifest.yaml").write_text(MANIFEST.replace("schema: 1", f"schema: {version}"))
    with pytest.raises(CaseError, match="schema"):
        read_chosen(workspace, {})


def test_a_value_that_no_implementation_has_is_named(workspace: Path) -> None:
    with pytest.raises(CaseError, match="OP_NORM is set to 'zzz'"):
        read_chosen(workspace, {"OP_NORM": "zzz"})


def test_one_kernel_is_claimed_once(workspace: Path) -> None:
    (workspace / "kernel_manifest.yaml").write_text(MANIFEST.replace("[norm_rows]", "[attend]"))
    with pytest.raises(CaseError, match="claim a kernel twice"):
        read_chosen(workspace, {})


def test_a_draft_may_be_tried_but_not_promoted(workspace: Path) -> None:
    (workspace / "knobs.yaml").write_text(KNOBS.replace("default: c", "default: numba"))
    with pytest.raises(CaseError, match="is a draft and runs by default"):
        read_chosen(workspace, {"OP_NORM": "c"})
