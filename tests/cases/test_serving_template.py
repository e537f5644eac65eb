"""A served case as stamped: valid, right under every knob, whole with scripts and tests, and climbed over HTTP."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest

from hillclimb.agent.stamp import SERVING_TEMPLATES, create_case
from hillclimb.harness.case.case import Case
from hillclimb.harness.engagement.kernel_manifest import KernelManifest
from hillclimb.harness.errors import UsageError
from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.records import Progress, Reason, Side
from hillclimb.harness.yaml_errors import read_yaml
from tests.cases.workspace import CASES

Device = Literal["cpu", "cuda"]

pytestmark = pytest.mark.xdist_group("served")

PLAIN = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    "PYTHONDONTWRITEBYTECODE": "1",
}
OPERATORS = {
    "cpu": ("ops/norm_gemv.py", "ops/c/norm_gemv.c", "ops/numba/norm_gemv.py"),
    "cuda": (
        *("ops/norm_gemv.py", "ops/triton/norm_gemv.py", "ops/cuda/norm_gemv.cu", "ops/ptx/norm_gemv.ptx"),
        "ops/cute/norm_gemv.py",
    ),
}
LISTED = (
    *(
        "backend/serving.py",
        "backend/environment.py",
        "backend/loading.py",
        "backend/hooks.py",
        "backend/parity.py",
    ),
    *(
        "backend/session.py",
        "backend/prompts.py",
        "bench/parity.py",
        "bench/profile.py",
        "tests/test_norm_gemv.py",
        "tests/test_backend.py",
        "tests/test_session.py",
    ),
    *("docs/notes.md", "docs/plan.md", "docs/prior_art.md", "docs/upstream_examples.md"),
    *(f"scripts/{name}.sh" for name in ("build", "parity", "profile", "check_setup", "fetch_upstream_refs")),
    *("ops/extracted.py", "kernel_manifest.yaml", "knobs.yaml", "knobs.py", "run_hillclimb.sh", "README.md"),
)


def ignore(progress: Progress) -> None:
    pass


def stamped(root: Path, model: Path, device: Device = "cpu") -> Path:
    """The folder of a case below `root`, which is a repository then."""
    for name in ("_template", *SERVING_TEMPLATES[device]):
        shutil.copytree(CASES / name, root / "cases" / name, ignore=shutil.ignore_patterns("__pycache__"))
    folder = create_case(root, "tiny", "cpu", "a tiny Llama", str(model), "any CPU", device, "serving")
    identity = ("-c", "user.name=me", "-c", "user.email=me@example.org")
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "start"]):
        subprocess.run(["git", *command], cwd=root, check=True)
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    return stamped(tmp_path_factory.mktemp("stamped"), tiny)


@pytest.fixture(scope="module")
def on_gpu(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Path:
    return stamped(tmp_path_factory.mktemp("stamped"), tiny, "cuda")


@pytest.fixture(params=["cpu", "cuda"])
def either(request: pytest.FixtureRequest, folder: Path, on_gpu: Path) -> Path:
    return folder if request.param == "cpu" else on_gpu


@pytest.fixture(scope="module")
def judge(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalJudge]:
    with closing(LocalJudge(folder, tmp_path_factory.mktemp("log") / "judge.log")) as one:
        yield one


def run(folder: Path, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, env={**PLAIN, **environment}, capture_output=True, text=True, timeout=800
    )


def test_the_case_is_valid_and_complete(either: Path) -> None:
    folder, case = either, Case(either)
    assert case.settings.surface == "openai_http"
    assert case.settings.model == "a tiny Llama" and case.settings.hardware == "any CPU"
    listed = (*LISTED, *OPERATORS[case.settings.device])
    assert [name for name in listed if not (case.workspace / name).is_file()] == []
    assert (folder / "serve_custom_backend.py").is_file() and (
        folder / "launch_transformers_server.py"
    ).is_file()
    texts = {path: path.read_text() for path in folder.rglob("*") if path.is_file()}
    assert not [path for path, text in texts.items() if "{{" in text]
    check_policy(case.workspace, case.settings.policy)
    assert len(list((case.workspace / "ops").glob("*/"))) == {"cpu": 2, "cuda": 4}[case.settings.device]


def test_what_it_starts_with_is_stock(either: Path) -> None:
    folder = either
    manifest = KernelManifest.model_validate(read_yaml(folder / "workspace" / "kernel_manifest.yaml"))
    knobs = Case(folder).knobs
    for family in manifest.families.values():
        assert family.knob is not None
        assert family.implementations[str(knobs[family.knob].default)].status == "stock"
        assert sorted(family.implementations) == sorted(map(str, knobs[family.knob].choices))


@pytest.mark.parametrize("path", ["", " "])
def test_a_server_without_a_model_is_refused(tmp_path: Path, path: str) -> None:
    with pytest.raises(UsageError, match="--model-path is empty"):
        create_case(tmp_path, "tiny", "cpu", "m", path, "h", kind="serving")


def test_a_model_is_found_from_where_the_command_is_given(
    tmp_path: Path, tiny: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.parent)
    made = create_case(tmp_path, "tiny", "near", "m", tiny.name, "h", kind="serving")
    assert Case(made).model_path == tiny
    made = create_case(tmp_path, "tiny", "later", "m", "models/none", "h", kind="serving")
    assert Case(made).settings.model_path == "models/none"


def test_the_gpus_template_holds_only_what_differs() -> None:
    plain, over = (CASES / name for name in SERVING_TEMPLATES["cuda"])
    names = [path.relative_to(over) for path in over.rglob("*") if path.is_file()]
    both = [name for name in names if "__pycache__" not in name.parts and (plain / name).is_file()]
    assert not [name for name in both if (over / name).read_bytes() == (plain / name).read_bytes()]


@pytest.mark.slow(25)
def test_its_own_tests_pass(either: Path) -> None:
    done = run(
        either, "python", "-m", "pytest", "-q", "-o", "addopts=", "-p", "no:cacheprovider", "workspace/tests"
    )
    assert done.returncode == 0, done.stdout[-3000:]


@pytest.mark.slow(15)
def test_the_setup_is_checked_without_a_gpu(folder: Path) -> None:
    done = run(folder, "workspace/scripts/check_setup.sh", "--build", "--emit-ptx")
    assert done.returncode == 0, done.stderr
    told = {line.split()[0] for line in done.stdout.splitlines()}
    assert {"hillclimb", "torch", "transformers", "gpu", "model", "norm_gemv"} <= told
    assert run(folder, "workspace/scripts/check_setup.sh", "--fly").returncode == 2


@pytest.mark.slow(25)
def test_kernels_for_a_gpu_are_compiled_without_one(on_gpu: Path, tmp_path: Path) -> None:
    done = run(on_gpu, "workspace/scripts/check_setup.sh", "--build", "--emit-ptx", TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    for language in ("triton", "cuda", "ptx"):
        assert f"norm_gemv    {language:8} ok: sm_90a" in done.stdout
    emitted = {path.name: path.read_text() for path in tmp_path.rglob("*.ptx")}
    assert sorted(emitted) == ["norm_gemv_cuda.ptx", "norm_gemv_triton.ptx"]
    assert all(".target sm_90a" in text for text in emitted.values())


@pytest.mark.slow(20)
def test_a_kernel_that_does_not_compile_fails_the_build(on_gpu: Path, tmp_path: Path) -> None:
    shutil.copytree(on_gpu, tmp_path / "gpu")
    source = tmp_path / "gpu" / "workspace" / "ops" / "cuda" / "norm_gemv.cu"
    source.write_text(source.read_text() + "\nint broken(;\n")
    done = run(tmp_path / "gpu", "workspace/scripts/build.sh")
    assert done.returncode == 1
    assert "norm_gemv    cuda     FAILED" in done.stdout


@pytest.mark.slow(15, but=["loop"])
@pytest.mark.parametrize("knobs", [{"SERVE_STEP": "loop"}, {"OP_NORM_GEMV": "numba"}], ids=["loop", "hooks"])
def test_parity_is_looked_at_by_a_script(folder: Path, knobs: dict[str, str]) -> None:
    done = run(folder, "workspace/scripts/parity.sh", **knobs)
    assert done.returncode == 0, done.stderr
    assert "parity holds" in done.stdout.splitlines()[-1]


@pytest.mark.slow(20)
def test_a_wrong_operator_has_no_parity(folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "cpu")
    source = tmp_path / "cpu" / "workspace" / "ops" / "c" / "norm_gemv.c"
    source.write_text(source.read_text().replace("* norm[at];", "* norm[at] * 0.98f;"))
    done = run(tmp_path / "cpu", "workspace/scripts/parity.sh", SERVE_STEP="loop", OP_NORM_GEMV="c")
    assert done.returncode == 1
    assert "parity is lost" in done.stderr


@pytest.mark.slow(15)
def test_a_profile_is_shown(folder: Path) -> None:
    done = run(folder, "workspace/scripts/profile.sh", SERVE_STEP="loop")
    assert done.returncode == 0, done.stderr
    assert "aten::mm" in done.stdout


@pytest.mark.slow(15, but=["loop and c"])
@pytest.mark.parametrize(
    ("knobs", "ran"),
    [
        ({}, []),
        ({"SERVE_STEP": "loop"}, ["decode_step"]),
        ({"SERVE_STEP": "loop", "OP_NORM_GEMV": "c"}, ["decode_step", "norm_gemv"]),
        ({"OP_NORM_GEMV": "numba"}, ["norm_gemv"]),
        ({"SERVE_STEP": "loop", "OP_NORM_GEMV": "numba", "SERVE_THREADS": "2"}, ["decode_step", "norm_gemv"]),
    ],
    ids=["stock", "loop", "loop and c", "numba in hooks", "loop and numba"],
)
def test_every_setting_is_right_and_runs_what_it_claims(
    judge: LocalJudge, folder: Path, knobs: dict[str, str], ran: list[str]
) -> None:
    report = judge.gate(Side(tree=str(folder / "workspace"), knobs=knobs), ignore)
    assert report.passed, report.detail
    assert sorted(row.name.split(" ")[0].rpartition(":")[2] for row in report.engaged) == ran


@pytest.mark.slow(15)
def test_a_claim_that_does_not_hold_is_named(judge: LocalJudge, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder / "workspace", tmp_path / "workspace")
    backend = tmp_path / "workspace" / "backend" / "serving.py"
    backend.write_text(backend.read_text().replace("if not IS_STOCK:", "if False:"))
    report = judge.gate(Side(tree=str(tmp_path / "workspace"), knobs={"OP_NORM_GEMV": "c"}), ignore)
    assert report.reason is Reason.NOT_ENGAGED
    assert "norm_gemv" in report.detail


@pytest.mark.clock
@pytest.mark.slow(400)
@pytest.mark.timeout(1200)
def test_a_climb_over_http_ends_with_a_win(tmp_path: Path, tiny: Path) -> None:
    folder = stamped(tmp_path, tiny)
    settings = folder / "case.yaml"
    first = "sweep:\n  first: [{SERVE_STEP: loop, OP_NORM_GEMV: c}]\n"
    settings.write_text(settings.read_text().replace("pair_blocks: 4", "pair_blocks: 2") + first)
    subprocess.run(
        ["git", "-c", "user.name=me", "-c", "user.email=m@e", "commit", "-qam", "first"],
        cwd=tmp_path,
        check=True,
    )
    started = run(folder, "workspace/run_hillclimb.sh", "baseline", "--json", HILLCLIMB_RUN_TAG="t")
    assert started.returncode == 0, started.stderr
    assert json.loads(started.stdout.splitlines()[-1])["candidates"] == 0
    done = run(tmp_path, "hillclimb", "climb", "tiny/cpu", "--tag", "t", "--budget-candidates", "1", "--json")
    assert done.returncode == 0, done.stderr
    finished = json.loads(done.stdout.splitlines()[-1])
    assert finished["wins"] == 1, done.stdout[-3000:]
    shown = ["git", "show", "hillclimb/tiny/cpu/t:cases/tiny/cpu/workspace/knobs.yaml"]
    promoted = subprocess.run(shown, cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert "default: loop" in promoted and "default: c" in promoted
