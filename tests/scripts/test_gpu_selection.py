"""with-selected-gpu.sh and selected-gpu.sh against a fake nvidia-smi."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.scripts.scripts_repo import ScriptsRepo, make_repo

SCRIPT = "scripts/with-selected-gpu.sh"
SHOW = ("sh", "-c", 'echo "$CUDA_VISIBLE_DEVICES $CUDA_DEVICE_ORDER"')
LISTING = """0, GPU-aaaa-1111, 90, 70000
1, GPU-bbbb-2222, 0, 40
2, GPU-cccc-3333, 0, 12"""


@pytest.fixture
def repo(tmp_path: Path) -> ScriptsRepo:
    made = make_repo(tmp_path)
    made.on_path("nvidia-smi", f"cat <<'END'\n{LISTING}\nEND")
    return made


@pytest.mark.parametrize(
    ("environment", "uuid"),
    [
        ({}, "GPU-cccc-3333"),
        ({"HILLCLIMB_GPU": "1"}, "GPU-bbbb-2222"),
        ({"HILLCLIMB_GPU": "GPU-aaaa-1111"}, "GPU-aaaa-1111"),
        ({"HILLCLIMB_GPU": "0", "CUDA_VISIBLE_DEVICES": "1"}, "GPU-aaaa-1111"),
        ({"CUDA_VISIBLE_DEVICES": "0,1"}, "GPU-bbbb-2222"),
        ({"CUDA_VISIBLE_DEVICES": "GPU-aaaa-1111"}, "GPU-aaaa-1111"),
    ],
)
def test_pins_one_uuid(repo: ScriptsRepo, environment: dict[str, str], uuid: str) -> None:
    done = repo.run(SCRIPT, *SHOW, **environment)
    assert (done.returncode, done.stdout) == (0, f"{uuid} PCI_BUS_ID\n"), done.stderr


def test_busy_but_small_loses_to_idle_and_full(repo: ScriptsRepo) -> None:
    repo.on_path("nvidia-smi", "echo '0, GPU-a, 30, 10'; echo '1, GPU-b, 2, 9000'")
    assert repo.run(SCRIPT, *SHOW).stdout.split()[0] == "GPU-b"


@pytest.mark.parametrize("wanted", ["7", "GPU-dddd", "first"])
def test_unknown_gpu_is_named_with_the_choices(repo: ScriptsRepo, wanted: str) -> None:
    done = repo.run(SCRIPT, *SHOW, HILLCLIMB_GPU=wanted)
    assert (done.returncode, done.stdout) == (3, "")
    assert f"HILLCLIMB_GPU='{wanted}'" in done.stderr
    assert "GPU-bbbb-2222" in done.stderr


def test_no_driver_is_a_clear_refusal(repo: ScriptsRepo) -> None:
    repo.on_path("nvidia-smi", "echo 'no devices were found'; exit 6")
    done = repo.run(SCRIPT, *SHOW)
    assert (done.returncode, done.stdout) == (3, "")
    assert "no GPU here" in done.stderr
    assert "no devices were found" in done.stderr


def test_the_commands_arguments_and_status_are_its_own(repo: ScriptsRepo) -> None:
    done = repo.run(SCRIPT, "sh", "-c", 'echo "[$1]"; exit 7', "name", "two words")
    assert (done.returncode, done.stdout) == (7, "[two words]\n")


def test_no_command_is_a_usage_error(repo: ScriptsRepo) -> None:
    assert repo.run(SCRIPT).returncode == 2


def test_sourcing_it_leaves_the_shell_alive_where_there_is_no_gpu(repo: ScriptsRepo) -> None:
    program = repo.on_path("nvidia-smi", "exit 9")
    line = f'PATH="{program.parent}:$PATH"; source "{repo.root}/scripts/selected-gpu.sh"; echo "status $?"'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=30)
    assert done.stdout == "status 3\n"
