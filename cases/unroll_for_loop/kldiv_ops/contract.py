"""Kullback-Leibler divergence of targets from predicted log-probabilities, and its gradient, float32.

term = p (log p - x) with p the target, or its exponential where targets are logarithms; 0 log 0 = 0. The loss is the
terms, their sum, their mean, or their sum over the number of rows, and dx = -p dloss, divided as the loss is.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

import torch
import torch.nn.functional as F

from hillclimb.harness.case import contract
from hillclimb.harness.case.contract import Problem, Spec, Tensors, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

ROUNDINGS = 2
"""An error of one counts this many roundings: exponential or logarithm, and product, err by one each."""

SMALLEST = 2.0**-100
"""Below it errors are absolute: kernels may take subnormal numbers for zero."""


def _sizes(rows: int, columns: int, reduction: str, log_target: bool = False) -> Problem:
    return {"rows": rows, "columns": columns, "reduction": reduction, "log_target": log_target}


class Contract(contract.Contract):
    """x, target and dx are rows x columns; loss and dloss too where nothing is reduced, else one number."""

    problems: Mapping[str, Problem] = {
        "large_batchmean_2048x32768": _sizes(2048, 32768, "batchmean"),
        "large_none_log_1024x32768": _sizes(1024, 32768, "none", True),
        "large_mean_log_131072x301": _sizes(131072, 301, "mean", True),
        "ragged_sum_1001x5003": _sizes(1001, 5003, "sum"),
        "small_none_2x3": _sizes(2, 3, "none"),
        "small_sum_2x3": _sizes(2, 3, "sum"),
        "small_mean_2x3": _sizes(2, 3, "mean"),
        "small_batchmean_2x3": _sizes(2, 3, "batchmean"),
        "small_none_log_2x3": _sizes(2, 3, "none", True),
        "small_sum_log_2x3": _sizes(2, 3, "sum", True),
        "small_mean_log_2x3": _sizes(2, 3, "mean", True),
        "small_batchmean_log_2x3": _sizes(2, 3, "batchmean", True),
        "odd_none_5x257": _sizes(5, 257, "none"),
        "ragged_mean_7x1025": _sizes(7, 1025, "mean"),
        "row_batchmean_log_1x9001": _sizes(1, 9001, "batchmean", True),
        "column_sum_33x1": _sizes(33, 1, "sum"),
        "single_none_1x1": _sizes(1, 1, "none"),
    }
    distributions = ("normal", "zeros", "certain", "equal", "distant")
    # Of targets that are logarithms as well: exp(1) is no probability, and defined.
    domains: Mapping[str, tuple[float, float]] = {"x": (-1e3, 1e3), "target": (0, 1), "dloss": (-1e4, 1e4)}

    def inputs(self, problem: Problem, distribution: str, generator: torch.Generator) -> Tensors:
        shape, place = (problem["rows"], problem["columns"]), generator.device
        x = torch.randn(shape, generator=generator, device=place).mul_(2).sub_(8)
        target = torch.rand(shape, generator=generator, device=place).mul_(2 / problem["columns"])
        x, target = _SHAPED[distribution](x, target)
        if problem["log_target"]:
            target.clamp_min_(1e-38).log_()
        dloss = torch.randn(_loss_shape(problem), generator=generator, device=place)
        return {"x": x, "target": target, "dloss": dloss}

    def outputs(self, problem: Problem) -> dict[str, Spec]:
        dx = Spec((problem["rows"], problem["columns"]), torch.float32)
        return {"loss": Spec(_loss_shape(problem), torch.float32), "dx": dx}

    def vary(self, problem: Problem, secret: random.Random) -> Sequence[Problem]:
        return neighbours(problem, secret, self.problems, ("rows", "columns"))

    def attributes(self, problem: Problem) -> dict[str, bool | int | float | str]:
        return {"reduction": problem["reduction"], "log_target": problem["log_target"]}

    def reference(self, problem: Problem, inputs: Tensors) -> Tensors:
        x, target, dloss = (inputs[name].double() for name in ("x", "target", "dloss"))
        if problem["log_target"]:
            p = target.exp()
            terms = p * (target - x)
        else:
            p = target
            terms = torch.xlogy(p, p) - p * x
        return {"loss": _reduced(problem, terms), "dx": -p * (dloss / _divisor(problem))}

    def attainable(self, problem: Problem, inputs: Tensors) -> Tensors:
        """torch's own operator and its derivative; its `mean` is to become `batchmean`, so the sum is divided here."""
        reduction = "none" if problem["reduction"] == "none" else "sum"
        with torch.enable_grad():
            x = inputs["x"].detach().requires_grad_()
            loss = F.kl_div(x, inputs["target"], reduction=reduction, log_target=problem["log_target"])
            loss = loss / _divisor(problem)
            (dx,) = torch.autograd.grad(loss, x, inputs["dloss"].view_as(loss))
        return {"loss": loss.detach().reshape(_loss_shape(problem)), "dx": dx}

    def scale(self, problem: Problem, inputs: Tensors, reference: Tensors) -> Tensors:
        """What a rounding of x or of the target moves a term by; exp(t) moves by |t| roundings for one of t."""
        x, target = inputs["x"].double().abs(), inputs["target"].double()
        if problem["log_target"]:
            p, logarithm = target.exp(), target.abs()
            p *= 1 + logarithm
        else:
            p, logarithm = target, target.clamp_min(1e-300).log().abs()
        terms = p * (logarithm + x + 1)
        slopes = p * (inputs["dloss"].double().abs() / _divisor(problem))
        units = {"loss": _reduced(problem, terms), "dx": slopes}
        return {name: ROUNDINGS * value.clamp_min(SMALLEST) for name, value in units.items()}

    def work(self, problem: Problem) -> Work:
        """A logarithm or exponential, difference, product, sum and gradient an element."""
        size, reduced = problem["rows"] * problem["columns"], problem["reduction"] != "none"
        return Work(flops=5 * size, bytes=4 * (3 * size + 2 if reduced else 5 * size))


