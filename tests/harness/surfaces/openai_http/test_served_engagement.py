"""Servers whose manifest claims kernels: what runs in them is listed, in a real sandbox, by a real profiler."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Progress, Reason, Side
from tests.fakes.served import BACKEND, write_served_case

pytestmark = [pytest.mark.xdist_group("served"), pytest.mark.slow(25)]

MANIFEST = """
schema: 1
families:
  copy:
    knob: OP_COPY
    implementations:
      plain: {kernels: [copy_plain], files: [ops/plain.py], tests: [tests/test_ops.py], status: ready}
      numba: {kernels: [copy_numba], files: [ops/compiled.py], tests: [tests/test_ops.py], status: ready}
      c: {kernels: [copy_c], files: ["ops/copy*"], tests: [tests/test_ops.py], status: ready}
      stock: {status: stock}
"""

KNOBS = "OP_COPY: {type: choice, choices: [plain, numba, c, stock], default: plain}\n"

PLAIN = "def copy_plain(x, y):\n    y.copy_(x)\n"

COMPILED = """
import numba


@numba.njit("void(float32[::1], float32[::1])")
def copy_numba(x, y):
    y[:] = x
"""

COPY_C = """
#include <stdint.h>

void copy_c(const float *x, float *y, const int64_t *sizes)
{
    for (int64_t i = 0; i < sizes[0] * sizes[1]; i++)
        y[i] = x[i];
}
"""

DECODE = """
from pathlib import Path

import numpy
from ops.compiled import copy_numba
from ops.plain import copy_plain

from hillclimb.harness.serving.backends.native_function import native_function

copy_c = native_function(Path(__file__).parent / "ops" / "copy.c", "copy_c")
WAY = os.environ.get("OP_COPY", "plain")


def copied(logits):
    x = logits.contiguous()
    y = torch.empty_like(x)
    if WAY == "plain":
        copy_plain(x, y)
    elif WAY == "numba":
        copy_numba(numpy.asarray(x.view(-1)), numpy.asarray(y.view(-1)))
    elif WAY == "c":
        copy_c(x, y)
    else:
        y.copy_(x)
    return y
"""

SERVER = BACKEND.replace("PREFILL =", f"{DECODE}\n\nPREFILL =", 1).replace(
    "return super().decode(last)", "return copied(super().decode(last))"
)


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[LocalJudge]:
    folder = write_served_case(tmp_path_factory.mktemp("case"), tiny)
    text = (folder / "case.yaml").read_text()
    (folder / "case.yaml").write_text(text.replace("imports: [", "imports: [numba, numpy, pathlib, "))
    with closing(LocalJudge(folder, folder / "judge.log")) as one:
        yield one


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    files = {
        "backend.py": SERVER,
        "ops/plain.py": PLAIN,
        "ops/compiled.py": COMPILED,
        "ops/copy.c": COPY_C,
        "tests/test_ops.py": "",
        "kernel_manifest.yaml": MANIFEST,
        "knobs.yaml": KNOBS,
    }
    for path, text in files.items():
        (tmp_path / "workspace" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "workspace" / path).write_text(text)
    return tmp_path / "workspace"


def ignore(progress: Progress) -> None:
    pass


@pytest.mark.parametrize("way", ["plain", "numba", "c"])
def test_what_runs_is_told(judge: LocalJudge, workspace: Path, way: str) -> None:
    report = judge.gate(Side(tree=str(workspace), knobs={"OP_COPY": way}), ignore)
    assert report.passed, report.detail
    (row,) = report.engaged
    assert row.name.split(" ")[0].endswith(f":copy_{way}")
    assert row.calls == 15  # of 16 tokens, one comes from the prompt


def test_what_is_stock_claims_nothing(judge: LocalJudge, workspace: Path) -> None:
    report = judge.gate(Side(tree=str(workspace), knobs={"OP_COPY": "stock"}), ignore)
    assert report.passed, report.detail
    assert report.engaged == ()


def test_a_kernel_that_does_not_run_is_named(judge: LocalJudge, workspace: Path) -> None:
    text = SERVER.replace("        copy_c(x, y)", "        y.copy_(x)")
    (workspace / "backend.py").write_text(text)
    report = judge.gate(Side(tree=str(workspace), knobs={"OP_COPY": "c"}), ignore)
    assert report.reason is Reason.NOT_ENGAGED
    assert "copy_c of copy" in report.detail and "there ran" in report.detail


def test_a_fallback_in_silence_is_named(judge: LocalJudge, workspace: Path) -> None:
    fallen = SERVER.replace("        copy_plain(x, y)", "        y.copy_(x)")
    (workspace / "backend.py").write_text(fallen)
    report = judge.gate(Side(tree=str(workspace)), ignore)
    assert report.reason is Reason.NOT_ENGAGED
    assert "copy_plain" in report.detail


def test_a_kernel_that_runs_once_and_not_for_requests_is_named(judge: LocalJudge, workspace: Path) -> None:
    text = SERVER.replace("        copy_plain(x, y)", "        y.copy_(x)")
    once = "    # MADE\n    copy_plain(torch.zeros(4), torch.zeros(4))"
    (workspace / "backend.py").write_text(text.replace("    # MADE", once))
    report = judge.gate(Side(tree=str(workspace)), ignore)
    assert report.reason is Reason.NOT_ENGAGED


@pytest.mark.parametrize(
    ("source", "reason", "told"),
    [
        ("void copy_c(", Reason.DOES_NOT_COMPILE, "error: expected"),
        ("void gethostname(void); void copy_c(void) { gethostname(); }", Reason.POLICY, "gethostname"),
        ("void copy_d(void) {}", Reason.DOES_NOT_LOAD, "undefined symbol: copy_c"),
    ],
)
def test_c_that_cannot_be_used_is_named(
    judge: LocalJudge, workspace: Path, source: str, reason: Reason, told: str
) -> None:
    (workspace / "ops" / "copy.c").write_text(source)
    report = judge.gate(Side(tree=str(workspace)), ignore)
    assert report.reason is reason and told in report.detail, report.detail


def test_a_change_of_what_does_not_run_is_not_timed(
    judge: LocalJudge, workspace: Path, tmp_path: Path
) -> None:
    incumbent = Side(tree=str(workspace))
    other = tmp_path / "other"
    for path in workspace.rglob("*"):
        if path.is_file():
            (other / path.relative_to(workspace)).parent.mkdir(parents=True, exist_ok=True)
            (other / path.relative_to(workspace)).write_text(path.read_text())
    (other / "ops" / "copy.c").write_text("int better;")
    screening = judge.screen(Side(tree=str(other)), incumbent, ignore)
    assert screening.reason is Reason.NOT_ENGAGED
    assert "ops/copy.c changed" in screening.detail and not screening.pairs
