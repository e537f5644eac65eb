"""Products of groups on a GPU: our own kernels in every way to run them, and torch's, whatever the groups' sizes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from hillclimb.harness.gemm.generator.torch_binding import TORCH_OPS, write_torch_ops
from hillclimb.harness.gemm.providers.cublas import Cublas
from hillclimb.harness.gemm.providers.generated import Generated
from hillclimb.harness.gemm.providers.problem import ShapeProblem, _reference
from hillclimb.harness.gemm.providers.provider import Operands, UnsupportedError
from hillclimb.harness.gemm.shape import Dtype, GemmShape
from tests.gpu.own_kernels import build_own, check_every_way, loaded

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("gpu")]

COLUMNS: dict[Dtype, set[int]] = {"bf16": {8, 40, 192}, "scaled_fp8": {8, 48, 128}}
SIZES = [(2120, 720), (1288, 2048)]
ROWS = [(0, 300, 1, 0, 64, 7, 130, 0), (1,) * 40, (9, 0, 0, 1), (0,) * 511 + (257,)]


def problem_of(rows: Sequence[int], n: int, k: int, dtype: Dtype) -> ShapeProblem:
    """One whose groups have so many tokens."""
    problem = ShapeProblem(GemmShape("a", sum(rows), n, k, dtype, len(rows)), 2)
    for at in range(2):
        spread_anew(problem, at, rows)
    return problem


def spread_anew(problem: ShapeProblem, at: int, rows: Sequence[int], ends: Sequence[int] = ()) -> None:
    """What is told on the device is written over; graphs that were captured before meet it."""
    one = problem.checked_sets[at]
    own = torch.tensor(ends) if ends else torch.tensor(rows).cumsum(0)
    one.group_ends.copy_(own.int())
    problem.sets[at] = problem.checked_sets[at] = replace(one, group_rows=tuple(rows))
    problem.references[at] = _reference(problem.sets[at])


@pytest.fixture(scope="module", params=COLUMNS)
def kernels(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Dtype, Path]:
    """Of one dtype, built, with the operators of torch beside them."""
    folder, dtype = tmp_path_factory.mktemp("kernels"), request.param
    built = build_own(folder, "grouped_gemm", dtype, COLUMNS[dtype])
    write_torch_ops(built)
    return dtype, built


@pytest.mark.timeout(600)
def test_grouped_kernels_are_right_in_every_way(kernels: tuple[Dtype, Path]) -> None:
    dtype, folder = kernels
    provider = Generated(str(folder))
    tried, refused, wrong = 0, 0, list[str]()
    for rows, (n, k) in zip(ROWS, SIZES * 2, strict=True):
        counts = check_every_way(provider, problem_of(rows, n, k, dtype))
        tried, refused, wrong = tried + counts[0], refused + counts[1], wrong + counts[2]
    assert not wrong, f"{len(wrong)} of {tried}: " + "\n".join(wrong[:20])
    assert tried > refused


def likely(provider: Generated, problem: ShapeProblem) -> Sequence[str]:
    return provider.kernels(problem.shape, problem.sets[0])


@pytest.mark.timeout(300)
def test_ends_are_those_that_are_there_when_it_runs(kernels: tuple[Dtype, Path]) -> None:
    """A graph that was captured for other groups, and ends that go back or beyond the tokens that there are."""
    dtype, folder = kernels
    provider, m = Generated(str(folder)), 502
    problem = problem_of(ROWS[0], *SIZES[0], dtype)
    names = likely(provider, problem)[:24]
    launches = {name: provider.launch(problem.shape, name) for name in names}
    spreads: list[tuple[Sequence[int], Sequence[int]]] = [
        (ROWS[0], ()),
        ((m, *[0] * 7), ()),
        ((63, 63, 63, 63, 63, 63, 63, 61), ()),
        ((5, 0, m - 5, 0, 0, 0, 0, 0), (5, 3, 1 << 30, -7, 0, 12, -(1 << 31), m)),
    ]
    for rows, ends in spreads:
        for at in range(2):
            spread_anew(problem, at, rows, ends)
        for name, launch in launches.items():
            assert not problem.check(name, launch), (name, rows)


@pytest.mark.timeout(300)
def test_rows_behind_the_last_group_are_left_alone(kernels: tuple[Dtype, Path]) -> None:
    dtype, folder = kernels
    provider = Generated(str(folder))
    problem = problem_of((200, 300, 100), *SIZES[0], dtype)
    names = likely(provider, problem)[:24]
    one = problem.sets[0]
    one.group_ends.copy_(torch.tensor([30, 30, 171]).int())
    expected = _reference(replace(one, x=one.x[:171], group_rows=(30, 0, 141)))
    for name in names:
        one.out.fill_(7.5)
        provider.launch(problem.shape, name)(one)
        assert torch.all(one.out[171:] == 7.5), name
        assert torch.allclose(
            one.out[:171].float(), expected, rtol=0.04, atol=0.04 * float(expected.abs().mean())
        ), name
    one.group_ends.zero_()
    one.out.fill_(7.5)
    for name in names:
        provider.launch(problem.shape, name)(one)
    assert torch.all(one.out == 7.5)


@pytest.mark.timeout(300)
def test_the_operators_of_torch_give_what_the_kernels_do(kernels: tuple[Dtype, Path]) -> None:
    dtype, folder = kernels
    provider, operators = Generated(str(folder)), loaded(folder / TORCH_OPS)
    for rows in ROWS[:3]:
        problem = problem_of(rows, *SIZES[0], dtype)
        one = problem.sets[0]
        for name in likely(provider, problem):
            provider.launch(problem.shape, name)(one)
            told = operators.gemm(name, one.x, one.w, one.x_scales, one.w_scales, one.group_ends)
            assert torch.equal(told, one.out), name
    operators.library._destroy()


@pytest.mark.parametrize("dtype", ["bf16", "f16", "fp8", "int8", "scaled_fp8"])
def test_the_products_of_torch_are_right(dtype: Dtype) -> None:
    provider = Cublas()
    for m, n, k in [(7, 1024, 512), (260, 1024, 512), (1000, 2048, 1024)]:
        problem = ShapeProblem(GemmShape("a", m, n, k, dtype, 12))
        if dtype == "int8":
            with pytest.raises(UnsupportedError, match="17 rows or more"):
                provider.kernels(problem.shape, problem.sets[0])
            continue
        names = provider.kernels(problem.shape, problem.sets[0])
        assert len(names) == (2 if dtype == "bf16" else 1)
        for name in names:
            launch = provider.launch(problem.shape, name)
            assert not problem.check(name, launch), name
            assert 0 < problem.seconds(name, launch) < 1e-2


def test_a_result_that_is_given_back_is_what_is_compared() -> None:
    """One that is wrong is found, though `out` is right."""
    problem = ShapeProblem(GemmShape("a", 100, 512, 512, "bf16"), 3)

    def right(to: Operands) -> torch.Tensor:
        return torch.mm(to.x, to.w.t())

    def late(to: Operands) -> torch.Tensor:
        to.out.copy_(right(to))
        return torch.zeros_like(to.out)

    assert not problem.check("right", right)
    assert "results are wrong" in problem.check("late", late)
    assert "the result is torch.float32 (100, 512)" in problem.check("other", lambda to: right(to).float())
