"""The case llama_8b/single_stream without a GPU: a small model of its form, by torch alone and by CUDA on fibers."""

from __future__ import annotations

import ctypes
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
from typing import Any

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

FOLDER = CASES / "llama_8b" / "single_stream"
EMULATION = Path(__file__).parent / "emulation"

SIZES = {"layers": 2, "hidden": 128, "heads": 4, "kv_heads": 2, "ffn": 112, "vocab": 250, "head_dim": 128}
SHAPE = LlamaShape(**SIZES, tied=False)

PROBLEMS = """{
        "decode": {"batch": 1, "context": 9, "prompt": 1, "tokens": 3},
        "decode_2048": {"batch": 1, "context": 70, "prompt": 1, "tokens": 1},
        "prefill": {"batch": 1, "context": 0, "prompt": 12, "tokens": 1},
        "chat": {"batch": 1, "context": 0, "prompt": 5, "tokens": 2},
        "two": {"batch": 2, "context": 5, "prompt": 3, "tokens": 2},
    }"""


def ignore(progress: Progress) -> None:
    pass


@pytest.fixture
def case(tmp_path: Path) -> Case:
    folder = tmp_path / "cases" / "llama_8b" / "single_stream"
    shutil.copytree(FOLDER, folder, ignore=shutil.ignore_patterns("__pycache__"))
    source = (folder / "contract.py").read_text()
    source = re.sub(r"LlamaShape\(.*?\n    \)", repr(SHAPE), source, flags=re.DOTALL)
    problems = f"problems: ClassVar = {PROBLEMS}\n    audited_share = 1.0"
    source = re.sub(r"problems: ClassVar = \{.*\}", problems, source, flags=re.DOTALL)
    (folder / "contract.py").write_text(source)
    return Case(folder)


@pytest.fixture
def judge(case: Case) -> Iterator[CaseJudge]:
    with closing(CaseJudge(case, choose_rung(trust_workspace=False), InterpreterDevice())) as one:
        yield one


def test_torch_is_right_where_decode_cu_is_not_for_the_gpu(case: Case, judge: CaseJudge) -> None:
    report = judge.gate(Side(tree=str(case.workspace)), ignore)
    assert report.passed, report.detail
    assert report.worst < 0.9


WRONG = {
    "the head is the embedding": ('weights.get("lm_head", weights["embedding"])', 'weights["embedding"]'),
    "a mask that is one position short": (".tril(context)", ".tril(context - 1)"),
}


@pytest.mark.slow(12)
@pytest.mark.parametrize("name", WRONG)
def test_wrong_computations_are_rejected(case: Case, judge: CaseJudge, name: str) -> None:
    file = case.workspace / "plain.py"
    wrong = file.read_text().replace(*WRONG[name])
    assert wrong != file.read_text()
    file.write_text(wrong)
    report = judge.gate(Side(tree=str(case.workspace)), ignore)
    assert report.reason == Reason.WRONG_RESULT, report


def test_suites_knobs_and_policy_fit() -> None:
    case, contract = load_case(FOLDER, TORCH_DTYPES)
    assert {p for suite in case.suites.values() for p in suite.problems} <= set(contract.problems)
    assert all(knob.doc for knob in case.knobs.values())
    assert contract.work(contract.problems["decode"]).bytes / 64 == pytest.approx(15.0e9, rel=0.01)
    check_policy(case.workspace, case.settings.policy)


@dataclass
class EmulatedKernels:
    """Those of decode.cu, compiled for the CPU: blocks run one after another, their threads are fibers."""

    library: ctypes.CDLL

    def launch(self, name: str, grid: tuple[int, int], warps: int, arguments: list[int]) -> None:
        given = array("q", arguments + [0] * (12 - len(arguments)))
        kernel = ctypes.cast(getattr(self.library, name), ctypes.c_void_p)
        self.library.run_grid(kernel, *grid, 32 * warps, ctypes.c_void_p(given.buffer_info()[0]))


