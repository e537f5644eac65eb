"""Fresh inputs: other ones in every slot and every time, from a secret, with nothing else touched."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from hillclimb.harness.case.checked import load_contract
from hillclimb.harness.case.contract import Contract, Problem, Spec, Tensors, Work
from hillclimb.harness.channel.layout import CallSignature
from hillclimb.harness.duel import batches
from hillclimb.harness.duel.inputs import InputSource, call_signature
from hillclimb.harness.duel.process.arena import Arena
from hillclimb.harness.duel.secret_random import SecretRandom
from hillclimb.harness.errors import CaseError, OverrunError
from tests.fakes.cases import write_case


class Mixed(Contract):
    """Floats, whole numbers and flags; y is nothing in particular."""

    problems: ClassVar = {"one": {"n": 33}}
    distributions = ("normal", "large")

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        n, scale = problem["n"], 1e4 if distribution == "large" else 1.0
        return {
            "x": (scale * torch.randn(n, 2, generator=generator)).bfloat16(),
            "at": torch.randint(0, 10**12, (n,), generator=generator),
            "mask": torch.rand(n, generator=generator) < 0.5,
        }

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"y": Spec((problem["n"],), torch.float16), "count": Spec((3,), torch.int32)}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {
            "y": torch.zeros(problem["n"], dtype=torch.float64),
            "count": torch.zeros(3, dtype=torch.int64),
        }

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {
            "y": torch.zeros(problem["n"], dtype=torch.float16),
            "count": torch.zeros(3, dtype=torch.int32),
        }

    def work(self, problem: Problem) -> Work:
        return Work(1, 1)


def source(
    key: bytes = b"key", distribution: str = "normal", secret: random.Random | None = None
) -> InputSource:
    return InputSource(Mixed(), "one", distribution, secret or SecretRandom(key), "cpu")


@pytest.fixture
def arena() -> Iterator[Arena]:
    with source().arena(8) as made:
        yield made


def contents(arena: Arena, slots: range) -> list[bytes]:
    """All bytes of each slot, guards included."""
    stride = arena.layout.stride
    return [os.pread(arena.descriptor, stride, slot * stride) for slot in slots]


def drawn(arena: Arena, slot: int) -> Tensors:
    return {name: tensor.clone() for name, tensor in arena.inputs(slot).items()}


def same(one: Tensors, other: Tensors) -> bool:
    return list(one) == list(other) and all(torch.equal(one[name], other[name]) for name in one)


def test_every_slot_gets_inputs_of_its_own(arena: Arena) -> None:
    source().refresh(arena, range(8))
    for name in ("x", "at", "mask"):
        assert len({arena.inputs(slot)[name].view(torch.uint8).numpy().tobytes() for slot in range(8)}) == 8


def test_no_refresh_repeats_an_earlier_one(arena: Arena) -> None:
    feeding, seen = source(), set()
    for _ in range(5):
        feeding.refresh(arena, range(8))
        seen |= {arena.inputs(slot)["x"].view(torch.uint8).numpy().tobytes() for slot in range(8)}
    assert len(seen) == 40


def test_what_is_kept_is_what_lies_there_and_memory_of_the_judges_own(arena: Arena) -> None:
    kept = source().refresh(arena, range(2, 8), (3, 6))
    assert sorted(kept) == [3, 6]
    for slot, inputs in kept.items():
        assert same(inputs, arena.inputs(slot))
        before = {name: tensor.clone() for name, tensor in inputs.items()}
        for tensor in arena.inputs(slot).values():
            tensor.zero_()
        assert same(inputs, before)


def test_the_first_slot_of_a_range_can_be_kept_and_none_need_be(arena: Arena) -> None:
    assert list(source().refresh(arena, range(4, 8), [4])) == [4]
    assert source().refresh(arena, range(4, 8)) == {}


def test_nothing_else_is_touched(arena: Arena) -> None:
    source().refresh(arena, range(8))
    for slot in range(8):
        for tensor in arena.outputs(slot).values():
            tensor.fill_(1)
    before = contents(arena, range(8))
    source(b"other").refresh(arena, range(3, 5))
    after = contents(arena, range(8))
    assert [slot for slot in range(8) if before[slot] != after[slot]] == [3, 4]
    assert arena.has_intact_guards()


def test_outputs_are_poisoned_and_inputs_are_not(arena: Arena) -> None:
    source().refresh(arena, range(1, 4))
    counts = {(0, 0, 0)}
    for slot in range(1, 4):
        assert bool((arena.outputs(slot)["y"].view(torch.uint8) == 0xFF).all())
        counts.add(tuple(arena.outputs(slot)["count"].tolist()))
        assert bool(arena.inputs(slot)["x"].isfinite().all())
    assert len(counts) == 2, "whatever it is, it is not what was there"
    assert arena.first_unwritten_slot(range(1, 4)) == 1


def test_inputs_follow_from_the_secret_alone(arena: Arena) -> None:
    with source().arena(8) as other, source().arena(8) as third:
        source(b"same").refresh(arena, range(8))
        source(b"same").refresh(other, range(8))
        source(b"else").refresh(third, range(8))
        assert all(same(arena.inputs(slot), other.inputs(slot)) for slot in range(8))
        assert not any(same(arena.inputs(slot), third.inputs(slot)) for slot in range(8))


def test_nothing_but_the_secret_is_asked_for_chance(arena: Arena) -> None:
    torch.manual_seed(0)
    random.seed(0)
    source(b"same").refresh(arena, range(2))
    before = drawn(arena, 0), torch.rand(1).item(), random.random()
    torch.manual_seed(0)
    random.seed(0)
    source(b"other").refresh(arena, range(2))
    after = drawn(arena, 0), torch.rand(1).item(), random.random()
    assert before[1:] == after[1:], "the public generators were not drawn from"
    assert not same(before[0], after[0]), "nor do they decide anything"


def test_seeds_are_wide_and_never_the_same_again() -> None:
    feeding = source()
    seeds = {feeding.generator().initial_seed() for _ in range(1000)}
    assert len(seeds) == 1000
    assert max(seeds) > 1 << 61


def test_later_slots_get_what_one_generator_gives_next(arena: Arena) -> None:
    replace(source(b"k"), mixed_share=0.0).refresh(arena, range(8))
    secret = SecretRandom(b"k")
    secret.random()
    generator = source(secret=secret).generator()
    for slot in range(8):
        inputs = Mixed().inputs(Mixed.problems["one"], "normal", generator)
        assert same(inputs, arena.inputs(slot))


@pytest.mark.parametrize("distribution", ["normal", "offset", "tiny"])
def test_a_checked_contract_is_asked_the_quick_way_for_the_same(tmp_path: Path, distribution: str) -> None:
    contract = load_contract(write_case(tmp_path) / "contract.py")
    generators = [torch.Generator().manual_seed(5) for _ in range(2)]
    problem = contract.problems["odd"]
    for _ in range(3):
        checked = contract.inputs(problem, distribution, generators[0])
        assert same(checked, contract.more_inputs(problem, distribution, generators[1]))


class Huge(Mixed):
    """More than any machine holds."""

    problems: ClassVar = {"one": {"n": 10**13}}


class Sifted(Mixed):
    """Its shapes are known once it is drawn."""

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        x = torch.randn(problem["n"], generator=generator)
        return {"x": x[x > 0]}


def test_of_a_problem_that_is_not_run_nothing_is_drawn() -> None:
    arrays = call_signature(Huge(), "one", "cpu", is_run=False).arrays
    assert arrays == [
        ("x", (10**13, 2), "bfloat16"), ("at", (10**13,), "int64"), ("mask", (10**13,), "bool"),
        ("y", (10**13,), "float16"), ("count", (3,), "int32"),
    ]  # fmt: skip


@pytest.mark.parametrize("contract", [Mixed(), Sifted()], ids=["told without", "drawn"])
def test_it_is_the_same_signature_either_way(contract: Contract) -> None:
    run, not_run = (call_signature(contract, "one", "cpu", is_run=is_run) for is_run in (True, False))
    assert run == not_run


def test_distributions_are_told_apart(arena: Arena) -> None:
    source(distribution="large").refresh(arena, range(1))
    assert float(arena.inputs(0)["x"].float().abs().max()) > 1e3


def test_an_arena_has_the_problems_arrays_in_call_order_and_is_closed(arena: Arena) -> None:
    shapes = [("x", (33, 2), "bfloat16"), ("at", (33,), "int64"), ("mask", (33,), "bool")]
    shapes += [("y", (33,), "float16"), ("count", (3,), "int32")]
    assert call_signature(Mixed(), "one", "cpu") == CallSignature(shapes)
    laid = (*arena.layout.inputs, *arena.layout.outputs)
    assert [(array.name, array.shape, array.dtype) for array in laid] == shapes
    with source().arena(2) as passing:
        maps = Path("/proc/self/maps").read_text().count("/memfd:hillclimb-arena")
        assert passing.layout.slots == 2
    assert Path("/proc/self/maps").read_text().count("/memfd:hillclimb-arena") == maps - 1


class Stacked:
    """A batch of three calls, into the same memory every time."""

    count = 3

    def __init__(self) -> None:
        self._drawn: Tensors = {}

    def draw(self, seed: int) -> Tensors:
        generator = torch.Generator().manual_seed(seed)
        calls = [Mixed().inputs({"n": 33}, "normal", generator) for _ in range(self.count)]
        rows = {name: torch.stack([call[name] for call in calls]) for name in calls[0]}
        for name, tensor in rows.items():
            self._drawn.setdefault(name, tensor).copy_(tensor)
        return self._drawn


def batched(key: bytes = b"key") -> InputSource:
    return InputSource(Mixed(), "one", "normal", SecretRandom(key), "cpu", batch=Stacked())  # type: ignore[arg-type]


def test_in_batches_too_every_slot_gets_inputs_of_its_own(arena: Arena) -> None:
    """Where none are mixed: two that have a structure can be alike by chance."""
    seen = set()
    for _ in range(2):
        batched_bytes = replace(batched(os.urandom(8)), mixed_share=0.0).refresh(arena, range(8))
        assert batched_bytes == {}
        seen |= {arena.inputs(slot)["x"].view(torch.uint8).numpy().tobytes() for slot in range(8)}
    assert len(seen) == 16
    assert arena.has_intact_guards()
    assert arena.first_unwritten_slot(range(8)) == 0, "poisoned, all of them"


def test_of_a_batch_too_what_is_kept_is_what_lies_there_and_the_judges_own(arena: Arena) -> None:
    kept = batched().refresh(arena, range(8), (0, 2, 4, 7))
    assert list(kept) == [0, 2, 4, 7], "of the first batch, of the second, and of those drawn by themselves"
    for slot, inputs in kept.items():
        assert same(inputs, arena.inputs(slot))


def test_batches_touch_their_slots_alone_and_follow_from_the_secret(arena: Arena) -> None:
    with source().arena(8) as other:
        source().refresh(arena, range(8))
        before = contents(arena, range(8))
        batched(b"same").refresh(arena, range(1, 7))
        batched(b"same").refresh(other, range(1, 7))
        after = contents(arena, range(8))
        assert [slot for slot in range(8) if before[slot] != after[slot]] == [1, 2, 3, 4, 5, 6]
        assert all(same(arena.inputs(slot), other.inputs(slot)) for slot in range(1, 7))


def test_a_batch_is_used_only_where_it_draws_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "CALLS_PER_BATCH", Stacked.count)
    drawing = source().draw_unchecked
    assert batches.matches_single_draws(Stacked(), drawing, "cpu")  # type: ignore[arg-type]

    class Constant(Stacked):
        """As a graph whose contract chose by numbers of the host's."""

        def draw(self, seed: int) -> Tensors:
            return super().draw(1)

    class Short(Stacked):
        def draw(self, seed: int) -> Tensors:
            return {"x": super().draw(seed)["x"]}

    assert not batches.matches_single_draws(Constant(), drawing, "cpu")  # type: ignore[arg-type]
    assert not batches.matches_single_draws(Short(), drawing, "cpu")  # type: ignore[arg-type]


