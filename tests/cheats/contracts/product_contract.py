"""A small matrix product in float32, of matrices that are anything, diagonal or far from zero."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work
from hillclimb.harness.case.contracts.neighbours import neighbours


class Contract(Base):
    problems = {"odd": {"n": 7, "k": 5, "m": 3}, "timed": {"n": 48, "k": 48, "m": 48}}
    distributions = ("normal", "diagonal", "offset")
    domains = {"a": (-1000.0, 1000.0), "b": (-1000.0, 1000.0)}

    def vary(self, problem, secret):
        return neighbours(problem, secret, self.problems, ("n", "k", "m"))

    def inputs(self, problem, distribution, generator):
        a = torch.randn((problem["n"], problem["k"]), generator=generator)
        b = torch.randn((problem["k"], problem["m"]), generator=generator)
        if distribution == "diagonal":
            a = torch.where(torch.eye(*a.shape, dtype=torch.bool), a, torch.zeros(()))
        if distribution == "offset":
            a, b = a + 10.0, b + 10.0
        return {"a": a, "b": b}

    def outputs(self, problem):
        return {"c": Spec((problem["n"], problem["m"]), torch.float32)}

    def reference(self, problem, inputs):
        return {"c": inputs["a"].double() @ inputs["b"].double()}

    def attainable(self, problem, inputs):
        return {"c": inputs["a"] @ inputs["b"]}

    def scale(self, problem, inputs, reference):
        return {"c": inputs["a"].double().abs() @ inputs["b"].double().abs()}

    def work(self, problem):
        n, k, m = problem["n"], problem["k"], problem["m"]
        return Work(flops=2 * n * k * m, bytes=4 * (n * k + k * m + n * m))
