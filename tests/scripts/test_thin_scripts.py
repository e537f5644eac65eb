"""The scripts over the CLI hand their arguments on unchanged."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.scripts.scripts_repo import UV, ScriptsRepo, make_repo

STAMP = ("--family", "llama_1b", "--case", "decode", "--device", "cuda", "--hardware", "one H200")


@pytest.fixture
def repo(tmp_path: Path) -> ScriptsRepo:
    made = make_repo(tmp_path)
    made.hillclimb()
    return made


@pytest.mark.parametrize("script", ["new_kernel_case.sh", "new_kernel_case.py"])
def test_new_case(repo: ScriptsRepo, script: str) -> None:
    done = repo.run(f"scripts/{script}", *STAMP)
    assert done.stdout.startswith("|".join(["new-case", *STAMP]) + "|"), done.stderr


@pytest.mark.parametrize("arguments", [["--case", "demo/x", "--json"], ["--json", "--case=demo/x"]])
def test_evaluate(repo: ScriptsRepo, arguments: list[str]) -> None:
    assert repo.run("scripts/evaluate_case.py", *arguments).stdout.startswith("evaluate|demo/x|--json|")


@pytest.mark.parametrize("script", ["evaluate_case.py", "serve_case.py"])
def test_without_a_case_it_is_a_usage_error(repo: ScriptsRepo, script: str) -> None:
    assert repo.run(f"scripts/{script}", "--json").returncode == 2


@pytest.mark.parametrize("backend", ["mock", "transformers", "custom"])
def test_serve(repo: ScriptsRepo, backend: str) -> None:
    done = repo.run("scripts/serve_case.py", "--backend", backend, "--case", "demo/x", "--port", "8001")
    assert done.stdout.startswith(f"serve|--case|demo/x|--backend|{backend}|--port|8001|"), done.stderr


def test_serve_takes_the_cases_own_backend(repo: ScriptsRepo) -> None:
    done = repo.run("scripts/serve_case.py", "--case=demo/x")
    assert done.stdout.startswith("serve|--case|demo/x|--backend|custom|"), done.stderr


def test_serve_takes_no_other_backend(repo: ScriptsRepo) -> None:
    done = repo.run("scripts/serve_case.py", "--case=demo/x", "--backend", "vllm")
    assert done.returncode == 2
    assert "choose from" in done.stderr


@pytest.mark.parametrize(
    ("script", "verb"), [("test_correctness.py", "test"), ("collect_proton_times.py", "profile")]
)
def test_studies(repo: ScriptsRepo, script: str, verb: str) -> None:
    done = repo.run(f"scripts/{script}", "-s", "small", "-c", "affine")
    assert done.stdout.startswith(f"study|{verb}|-s|small|-c|affine|"), done.stderr


@pytest.mark.parametrize(
    ("script", "typed", "called"),
    [
        ("run_cutlass_profiler_sweep.py", "--output-dir out --shapes a", "sweep --output-dir out --shapes a"),
        (
            "compare_against_baselines.py",
            "--include-default-triton --fail-on slower",
            "compare --baseline artifacts/cutlass_profiler/cutlass_profiler_results.json "
            "artifacts/cutlass_profiler/triton_matmul_results.json --fail-on slower",
        ),
        (
            "compare_against_baselines.py",
            "--baseline b.json --providers c.json d.json --json",
            "compare --baseline b.json c.json d.json --json",
        ),
        (
            "select_kernels.py",
            "--input a.json --min-gemm-efficiency 0.9",
            "select a.json --min-gemm-efficiency 0.9",
        ),
        (
            "generator.py",
            "--generator-type simple_gemm --args seed002 --list",
            "generate --generator-type simple_gemm --args seed002 --list",
        ),
        ("heatmap.py", "--input a.json --plot-all-ops", "heatmap a.json --plot-all-ops"),
        (
            "heatmap.py",
            "--input a.json --select-kernels --save-file x.svg",
            "heatmap a.json --save-file x.svg",
        ),
        (
            "heatmap.py",
            "--input a.json b.json --select-kernels k l",
            "heatmap a.json b.json --select-kernels k --select-kernels l",
        ),
    ],
)
def test_gemm(repo: ScriptsRepo, script: str, typed: str, called: str) -> None:
    done = repo.run(f"scripts/{script}", *typed.split())
    assert done.stdout.startswith("gemm|" + called.replace(" ", "|") + "|"), done.stderr


def test_climb_hands_on_the_tag_of_the_environment(repo: ScriptsRepo) -> None:
    done = repo.run("scripts/run-kernel-hillclimb.sh", "demo/x", "--seed", "3", HILLCLIMB_RUN_TAG="night")
    assert done.stdout == "climb|demo/x|--seed|3|tag=night\n"


def test_climb_leaves_the_choice_of_a_tag_to_the_program_so_that_it_resumes(repo: ScriptsRepo) -> None:
    done = repo.run("scripts/run-kernel-hillclimb.sh", "demo/x", "--tag", "mine")
    assert done.stdout == "climb|demo/x|--tag|mine|tag=\n"


def test_a_case_of_the_checkout_is_found_from_elsewhere(repo: ScriptsRepo, tmp_path: Path) -> None:
    ours = repo.root / "cases" / "demo" / "x"
    theirs = tmp_path / "elsewhere" / "cases" / "demo" / "y"
    for folder in (ours, theirs):
        folder.mkdir(parents=True)
        (folder / "case.yaml").touch()
    for name, seen in (
        ("demo/x", str(ours)),
        ("demo/y", "demo/y"),
        ("cases/demo/y", "cases/demo/y"),
        ("no", "no"),
    ):
        for script, *arguments in (("run-kernel-hillclimb.sh", name), ("evaluate_case.py", "--case", name)):
            done = repo.run(f"scripts/{script}", *arguments, cwd=tmp_path / "elsewhere")
            assert done.stdout.split("|")[1] == seen, (script, name, done.stderr)


def test_the_programs_status_is_the_scripts(repo: ScriptsRepo) -> None:
    repo.hillclimb("exit 5")
    for script, *arguments in (
        ("evaluate_case.py", "--case", "x"),
        ("run-kernel-hillclimb.sh", "x"),
        ("new_kernel_case.sh",),
        ("new_kernel_case.py",),
        ("test_correctness.py",),
        ("collect_proton_times.py",),
        ("run_cutlass_profiler_sweep.py",),
        ("generator.py",),
        ("compare_against_baselines.py",),
        ("select_kernels.py", "--input", "x"),
        ("heatmap.py", "--input", "x"),
    ):
        assert repo.run(f"scripts/{script}", *arguments).returncode == 5, script


def test_without_an_environment_each_says_what_to_do(tmp_path: Path) -> None:
    repo = make_repo(tmp_path)
    for script, *arguments in (
        ("evaluate_case.py", "--case", "x"),
        ("run-kernel-hillclimb.sh", "x"),
        ("new_kernel_case.sh",),
        ("new_kernel_case.py",),
        ("test_correctness.py",),
        ("collect_proton_times.py",),
        ("run_cutlass_profiler_sweep.py",),
        ("generator.py",),
        ("compare_against_baselines.py",),
        ("select_kernels.py", "--input", "x"),
        ("heatmap.py", "--input", "x"),
    ):
        done = repo.run(f"scripts/{script}", *arguments)
        assert done.returncode == 3, script
        assert "run scripts/setup" in done.stderr


@pytest.fixture
def ready(tmp_path: Path) -> ScriptsRepo:
    """A repository whose environment is set up, and whose hillclimb prints its arguments."""
    made = make_repo(tmp_path)
    made.on_path("uv", UV)
    assert made.run("scripts/setup").returncode == 0
    made.hillclimb()
    made.on_path("nvidia-smi", "exit 9")
    return made


def test_quickstart_climbs_for_five_minutes_under_a_tag_of_its_own(ready: ScriptsRepo) -> None:
    done = ready.run("scripts/quickstart")
    assert done.returncode == 0, done.stderr
    assert "climb|cases/demo/cpu_matmul|--tag|quickstart-" in done.stdout
    assert "|--budget-seconds|300|" in done.stdout


def test_quickstart_takes_the_tag_of_the_environment(ready: ScriptsRepo) -> None:
    done = ready.run("scripts/quickstart", HILLCLIMB_RUN_TAG="mine")
    assert "climb|cases/demo/cpu_matmul|--tag|mine|" in done.stdout, done.stderr


def test_quickstart_passes_arguments_on_and_keeps_the_status(ready: ScriptsRepo) -> None:
    ready.hillclimb('printf "%s|" "$@"; exit 4')
    done = ready.run("scripts/quickstart", "--seed", "9")
    assert done.returncode == 4
    assert "|--seed|9|" in done.stdout


def test_quickstart_shows_the_branch_of_a_given_tag(ready: ScriptsRepo) -> None:
    ready.hillclimb(
        'printf "%s|" "$@"; [ "$1" = climb ] || exit 0\n'
        "git init -q . && git -c user.name=a -c user.email=a@b commit -q --allow-empty -m kept-this"
        " && git branch hillclimb/demo/cpu_matmul/mine"
    )
    done = ready.run("scripts/quickstart", "--tag", "mine")
    assert done.returncode == 0, done.stderr
    assert "history|cases/demo/cpu_matmul|--tag|mine|" in done.stdout
    assert "runs/demo/cpu_matmul/mine/" in done.stdout


H200 = "echo 'GPU 0: NVIDIA H200 (UUID: GPU-6f1c)'; echo 'GPU 1: NVIDIA H200 (UUID: GPU-70aa)'"


def climbed(ready: ScriptsRepo, *arguments: str, **environment: str) -> str:
    """What quickstart printed when it told what it climbs, and how."""
    done = ready.run("scripts/quickstart", *arguments, **environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_quickstart_takes_the_gpu_demo_where_there_is_a_gpu(ready: ScriptsRepo) -> None:
    ready.on_path("nvidia-smi", H200)
    said = climbed(ready)
    assert "==> climbing cases/demo/triton_softmax (on GPU 0: NVIDIA H200)\n" in said
    assert "climb|cases/demo/triton_softmax|--tag|" in said


@pytest.mark.parametrize("smi", ["exit 9", "echo No devices found", "echo 'GPU 0: dead'; exit 255"])
def test_quickstart_takes_the_cpu_demo_elsewhere_and_says_why(ready: ScriptsRepo, smi: str) -> None:
    ready.on_path("nvidia-smi", smi)
    said = climbed(ready)
    assert "climb|cases/demo/cpu_matmul|" in said
    assert "nvidia-smi lists no GPU here; --gpu takes the other demo" in said


@pytest.mark.parametrize(
    ("smi", "asked", "case"), [(H200, "cpu", "cpu_matmul"), ("exit 9", "gpu", "triton_softmax")]
)
def test_quickstart_takes_the_demo_that_is_asked_for(
    ready: ScriptsRepo, smi: str, asked: str, case: str
) -> None:
    ready.on_path("nvidia-smi", smi)
    for said in (
        climbed(ready, f"--{asked}", "--seed", "9"),
        climbed(ready, "--seed", "9", HILLCLIMB_DEMO=asked),
    ):
        assert f"climb|cases/demo/{case}|" in said
        assert "|--seed|9|" in said and f"--{asked}|" not in said


def test_quickstart_refuses_a_demo_that_it_does_not_know(ready: ScriptsRepo) -> None:
    done = ready.run("scripts/quickstart", HILLCLIMB_DEMO="tpu")
    assert done.returncode == 2 and "HILLCLIMB_DEMO=tpu: say gpu or cpu" in done.stderr


@pytest.mark.parametrize("script", ["quickstart", "test"])
@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_is_all_that_is_done(repo: ScriptsRepo, script: str, option: str) -> None:
    done = repo.run(f"scripts/{script}", option)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[0] == (repo.root / "scripts" / script).read_text().splitlines()[1][2:]
    assert "==>" not in done.stdout
