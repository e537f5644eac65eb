"""Processes come dressed for their device, with what was compiled ahead for their side and for no other."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import pytest
import torch

from hillclimb.harness.case.case import Case
from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.channel.dtypes import TORCH_DTYPES
from hillclimb.harness.channel.layout import lay_out
from hillclimb.harness.device.cpu.cpu import CpuDevice, InterpreterDevice
from hillclimb.harness.device.device import Device
from hillclimb.harness.duel.inputs import call_signature
from hillclimb.harness.duel.process.arena import Arena
from hillclimb.harness.duel.process.candidate_process import CandidateProcess
from hillclimb.harness.duel.process.launcher import CandidateLauncher
from hillclimb.harness.errors import CandidateFault, UsageError
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.records import Progress, Reason, Side
from hillclimb.harness.sandbox.rungs.choose import Rung

ROOT = Path(__file__).resolve().parents[4]
sys.path.insert(0, str(ROOT / "scripts" / "experiments"))

import gpu_cases  # noqa: E402

SOFTMAX = gpu_cases.TAIL.format(extra=gpu_cases.NO_TAIL) + gpu_cases.SOFTMAX
TELLS = SOFTMAX.replace(
    "    rows, columns = x.shape\n",
    """    if not x.is_meta:
        return tell(y)
    rows, columns = x.shape
""",
)
TELLS += """

def tell(y):
    found = [f for _, _, names in os.walk(os.environ["TRITON_CACHE_DIR"]) for f in names]
    told = (sum(f.endswith(".cubin") for f in found), int(os.environ.get("ASKED", "0")), len(found))
    for i in range(3):
        y[0, i] = told[i]
"""
"""On the host, which has no GPU, it tells how many kernels it was given."""


INHERITS = TELLS.replace("softmax[(rows,)](", "return\n    softmax[(rows,)](")
"""Launches nothing itself: what it has, it has from another."""


class Card(InterpreterDevice):
    """A GPU by what is asked of it for a process; tensors lie on the host, and nothing is interpreted."""

    kind: Literal["cuda"] = "cuda"  # type: ignore[assignment]

    def variables(self) -> dict[str, str]:
        return {"ASKED": "7"}


class Bench:
    """The experiments' small case with eight rows, and sides of it."""

    def __init__(self, rung: Rung, folder: Path) -> None:
        self.rung, self.folder, self.opened = rung, folder, list[CandidateLauncher | CandidateProcess]()
        file = gpu_cases.write_case(folder, "small", 0.0025)
        settings = (file / "case.yaml").read_text()
        (file / "case.yaml").write_text(settings.replace("imports: [os,", "imports: [os, os.*,"))
        contract = (file / "contract.py").read_text()
        (file / "contract.py").write_text(contract.replace('"rows": 256', '"rows": 8'))
        self.case = Case(file)

    def stable(self, device: Device) -> CandidateLauncher:
        contract = load_contract(self.case.contract_file, dtypes=TORCH_DTYPES)
        signatures = {name: call_signature(contract, name, "cpu") for name in contract.problems}
        stable = CandidateLauncher(self.case, self.rung, device, signatures)
        self.opened.append(stable)
        return stable

    def side(self, source: str) -> Side:
        workspace = self.folder / f"side-{len(list(self.folder.iterdir()))}"
        workspace.mkdir()
        (workspace / "kernel.py").write_text(source)
        return Side(tree=str(workspace))

    def told(self, process: CandidateProcess) -> list[float]:
        """Kernels in its cache, what the device set in its environment, and files in the cache."""
        self.opened.append(process)
        process.await_loaded()
        shape = (8, 1024)
        arena = Arena(lay_out([("x", shape, "bfloat16")], [("y", shape, "bfloat16")], 1))
        arena.fill(0, {"x": torch.ones(shape)})
        process.call(arena, 0, 1)
        return arena.outputs(0)["y"][0, :3].tolist()


