"""Kernels that go back into a served model: what is written, what is refused, and that nothing is written then."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from hillclimb.agent.evaluate.put_back import put_back
from hillclimb.harness.case.case import Case
from hillclimb.harness.errors import HillclimbError, UsageError
from hillclimb.harness.extract.profiled import EXTRACTED
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Progress, Reason, Side
from tests.agent.commands import in_process
from tests.cases.test_serving_template import stamped
from tests.fakes import session as fake_session

PLACE = {
    "module": "LlamaMLP",
    "inputs": ["float32[1,1,128]"],
    "output": "float32[1,1,128]",
    "weights": {"gate": "gate_proj.weight", "up": "up_proj.weight", "down": "down_proj.weight"},
    "shapes": {
        "gate_proj.weight": "float32[384,128]",
        "up_proj.weight": "float32[384,128]",
        "down_proj.weight": "float32[128,384]",
    },
    "attributes": {"n0": 384},
}

KERNEL = """
import math  # of another module
import parts
from parts import silu as activation, times
from knobs import knob

SLOW = knob("MLP_SLOW")


def run(x, gate, up, down, y, *, n0):
    wide = activation(times(gate, x)) * parts.times(up, x)
    assert wide.shape[-1] == n0
    y[...] = times(down, wide) if SLOW < 3 else math.nan
"""

PARTS = """
import numpy as np


def times(matrix, x):
    return np.einsum("ij,...j->...i", matrix, x)


def silu(x):
    return x / (1 + np.exp(-x))
"""

CASE = "schema: 1\nsummary: an MLP\npolicy: {library_calls: true}\n"


@pytest.fixture
def server(tmp_path: Path, tiny: Path) -> Path:
    return stamped(tmp_path, tiny)


@pytest.fixture
def kernel(server: Path) -> Path:
    return write_kernel(server.parent / "mlp")


def write_kernel(folder: Path) -> Path:
    files = {
        "case.yaml": CASE,
        "contract.py": "",
        "benchmarks/main.yaml": "problems: [a]\ndistribution: b\n",
        EXTRACTED: json.dumps(PLACE),
        "workspace/kernel.py": KERNEL,
        "workspace/parts.py": PARTS,
        "workspace/knobs.py": "",
        "workspace/knobs.yaml": "MLP_SLOW: {type: int, low: 0, high: 9, default: 2}\n",
        "workspace/tests/test_it.py": "no python",
        "workspace/docs/notes.md": "",
    }
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)
    return folder


def contents(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def ignore(progress: Progress) -> None:
    pass


def test_everything_that_it_needs_is_written(kernel: Path, server: Path) -> None:
    done = put_back(Case(kernel), None, Case(server))
    assert (done.case, done.family, done.knob) == ("tiny/cpu", "mlp", "OP_MLP")
    found = contents(server / "workspace")
    assert set(done.files) <= set(found)
    assert {"ops/mlp/kernel.py", "ops/mlp/parts.py", "ops/mlp/hook.py", "tests/test_mlp.py"} <= set(
        done.files
    )
    assert not [name for name in found if name.startswith("ops/mlp/") and ("tests" in name or "docs" in name)]
    case = Case(server)
    assert case.knobs["OP_MLP"].default == "kernel" and case.knobs["MLP_SLOW"].default == 2
    moved = found["ops/mlp/kernel.py"]
    assert (
        "from ops.mlp import parts\n" in moved
        and "from ops.mlp.parts import silu as activation, times\n" in moved
    )
    assert "import math  # of another module" in moved and "from knobs import knob" in moved
    assert "def run_mlp(" in moved
    assert "kernels: [run_mlp]" in found["kernel_manifest.yaml"]


def test_a_second_kernel_stands_beside_the_first(kernel: Path, server: Path) -> None:
    other = write_kernel(server.parent / "other")
    (other / "workspace" / "knobs.yaml").write_text("{}\n")
    (other / "workspace" / "kernel.py").write_text("def run(x, gate, up, down, y, *, n0):\n    y[...] = 0\n")
    for folder in (kernel, other):
        put_back(Case(folder), None, Case(server))
    found = contents(server / "workspace")
    assert "install_mlp" in found["ops/extracted.py"] and "install_other" in found["ops/extracted.py"]
    assert "[run_mlp]" in found["kernel_manifest.yaml"] and "[run_other]" in found["kernel_manifest.yaml"]


def test_a_newer_one_takes_its_place(kernel: Path, server: Path) -> None:
    put_back(Case(kernel), None, Case(server))
    before = contents(server / "workspace")
    (kernel / "workspace" / "kernel.py").write_text(KERNEL.replace("SLOW < 3", "SLOW < 4"))
    (kernel / "workspace" / "parts.py").rename(kernel / "workspace" / "pieces.py")
    text = (kernel / "workspace" / "kernel.py").read_text()
    (kernel / "workspace" / "kernel.py").write_text(text.replace("parts", "pieces"))
    put_back(Case(kernel), None, Case(server))
    after = contents(server / "workspace")
    assert {name for name in {*before, *after} if before.get(name) != after.get(name)} == {
        "ops/mlp/kernel.py",
        "ops/mlp/parts.py",
        "ops/mlp/pieces.py",
    }
    assert "ops/mlp/parts.py" not in after


def refuse(kernel: Path, server: Path, said: str) -> None:
    before = contents(server)
    with pytest.raises(HillclimbError, match=said):
        put_back(Case(kernel), None, Case(server))
    assert contents(server) == before


def test_a_case_of_something_else_is_refused(kernel: Path, server: Path) -> None:
    (kernel / EXTRACTED).unlink()
    refuse(kernel, server, "extract MODEL --write")


def test_a_compiled_kernel_is_refused(kernel: Path, server: Path) -> None:
    (kernel / "workspace" / "kernel.c").write_text("void run(void) {}\n")
    (kernel / "case.yaml").write_text(CASE + "entry: kernel.c:run\n")
    refuse(kernel, server, "put it back by hand")


def test_another_device_is_refused(kernel: Path, server: Path) -> None:
    (kernel / "case.yaml").write_text(CASE + "device: cuda\n")
    refuse(kernel, server, "is for cuda, and tiny/cpu for cpu")


def test_a_knob_of_both_is_refused(kernel: Path, server: Path) -> None:
    (kernel / "workspace" / "knobs.yaml").write_text("SERVE_STEP: {type: bool, default: true}\n")
    refuse(kernel, server, "both workspaces have a knob SERVE_STEP")


def test_what_the_servers_policy_refuses_is_refused(kernel: Path, server: Path) -> None:
    (kernel / "workspace" / "parts.py").write_text(f"import scipy\n{PARTS}")
    refuse(kernel, server, "the server's policy refuses the kernel: ops/mlp/parts.py:1: imports 'scipy'")


def test_a_server_that_installs_nothing_is_refused(kernel: Path, server: Path) -> None:
    (server / "workspace" / "ops" / "extracted.py").unlink()
    refuse(kernel, server, "has no workspace/ops/extracted.py")


@pytest.fixture
def session(server: Path) -> Path:
    """A session whose epsilon is the tiny model's."""
    text = fake_session.KERNEL.replace("EPS = 1e-5", "EPS = 1e-6")
    folder = fake_session.write_session(server.parents[2] / "made", text)
    return folder.rename(server.parent / "step")