def test_strided_inputs_are_drawn_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "InputBatch", lambda draw, place: pytest.fail("it would lose their strides"))
    assert batches.capture_batch(lambda generator: {"x": torch.zeros(3, 4).T}, "cpu") is None


class InPlace(Mixed):
    """Strided, changed in place, and counted in part."""

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        return {"x": torch.randn(2, problem["n"], generator=generator).T, "s": torch.zeros(())}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        n = problem["n"]
        return {"y": Spec((n,), torch.float16), "x": Spec((n, 2), torch.float32, strides=(1, n))}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"y": torch.zeros(problem["n"]).double(), "x": inputs["x"].double()}

    def counted(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        return {"y": torch.zeros(problem["n"]) == 0}


@pytest.mark.parametrize("is_run", [True, False])
def test_a_signature_has_strides_and_every_operand_once(is_run: bool) -> None:
    arrays = call_signature(InPlace(), "one", "cpu", is_run=is_run).arrays
    assert arrays == [("x", (33, 2), "float32", (1, 33)), ("s", (), "float32"), ("y", (33,), "float16")]


def test_a_layout_says_what_is_changed_and_what_need_not_be_whole() -> None:
    changing = InputSource(InPlace(), "one", "normal", SecretRandom(b"k"), "cpu")
    layout = changing.layout(2)
    assert layout.results == ("y", "x")
    assert [array.name for array in layout.changed] == ["x"]
    assert layout.partial == ("y",)
    with changing.arena(2) as made:
        kept = changing.refresh(made, range(2), [1])[1]
        before = kept["x"].clone()
        made.outputs(1)["x"].zero_()
        assert torch.equal(kept["x"], before), "the judge's own"
        assert not made.inputs(1)["x"].any()
        changing.refresh(made, range(2))
        assert made.inputs(1)["x"].any(), "filled anew"


def test_on_a_cpu_calls_are_drawn_one_by_one() -> None:
    assert batches.InputBatches().get("one", "normal", source().draw_unchecked, "cpu") is None


class Sums(Mixed):
    """x has a domain; sums of one sign leave float16."""

    domains: ClassVar = {"x": (-6e4, 6e4)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        return {"x": 3e3 * torch.randn(problem["n"], generator=generator)}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"y": Spec((), torch.float16)}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"y": inputs["x"].double().sum()}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"y": inputs["x"].double().sum().half()}


