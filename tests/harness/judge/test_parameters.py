"""Contracts with parameters: the judge's memory, the same for both sides and all calls, and other values each pair."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import torch

from hillclimb.harness.case.case import Case
from hillclimb.harness.device.cpu.cpu import CpuDevice, InterpreterDevice
from hillclimb.harness.device.device import Device
from hillclimb.harness.errors import CaseError
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.records import Progress, Reason, Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from tests.fakes.cases import write_workspace
from tests.fakes.weighted import CONTRACT, honest, write_weighted, write_weighted_for_gpu

Open = Callable[..., CaseJudge]


def ignore(progress: Progress) -> None:
    pass


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Open]:
    """Opens judges of a case, which are closed at the end."""
    with ExitStack() as stack:

        def open_judge(
            kernel: str | None = None,
            contract: str = CONTRACT,
            settings: str = "",
            device: Device | None = None,
        ) -> CaseJudge:
            write = write_weighted if device is None else write_weighted_for_gpu
            folder = write(tmp_path / "case", *([] if kernel is None else [kernel]))
            (folder / "contract.py").write_text(contract)
            with (folder / "case.yaml").open("a") as file:
                file.write(settings)
            judge = CaseJudge(Case(folder), choose_rung(trust_workspace=False), device or CpuDevice())
            stack.callback(judge.close)
            return judge

        yield open_judge


def side(tmp_path: Path, kernel: str, name: str = "side") -> Side:
    return Side(tree=str(write_workspace(tmp_path / name, kernel)))


def test_a_right_kernel_passes(opened: Open, tmp_path: Path) -> None:
    report = opened().gate(side(tmp_path, honest()), ignore)
    assert report.passed, report.detail


@pytest.mark.clock
def test_a_faster_one_is_kept_and_the_same_is_not(opened: Open, tmp_path: Path) -> None:
    judge = opened()
    fast, slow = side(tmp_path, honest(2), "fast"), side(tmp_path, honest(12), "slow")
    kept = judge.confirm(fast, slow, slow, 0.01, ignore)
    assert kept.reason is None and kept.speedup is not None and kept.speedup.estimate > 2
    screening = judge.screen(slow, fast, ignore)
    assert screening.speedup is not None and screening.speedup < 1


WRONG = {
    "does not use them": honest().replace("gain.copy()", "np.full_like(gain, 1.5)"),
    "uses one of them twice": honest().replace("offset.copy()", "gain.copy()"),
    "uses them in fewer bits": honest().replace("gain.copy()", "gain.astype(np.float16).astype(np.float32)"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_rejected(opened: Open, tmp_path: Path, name: str) -> None:
    report = opened().gate(side(tmp_path, WRONG[name]), ignore)
    assert report.reason == Reason.WRONG_RESULT


NO_KERNEL = {
    "raises": ("def run(gain, offset):\n    raise ValueError('no room')", "ValueError: no room"),
    "returns no function": ("def run(gain, offset):\n    return 3", "returned no function: 3"),
    "is the kernel itself": ("def run(x, y):\n    y[:] = x", "unexpected keyword argument 'gain'"),
}


@pytest.mark.parametrize("name", NO_KERNEL)
def test_an_entry_that_makes_no_kernel_does_not_load(opened: Open, tmp_path: Path, name: str) -> None:
    source, text = NO_KERNEL[name]
    report = opened().gate(side(tmp_path, source), ignore)
    assert report.reason == Reason.DOES_NOT_LOAD and text in report.detail


WRITES = {
    "as arrays": (honest().replace("rows, more", "gain[:] = 1\n    rows, more"), Reason.DOES_NOT_LOAD),
    "once their flag is set": (
        honest().replace("rows, more", "gain.flags.writeable = True\n    rows, more"),
        Reason.DOES_NOT_LOAD,
    ),
    "by their address": (
        "import ctypes\n"
        + honest().replace("rows, more", "ctypes.memset(gain.ctypes.data, 0, 4)\n    rows, more"),
        Reason.POLICY,
    ),
}


@pytest.mark.parametrize("name", WRITES)
def test_nobody_else_can_write_to_them(opened: Open, tmp_path: Path, name: str) -> None:
    source, reason = WRITES[name]
    assert opened().gate(side(tmp_path, source), ignore).reason == reason


def test_both_sides_of_a_pair_have_the_same_and_every_pair_others(opened: Open, tmp_path: Path) -> None:
    duels, one = opened()._duels, side(tmp_path, honest())
    seen = []
    for _ in range(2):
        with duels.spawn_pair(one, one) as sides:
            duels.prepare_pairs([sides], ignore)
            assert sides[0].parameters is sides[1].parameters
            assert sides[0].parameters is not None
            assert sides[0].loan is sides[1].loan is not None, "on the host nobody can spoil it"
            seen.append(sides[0].parameters.tensors["gain"].clone())
    assert not torch.equal(*seen)
    assert duels.launcher.parameters is not None
    assert not torch.equal(seen[0], duels.launcher.parameters.tensors["gain"])


def test_wrong_results_are_tried_on_the_contract(opened: Open) -> None:
    report = opened().check_oracle(ignore)
    assert report.tried and not report.accepted


FAULTS = {
    "that is drawn from elsewhere": (
        CONTRACT.replace("1 + torch.rand(WIDTH, **made)", "1 + torch.rand(WIDTH)"),
        "gives others for the same seed",
    ),
    "with an input's name": (
        CONTRACT.replace('"gain": 1', '"x": 1').replace('inputs["gain"]', 'inputs["x"]'),
        "names 'x', as one of the parameters is called",
    ),
    "with an output's name": (
        CONTRACT.replace('"gain": 1', '"y": 1').replace('inputs["gain"]', 'inputs["y"]'),
        "names 'y', as one of the parameters is called",
    ),
    "that no function can have": (
        CONTRACT.replace('"gain": 1', '"a gain": 1').replace('inputs["gain"]', 'inputs["a gain"]'),
        "names 'a gain', which no function can have",
    ),
    "of a dtype that NumPy lacks": (
        CONTRACT.replace("1 + torch.rand(WIDTH, **made)", "torch.rand(WIDTH, **made).bfloat16()"),
        "which a kernel cannot be handed here",
    ),
    "that is conjugated": (
        CONTRACT.replace("1 + torch.rand(WIDTH, **made)", "torch.ones(WIDTH, dtype=torch.complex64).conj()"),
        "as something else than a plain tensor",
    ),
    "that Python spells otherwise": (
        CONTRACT.replace('"gain": 1', '"\ufb01": 1').replace('inputs["gain"]', 'inputs["\ufb01"]'),
        "which no function can have",
    ),
    "of another shape by the seed": (
        CONTRACT.replace(
            "torch.randn(WIDTH, **made)}", "torch.randn(generator.initial_seed() % 100_003 + 1, **made)}"
        ),
        "where an earlier call says",
    ),
    "that is no tensor": (
        CONTRACT.replace("1 + torch.rand(WIDTH, **made)", "3"),
        "a dict of names to Tensors",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_contract_with_one_is_refused(opened: Open, name: str) -> None:
    contract, text = FAULTS[name]
    with pytest.raises(CaseError, match=text):
        opened(contract=contract)


def test_a_compiled_entry_is_refused(opened: Open, tmp_path: Path) -> None:
    folder = write_weighted(tmp_path / "case", "void run(void) {}")
    (folder / "workspace" / "kernel.py").rename(folder / "workspace" / "kernel.c")
    with (folder / "case.yaml").open("a") as file:
        file.write('entry: "kernel.c:run"\n')
    with pytest.raises(CaseError, match=r"is compiled, and Contract\.parameters gives some"):
        CaseJudge(Case(folder), choose_rung(trust_workspace=False), CpuDevice())


@pytest.mark.slow(12)
def test_kernels_of_a_gpu_are_interpreted_with_them(opened: Open, tmp_path: Path) -> None:
    judge = opened(device=InterpreterDevice())
    own = Side(tree=str(tmp_path / "case" / "cases" / "test" / "affine" / "workspace"))
    report = judge.gate(own, ignore)
    assert report.passed, report.detail
    ahead = judge._duels.launcher._precompiler.kernel_folder(own)
    assert list(ahead.rglob("*.cubin")), "it was compiled for the parameters' shapes"
    (lanes,) = judge.lanes(own, ignore, ["small"]).problems
    assert lanes.kernels and not lanes.detail
