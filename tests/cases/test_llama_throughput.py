"""The case llama_1b/throughput without a GPU: a small model of its form, by torch and by fibers."""

from __future__ import annotations

import ctypes
import importlib
import re
import shutil
import subprocess
import sys
from array import array
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import torch

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.contracts.llama.model import Cache, Llama, LlamaShape, seeded_weights
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.device.cpu.cpu import InterpreterDevice
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.records import Progress, Reason, Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from tests.cases.workspace import CASES, import_file, load_case

FOLDER = CASES / "llama_1b" / "throughput"
WORKSPACE = FOLDER / "workspace"
EMULATION = Path(__file__).parent / "emulation"

SMALL = "LlamaShape(layers=2, hidden=64, heads=4, kv_heads=2, ffn=128, vocab=250, head_dim=16)"
SHAPE = LlamaShape(layers=2, hidden=256, heads=8, kv_heads=2, ffn=1024, vocab=272, head_dim=64)


def ignore(progress: Progress) -> None:
    pass


@pytest.fixture
def case(tmp_path: Path) -> Case:
    folder = tmp_path / "cases" / "llama_1b" / "throughput"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    source = (folder / "contract.py").read_text()
    small = re.sub(r"LlamaShape\(.*?\n    \)", SMALL, source, flags=re.DOTALL)
    (folder / "contract.py").write_text(f"{small}    audited_share = 1.0\n")
    return Case(folder)


@pytest.fixture
def judge(case: Case) -> Iterator[CaseJudge]:
    with closing(CaseJudge(case, choose_rung(trust_workspace=False), InterpreterDevice())) as one:
        yield one


def test_torch_is_right(case: Case, judge: CaseJudge) -> None:
    report = judge.gate(Side(tree=str(case.workspace)), ignore)
    assert report.passed, report.detail
    assert report.worst < 0.9


WRONG = {
    "the sequences share a cache": (
        "plain.py",
        "            keys[layer, :, :, :end],",
        "            keys[layer, :1, :, :end].expand_as(keys[layer, :, :, :end]),",
    ),
    "the last sequence is not read": (
        "kernel.py",
        "logits[:, step] = found",
        "logits[:-1, step] = found[:-1]",
    ),
    "a mask that is one position short": ("plain.py", ".tril(context)", ".tril(context - 1)"),
}


@pytest.mark.slow(13)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_ones_are_rejected(case: Case, judge: CaseJudge, name: str) -> None:
    file_name, *change = WRONG[name]
    file = case.workspace / file_name
    wrong = file.read_text().replace(*change)
    assert wrong != file.read_text()
    file.write_text(wrong)
    report = judge.gate(Side(tree=str(case.workspace)), ignore)
    assert report.reason in (Reason.WRONG_RESULT, Reason.OUTPUT_NOT_WRITTEN, Reason.RAISED), report


def test_suites_fit_the_contract() -> None:
    case, contract = load_case(FOLDER, TORCH_DTYPES)
    assert {p for suite in case.suites.values() for p in suite.problems} <= set(contract.problems)
    assert contract.work(contract.problems["decode_8"]).bytes / 16 == pytest.approx(2471e6, rel=0.1)


def test_knobs_and_policy_fit(case: Case) -> None:
    assert all(knob.doc for knob in case.knobs.values())
    check_policy(case.workspace, case.settings.policy)


@dataclass
class EmulatedKernels:
    """Those of decode.cu, compiled for the CPU: blocks run one after another, their threads are fibers."""

    library: ctypes.CDLL

    def launch(self, name: str, grid: tuple[int, int], arguments: list[int]) -> None:
        given = array("q", arguments + [0] * (12 - len(arguments)))
        kernel = ctypes.cast(getattr(self.library, name), ctypes.c_void_p)
        self.library.run_grid(kernel, *grid, 256, ctypes.c_void_p(given.buffer_info()[0]))


KNOBS = {"QKV_BLOCKS": 20, "GATE_BLOCKS": 33, "DOWN_BLOCKS": 24, "LOGITS_BLOCKS": 5, "QKV_BLOCKS_OF_MANY": 32}


