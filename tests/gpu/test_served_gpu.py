"""Servers on a real GPU: what runs is listed by CUPTI, and what is left running or started there is seen."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from hillclimb.harness.judge.pool import LocalJudge
from hillclimb.harness.records import Progress, Reason, Side
from tests.fakes.served import BACKEND, write_served_case

pytest.importorskip("transformers")

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "make_tiny_model.py"

KERNEL = """
import subprocess

import triton
import triton.language as tl


@triton.jit
def copy_logits(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


def copied(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    copy_logits[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y
"""

SERVER = (
    BACKEND.replace("import torch\n", f"import torch\n{KERNEL}\n", 1)
    .replace("return super().decode(last)", "found = super().decode(last)\n        return copied(found)")
    .replace("slots=model.slots)", 'slots=model.slots, device="cuda")')
    .replace("    # MADE", "    copied(torch.zeros(1, backend.vocabulary, device='cuda'))\n    # MADE")
)

LEFT = """        done = copied(found).cpu()
        for _ in range(2):
            torch.mm(HEAVY, HEAVY, out=HEAVY_TOO)
        return done"""

HEAVY = "HEAVY = torch.zeros(8192, 8192, device='cuda')\nHEAVY_TOO = HEAVY.clone()\n\n\nclass Backend("

LEAVING = SERVER.replace("        return copied(found)", LEFT).replace("class Backend(", HEAVY)

MANIFEST = """
schema: 1
families:
  copy:
    default: triton
    implementations:
      triton: {kernels: [copy_logits], files: [backend.py], tests: [tests/test_copy.py], status: ready}
"""


def ignore(progress: Progress) -> None:
    pass


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalJudge]:
    with closing(judge_in(tmp_path_factory.mktemp("case"))) as one:
        yield one


def judge_in(root: Path, without: str = "") -> LocalJudge:
    """Of a case below `root`, without this line of its settings."""
    model = root / "tiny"
    subprocess.run([sys.executable, SCRIPT, model], check=True, capture_output=True)
    folder = write_served_case(root, model)
    text = (folder / "case.yaml").read_text()
    text = text.replace("surface: openai_http", "surface: openai_http\ndevice: cuda")
    text = text.replace("imports: [", "imports: [triton, subprocess, ").replace("4096}", "32768}")
    (folder / "case.yaml").write_text(text.replace(without, ""))
    return LocalJudge(folder, folder / "judge.log")


def side(tmp_path: Path, backend: str = SERVER, manifest: str = MANIFEST, **knobs: str) -> Side:
    tree = tmp_path / f"side{len(list(tmp_path.iterdir()))}"
    (tree / "tests").mkdir(parents=True)
    (tree / "tests" / "test_copy.py").write_text("")
    (tree / "backend.py").write_text(backend)
    (tree / "kernel_manifest.yaml").write_text(manifest)
    return Side(tree=str(tree), knobs=knobs)


def test_what_runs_is_told(judge: LocalJudge, tmp_path: Path) -> None:
    report = judge.gate(side(tmp_path), ignore)
    assert report.passed, report.detail
    (row,) = report.engaged
    assert row.name == "copy_logits" and row.calls == 15
    print(row, report.worst)


def test_a_fallback_is_named(judge: LocalJudge, tmp_path: Path) -> None:
    fallen = SERVER.replace("        return copied(found)", "        return found")
    report = judge.gate(side(tmp_path, fallen), ignore)
    print(report.detail)
    assert report.reason is Reason.NOT_ENGAGED


def test_a_planted_gain_is_seen_and_memory_counts(judge: LocalJudge, tmp_path: Path) -> None:
    found = judge.screen(side(tmp_path), side(tmp_path, DECODE_SLEEP="0.02"), ignore)
    assert found.reason is None, found.detail
    assert found.speedup is not None and found.speedup > 1.5
    memory = next(one for one in found.pairs[0].blocks[-1].metrics if one.metric == "memory")
    print(found.speedup, memory, f"{found.seconds:.0f} s")
    assert min(memory.values) > 600  # MiB; a context of CUDA alone has half of it


def test_work_that_is_left_running_is_named(tmp_path: Path) -> None:
    (tmp_path / "case").mkdir()
    guardrail = "  - {suite: single, metric: ttft, max_slowdown: 0.5}\n"  # which it would break as well
    leaving, slower = side(tmp_path, LEAVING), side(tmp_path, DECODE_SLEEP="0.1")
    with closing(judge_in(tmp_path / "case", guardrail)) as judge:
        found = judge.screen(leaving, slower, ignore)
        if found.reason is None:  # too few segments to tell; what was seen of the two sides is remembered
            found = judge.screen(leaving, slower, ignore)
    print(found.reason, found.detail, f"{found.seconds:.0f} s")
    assert found.reason is Reason.LEFT_WORK_RUNNING, found.detail


def test_a_process_that_lives_beside_it_is_named(judge: LocalJudge, tmp_path: Path) -> None:
    started = SERVER.replace("    # MADE", "    subprocess.Popen(['sleep', '100'])\n    # MADE")
    report = judge.gate(side(tmp_path, started), ignore)
    print(report.detail)
    assert report.reason in (Reason.STARTED_PROCESS, Reason.POLICY)


def test_none_is_started_once_it_answers(judge: LocalJudge, tmp_path: Path) -> None:
    started = SERVER.replace("time.sleep(PREFILL)", "subprocess.Popen(['sleep', '100'])")
    report = judge.gate(side(tmp_path, started), ignore)
    print(report.reason, report.detail)
    assert not report.passed