def test_a_session_takes_the_place_of_the_model(session: Path, server: Path) -> None:
    done = put_back(Case(session), None, Case(server))
    assert (done.family, done.knob) == ("step", "OP_STEP")
    assert {"ops/step/kernel.py", "ops/step/put_back.py", "tests/test_step.py"} <= set(done.files)
    found = contents(server / "workspace")
    assert "from ops.step.kernel import Session as make_session" in found["ops/step/put_back.py"]
    assert "SESSIONS.append(make_session_step)" in found["ops/extracted.py"]
    assert "kernels: [__call__]" in found["kernel_manifest.yaml"]


LAUNCHING = """
import torch
import triton
import triton.language as tl


@triton.jit
def part(x):
    return x * 2


@triton.jit
def doubled(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, part(tl.load(x + at, mask=at < n)), mask=at < n)


def run(x, gate, up, down, y, *, n0):
    doubled[(1,)](x, y, n0, BLOCK=128)
"""

COMPILED = """
extern "C" __global__ void __launch_bounds__(max(128, 256)) halved(float *x) {}
"""


def test_on_a_gpu_what_is_launched_is_claimed(kernel: Path, tmp_path: Path, tiny: Path) -> None:
    server = stamped(tmp_path / "gpu", tiny, "cuda")
    (kernel / "case.yaml").write_text(CASE + "device: cuda\n")
    for path, text in {"kernel.py": LAUNCHING, "more.cu": COMPILED, "parts.py": ""}.items():
        (kernel / "workspace" / path).write_text(text)
    put_back(Case(kernel), None, Case(server))
    assert "kernels: [doubled, halved]" in contents(server / "workspace")["kernel_manifest.yaml"]
    (kernel / "workspace" / "more.cu").unlink()
    (kernel / "workspace" / "kernel.py").write_text("def run(x, gate, up, down, y, *, n0):\n    y.copy_(x)\n")
    refuse(kernel, server, "launches no kernel of its own; name what runs by --claim")


def test_a_session_and_a_module_stand_in_the_list_together(session: Path, kernel: Path, server: Path) -> None:
    for folder in (session, kernel):
        put_back(Case(folder), None, Case(server))
    listed = contents(server / "workspace")["ops/extracted.py"]
    assert "SESSIONS.append(make_session_step)" in listed and "INSTALLERS.append(install_mlp)" in listed