@pytest.fixture
def bench(rung: Rung, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    tmp_path.chmod(0o755)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    made = Bench(rung, tmp_path)
    yield made
    for opened in reversed(made.opened):
        opened.close()
    assert not list((tmp_path / "temporary").glob("hillclimb-locked-kernels-*"))


@pytest.mark.slow(3)
def test_a_process_finds_what_was_compiled_ahead_for_it(bench: Bench) -> None:
    stable, side = bench.stable(Card()), bench.side(TELLS)
    stable.precompile(side)
    kernels, asked, files = bench.told(stable.launch(side))
    assert (kernels, asked) == (1, 7)
    assert files > 5


@pytest.mark.slow(4)
def test_the_case_says_how_many_queues_a_context_gets(bench: Bench) -> None:
    stable = bench.stable(Card())
    side = bench.side(TELLS.replace('"ASKED"', '"CUDA_DEVICE_MAX_CONNECTIONS"'))
    knob = {"CUDA_DEVICE_MAX_CONNECTIONS": "32"}
    assert bench.told(stable.launch(side.model_copy(update={"knobs": knob})))[1] == 2


@pytest.mark.slow(3)
def test_it_is_compiled_for_where_nobody_prepared(bench: Bench) -> None:
    stable = bench.stable(Card())
    assert bench.told(stable.launch(bench.side(TELLS)))[0] == 1


def test_no_side_is_given_the_kernels_of_another(bench: Bench) -> None:
    stable, compiled = bench.stable(Card()), bench.side(TELLS)
    stable.compile(compiled)
    assert bench.told(stable.launch(bench.side(INHERITS)))[0] == 0
    assert bench.told(stable.launch(compiled))[0] == 1


@pytest.mark.slow(4)
def test_a_candidate_starts_from_its_parents_kernels_but_not_where_a_speedup_is_reported(
    bench: Bench,
) -> None:
    stable, parent, child = bench.stable(Card()), bench.side(TELLS), bench.side(INHERITS)
    stable.compile(parent)
    stable.precompile(child, parent)
    assert bench.told(stable.launch(child))[0] == 1
    assert bench.told(stable.launch(child, from_source=True))[0] == 0
    assert bench.told(stable.launch(parent, from_source=True))[0] == 1


def test_a_process_writes_to_a_copy_of_its_own(bench: Bench) -> None:
    spoils = TELLS.replace(
        "    for i in range(3):\n",
        """    for folder, _, names in os.walk(os.environ["TRITON_CACHE_DIR"]):
        for name in names:
            os.remove(os.path.join(folder, name))
    for i in range(3):
""",
    )
    stable, side = bench.stable(Card()), bench.side(spoils)
    assert [bench.told(stable.launch(side))[0] for _ in range(2)] == [1, 1]


@pytest.mark.parametrize("device", [CpuDevice, InterpreterDevice])
def test_without_a_gpu_nothing_is_prepared_or_handed_out(
    bench: Bench, device: type[CpuDevice], tmp_path: Path
) -> None:
    stable, side = bench.stable(device()), bench.side("raise RuntimeError('compiled')\n")
    stable.precompile(side)
    bench.opened.append(stable.launch(side))
    assert not list((tmp_path / "temporary").glob("hillclimb-locked-kernels-*"))


ASKED: dict[str, Callable[[CandidateLauncher, Side], object]] = {
    "a process": lambda stable, side: stable.launch(side),
    "a process from its source": lambda stable, side: stable.launch(side, from_source=True),
    "a compilation": lambda stable, side: stable.compile(side),
    "a process, prepared": lambda stable, side: (stable.precompile(side), stable.launch(side)),
}

ILL = {
    Reason.POLICY: ("import socket\n" + SOFTMAX, r"kernel.py:1: imports 'socket'"),
    Reason.DOES_NOT_LOAD: ("def run(x, y:\n", "SyntaxError"),
    Reason.DOES_NOT_COMPILE: (SOFTMAX.replace("tl.max(v, 0)", "tl.nothing(v)"), "no attribute 'nothing'"),
}


@pytest.mark.parametrize("reason", ILL)
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_what_is_wrong_with_a_source_comes_out_whenever_it_is_asked_for(
    bench: Bench, reason: Reason, ask: Callable[[CandidateLauncher, Side], object]
) -> None:
    source, says = ILL[reason]
    stable, side = bench.stable(Card()), bench.side(source)
    with pytest.raises(CandidateFault, match=says) as caught:
        ask(stable, side)
    assert caught.value.reason is reason


def test_preparing_what_is_wrong_says_nothing(bench: Bench) -> None:
    stable = bench.stable(Card())
    for source, _ in ILL.values():
        stable.precompile(bench.side(source))


def test_nobody_else_can_write_the_kernels_that_are_kept(bench: Bench, tmp_path: Path) -> None:
    bench.stable(Card()).compile(bench.side(SOFTMAX))
    (root,) = (tmp_path / "temporary").glob("hillclimb-locked-kernels-*")
    paths = [root, *root.rglob("*")]
    assert len(paths) > 5
    assert all(path.stat().st_mode & 0o022 == 0 and path.stat().st_uid == os.geteuid() for path in paths)


def ignore(progress: Progress) -> None:
    """Nobody watches."""


@pytest.mark.slow(3)
def test_without_a_gpu_a_gate_compiles_and_then_interprets(bench: Bench) -> None:
    judge = CaseJudge(bench.case, bench.rung, InterpreterDevice())
    try:
        honest = judge.gate(bench.side(SOFTMAX), ignore)
        assert honest.passed, honest.detail
        assert 0 < honest.worst <= 1
        bad = judge.gate(bench.side(SOFTMAX.replace("BLOCK=columns", "BLOCK=columns - 1")), ignore)
        assert bad.reason is Reason.DOES_NOT_COMPILE, "the interpreter alone would take it"
        with pytest.raises(UsageError, match="nothing can be timed"):
            judge.screen(bench.side(SOFTMAX), bench.side(SOFTMAX), ignore)
    finally:
        judge.close()
