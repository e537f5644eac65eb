"""Each kind of wrong result: a contract that accepts it, and one that rejects it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from hillclimb.harness.case.contract import Problem, Tensors
from hillclimb.harness.judge.contract_mutants import LISTED, ContractMutants
from hillclimb.harness.judge.mutants.spoiled_inputs import OTHERS
from hillclimb.harness.judge.mutants.tally import MutantTally
from tests.harness.judge.mutants.made import Made, everywhere, normal, nowhere, survivors, tried

Draw = Callable[[Problem, str, torch.Generator], Tensors]
Lenient = Callable[[Tensors, torch.Tensor], torch.Tensor]


def beyond(size: float) -> Lenient:
    """Elements far from the mean of the input."""
    return lambda inputs, reference: (inputs["x"] - inputs["x"].mean()).abs() > size


def most_extreme(inputs: Tensors, reference: torch.Tensor) -> torch.Tensor:
    """A few of the smallest and of the largest elements."""
    x, few = inputs["x"].flatten(), max(1, inputs["x"].numel() // 400)
    low, high = x.kthvalue(few).values, x.kthvalue(len(x) - few + 1).values
    return (inputs["x"] <= low) | (inputs["x"] >= high)


def last_rows(inputs: Tensors, reference: torch.Tensor) -> torch.Tensor:
    return (torch.arange(len(reference)) >= len(reference) // 2)[:, None].expand(reference.shape)


def last_row(inputs: Tensors, reference: torch.Tensor) -> torch.Tensor:
    return (torch.arange(len(reference)) == len(reference) - 1)[:, None].expand(reference.shape)


CLAMPED_SAMPLE = "x cut off to the range of 16 of its elements"
CLAMPED_RARE = "x cut off to the range of its central 99.9 %"
HALF, END = "the second half of x left out along dimension 0", "the end of x left out along dimension 0"

FLOATS = [
    (beyond(0.5), {CLAMPED_SAMPLE, CLAMPED_RARE}),
    (most_extreme, {CLAMPED_RARE}),
    (last_rows, {HALF, END}),
    (last_row, {END}),
]


@pytest.mark.parametrize(("lenient", "accepted"), FLOATS)
def test_what_a_contract_does_not_look_at_survives_and_nothing_else(
    lenient: Lenient, accepted: set[str]
) -> None:
    assert set(survivors(Made(lenient=lenient))) == accepted
    assert survivors(Made(lenient=nowhere)) == {}


def test_where_everything_passes_everything_survives() -> None:
    report = tried(Made(lenient=everywhere), timed=("wide",), narrow=True)
    assert report.tried == len(report.accepted)
    assert {slip.mistake for slip in report.accepted} == {
        "y rolled by one along dimension 0",
        "y rolled by one along dimension 1",
        "y all zeros",
        "y its mean everywhere",
        "y a copy of x",
        OTHERS,
        END,
        HALF,
        "the end of x left out along dimension 1",
        "the second half of x left out along dimension 1",
        CLAMPED_SAMPLE,
        CLAMPED_RARE,
        "inputs in fewer bits in problem wide",
        LISTED,
    }


@pytest.mark.parametrize(
    ("made", "name"),
    [
        (Made(lambda inputs: {"y": 1e-9 * inputs["x"]}), "y all zeros"),
        (Made(lambda inputs: {"y": 5 + 1e-7 * inputs["x"]}), "y its mean everywhere"),
        (Made(lambda inputs: {"y": inputs["x"] * (1 + 2e-7)}), "y a copy of x"),
        (Made(lambda inputs: {"y": 5 + 1e-7 * inputs["x"]}), "y rolled by one along dimension 1"),
        (Made(lambda inputs: {"y": 5 + 1e-7 * inputs["x"]}), OTHERS),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_constants_and_copies_survive_where_outputs_are_next_to_them(made: Made, name: str) -> None:
    assert 0 < survivors(made)[name].share <= 1
    assert name not in survivors(Made(lambda inputs: {"y": 2 * inputs["x"]}))


def test_listed_sizes_survive_unless_one_that_is_not_listed_is_tried() -> None:
    made = Made()
    assert [slip.mistake for slip in tried(made).accepted] == [LISTED]
    assert [
        slip.mistake for slip in tried(replace(made, neighbours=list(made.problems.values()))).accepted
    ] == [LISTED]
    report = tried(replace(made, neighbours=[{"rows": 6, "columns": 8}]))
    assert report.accepted == ()
    assert report.is_varied


def rounded(inputs: Tensors) -> Tensors:
    return {"y": (inputs["x"] * 20).round().clamp(-128, 127)}


@pytest.mark.parametrize(
    ("dtype", "specified", "is_accepted"),
    [
        (torch.int8, {}, False),
        (torch.int8, {"may_differ": 0.5}, True),
        (torch.int16, {"may_differ": 0.5}, True),
        (torch.int32, {"may_differ": 0.01}, False),
    ],
)
def test_cut_off_instead_of_rounded(
    dtype: torch.dtype, specified: dict[str, float], is_accepted: bool
) -> None:
    found = survivors(Made(rounded, dtype=dtype, specified=specified))
    assert ("half of y one lower" in found) == is_accepted


@pytest.mark.parametrize(
    ("dtype", "specified"), [(torch.float32, {}), (torch.int32, {}), (torch.int32, {"may_differ": 0.0})]
)
def test_what_is_not_rounded_is_not_cut_off(dtype: torch.dtype, specified: dict[str, float]) -> None:
    tally = MutantTally()
    ContractMutants(Made(rounded, dtype=dtype, specified=specified), 4.0, "cpu").try_all("small", tally)
    assert "y all zeros" in tally.nearest
    assert "half of y one lower" not in tally.nearest


def indexed(problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
    index = torch.randint(problem["rows"], (9,), generator=generator, dtype=torch.int32)
    return {**normal(problem, distribution, generator), "index": index}


def gathered(unit: float) -> Callable[[Tensors], Tensors]:
    return lambda inputs: {"y": 1 + unit * inputs["x"][inputs["index"].long()]}


def test_an_index_off_by_one_survives_where_all_rows_are_alike() -> None:
    name = "index off by one, as an index"
    assert name in survivors(Made(gathered(1e-7), draw=indexed))
    assert survivors(Made(gathered(1.0), draw=indexed)) == {}


def test_an_index_that_the_contract_refuses_is_not_tried() -> None:
    def careful(inputs: Tensors) -> Tensors:
        if int(inputs["index"].sum()) % 2:
            raise ValueError("an odd one")
        return {"y": inputs["x"]}

    def even(problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        return {**normal(problem, distribution, generator), "index": torch.tensor([0, 0, 0, 6])}

    plain = tried(Made(lambda inputs: {"y": inputs["x"]}))
    report = tried(Made(careful, draw=even))
    assert report.tried == plain.tried
    assert report.accepted == plain.accepted


def added(inputs: Tensors) -> Tensors:
    return {"y": inputs["x"] + inputs["y"]}


def with_sum(problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
    x, y = (normal(problem, distribution, generator)["x"] for _ in range(2))
    return {"x": x, "y": y}


@pytest.mark.parametrize(
    ("lenient", "accepted"),
    [(nowhere, set()), (last_row, {"the last slice of y left as it was"})],
)
def test_a_stale_part_survives_where_it_is_not_looked_at(lenient: Lenient, accepted: set[str]) -> None:
    found = survivors(Made(added, lenient=lenient, draw=with_sum))
    assert {name for name in found if "as it was" in name} == accepted


def test_an_argument_left_as_it_was_survives_where_everything_does() -> None:
    found = survivors(Made(added, lenient=everywhere, draw=with_sum))
    assert {"y left as it was", "the last slice of y left as it was"} < set(found)
    assert "y a copy of y" not in found, "which is the same"


def test_what_changes_nothing_is_not_told() -> None:
    def with_unused(problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        return {**normal(problem, distribution, generator), "unused": torch.ones(4)}

    assert tried(Made(draw=with_unused)).tried == tried(Made()).tried


def test_the_nearest_to_rejection_is_told() -> None:
    made = Made(lambda inputs: {"y": 1 + 1e-8 * inputs["x"] * (1 + (inputs["x"].mean() > 1))})
    slip = survivors(made)["y its mean everywhere"]
    assert (slip.problem, slip.distribution.removesuffix(", mixed")) == ("wide", "offset")


def test_a_sample_is_shown_wrong_by_a_mixed_input() -> None:
    """Where each distribution alone lies within what a sample shows of it, but for single elements."""

    def flat(problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        shape = (problem["rows"], problem["columns"])
        draws = torch.randint(2, shape, generator=generator) * 2.0 - 1
        return {"x": draws * (100 if distribution == "offset" else 1)}

    names = {CLAMPED_SAMPLE, CLAMPED_RARE}
    plain = tried(Made(draw=flat, unmixed="it is tested so"))
    mixed = tried(Made(draw=flat))
    assert plain.accepted == mixed.accepted, "what changes nothing is not told"
    assert plain.tried < mixed.tried <= plain.tried + len(names)


def in_whole_numbers(most: int) -> Draw:
    def draw(problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        shape = (problem["rows"], problem["columns"])
        return {"x": torch.randint(most // 2, most, shape, generator=generator)}

    return draw


def lowest_digit(inputs: Tensors) -> Tensors:
    return {"y": (inputs["x"] % 10).double()}


@pytest.mark.parametrize(
    ("most", "lenient", "accepted"),
    [
        (2**20, everywhere, set()),
        (2**40, everywhere, {"x in 24 bits"}),
        (2**60, everywhere, {"x in 24 bits", "x in 53 bits"}),
        (2**60, nowhere, set()),
    ],
)
def test_whole_numbers_in_the_bits_of_floats(most: int, lenient: Lenient, accepted: set[str]) -> None:
    found = survivors(Made(lowest_digit, draw=in_whole_numbers(most), lenient=lenient))
    assert {name for name in found if name.endswith("bits")} == accepted


def quotients(inputs: Tensors) -> Tensors:
    return {"y": inputs["x"].div(1000, rounding_mode="floor").double()}


def test_whole_numbers_in_fewer_bits_are_told_where_no_result_shows_it() -> None:
    """Numbers far from multiples of 1000: 53 bits of 60 never matter."""

    def draw(problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        return {"x": in_whole_numbers(2**50)(problem, distribution, generator)["x"] * 1000 + 500}

    found = survivors(Made(quotients, draw=draw, dtype=torch.int64))
    assert [name for name in found if name.endswith("bits")] == ["x in 53 bits"]
    assert found["x in 53 bits"].share == 0
