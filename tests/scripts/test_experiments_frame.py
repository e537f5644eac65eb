"""The frame of the experiments: --help, an output that goes on after a kill, and what is recorded of the machine."""

from __future__ import annotations

import ast
import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENTS = ROOT / "scripts" / "experiments"
sys.path.insert(0, str(EXPERIMENTS))

import frame  # noqa: E402
import gpu_calibration  # noqa: E402
import gpu_error_rates  # noqa: E402
import gpu_noise  # noqa: E402

SCRIPTS = sorted(path for path in EXPERIMENTS.glob("*.py") if "__main__" in path.read_text())
OURS = {"hillclimb", "scripts", "tests", *(path.stem for path in EXPERIMENTS.glob("*.py"))}

ALONE = ("replay_kernel_tuner", "stopwatch")
"""They run where no other module of the experiments can be imported, so they use plain argparse."""

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}

KEYS = {"command", "commit", "dirty", "date", "python", "torch", "triton", "os", "kernel", "cpu", "cpus"}
KEYS |= {"load_before", "gpus"}

KILLED = """
import os, signal, sys
from pathlib import Path
import frame

output = frame.Output(Path(sys.argv[1]), {"parts": 5})
for part in map(str, range(5)):
    if part in output.found:
        continue
    with Path(sys.argv[2]).open("a") as log:
        log.write(part)
    if part == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)
    output.save(**{part: int(part) ** 2})
"""


def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *command],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=ENVIRONMENT,
        timeout=240,
    )


def missing_package(stderr: str) -> str | None:
    """The package of someone else's that could not be imported."""
    found = re.search(r"ModuleNotFoundError: No module named '([\w]+)", stderr)
    return found[1] if found and found[1] not in OURS else None


@pytest.mark.slow(3, but=["cpu_error_rates", "overhead", "escape_counts"])
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_answers_help_with_its_docstring(script: Path) -> None:
    done = run(script, "--help")
    if done.returncode and (package := missing_package(done.stderr)):
        pytest.skip(f"{package} is not installed")
    assert done.returncode == 0, done.stderr
    docstring = ast.get_docstring(ast.parse(script.read_text()), clean=False)
    assert docstring and docstring.strip() in done.stdout
    assert ("--output PATH" in done.stdout) == (script.stem not in ALONE)
    assert "--write" not in done.stdout


def test_only_the_frame_makes_parsers() -> None:
    makers = {path.stem for path in EXPERIMENTS.glob("*.py") if "ArgumentParser(" in path.read_text()}
    assert makers == {"frame", *ALONE}


def test_a_killed_script_goes_on_where_it_was(tmp_path: Path) -> None:
    script, output, log = tmp_path / "squares.py", tmp_path / "squares.json", tmp_path / "log"
    script.write_text(f"import sys; sys.path.insert(0, {str(EXPERIMENTS)!r})\n{KILLED}")
    assert run(script, output, log, "3").returncode == -signal.SIGKILL
    assert [name for name in json.loads(output.read_text()) if name.isdigit()] == ["0", "1", "2"]
    done = run(script, output, log, "none")
    assert done.returncode == 0, done.stderr
    assert "goes on with 0, 1, 2" in done.stderr
    found = json.loads(output.read_text())
    assert {name: found[name] for name in "01234"} == {"0": 0, "1": 1, "2": 4, "3": 9, "4": 16}
    assert log.read_text() == "012334", "only the part that was cut off is made twice"
    assert found["provenance"]["command"].endswith("none")
    assert [start["command"][-1] for start in found["earlier_provenance"]] == ["3"]
    assert sorted(path.name for path in tmp_path.glob("squares.*")) == ["squares.json", "squares.py"]


def test_a_start_that_finishes_nothing_leaves_the_output_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    frame.Output(path, {"n": 1}).save(rows=[1])
    before = path.read_bytes()
    assert frame.Output(path, {"n": 1}).found["rows"] == [1]
    assert path.read_bytes() == before


