"""Kernels are compiled for a GPU that is not there, by the real compiler: what it makes, refuses and cannot know."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
DEMOS = ROOT / "cases" / "demo"
MATRIX = {"square": [("x", (64, 256), "bfloat16"), ("y", (64, 256), "bfloat16")]}

RUN = """
import importlib, json, sys
import torch
from hillclimb.harness.candidate.offline_compiler import use_compile_only_driver, compile_only
from hillclimb.harness.channel.layout import CallSignature
use_compile_only_driver(90)
sys.path.insert(0, sys.argv[1])
run = importlib.import_module("kernel").run
problems = {name: CallSignature(arrays) for name, arrays in json.loads(sys.argv[2]).items()}
print("ANSWER" + json.dumps(compile_only(run, problems, 90)))
"""

ADDRESSED = """
import importlib, json, sys
import torch
from hillclimb.harness.candidate.offline_compiler import use_compile_only_driver
noting = use_compile_only_driver(90)
sys.path.insert(0, sys.argv[1])
run = importlib.import_module("kernel").run
for arrays in json.loads(sys.argv[2]).values():
    run(*(torch.empty(shape, dtype=getattr(torch, dtype)) for _, shape, dtype in arrays))
print("ANSWER" + json.dumps({"kernels": len(noting.kernels)}))
"""

HEAD = """
import torch
import triton
import triton.language as tl
"""

COPY = (
    HEAD
    + """
@triton.jit
def copy(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)

"""
)


def execute(
    script: str, workspace: Path, cache: Path, problems: Any = MATRIX, **environment: str
) -> dict[str, Any]:
    """Answer of a fresh process with its own Triton cache."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TRITON_")}
    done = subprocess.run(
        [sys.executable, "-c", script, str(workspace), json.dumps(problems)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**kept, "TRITON_CACHE_DIR": str(cache), "PYTHONDONTWRITEBYTECODE": "1", **environment},
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout.split("ANSWER")[1])
    return answer


def compiled(tmp_path: Path, source: str, problems: Any = MATRIX) -> dict[str, Any]:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "kernel.py").write_text(source)
    return execute(RUN, tmp_path / "workspace", tmp_path / "cache", problems)


def demo_problems(name: str) -> dict[str, list[tuple[str, tuple[int, ...], str]]]:
    """A divisible, a ragged and a single-column shape, as each demo's contract lays them out."""
    problems = {}
    for rows, columns in ((4096, 4096), (301, 5003), (33, 1)):
        matrix = ((rows, columns), "bfloat16")
        weight = [("weight", (columns,), "float32")] if name == "triton_rmsnorm" else []
        problems[f"{rows}x{columns}"] = [("x", *matrix), *weight, ("y", *matrix)]
    return problems


def cubins(cache: Path) -> set[str]:
    return {str(path.relative_to(cache)) for path in cache.rglob("*.cubin")}


FAST = {
    "triton_softmax": {"SX_ALGORITHM": "whole", "SX_WARPS": "8", "SX_WAVES": "4", "SX_STAGES": "3"},
    "triton_rmsnorm": {"RMS_ALGORITHM": "whole", "RMS_WARPS": "8", "RMS_WAVES": "4", "RMS_EARLY": "1"},
}


@pytest.mark.slow(6)
@pytest.mark.parametrize("fast", [False, True], ids=["start", "fast"])
@pytest.mark.parametrize("name", sorted(FAST))
def test_the_demos_compile_without_spills(tmp_path: Path, name: str, fast: bool) -> None:
    knobs = FAST[name] if fast else {}
    answer = execute(RUN, DEMOS / name / "workspace", tmp_path, demo_problems(name), **knobs)
    assert answer["ok"]
    assert answer["skipped"] == {}
    assert answer["launches"] == 3
    assert len(answer["kernels"]) == 3
    assert all(kernel["registers"] > 0 and kernel["stack"] == 0 for kernel in answer["kernels"])
    assert len(cubins(tmp_path)) == 3


STRIDED = (
    HEAD
    + """
@triton.jit
def copy(x, y, s, step, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(y + at * step, tl.load(x + at * step) * tl.load(s))

def run(x, s, e, y):
    assert x.stride() == (1, 8) and y.stride() == (2, 1), (x.stride(), y.stride())
    assert s.shape == () and e.shape == (0, 3)
    copy[(1,)](x, y, s, x.stride(1), BLOCK=8)
"""
)