def _loss_shape(problem: Problem) -> tuple[int, ...]:
    return (problem["rows"], problem["columns"]) if problem["reduction"] == "none" else (1,)


def _divisor(problem: Problem) -> int:
    rows, columns = problem["rows"], problem["columns"]
    return {"mean": rows * columns, "batchmean": rows}.get(problem["reduction"], 1)


def _reduced(problem: Problem, terms: torch.Tensor) -> torch.Tensor:
    return terms if problem["reduction"] == "none" else terms.sum().reshape(1) / _divisor(problem)


Pair = tuple[torch.Tensor, torch.Tensor]


def _as_drawn(x: torch.Tensor, target: torch.Tensor) -> Pair:
    return x, target


def _zeros(x: torch.Tensor, target: torch.Tensor) -> Pair:
    """About half of the targets are zero: the logarithm of zero times zero is NaN."""
    return x, target.sub_(target.mean()).clamp_min_(0)


def _certain(x: torch.Tensor, target: torch.Tensor) -> Pair:
    """All of a row's probability in its last column, where a skipped tail misses it."""
    target.zero_()
    target[:, -1] = 1
    return x, target


def _equal(x: torch.Tensor, target: torch.Tensor) -> Pair:
    """Predictions are the targets, rounded: terms are differences of nearly equal numbers."""
    target.clamp_min_(1e-30)
    return torch.log(target, out=x), target


def _distant(x: torch.Tensor, target: torch.Tensor) -> Pair:
    """Predictions around -1000: any exponential of them is zero, and sums are long."""
    return x.sub_(1000), target


_SHAPED: dict[str, Callable[[torch.Tensor, torch.Tensor], Pair]] = {
    "normal": _as_drawn,
    "zeros": _zeros,
    "certain": _certain,
    "equal": _equal,
    "distant": _distant,
}
