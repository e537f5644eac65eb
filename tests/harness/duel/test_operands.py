"""Operands of every kind before a real gate: right kernels pass it, and each slip has its name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from hillclimb.harness.candidate.slots import numpy_slots, torch_slots
from hillclimb.harness.case.case import Case
from hillclimb.harness.case.contract import Tensors
from hillclimb.harness.channel.layout import lay_out
from hillclimb.harness.device.cpu.cpu import CpuDevice
from hillclimb.harness.duel.process.arena import Arena, first_poisoned, shapes_of
from hillclimb.harness.errors import MachineError
from hillclimb.harness.judge.judge import CaseJudge
from hillclimb.harness.records import GateReport, Side
from hillclimb.harness.sandbox.rungs.choose import choose_rung
from tests.fakes.cases import write_case, write_workspace
from tests.selection.one_of_each import one_of_each

HEAD = """
import torch
from hillclimb.harness.case.contract import Contract as Base, Spec, Work

class Contract(Base):
    distributions = ("normal", "large")
    def attainable(self, problem, inputs):
        kinds = {name: spec.dtype for name, spec in self.outputs(problem).items()}
        return {name: value.to(kinds[name]) for name, value in self.reference(problem, inputs).items()}
    def work(self, problem):
        return Work(flops=1, bytes=8)
"""

STRIDED = """
    problems = {"timed": {"n": 7}, "one": {"n": 1}}
    def inputs(self, problem, distribution, generator):
        p = torch.randn(4, 5, problem["n"], generator=generator).permute(2, 0, 1)
        c = torch.randn(problem["n"], 32, generator=generator)[:, 3:9]
        s = torch.randint(1, 9, (), generator=generator)
        return {"p": p, "c": c, "s": s}
    def outputs(self, problem):
        n = problem["n"]
        return {
            "y": Spec((n, 4), torch.float32, strides=(1, n)),
            "z": Spec((n,), torch.float32),
            "most": Spec((), torch.int64),
        }
    def reference(self, problem, inputs):
        c = inputs["c"].double()
        return {
            "y": inputs["p"].double().sum(2) * inputs["s"].double(),
            "z": c.sum(1),
            "most": c.sum(1).argmax(),
        }
    def scale(self, problem, inputs, reference):
        return {name: torch.full_like(value.double(), 100.0) for name, value in reference.items()}
"""

STRIDED_KERNEL = """
def run(p, c, s, y, z, most):
    n = len(z)
    assert s.shape == most.shape == () and s.dtype == most.dtype == "int64"
    if n > 1:
        assert p.strides == (4, 20 * n, 4 * n) and c.strides == (128, 4) and y.strides == (4, 4 * n)
    y[...] = p.sum(2) * s
    z[...] = c.sum(1)
    most[...] = z.argmax()
    CHEAT
"""

IN_PLACE = """
    problems = {"timed": {"rows": 5}, "one": {"rows": 1}}
    def inputs(self, problem, distribution, generator):
        rows = problem["rows"]
        return {
            "acc": torch.randn(9, 16, generator=generator),
            "at": torch.randperm(9, generator=generator)[:rows],
            "delta": torch.rand(rows, 16, generator=generator) + 1,
            "turn": torch.randint(0, 4, (), generator=generator, dtype=torch.int32),
        }
    def outputs(self, problem):
        return {
            "most": Spec((), torch.float32),
            "acc": Spec((9, 16), torch.float32),
            "turn": Spec((), torch.int32),
        }
    def reference(self, problem, inputs):
        acc = inputs["acc"].double().clone()
        acc[inputs["at"]] += inputs["delta"]
        return {"most": acc.max(), "acc": acc, "turn": inputs["turn"].long() + 1}
"""

IN_PLACE_KERNEL = """
TURNS = "abcd"
def run(acc, at, delta, turn, most):
    TURNS[turn]  # raises where a call is handed what an earlier one made
    acc[at] += delta
    most[...] = acc.max()
    turn += 1
    CHEAT
"""

EMPTY = """
    problems = {"timed": {"n": 33}, "none": {"n": 0}}
    def inputs(self, problem, distribution, generator):
        return {"x": torch.randn(problem["n"], 3, generator=generator), "unused": torch.zeros(0, 5)}
    def outputs(self, problem):
        return {"y": Spec((problem["n"],), torch.float32), "rest": Spec((3, 0), torch.int32)}
    def reference(self, problem, inputs):
        return {"y": inputs["x"].double().sum(1), "rest": torch.zeros(3, 0, dtype=torch.int64)}
    def work(self, problem):
        return Work(flops=problem["n"], bytes=16 * problem["n"])