@pytest.fixture
def cuda_decode(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.setattr(sys, "path", [str(FOLDER / "workspace"), *sys.path])
    monkeypatch.setenv("LLAMA_SPLIT_POSITIONS", "64")
    yield import_file(FOLDER / "workspace" / "cuda_decode.py")
    for name in ("knobs", "plain"):
        sys.modules.pop(name, None)


def emulated(cuda_decode: ModuleType, folder: Path, replaced: tuple[str, str] = ("", "")) -> ModuleType:
    """The module, whose decoder runs its sources on the CPU, with something replaced in them."""
    before, after = replaced
    for name in ("decode.cu", "attend.cu"):
        source = (FOLDER / "workspace" / name).read_text(encoding="utf-8")
        (folder / name).write_text(source.replace(before, after) if before else source, encoding="utf-8")

    def built(sizes: Any) -> EmulatedKernels:
        defined = [f"-D{name}={value}" for name, value in sizes.macros().items()]
        options = ["-std=c++17", "-O2", "-w", "-shared", "-fPIC", "-DEMULATE", f"-I{EMULATION}", *defined]
        command = ["g++", *options, "-xc++", str(folder / "decode.cu"), "-o", str(folder / "decode.so")]
        subprocess.run(command, check=True, timeout=60)
        return EmulatedKernels(ctypes.CDLL(str(folder / "decode.so")))

    cuda_decode.CudaDecoder._loaded = lambda self, place: built(self._sizes)
    return cuda_decode


def relative_errors(cuda_decode: ModuleType, context: int, made: int) -> tuple[float, float]:
    """Of the logits and of the cache, against float32 that reads the same tokens; tokens must be the best ones."""
    draw = torch.Generator().manual_seed(5)
    weights = seeded_weights(SHAPE, torch.bfloat16, draw)
    sizes = (SHAPE.layers, 1, SHAPE.kv_heads, context + made, SHAPE.head_dim)
    keys, values = (torch.randn(sizes, generator=draw).bfloat16() for _ in range(2))
    cache = Cache(keys.float(), values.float())
    prompt, shifts = (torch.randint(SHAPE.vocab, (1, count), generator=draw) for count in (1, made))
    tokens, logits = torch.full((1, made), -1), torch.full((1, made, SHAPE.vocab), float("nan"))
    decoder = cuda_decode.CudaDecoder(weights)
    decoder.begin(prompt)
    for step in range(made):
        decoder.step(shifts, keys, values, tokens, logits, context + step, step)
    assert torch.equal(tokens, logits.argmax(2))
    read = torch.cat([prompt, ((tokens + shifts) % SHAPE.vocab)[:, :-1]], 1)
    exact = Llama.of(SHAPE, weights, torch.float32).logits(read, cache, context, made)
    pairs = ((logits, exact), (torch.stack([keys, values]).float(), torch.stack(cache)))
    first, second = (float((found - right).norm() / right.norm()) for found, right in pairs)
    return first, second


@pytest.mark.slow(20)
@pytest.mark.parametrize("context", [0, 70])
def test_the_cuda_kernels_are_right(cuda_decode: ModuleType, tmp_path: Path, context: int) -> None:
    logits, cache = relative_errors(emulated(cuda_decode, tmp_path), context, 2)
    assert logits < 0.01
    assert cache < 0.004


@pytest.mark.slow(20)
@pytest.mark.parametrize(("context", "count", "made"), [(9, 1, 3), (0, 5, 1), (3, 4, 3)])
def test_a_prompt_is_torchs_and_what_follows_is_the_kernels(
    cuda_decode: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    context: int,
    count: int,
    made: int,
) -> None:
    monkeypatch.setitem(sys.modules, "cuda_decode", emulated(cuda_decode, tmp_path))
    kernel = import_file(FOLDER / "workspace" / "kernel.py")
    draw = torch.Generator().manual_seed(7)
    weights = seeded_weights(SHAPE, torch.bfloat16, draw)
    given = torch.randn(
        SHAPE.layers, 1, SHAPE.kv_heads, context + count + made - 1, SHAPE.head_dim, generator=draw
    )
    prompt, shifts = (torch.randint(SHAPE.vocab, (1, n), generator=draw) for n in (count, made))
    found = []
    for has_decoder in (True, False):
        session = kernel.Session(**weights)
        assert isinstance(session._decoder, cuda_decode.CudaDecoder)
        session._decoder = session._decoder if has_decoder else None
        tokens, logits = torch.full((1, made), -1), torch.full((1, made, SHAPE.vocab), float("nan"))
        session(prompt, shifts, given.bfloat16(), given.bfloat16(), tokens, logits, context=context)
        found.append((tokens, logits))
    (mine, told), (torchs, right) = found
    assert torch.equal(mine, torchs)
    assert float((told - right).norm() / right.norm()) < 0.05


WRONG_CUDA = {
    "no sync before sums are added": (
        "    __syncthreads();\n  }\n  DEVICE float operator",
        "  }\n  DEVICE float operator",
    ),
    "a part of the positions is left out": (".join(splits, thread)", ".join(splits - 1, thread)"),
    "the new key is not turned": ("if (is_query || is_key) {", "if (is_query) {"),
}


@pytest.mark.slow(20)
@pytest.mark.parametrize("name", WRONG_CUDA)
def test_wrong_cuda_kernels_are_seen(cuda_decode: ModuleType, tmp_path: Path, name: str) -> None:
    module = emulated(cuda_decode, tmp_path, WRONG_CUDA[name])
    assert WRONG_CUDA[name][1] in (tmp_path / "decode.cu").read_text() + (tmp_path / "attend.cu").read_text()
    logits, _ = relative_errors(module, 70, 1)
    assert not logits < 0.01


def test_the_cuda_kernels_compile(cuda_decode: ModuleType) -> None:
    shapes = SHAPE.weight_shapes().items()
    weights = {name: torch.empty(size, dtype=torch.bfloat16, device="meta") for name, size in shapes}
    assert cuda_decode.compiled(cuda_decode.Sizes({**weights, "frequencies": SHAPE.frequencies}))