class LargeSums(Sums):
    def work(self, problem: Problem) -> Work:
        return Work(1, 5 << 20)


def of_mixed_calls(contract: Contract, turn: int | None = None, count: int = 400) -> list[torch.Tensor]:
    """What some calls are handed of which all have mixed inputs."""
    drawing = InputSource(contract, "one", "normal", SecretRandom(b"k"), "cpu", mixed_share=1.0)
    found = []
    with drawing.arena(1) as room:
        for call in range(count):
            now = replace(drawing, structure_turn=None if turn is None else turn + call)
            found.append(now.refresh(room, range(1), (0,))[0]["x"])
    return found


def is_sorted(x: torch.Tensor) -> bool:
    return len(x.unique()) > 20 and (bool((x.diff() >= 0).all()) or bool((x.diff() <= 0).all()))


def test_some_mixed_inputs_have_a_structure_or_all_in_turn() -> None:
    by_chance, in_turn = (sum(map(is_sorted, of_mixed_calls(Sums(), turn))) for turn in (None, 5))
    assert 2 < by_chance < in_turn / 2
    assert in_turn > 20


def test_a_structure_that_the_contract_has_no_answer_to_is_not_drawn() -> None:
    sums = [float(x.double().sum()) for x in of_mixed_calls(Sums(), 0) if bool((x >= 0).all())]
    assert max(sums) < 65520, "it is infinite in float16"
    assert max(sums) > 1000, "smaller ones of one sign are drawn"