"""

EMPTY_KERNEL = """
def run(x, unused, y, rest):
    assert unused.shape == (0, 5) and rest.shape == (3, 0)
    y[...] = x.sum(1)
    CHEAT
"""

MASKED = """
    problems = {"timed": {"n": 400}, "odd": {"n": 13}}
    def inputs(self, problem, distribution, generator):
        return {"x": torch.randn(problem["n"], generator=generator)}
    def outputs(self, problem):
        n = problem["n"]
        return {"kept": Spec((n,), torch.float32), "at": Spec((n,), torch.int64), "count": Spec((1,), torch.int32)}
    def reference(self, problem, inputs):
        x = inputs["x"]
        at = (x > 0).nonzero().flatten()
        pad = (0, len(x) - len(at))
        kept = torch.nn.functional.pad(x[at].double(), pad)
        return {"kept": kept, "at": torch.nn.functional.pad(at, pad), "count": torch.tensor([len(at)])}
    def counted(self, problem, inputs, reference):
        mask = torch.arange(problem["n"]) < reference["count"]
        return {"kept": mask, "at": mask}
"""

MASKED_KERNEL = """
def run(x, kept, at, count):
    found = np.nonzero(x > 0)[0]
    n = len(found)
    kept[:n], at[:n], count[0] = x[found], found, n
    CHEAT
"""

MASKED_IN_PLACE = """
    problems = {"timed": {"n": 24}}
    def inputs(self, problem, distribution, generator):
        return {"x": torch.randn(6, 8, generator=generator)[:, 1:5], "b": torch.ones(4)}
    def outputs(self, problem):
        return {"x": Spec((6, 4), torch.float32, strides=(8, 1))}
    def reference(self, problem, inputs):
        return {"x": 2 * inputs["x"].double()}
    def counted(self, problem, inputs, reference):
        return {"x": (torch.arange(6) < 3)[:, None].expand(6, 4)}
"""

MASKED_IN_PLACE_KERNEL = """
def run(x, b):
    x[:3] *= 2
    CHEAT