@pytest.mark.slow(5)
def test_strides_reach_the_compiler(tmp_path: Path) -> None:
    arrays = [
        ("x", (8, 2), "float32", (1, 8)), ("s", (), "float32"), ("e", (0, 3), "int8"),
        ("y", (8, 2), "float32"),
    ]  # fmt: skip
    answer = compiled(tmp_path, STRIDED, {"one": arrays})
    assert answer["ok"]
    assert answer["skipped"] == {}
    assert len(answer["kernels"]) == 1


@pytest.mark.slow(12)
def test_tensors_with_addresses_find_what_was_compiled_without(tmp_path: Path) -> None:
    """Real tensors, aligned as the arenas' are, ask for the same entries, so nothing is compiled twice."""
    workspace, problems = DEMOS / "triton_softmax" / "workspace", demo_problems("triton_softmax")
    execute(RUN, workspace, tmp_path, problems)
    before = cubins(tmp_path)
    again = execute(ADDRESSED, workspace, tmp_path, problems)
    assert again["kernels"] == len(before) == 3
    assert cubins(tmp_path) == before


@pytest.mark.slow(10)
def test_the_same_source_elsewhere_finds_the_same_entries(tmp_path: Path) -> None:
    """The folder is no part of the key: a candidate's tree may be mounted anywhere."""
    problems = demo_problems("triton_softmax")
    execute(RUN, DEMOS / "triton_softmax" / "workspace", tmp_path / "cache", problems)
    before = cubins(tmp_path / "cache")
    shutil.copytree(DEMOS / "triton_softmax" / "workspace", tmp_path / "elsewhere")
    execute(RUN, tmp_path / "elsewhere", tmp_path / "cache", problems)
    assert cubins(tmp_path / "cache") == before


@pytest.mark.slow(12)
def test_other_knobs_are_other_entries(tmp_path: Path) -> None:
    workspace, problems = DEMOS / "triton_softmax" / "workspace", demo_problems("triton_softmax")
    execute(RUN, workspace, tmp_path, problems)
    execute(RUN, workspace, tmp_path, problems, SX_WARPS="8")
    assert len(cubins(tmp_path)) == 6


FAULTY = {
    "unknown instruction": (
        COPY.replace("tl.load(x", "tl.lode(x"),
        "run = lambda x, y: copy[(1,)](x, y, 64, BLOCK=64)",
        "has no attribute 'lode'",
    ),
    "block that is no power of two": (
        COPY,
        "run = lambda x, y: copy[(1,)](x, y, 64, BLOCK=96)",
        "power of 2",
    ),
    "argument that is not there": (
        COPY,
        "run = lambda x, y: copy[(1,)](x, y, 64, BLOCK=64, num_wraps=4)",
        "num_wraps",
    ),
    "argument left out": (COPY, "run = lambda x, y: copy[(1,)](x, y, BLOCK=64)", "'n'"),
    "argument of no type": (COPY, "run = lambda x, y: copy[(1,)](x, y, object(), BLOCK=64)", "object"),
    "assertion of its own": (
        COPY.replace("    at =", "    tl.static_assert(BLOCK > 64)\n    at ="),
        "run = lambda x, y: copy[(1,)](x, y, 64, BLOCK=64)",
        "static_assert",
    ),
}


@pytest.mark.slow(5)
@pytest.mark.parametrize("name", FAULTY)
def test_code_that_the_compiler_refuses_is_a_fault(tmp_path: Path, name: str) -> None:
    source, call, says = FAULTY[name]
    answer = compiled(tmp_path, f"{source}\n{call}\n")
    assert answer["fault"] == "does_not_compile"
    assert answer["problem"] == "square"
    assert says in answer["text"]


PIPELINE = (
    HEAD
    + """
@triton.jit
def total(x, y, n, BLOCK: tl.constexpr):
    sums = tl.zeros([BLOCK], tl.float32)
    for start in tl.range(0, n, BLOCK, num_stages=4):
        sums += tl.load(x + start + tl.arange(0, BLOCK)).to(tl.float32)
    tl.store(y + tl.arange(0, BLOCK), sums.to(tl.bfloat16))

def run(x, y):
    total[(1,)](x, y, x.numel(), BLOCK=65536, num_warps=32)
"""
)


@pytest.mark.slow(5)
def test_more_shared_memory_than_the_architecture_has_is_a_fault(tmp_path: Path) -> None:
    answer = compiled(tmp_path, PIPELINE)
    assert answer["fault"] == "does_not_compile"
    assert "shared memory" in answer["text"]
    assert "232448" in answer["text"]


