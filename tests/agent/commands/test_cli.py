"""The command line as people use it: messages, exit statuses, and one climb through real processes."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from hillclimb.agent.stamp import TEMPLATES
from hillclimb.harness.case.case import Case
from tests.agent.climb.climbed import CASE, climb_toy, git
from tests.agent.commands import in_process
from tests.fakes.cases import HONEST, QUICK, repeated, write_case

ROOT = Path(__file__).parents[3]
KNOBS = "TIMES: {type: choice, choices: [1, 64], default: 64}\n"
KERNEL = """
import os
import numpy as np
import yaml

with open(os.path.join(os.path.dirname(__file__), "knobs.yaml")) as file:
    text = file.read()
TIMES = int(os.environ.get("TIMES") or yaml.safe_load(text)["TIMES"]["default"])

def run(x, y):
    for _ in range(TIMES):
        np.multiply(x, np.float32(2), out=y)
        np.add(y, np.float32(1), out=y)
"""


def hillclimb(
    *arguments: str, cwd: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from hillclimb.agent.cli import main; main()", *arguments],
        cwd=cwd,
        env={**os.environ, "COLUMNS": "100", "PYTHONPATH": os.pathsep.join(sys.path), **(environment or {})},
        capture_output=True,
        text=True,
        timeout=280,
    )


@pytest.fixture(scope="module")
def climbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("climbed")
    climb_toy(folder)
    return folder


@pytest.fixture
def affine(tmp_path: Path) -> Path:
    """A repository with a real case that is far slower than it needs to be."""
    folder = write_case(tmp_path, KERNEL, QUICK)
    (folder / "workspace" / "knobs.yaml").write_text(KNOBS)
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", "-A")
    git(tmp_path, "commit", "-q", "-m", "start")
    return tmp_path


@pytest.mark.parametrize(
    "command",
    [
        "climb",
        "check",
        "evaluate",
        "new-case",
        "history",
        "rebuild",
        "runs",
        "show",
        "review",
        "watch",
        "report",
        "profile",
        "study test",
        "study profile",
        "study list",
        "study lanes",
        "study plot",
        "study report",
    ],
)
def test_every_command_teaches_itself(tmp_path: Path, command: str) -> None:
    done = in_process.hillclimb(*command.split(), "--help", cwd=tmp_path)
    assert done.returncode == 0
    assert f"hillclimb {command}" in done.stdout
    assert "Example" in done.stdout


@pytest.mark.clock
def test_help_starts_quickly(tmp_path: Path) -> None:
    times = []
    for _ in range(3):
        began = time.perf_counter()
        assert hillclimb("--help", cwd=tmp_path).returncode == 0
        times.append(time.perf_counter() - began)
    assert min(times) < 1.5  # 0.25 s on an idle machine


def test_version(tmp_path: Path) -> None:
    assert hillclimb("--version", cwd=tmp_path).stdout.startswith("hillclimb ")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("climb", "no/case"), "no case at 'no/case'"),
        (("check", "no/case"), "no case at 'no/case'"),
        (("evaluate", "no/case"), "no case at 'no/case'"),
        (("history", "no/case"), "no case at 'no/case'"),
        (("rebuild", "no/case"), "no case at 'no/case'"),
        (("history", CASE, "--tag", "none"), "there are: first"),
        (("rebuild", CASE, "--tag", "none"), "there are: first"),
        (
            ("climb", CASE, "--budget-seconds", "inf"),
            "inf: give a duration above 0: seconds, or a number",
        ),
        (("climb", CASE, "--budget-seconds", "soon"), "45, 45s, 90m, 8h, 1h30m"),
        (("climb", CASE, "--until", "0.9x"), "--until 0.9x: give a speedup above 1, such as 2.0x"),
        (("climb", CASE, "--until", "fast"), "--until fast: give a speedup above 1, such as 2.0x"),
        (("climb", CASE, "--json", "--quiet"), "--json and --quiet: they exclude each other"),
        (("climb", CASE, "--tag", "../x"), "cannot be part of a branch's name"),
        (("evaluate", CASE, "--from", "no-such-branch"), "neither a folder nor a revision"),
        (("evaluate", CASE, "--knob", "TILE"), "NAME=VALUE"),
        (("evaluate", CASE, "--knob", "TILE=7"), "choose one of 8, 16, 32, 64"),
        (("evaluate", CASE, "--knob", "NO=7"), "choose one of TILE, UNROLL, TRICK"),
        (("new-case", "--family", "Bad Slug", "--case", "x"), "--family 'Bad Slug' is no slug"),
        (("new-case", "--family", "x", "--case", "bad-slug"), "--case 'bad-slug' is no slug"),
        (("new-case", "--family", "x", "--case", "y", "--kind", "serving"), "--model-path is empty"),
        (("new-case", "--from", "x.py", "--kind", "serving"), "--kind serving and --from were both given"),
    ],
)
def test_wrong_usage_is_one_clear_line_and_status_2(
    climbed: Path, arguments: tuple[str, ...], complaint: str
) -> None:
    (climbed / "cases" / "_template").mkdir(exist_ok=True)
    done = in_process.hillclimb(*arguments, cwd=climbed)
    assert done.returncode == 2, done.stderr
    assert complaint in done.stderr
    assert done.stderr.startswith("hillclimb: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("family", "case", "device"), [("--family", "--case", "cuda"), ("--model-slug", "--case-slug", "cpu")]
)
def test_a_case_is_stamped_by_either_name_of_the_options(
    tmp_path: Path, family: str, case: str, device: str
) -> None:
    for name in TEMPLATES[device]:
        shutil.copytree(ROOT / "cases" / name, tmp_path / "cases" / name)
    done = hillclimb("new-case", family, "llama", case, "decode", "--device", device, cwd=tmp_path / "cases")
    assert done.returncode == 0, done.stderr
    folder = tmp_path / "cases" / "llama" / "decode"
    assert done.stdout.splitlines()[0] == str(folder)
    assert "'hillclimb check llama/decode'" in done.stdout
    assert Case(folder).settings.device == device


def test_a_device_that_is_not_known_is_refused_with_the_choice(tmp_path: Path) -> None:
    done = hillclimb("new-case", "--family", "a", "--case", "b", "--device", "tpu", cwd=tmp_path)
    assert done.returncode == 2
    assert "'cpu', 'cuda'" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow(1, but=["climb"])
@pytest.mark.parametrize("command", ["climb", "check", "evaluate", "history", "rebuild"])
def test_the_help_spells_out_how_a_case_is_named(tmp_path: Path, command: str) -> None:
    assert "<family>/<case>." in hillclimb(command, "--help", cwd=tmp_path).stdout


@pytest.mark.parametrize("option", ["--budget-seconds", "--alpha"])
def test_nan_is_no_number(climbed: Path, option: str) -> None:
    done = hillclimb("climb", CASE, option, "nan", cwd=climbed)
    assert done.returncode == 2
    assert option in done.stderr


def test_a_machine_without_git_is_told_so(tmp_path: Path) -> None:
    done = hillclimb("runs", cwd=tmp_path, environment={"PATH": "/nonexistent"})
    assert done.returncode == 3
    assert done.stderr == "hillclimb: git is not on PATH; install it\n"


def test_what_the_machine_refuses_is_one_line_and_status_3(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    leave = f"import os; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r})"
    program = f"{leave}; from hillclimb.agent.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, "runs"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 3
    assert done.stderr.startswith("hillclimb: ") and len(done.stderr.splitlines()) == 1


def test_a_run_folder_that_cannot_be_made_ends_at_once_with_status_3(affine: Path) -> None:
    (affine / "runs").write_text("a file is in the way\n")
    began = time.monotonic()
    done = hillclimb("climb", "test/affine", "--tag", "x", cwd=affine)
    assert time.monotonic() - began < 60
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1].startswith(
        f"hillclimb: {affine}/runs/test/affine/x: Not a directory; "
    )


def test_no_repository_is_said(tmp_path: Path) -> None:
    write_case(tmp_path)
    done = hillclimb(
        "climb", "test/affine", cwd=tmp_path, environment={"GIT_CEILING_DIRECTORIES": str(tmp_path.parent)}
    )
    assert done.returncode == 2
    assert "not in a git repository" in done.stderr


def test_a_broken_case_file_is_named(affine: Path) -> None:
    (affine / "cases" / "test" / "affine" / "case.yaml").write_text(
        "schema: 1\nsummary: s\nbudgets: {secnds: 3}\n"
    )
    done = hillclimb("check", "test/affine", cwd=affine)
    assert done.returncode == 2
    assert "case.yaml: budgets.secnds: unknown key (value 3); did you mean 'seconds'?" in done.stderr


@pytest.mark.slow(3)
def test_history_and_runs_read_a_climbed_repository(climbed: Path) -> None:
    assert "demo/toy/first: " in hillclimb("history", CASE, cwd=climbed).stdout
    assert json.loads(hillclimb("history", CASE, "--json", cwd=climbed).stdout)["wins"]
    assert "demo/toy/first" in hillclimb("runs", cwd=climbed).stdout
    assert json.loads(hillclimb("runs", CASE, "--json", cwd=climbed).stdout)["run"] == "demo/toy/first"


def test_history_needs_neither_checkout_nor_run_folder(climbed: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "-q", "--no-checkout", str(climbed), "clone")
    done = hillclimb("history", CASE, cwd=tmp_path / "clone")
    assert done.returncode == 0, done.stderr
    assert "wins (refs/remotes/origin/hillclimb/demo/toy/first)" in done.stdout


@pytest.mark.slow(6)
def test_rebuild_makes_every_view_from_the_ledger(climbed: Path) -> None:
    folder = climbed / "runs" / CASE / "first"
    before = (folder / "results.tsv").read_text()
    (folder / "results.tsv").unlink()
    done = hillclimb("rebuild", CASE, cwd=climbed)
    assert done.returncode == 0, done.stderr
    assert (folder / "results.tsv").read_text() == before
    assert (folder / "progress.png").read_bytes().startswith(b"\x89PNG")
    assert (folder / "study.db").exists()
    assert "importances: " in done.stdout


def rewrite_contract(folder: Path, old: str, new: str) -> None:
    file = folder / "cases" / "test" / "affine" / "contract.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


@pytest.mark.slow(10)
def test_check_passes_a_sound_case_and_rejects_a_wrong_baseline(affine: Path) -> None:
    sound = hillclimb("check", "test/affine", "--json", cwd=affine)
    assert sound.returncode == 0, sound.stderr
    found = json.loads(sound.stdout)
    assert (found["sound"], found["gate"]["passed"]) == (True, True)
    assert found["oracle"]["tried"] > 5
    assert found["oracle"]["accepted"] == found["oracle"]["excused"] == []
    kernel = affine / "cases" / "test" / "affine" / "workspace" / "kernel.py"
    kernel.write_text("def run(x, y):\n    y[:] = x\n")
    wrong = hillclimb("check", "test/affine", cwd=affine)
    assert wrong.returncode == 1
    assert "the gate rejects the baseline: wrong_result" in wrong.stdout


WIDE = 'return {"y": 2 * inputs["x"].double().abs() + 1}', 'return {"y": reference["y"].abs() * 1e9 + 1e9}'


@pytest.mark.slow(10)
def test_check_tells_of_a_contract_that_lets_much_pass(affine: Path) -> None:
    rewrite_contract(affine, *WIDE)
    done = hillclimb("check", "test/affine", cwd=affine)
    assert done.returncode == 0, "a person decides"
    first, *rest = done.stdout.splitlines()
    assert "sound" not in first
    assert re.search(r"the gate passed \d+ checks .*, but the contract accepts \d+ wrong results", first)
    assert re.fullmatch(r"the contract accepted (\d+) of \d+ results that were wrong on purpose:", rest[0])
    assert any(
        re.match("  inputs in fewer bits in problem timed: an error of .* rejection in timed/", x)
        for x in rest
    )
    assert any(x.startswith("  the end of x left out along dimension 0: an error of ") for x in rest)
    assert json.loads(hillclimb("check", "test/affine", "--json", cwd=affine).stdout)["sound"] is False


@pytest.mark.slow(15)
def test_what_check_prints_excuses_it(affine: Path) -> None:
    rewrite_contract(affine, *WIDE)
    told = hillclimb("check", "test/affine", cwd=affine).stdout.splitlines()
    names = [line.strip().partition(": ")[0] for line in told if ": an error of " in line]
    excuses = dict.fromkeys(names, "it is a toy")
    rewrite_contract(affine, "    domains =", f"    excused = {excuses}\n    domains =")
    done = hillclimb("check", "test/affine", cwd=affine)
    assert done.returncode == 0, done.stderr
    assert "test/affine: sound; the gate passed" in done.stdout
    for name in names:
        assert f"  {name}: excused: it is a toy" in done.stdout
    rewrite_contract(affine, WIDE[1], WIDE[0])
    needless = hillclimb("check", "test/affine", cwd=affine)
    assert needless.returncode == 2
    assert "Contract.excused: names " in needless.stderr


@pytest.mark.slow(5)
def test_check_says_what_is_not_tried(affine: Path) -> None:
    rewrite_contract(affine, "    domains =", "    unmixed = 'they are sorted'\n    limits =")
    rewrite_contract(affine, "    def vary(", "    def neighbours(")
    told = hillclimb("check", "test/affine", cwd=affine).stdout
    assert "but the contract accepts 1 wrong result; " in told
    assert "  nothing written for sizes that are not listed: " in told
    assert "no sizes are tried but those listed: Contract.vary gives none" in told
    assert "no size of 0 is tried: Contract.problems lists none" in told
    assert "inputs are not mixed: they are sorted" in told
    assert "no Contract.domains of x: only values as drawn are tried" in told


@pytest.mark.slow(5)
def test_check_refuses_a_problem_that_proves_nothing(affine: Path) -> None:
    for told in ('2 * inputs["x"].double() + 1', '2 * inputs["x"] + 1'):
        rewrite_contract(affine, told, f'({told}) * (problem["n"] != 37)')
    kernel = affine / "cases" / "test" / "affine" / "workspace" / "kernel.py"
    kernel.write_text(kernel.read_text() + "    if y.size == 37:\n        y[:] = 0\n")
    done = hillclimb("check", "test/affine", cwd=affine)
    assert done.returncode == 2, done.stdout
    assert "the outputs of 'small' are the same whatever is computed" in done.stderr


@pytest.mark.clock
@pytest.mark.slow(20)
def test_evaluate_keeps_what_is_faster_and_rejects_what_is_not(affine: Path) -> None:
    knob = hillclimb("evaluate", "test/affine", "--knob", "TIMES=1", "--json", cwd=affine)
    assert knob.returncode == 0, knob.stdout + knob.stderr
    assert json.loads(knob.stdout)["confirmation"]["speedup"]["estimate"] > 2
    faster = affine / "faster"
    faster.mkdir()
    (faster / "kernel.py").write_text(HONEST)
    assert hillclimb("evaluate", "test/affine", "--from", "faster", cwd=affine).returncode == 0
    (faster / "kernel.py").write_text(repeated(200))
    slower = hillclimb("evaluate", "test/affine", "--from", "faster", cwd=affine)
    assert slower.returncode == 1
    assert slower.stdout.startswith(
        ("rejected: slower", "rejected: no_proven_gain")
    )  # the latter on a busy machine


@pytest.mark.slow(6)
def test_evaluate_does_not_run_what_changes_more_than_it_may(affine: Path) -> None:
    workspace = affine / "cases" / "test" / "affine" / "workspace"
    (workspace / "data.bin").write_bytes(b"\0")
    done = hillclimb("evaluate", "test/affine", "--json", cwd=affine)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert (found["reason"], found["screening"]) == ("outside_workspace", None)
    assert "'data.bin' matches none of the mutable globs" in found["detail"]


def test_evaluate_names_what_is_no_file(affine: Path) -> None:
    shutil.copytree(affine / "cases" / "test" / "affine" / "workspace", affine / "other")
    os.mkfifo(affine / "other" / "pipe")
    done = hillclimb("evaluate", "test/affine", "--from", "other", cwd=affine)
    assert done.returncode == 2
    assert "pipe: is not a plain file" in done.stderr


@pytest.mark.clock
def test_a_climb_through_real_processes_ends_with_a_win_on_its_branch(affine: Path) -> None:
    done = hillclimb("climb", "test/affine", "--tag", "t", "--json", cwd=affine)
    assert done.returncode == 0, done.stderr
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert events[0]["event"] == "opened"
    assert events[-1]["event"] == "finished"
    assert (events[-1]["candidates"], events[-1]["wins"]) == (1, 1)
    assert "TIMES=1" in hillclimb("history", "test/affine", cwd=affine).stdout
    assert "default: 1}" in git(
        affine, "show", "hillclimb/test/affine/t:cases/test/affine/workspace/knobs.yaml"
    )
    assert git(affine, "status", "--porcelain", "--untracked-files=no") == ""
    assert (affine / "runs" / "test" / "affine" / "t" / "study.db").is_file()
