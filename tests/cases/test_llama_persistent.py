"""persistent.cu on the CPU: right for sizes of every kind, wrong or stuck without any of its waits."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.cases.workspace import CASES

pytestmark = pytest.mark.slow(70)

FOLDER = CASES / "llama_1b" / "single_stream" / "workspace"
EMULATION = Path(__file__).parent / "emulation"
SIZES = {
    "LAYERS": 2, "HIDDEN": 512, "HEADS": 8, "KV_HEADS": 4, "FFN": 2048, "VOCAB": 600, "BLOCKS": 8, "RING": 5,
    "FLIGHT": 2, "SEGMENTS": 4, "SPLITS": 2, "GATE_FIXED": 70, "HEAD_FIXED": 12,
    "CLAIMS": 2, "ASK_ONE": 1, "ONE_WAITS": 1, "MEMBERS": 2, "EARLY_CACHE": 1, "OVERLAPS": 0,
}  # fmt: skip
SMALL = {"LAYERS": 1, "FFN": 1024, "VOCAB": 160, "GATE_FIXED": 30, "HEAD_FIXED": 2}
RIGHT = {
    "what is cached comes first": ({"RING": 36}, "2 9 8 1"),
    "rows of down in two slots": (
        {"SEGMENTS": 2, "GATE_FIXED": 100, "HEAD_FIXED": 1, "RING": 7, "FLIGHT": 7},
        "2 0 4 3",
    ),
    "two rows of down in a slot": ({"SEGMENTS": 8, "GATE_FIXED": 32, "HEAD_FIXED": 9}, "2 40 20 2"),
    "warps that share a head": (
        {
            "MEMBERS": 1,
            "SPLITS": 1,
            "FFN": 1024,
            "GATE_FIXED": 20,
            "RING": 3,
            "ONE_WAITS": 0,
            "ASK_ONE": 0,
            "EARLY_CACHE": 0,
        },
        "2 70 20 2",
    ),
}
WRONG = {
    "no wait for an empty slot": ("while (!barrier_try(&shared.empty[slot], phase)) patience.spend();", ""),
    "no wait for a full slot": ("while (!barrier_try(&shared.full[at], in_phase)) patience.spend();", ""),
    "no sync before sums are added": ("compute_sync();\n    if (r.warp < step)", "if (r.warp < step)"),
    "no sync after the queries": ("compute_sync();\n    MARK();\n    attend", "attend"),
    "a smaller ring for the readers": (
        "++number;\n    if (++slot == RING)",
        "++number;\n    if (++slot == RING - 1)",
    ),
    "no wait for words": ("    if (!missing) return;", "    return;"),
}


def build(source: str, sizes: dict[str, int], folder: Path) -> Path:
    (folder / "persistent.cu").write_text(source, encoding="utf-8")
    for name in ("emulate.h", "emulate.cpp"):
        (folder / name).write_bytes((EMULATION / name).read_bytes())
    macros = [f"-D{name}={value}" for name, value in (SIZES | sizes).items()]
    command = [
        "g++",
        "-std=c++17",
        "-O1",
        "-w",
        *macros,
        str(folder / "emulate.cpp"),
        "-o",
        str(folder / "emulate"),
    ]
    subprocess.run(command, check=True, timeout=60)
    return folder / "emulate"


def run(program: Path, arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *arguments.split()], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("name", RIGHT)
def test_tokens_are_those_of_a_plain_computation(name: str, tmp_path: Path) -> None:
    sizes, arguments = RIGHT[name]
    found = run(build((FOLDER / "persistent.cu").read_text(encoding="utf-8"), sizes, tmp_path), arguments)
    assert found.returncode == 0, found.stdout


@pytest.mark.parametrize("name", WRONG)
def test_a_missing_wait_is_seen(name: str, tmp_path: Path) -> None:
    source = (FOLDER / "persistent.cu").read_text(encoding="utf-8")
    before, after = WRONG[name]
    assert source.count(before) == 1
    found = run(build(source.replace(before, after), SMALL, tmp_path), "2 9 12 1")
    assert found.returncode != 0, found.stdout