TUNED = COPY.replace(
    "@triton.jit",
    """@triton.autotune(
    configs=[triton.Config({"BLOCK": 64 << i}, num_warps=w) for i in range(3) for w in (1, 4)], key=["n"]
)
@triton.jit""",
)


@pytest.mark.slow(5)
def test_every_configuration_of_an_autotuner_is_compiled(tmp_path: Path) -> None:
    answer = compiled(tmp_path, TUNED + "run = lambda x, y: copy[(4,)](x, y, x.numel())\n")
    assert answer["ok"]
    assert len(answer["kernels"]) == 6
    assert {kernel["warps"] for kernel in answer["kernels"]} == {1, 4}


HEURISTIC = COPY.replace(
    "@triton.jit", '@triton.heuristics({"BLOCK": lambda a: triton.next_power_of_2(a["n"])})\n@triton.jit'
)

OCCUPANCY = (
    COPY
    + """
def run(x, y):
    device = triton.runtime.driver.active.get_current_device()
    processors = triton.runtime.driver.active.utils.get_device_properties(device)["multiprocessor_count"]
    kernel = copy.warmup(x, y, x.numel(), BLOCK=64, grid=(1,))
    kernel._init_handles()
    copy[(processors * (65536 // (kernel.n_regs * 128)),)](x, y, x.numel(), BLOCK=64)
"""
)

HONEST = {
    "heuristics": HEURISTIC + "run = lambda x, y: copy[(1,)](x, y, 128)\n",
    "computed grid": COPY
    + "run = lambda x, y: copy[lambda m: (triton.cdiv(x.numel(), m['BLOCK']),)](x, y, 64, BLOCK=64)\n",
    "occupancy asked of the driver": OCCUPANCY,
    "workspace of its own": COPY
    + """
def run(x, y):
    w = torch.empty_like(x)
    copy[(1,)](x, w, 64, BLOCK=64)
    copy[(1,)](w, y, 64, BLOCK=64)
""",
}


@pytest.mark.slow(5)
@pytest.mark.parametrize("name", HONEST)
def test_honest_launches_compile(tmp_path: Path, name: str) -> None:
    answer = compiled(tmp_path, HONEST[name])
    assert answer["ok"]
    assert answer["skipped"] == {}
    assert len(answer["kernels"]) == 1


UNKNOWABLE = {
    "value": ("run = lambda x, y: copy[(int(x.max().item()),)](x, y, 64, BLOCK=64)", "meta tensors"),
    "value in the grid": (
        "run = lambda x, y: copy[lambda _: (int(x.max().item()),)](x, y, 64, BLOCK=64)",
        "meta tensors",
    ),
    "no kernel": ("run = lambda x, y: y.copy_(x)", "no Triton kernel was launched"),
    "the kernel's own exception": (
        "def run(x, y):\n    raise ArithmeticError('mine')",
        "kernel.py:12: ArithmeticError: mine",
    ),
    "driver": (
        "run = lambda x, y: triton.runtime.driver.active.utils.fill_tma_descriptor()",
        "which needs a GPU",
    ),
}


@pytest.mark.slow(5)
@pytest.mark.parametrize("name", UNKNOWABLE)
def test_what_only_a_run_can_show_is_said_and_is_no_fault(tmp_path: Path, name: str) -> None:
    source, says = UNKNOWABLE[name]
    answer = compiled(tmp_path, COPY + source + "\n")
    assert answer["ok"]
    assert answer["skipped"]["square"].startswith("not compiled ahead: ")
    assert says in answer["skipped"]["square"]


@pytest.mark.slow(5)
def test_memory_that_ran_out_is_not_the_compilers_refusal(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="MemoryError: bad_alloc"):
        compiled(tmp_path, "def run(x, y):\n    raise MemoryError('bad_alloc')\n")


@pytest.mark.slow(5)
@pytest.mark.parametrize(
    ("script", "environment", "says"),
    [
        (RUN, {"TRITON_INTERPRET": "1"}, "unset it"),
        (RUN.replace("driver(90)", "driver(42)"), {}, "known are 80, "),
    ],
)
def test_it_says_where_it_cannot_compile(
    tmp_path: Path, script: str, environment: dict[str, str], says: str
) -> None:
    with pytest.raises(AssertionError, match=says):
        execute(script, DEMOS / "triton_softmax" / "workspace", tmp_path, **environment)