"""

KINDS = {
    "strided": (STRIDED, STRIDED_KERNEL),
    "in_place": (IN_PLACE, IN_PLACE_KERNEL),
    "empty": (EMPTY, EMPTY_KERNEL),
    "masked": (MASKED, MASKED_KERNEL),
    "masked_in_place": (MASKED_IN_PLACE, MASKED_IN_PLACE_KERNEL),
}


class Bench:
    """A judge over a case of one kind, and its kernel with one more line or other ones."""

    def __init__(self, root: Path, kind: str, more: str = "") -> None:
        root.chmod(0o755)
        contract, self.kernel = KINDS[kind]
        self.root, self.made = root, 0
        folder = write_case(root, "import numpy as np\n" + self.kernel.replace("CHEAT", "pass"))
        (folder / "contract.py").write_text(HEAD + contract + more)
        self.judge = CaseJudge(Case(folder), choose_rung(trust_workspace=False), CpuDevice())

    def side(self, cheat: str = "pass", **other: str) -> Side:
        kernel = self.kernel
        for old, new in other.items():
            kernel = kernel.replace(old, new)
        self.made += 1
        workspace = self.root / str(self.made) / "workspace"
        return Side(
            tree=str(write_workspace(workspace, "import numpy as np\n" + kernel.replace("CHEAT", cheat)))
        )

    def gate(self, cheat: str = "pass") -> GateReport:
        return self.judge.gate(self.side(cheat), lambda progress: None)


@pytest.fixture(scope="module")
def benches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Bench]]:
    made = {kind: Bench(tmp_path_factory.mktemp(kind), kind) for kind in KINDS}
    for folder in {bench.root.parent for bench in made.values()}:
        folder.chmod(0o755)
    yield made
    for bench in made.values():
        bench.judge.close()


@pytest.mark.slow(8)
@pytest.mark.parametrize("kind", KINDS)
def test_a_right_kernel_passes_and_can_be_timed(benches: dict[str, Bench], kind: str) -> None:
    report = benches[kind].gate()
    assert report.passed, report.detail
    side = benches[kind].side()
    compared = benches[kind].judge.compare(side, side, "noise", lambda progress: None)
    assert compared.seconds_per_call[0] > 0


@pytest.mark.parametrize(
    ("kind", "cheat", "reason", "detail"),
    one_of_each([
        ("strided", "p[0, 3, 4] += 1", "inputs_changed", ""),
        ("strided", "c[0, 5] = 0", "inputs_changed", ""),
        ("strided", "s[...] = 0", "inputs_changed", ""),
        ("strided", "y[-1, -1] = np.nan", "not_finite", "'y'"),
        ("strided", "y[...] = y.ravel('K').reshape(y.shape)", "wrong_result", "'y'["),
        ("strided", "most[...] = (most + 1) % 1000", "wrong_result", "output 'most' is"),
        ("strided", "z.view('int32')[0] = -1", "output_not_written", ""),
        ("strided", "y.T.view('int32')[-1, -1] = -1", "output_not_written", ""),
        ("in_place", "acc[at] -= delta", "wrong_result", "'acc'["),
        ("in_place", "turn -= 1", "wrong_result", "output 'turn' is"),
        ("in_place", "delta[-1, -1] += 1", "inputs_changed", ""),
        ("in_place", "at[0] = 0 if at[0] else 1", "inputs_changed", ""),
        ("in_place", "acc[-1] = acc[0]", "wrong_result", "'acc'["),
        ("in_place", "acc[0, 0] = np.nan", "not_finite", "'acc'"),
        ("in_place", "most.view('int32')[...] = -1", "output_not_written", ""),
        ("empty", "y[:1] = 1e9", "wrong_result", "'y'[0]"),
        ("empty", "x[:1] = 0", "inputs_changed", ""),
        ("empty", "y.view('int32')[:1] = -1", "output_not_written", ""),
        ("masked", "kept[n:] = np.nan; at[n:] = -5", "", ""),
        ("masked", "kept[n:] = np.inf", "", ""),
        ("masked", "kept[n - 1] = np.nan", "not_finite", "'kept'"),
        ("masked", "kept.view('int32')[n - 1] = -1", "output_not_written", "'kept' that count"),
        ("masked", "kept[0] += 1", "wrong_result", "'kept'[0]"),
        ("masked", "at[n - 1] += 1", "wrong_result", "'at'["),
        ("masked", "count[0] -= 1", "wrong_result", "'count'[0]"),
        ("masked", "x[0] = 0", "inputs_changed", ""),
        ("masked_in_place", "x[3:] = np.nan", "", ""),
        ("masked_in_place", "x[2, 3] += 1", "wrong_result", "'x'[2, 3]"),
        ("masked_in_place", "x[:3] /= 2", "wrong_result", "of 12 elements"),
        ("masked_in_place", "b[0] = 2", "inputs_changed", ""),
    ], 1, alike=lambda slip: (slip[0], slip[2])),
)  # fmt: skip
def test_each_slip_has_its_name(
    benches: dict[str, Bench], kind: str, cheat: str, reason: str, detail: str
) -> None:
    report = benches[kind].gate(cheat)
    assert (report.reason or "") == reason, report.detail
    assert detail in report.detail


def test_a_kernel_that_leaves_its_operand_as_it_was_is_wrong(benches: dict[str, Bench]) -> None:
    bench = benches["masked_in_place"]
    report = bench.judge.gate(bench.side(**{"x[:3] *= 2": "pass"}), lambda progress: None)
    assert report.reason == "wrong_result"


def test_without_a_mask_everything_must_be_written(tmp_path: Path) -> None:
    whole = "    def counted(self, problem, inputs, reference):\n        return None\n"
    report = Bench(tmp_path, "masked", whole).gate()
    assert report.reason == "output_not_written"


SKIPS_LATER = """calls.append(1)
    if len(calls) > 8 and len(calls) % 2:
        return
    """


@pytest.mark.parametrize(
    ("kind", "line"),
    [("in_place", "TURNS[turn]"), ("masked_in_place", "x[:3] *= 2"), ("masked", "found = np")],
)
def test_calls_left_out_while_timed_are_seen(benches: dict[str, Bench], kind: str, line: str) -> None:
    bench = benches[kind]
    honest = bench.side()
    skips = bench.side(**{line: SKIPS_LATER + line, "\ndef run": "\ncalls = []\ndef run"})
    with pytest.raises(MachineError, match="failed while it was compared"):
        bench.judge.compare(honest, skips, "noise", lambda progress: None)


def arena_of(inputs: Tensors, outputs: Tensors, slots: int = 3, partial: tuple[str, ...] = ()) -> Arena:
    return Arena(lay_out(shapes_of(inputs), shapes_of(outputs), slots, None, partial))


STRIDED_INPUTS = {
    "p": torch.arange(60.0).reshape(3, 4, 5).permute(2, 0, 1),
    "c": torch.arange(64).reshape(8, 8)[1:6, ::3],
    "s": torch.tensor(2.5, dtype=torch.float64),
    "e": torch.zeros(4, 0, dtype=torch.bool),
}
STRIDED_OUTPUTS = {"y": torch.zeros(4, 6).T, "n": torch.zeros((), dtype=torch.int32), "f": torch.zeros(0)}


def test_both_sides_see_the_same_elements_at_the_same_strides() -> None:
    arena = arena_of(STRIDED_INPUTS, STRIDED_OUTPUTS)
    arena.fill(1, STRIDED_INPUTS)
    for views in (numpy_slots, torch_slots):
        theirs = views(os.dup(arena.descriptor), arena.layout).arguments[1]
        for ours, array in zip(STRIDED_INPUTS.values(), theirs, strict=False):
            width = 1 if isinstance(array, torch.Tensor) else ours.itemsize
            told = array.stride() if isinstance(array, torch.Tensor) else array.strides
            assert array.tolist() == ours.tolist()
            assert tuple(array.shape) == tuple(ours.shape)
            assert not ours.numel() or tuple(told) == tuple(width * step for step in ours.stride())
        y, n, f = theirs[4:]
        y[...], n[...] = torch.arange(24.0).reshape(6, 4), 7
        assert tuple(f.shape) == (0,)
        found = arena.outputs(1)
        assert found["y"].stride() == (1, 6)
        assert found["y"].tolist() == torch.arange(24.0).reshape(6, 4).tolist()
        assert int(found["n"]) == 7
        arena.poison(range(3))
    assert arena.has_intact_guards()


def test_poison_is_seen_in_strided_outputs_and_not_in_those_that_need_not_be_whole() -> None:
    outputs = {**STRIDED_OUTPUTS, "m": torch.zeros(5)}
    arena = arena_of(STRIDED_INPUTS, outputs, partial=("m",))
    arena.poison(range(3))
    for slot in range(3):
        arena.outputs(slot)["y"].fill_(1.0)
    assert arena.first_unwritten_slot(range(3)) is None
    assert first_poisoned(arena.words(range(3), 0.5)) is None
    assert len(arena.words(range(3), 0.5)) == 3, "of all but the empty one: to read is to wait"
    arena.poison(range(1, 2))
    arena.outputs(1)["y"].T[:3].fill_(1.0)
    assert arena.first_unwritten_slot(range(3)) == 1
    assert first_poisoned(arena.words(range(3), 0.99)) == 1


def test_what_is_changed_in_place_is_an_output_that_is_not_poisoned() -> None:
    inputs = {"a": torch.arange(12.0).reshape(3, 4).T, "x": torch.ones(2)}
    outputs = {"y": torch.zeros(3), "a": inputs["a"]}
    arena = arena_of(inputs, outputs)
    arena.fill(0, inputs)
    arena.poison(range(3))
    assert list(arena.outputs(0)) == ["y", "a"]
    assert torch.equal(arena.outputs(0)["a"], inputs["a"])
    assert len(numpy_slots(os.dup(arena.descriptor), arena.layout).arguments[0]) == 3
    kept = arena.keep_changed(range(1))
    arena.inputs(0)["a"].zero_()
    arena.restore_changed(range(1), kept)
    assert torch.equal(arena.inputs(0)["a"], inputs["a"])
    arena.outputs(0)["y"].fill_(1)
    arena.inputs(0)["a"].view(torch.int32).fill_(-1)
    assert arena.first_unwritten_slot(range(1)) is None
    assert first_poisoned(arena.words(range(1), 0.5)) is None


def test_many_calls_at_once_are_filled_whatever_their_sizes() -> None:
    rows = {"s": torch.arange(3.0), "e": torch.zeros(3, 0, 2), "x": torch.arange(12).reshape(3, 2, 2)}
    arena = arena_of({name: row[0] for name, row in rows.items()}, {"y": torch.zeros(())})
    arena.fill_all(range(3), rows)
    for slot in range(3):
        assert all(torch.equal(arena.inputs(slot)[name], row[slot]) for name, row in rows.items())