@pytest.fixture
def cuda_decode(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setattr(sys, "path", [str(WORKSPACE), *sys.path])
    for name, value in KNOBS.items():
        monkeypatch.setenv(f"LLAMA_{name}", str(value))
    yield importlib.import_module("cuda_decode")
    for name in ("knobs", "cuda_decode", "plain"):
        sys.modules.pop(name, None)


def emulated(cuda_decode: ModuleType, folder: Path, replaced: tuple[str, str] = ("", "")) -> ModuleType:
    """The module, whose decoder runs its sources on the CPU, with something replaced in them."""
    before, after = replaced
    for file in WORKSPACE.glob("*.cu"):
        source = file.read_text(encoding="utf-8")
        (folder / file.name).write_text(source.replace(before, after) if before else source, encoding="utf-8")

    def built(macros: dict[str, int]) -> EmulatedKernels:
        defined = [f"-D{name}={value}" for name, value in macros.items()]
        options = ["-std=c++17", "-O2", "-w", "-shared", "-fPIC", "-fno-gnu-unique", "-DEMULATE"]
        options += [f"-I{EMULATION}", *defined]
        library = folder / f"decode{macros['EIGHTS']}.so"
        command = ["g++", *options, "-xc++", str(folder / "decode.cu"), "-o", str(library)]
        subprocess.run(command, check=True, timeout=60)
        return EmulatedKernels(ctypes.CDLL(str(library)))

    cuda_decode.CudaDecoder._compiled = lambda self, macros, *_: built(macros)
    cuda_decode.CudaDecoder._require_gpu = lambda self: None
    return cuda_decode


def relative_errors(cuda_decode: ModuleType, batch: int, context: int, made: int) -> tuple[float, float]:
    """Of the logits and of the cache, against float32 that reads the same tokens; tokens must be the best ones."""
    draw = torch.Generator().manual_seed(5)
    weights = seeded_weights(SHAPE, torch.bfloat16, draw)
    sizes = (SHAPE.layers, batch, SHAPE.kv_heads, context + made, SHAPE.head_dim)
    keys, values = (torch.randn(sizes, generator=draw).bfloat16() for _ in range(2))
    cache = Cache(keys.float(), values.float())
    prompt, shifts = (torch.randint(SHAPE.vocab, (batch, count), generator=draw) for count in (1, made))
    tokens, logits = torch.full((batch, made), -1), torch.full((batch, made, SHAPE.vocab), float("nan"))
    session = import_file(WORKSPACE / "kernel.py").Session(**weights)
    session(prompt, shifts, keys, values, tokens, logits, context=context)
    assert torch.equal(tokens, logits.argmax(2))
    read = torch.cat([prompt, ((tokens + shifts) % SHAPE.vocab)[:, :-1]], 1)
    exact = Llama.of(SHAPE, weights, torch.float32).logits(read, cache, context, made)
    pairs = ((logits, exact), (torch.stack([keys, values]).float(), torch.stack(cache)))
    first, second = (float((found - right).norm() / right.norm()) for found, right in pairs)
    return first, second


@pytest.mark.parametrize(
    ("batch", "context"), [(1, 0), (3, 70), (8, 9), (9, 70), (20, 5), (32, 130), (34, 20)]
)
def test_the_cuda_kernels_are_right(
    cuda_decode: ModuleType, tmp_path: Path, batch: int, context: int
) -> None:
    logits, cache = relative_errors(emulated(cuda_decode, tmp_path), batch, context, 2)
    assert logits < 0.015
    assert cache < 0.005


WRONG_CUDA = {
    "the last part of the columns is left out": ("split < SPLITS; ++split", "split < SPLITS - 1; ++split"),
    "the squares of the norms are not set to zero": ("i <= 2 * LAYERS", "i < 1"),
    "values are read from the first sequence": (
        "values + place + column",
        "values + place % (capacity * KV_HEADS * HEAD) + column",
    ),
    "no sync before sums are added": ("    __syncthreads();\n    const Place at;", "    const Place at;"),
    "a second tile has the first one's weights": ("goes_on ? tile + stride : tile", "tile"),
}


@pytest.mark.slow(6)
@pytest.mark.parametrize("name", WRONG_CUDA)
def test_wrong_cuda_kernels_are_seen(cuda_decode: ModuleType, tmp_path: Path, name: str) -> None:
    module = emulated(cuda_decode, tmp_path, WRONG_CUDA[name])
    originals = [
        (WORKSPACE / file.name).read_text(encoding="utf-8") for file in sorted(tmp_path.glob("*.cu"))
    ]
    assert originals != [file.read_text(encoding="utf-8") for file in sorted(tmp_path.glob("*.cu"))]
    logits, _ = relative_errors(module, 9, 40, 2)
    assert not logits < 0.015


def test_the_cuda_kernels_compile(cuda_decode: ModuleType) -> None:
    shapes = SHAPE.weight_shapes().items()
    weights = {name: torch.empty(size, dtype=torch.bfloat16, device="meta") for name, size in shapes}
    sizes = cuda_decode.Sizes({**weights, "frequencies": SHAPE.frequencies})
    assert cuda_decode.compiled(sizes.macros(2))