def test_what_makes_a_session_may_be_a_function(session: Path, server: Path) -> None:
    file = session / "workspace" / "kernel.py"
    file.write_text(
        file.read_text().replace("class Session", "class Made")
        + "\n\ndef Session(**weights):\n    return Made(**weights)\n"
    )
    put_back(Case(session), None, Case(server), ["step", "norm"])
    assert "kernels: [norm, step]" in contents(server / "workspace")["kernel_manifest.yaml"]


def run_test(server: Path, name: str) -> subprocess.CompletedProcess[str]:
    """A test of the workspace's own."""
    options = ("-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider")
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, *options, name],
        cwd=server / "workspace",
        env=environment,
        capture_output=True,
        text=True,
    )


def test_a_server_that_runs_no_session_is_refused(session: Path, server: Path) -> None:
    (server / "workspace" / "backend" / "session.py").unlink()
    refuse(session, server, "has no workspace/backend/session.py")


@pytest.mark.xdist_group("served")
@pytest.mark.slow(60)
def test_a_session_is_judged_as_the_server(session: Path, kernel: Path, server: Path, tmp_path: Path) -> None:
    put_back(Case(session), None, Case(server))
    tested = run_test(server, "tests/test_step.py")
    assert tested.returncode == 0, tested.stdout
    side = Side(tree=str(server / "workspace"))
    file = server / "workspace" / "ops" / "step" / "kernel.py"
    text = file.read_text()
    with closing(LocalJudge(server, tmp_path / "judge.log")) as judge:
        right = judge.gate(side, ignore)
        stock = judge.gate(Side(tree=side.tree, knobs={"OP_STEP": "stock"}), ignore)
        file.write_text(text.replace("# LAYER", "if layer == 1: continue"))
        assert file.read_text() != text
        wrong = judge.gate(side, ignore)
        file.write_text(text)
        put_back(Case(kernel), None, Case(server))
        both = judge.gate(side, ignore)
    assert right.passed, right.detail
    (row,) = right.engaged
    assert ":__call__" in row.name and row.calls > 0
    assert stock.passed and stock.engaged == ()
    assert wrong.reason is Reason.WRONG_RESULT
    assert both.reason is Reason.DOES_NOT_LOAD and "knobs of all others to stock" in both.detail


@pytest.mark.xdist_group("served")
@pytest.mark.slow(90)
def test_it_is_judged_as_a_part_of_the_server(kernel: Path, server: Path, tmp_path: Path) -> None:
    put_back(Case(kernel), None, Case(server))
    tested = run_test(server, "tests/test_mlp.py")
    assert tested.returncode == 0, tested.stdout
    side = Side(tree=str(server / "workspace"))
    with closing(LocalJudge(server, tmp_path / "judge.log")) as judge:
        right = judge.gate(side, ignore)
        stock = judge.gate(Side(tree=side.tree, knobs={"OP_MLP": "stock"}), ignore)
        wrong = judge.gate(Side(tree=side.tree, knobs={"MLP_SLOW": "3"}), ignore)
        clash = judge.gate(Side(tree=side.tree, knobs={"SERVE_STEP": "loop"}), ignore)
    assert right.passed, right.detail
    (row,) = right.engaged
    assert ":run_mlp" in row.name and row.calls > 0
    assert stock.passed and stock.engaged == ()
    assert wrong.reason in (Reason.WRONG_RESULT, Reason.BROKE_PROTOCOL)
    assert clash.reason is Reason.DOES_NOT_LOAD and "SERVE_STEP=transformers" in clash.detail


def test_the_command_says_what_comes_next(kernel: Path, server: Path) -> None:
    root = server.parents[2]
    done = in_process.hillclimb("put-back", "tiny/mlp", "--into", "tiny/cpu", cwd=root)
    assert done.returncode == 0, done.stderr
    assert "ops/mlp/hook.py" in done.stdout and "run_hillclimb.sh" in done.stdout.splitlines()[-1]
    claims = ("--claim", "silu", "--claim", "run")
    again = in_process.hillclimb("put-back", "tiny/mlp", "--into", "tiny/cpu", "--json", *claims, cwd=root)
    assert json.loads(again.stdout)["knob"] == "OP_MLP"
    manifest = contents(server / "workspace")["kernel_manifest.yaml"]
    assert manifest.count("  mlp:\n") == 1 and "kernels: [run, silu]" in manifest
    missing = in_process.hillclimb("put-back", "tiny/mlp", "--into", "tiny/none", cwd=root)
    assert missing.returncode == 2 and "no case at 'tiny/none'" in missing.stderr


def test_a_revision_is_taken(kernel: Path, server: Path) -> None:
    root = server.parents[2]
    for command in (["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "kernel"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    (kernel / "workspace" / "kernel.py").write_text("broken(")
    put_back(Case(kernel), "HEAD", Case(server))
    assert "def run_mlp(" in (server / "workspace" / "ops" / "mlp" / "kernel.py").read_text()
    with pytest.raises(UsageError, match="neither a folder nor a revision"):
        put_back(Case(kernel), "nowhere", Case(server))