def test_a_kill_while_saving_leaves_the_earlier_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "figures.json"
    output = frame.Output(path, {})
    output.save(rows=[1])

    def killed(self: Path, target: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(Path, "replace", killed)
        output.save(rows=[1, 2])
    assert frame.Output(path, {}).found["rows"] == [1]
    output.save(rows=[1, 2, 3])
    assert frame.Output(path, {}).found["rows"] == [1, 2, 3]


@pytest.mark.parametrize("arguments", [{"n": 2, "kinds": ["a"]}, {"n": 1, "kinds": []}, {"n": 1}])
def test_other_arguments_are_refused(tmp_path: Path, arguments: dict[str, Any]) -> None:
    path = tmp_path / "figures.json"
    frame.Output(path, {"n": 1, "kinds": ("a",), "folder": tmp_path}).save(rows=[])
    frame.Output(path, {"n": 1, "kinds": ["a"], "folder": str(tmp_path)})
    before = path.read_bytes()
    with pytest.raises(
        SystemExit, match=r"was made with (folder|kinds|n) = .*, not .*; use the same arguments"
    ):
        frame.Output(path, {**arguments, **({"folder": tmp_path} if len(arguments) > 1 else {})})
    assert path.read_bytes() == before


def test_the_output_of_another_script_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "figures.json"
    monkeypatch.setattr(sys, "argv", ["scripts/one.py"])
    frame.Output(path, {}).save(rows=[])
    monkeypatch.setattr(sys, "argv", ["scripts/other.py"])
    with pytest.raises(SystemExit, match='was made with script = "one", not "other"'):
        frame.Output(path, {})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("[1]", "holds a JSON list, not an object; name another --output, or remove the file"),
        ("3", "holds a JSON int, not an object"),
        ("{\"rows\": [", "is not JSON, it begins with '{\"rows\": \\['"),
        ("", "is not JSON, it begins with ''"),
        ('{"rows": []}', "does not say with which arguments it was made"),
    ],
)  # fmt: skip
def test_what_is_no_output_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "figures.json"
    path.write_text(text)
    with pytest.raises(SystemExit, match=problem):
        frame.Output(path, {})
    assert path.read_text() == text


def test_places_where_nothing_can_be_saved_are_refused_at_the_start(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"there is no folder .*; make it, or name another --output"):
        frame.Output(tmp_path / "missing" / "figures.json", {})
    for path in (tmp_path, Path(os.devnull)):
        with pytest.raises(SystemExit, match="is not a regular file"):
            frame.Output(path, {})


def test_without_a_path_nothing_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    output = frame.Output(None, {})
    output.save(rows=[1])
    assert output.found["rows"] == [1]
    assert list(tmp_path.iterdir()) == []


def test_the_option_is_required_or_has_a_default_or_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert frame.make_parser("What it does.").parse_args([]).output is None
    default = frame.EVIDENCE / "figures.json"
    parser = frame.make_parser("What it does.", default=default)
    assert parser.parse_args([]).output == default
    assert "docs/evidence/figures.json" in parser.format_help()
    with pytest.raises(SystemExit):
        frame.make_parser("What it does.", required=True).parse_args([])
    assert "--output" in capsys.readouterr().err


def test_provenance_has_its_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", [str(EXPERIMENTS / "cpu_noise.py"), "--pairs", "1 2"])
    found = frame.provenance()
    assert set(found) == KEYS
    assert found["command"] == "scripts/experiments/cpu_noise.py --pairs '1 2'"
    assert found["date"].endswith("+00:00")
    assert found["cpus"] == os.cpu_count()
    assert json.loads(json.dumps(found)) == found
    if (ROOT / ".git").exists():
        assert re.fullmatch("[0-9a-f]{40}", found["commit"])
        assert found["dirty"] in (True, False)


def test_provenance_without_git_nvidia_smi_or_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(frame, "PACKAGES", ("torch", "no-such-package"))
    found = frame.provenance()
    assert (found["commit"], found["dirty"], found["gpus"]) == (None, None, [])
    assert found["no-such-package"] is None
    smi = tmp_path / "nvidia-smi"
    smi.write_text("#!/bin/sh\necho NVIDIA H200\necho NVIDIA H200\n")
    smi.chmod(0o755)
    assert frame.provenance()["gpus"] == ["NVIDIA H200", "NVIDIA H200"]


def start(monkeypatch: pytest.MonkeyPatch, module: Any, *arguments: object) -> None:
    """The script's main with these arguments."""
    monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, arguments)])
    module.main()