class Bins(Sums):
    """Of a sorted x the contract's own computation puts 0, 1 or 5 of 16 numbers into the next bin."""

    wrong = 0

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        return {"y": Spec((16,), torch.int32)}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"y": torch.zeros(16, dtype=torch.int64)}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        return {"y": (torch.arange(16) < self.wrong * is_sorted(inputs["x"])).int()}


@pytest.mark.parametrize(("wrong", "is_drawn"), [(0, True), (1, False), (5, False)])
def test_inputs_that_most_results_are_ties_for_are_not_drawn(wrong: int, is_drawn: bool) -> None:
    contract = Bins()
    contract.wrong = wrong
    assert any(map(is_sorted, of_mixed_calls(contract, 5, 200))) == is_drawn


def test_large_problems_have_no_structures() -> None:
    assert not any(map(is_sorted, of_mixed_calls(LargeSums())))
    assert not any(map(is_sorted, of_mixed_calls(LargeSums(), 0)))


class Slow(Sums):
    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        if is_sorted(inputs["x"]):
            raise OverrunError("contract.py", "Contract.reference", "has not ended", "end that loop")
        return super().reference(problem, inputs)


class Broken(Sums):
    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        if is_sorted(inputs["x"]):
            raise CaseError("contract.py", "Contract.reference", "holds NaN", "choose others")
        return super().reference(problem, inputs)


