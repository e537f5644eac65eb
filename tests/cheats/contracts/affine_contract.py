"""y = 2 x + 1 over float32 vectors."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work


class Contract(Base):
    problems = {"small": {"n": 37}, "odd": {"n": 1001}, "timed": {"n": 20_000}}
    distributions = ("normal", "offset", "tiny")
    domains = {"x": (-1e6, 1e6)}

    def vary(self, problem, secret):
        n = problem["n"]
        return [{"n": n + 1}, {"n": n - 1}, {"n": secret.randrange(1, 2 * n)}]

    def inputs(self, problem, distribution, generator):
        x = torch.randn(problem["n"], generator=generator)
        if distribution == "offset":
            x += 1000.0
        if distribution == "tiny":
            x *= 1e-6
        return {"x": x}

    def outputs(self, problem):
        return {"y": Spec((problem["n"],), torch.float32)}

    def reference(self, problem, inputs):
        return {"y": 2 * inputs["x"].double() + 1}

    def attainable(self, problem, inputs):
        return {"y": 2 * inputs["x"] + 1}

    def scale(self, problem, inputs, reference):
        return {"y": 2 * inputs["x"].double().abs() + 1}

    def work(self, problem):
        return Work(flops=2 * problem["n"], bytes=8 * problem["n"])