FAKE_CHILD = """
import json, sys
kind, variants = sys.argv[sys.argv.index("--child") + 1], sys.argv[sys.argv.index("--variants") + 1 :]
print("a line of someone else's")
for variant in variants[: variants.index("--output")]:
    print(json.dumps({"kind": kind, "variant": variant}))
sys.exit(kind == "gemm")
"""


def test_gpu_noise_measures_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    child, output = tmp_path / "child.py", tmp_path / "noise.json"
    child.write_text(FAKE_CHILD)
    monkeypatch.setattr(gpu_noise, "__file__", str(child))
    wishes = ("--variants", "as judged", "not fed", "--output", output)
    with pytest.raises(SystemExit, match="measuring gemm ended with status 1"):
        start(monkeypatch, gpu_noise, "--kinds", "softmax", "gemm", *wishes)
    start(monkeypatch, gpu_noise, "--kinds", "softmax", "gemm", "small", *wishes)
    rows = json.loads(output.read_text())["rows"]
    assert [(row["kind"], row["variant"]) for row in rows] == [
        (kind, variant) for kind in ("softmax", "gemm", "small") for variant in ("as judged", "not fed")
    ]


def test_gpu_calibration_prints_a_row_for_every_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    captured = []
    graph = SimpleNamespace(replay=lambda: None)
    monkeypatch.setattr(gpu_calibration, "make_slots", lambda kind: [()])
    monkeypatch.setattr(gpu_calibration, "load", lambda workspace, extra: captured.append(extra))
    monkeypatch.setattr(gpu_calibration, "capture", lambda module, slots: graph)
    monkeypatch.setattr(gpu_calibration, "replay", lambda graph, slots: 1.0)
    output = ("--output", tmp_path / "calibration.json")
    start(monkeypatch, gpu_calibration, tmp_path, "softmax", 5, 9, *output)
    start(monkeypatch, gpu_calibration, tmp_path, "softmax", 9, 7, 9, *output)
    lines = capsys.readouterr().out.splitlines()
    assert [[row["extra"] for row in json.loads(line)] for line in lines] == [[5, 9], [9, 7, 9]]
    assert captured == [16, 21, 25, 16, 23], "what is there is not measured again"


class FakeLab:
    """Judges nothing."""

    calibrations = 0

    def __init__(self, folder: Path, kind: str, condition: str) -> None:
        self.condition = condition

    def calibrate(self, effects: list[float]) -> list[dict[str, float]]:
        FakeLab.calibrations += 1
        return [{"planned": effect, "extra": 1, "effect": effect} for effect in effects]

    def take_steps(self, calibration: list[dict[str, float]]) -> None:
        assert calibration

    @contextlib.contextmanager
    def open(self) -> Iterator[dict[str, Any]]:
        yield {"provenance": {"device": "a GPU"}, "noise": {"pair_sd": 0.001}}

    def ahead(self, jobs: Iterator[dict[str, Any]]) -> Iterator[Any]:
        return (SimpleNamespace(job=job) for job in jobs)

    def judge_one(self, duel: Any, confirmations: int) -> dict[str, Any]:
        return duel.job | {"verdict": "slower", "confirmed": False, "seconds": 1.0, "dropped": 0}


def test_gpu_error_rates_go_on_with_more_candidates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_error_rates, "Lab", FakeLab)
    monkeypatch.setattr(FakeLab, "calibrations", 0)
    output = tmp_path / "rates.json"
    wishes = ("small", "--planted", 1, "--losers", 0, "--effects", 0.01, "--output", output)
    start(monkeypatch, gpu_error_rates, *wishes, "--aa", 2)
    start(monkeypatch, gpu_error_rates, *wishes, "--aa", 3, "--condition", "quiet")
    found = json.loads(output.read_text())
    assert (found["kind"], len(found["rows"]), FakeLab.calibrations) == ("small", 4, 1)
    assert found["provenance"]["device"] == "a GPU"
    assert found["noise"] == {"pair_sd": 0.001}
    assert [line["candidates"] for line in found["summary"]] == [3, 1]
    with pytest.raises(SystemExit, match="was made with effects"):
        start(monkeypatch, gpu_error_rates, "small", "--effects", 0.05, "--output", output)