def test_a_contract_that_takes_too_long_is_told() -> None:
    with pytest.raises(OverrunError):
        of_mixed_calls(Slow(), 0)
    assert not any(map(is_sorted, of_mixed_calls(Broken(), 0)))


class TwoKinds(Sums):
    distributions = ("normal", "large")

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        scale = 1000.0 if distribution == "large" else 1.0
        return {name: scale * torch.rand(problem["n"], generator=generator) + scale for name in ("x", "z")}


def test_some_calls_have_two_distributions_and_no_two_the_same_inputs() -> None:
    drawing = InputSource(
        TwoKinds(), "one", "normal", SecretRandom(b"k"), "cpu", mixed_share=1.0, most_mixed=400
    )
    with drawing.arena(400) as room:
        drawing.refresh(room, range(400))
        found = [drawn(room, slot) for slot in range(400)]
    apart = [float(one["x"].min()) >= 1000 and float(one["z"].max()) <= 2 for one in found]
    assert sum(apart) > 4
    assert len({one["x"].numpy().tobytes() + one["z"].numpy().tobytes() for one in found}) == 400


class Pairs(TwoKinds):
    """Sums of x that are in order are right only where they rise."""

    domains: ClassVar = {"x": (-6e4, 6e4), "z": (-6e4, 6e4)}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        if bool(inputs["x"][0] > inputs["x"][-1]):
            raise CaseError("contract.py", "Contract.reference", "holds NaN", "choose others")
        return super().reference(problem, inputs)


def test_values_are_not_moved_where_the_contract_has_no_answer() -> None:
    drawing = InputSource(Pairs(), "one", "normal", SecretRandom(b"k"), "cpu")
    before = {"x": torch.arange(33.0), "z": torch.zeros(33)}
    with drawing.arena(1) as room:
        found = [drawing.turn(room, 0, before)["x"] for _ in range(40)]
    assert all(bool(x[0] <= x[-1]) for x in found)
    assert any(torch.equal(x, before["x"]) for x in found)
