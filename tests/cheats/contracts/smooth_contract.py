"""Forty steps that move every number of a ring a quarter of the way to its neighbours."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work

STEPS = 40


class Contract(Base):
    problems = {"small": {"n": 9}, "odd": {"n": 1001}, "timed": {"n": 4096}}
    distributions = ("normal", "offset", "flat")
    domains = {"x": (-1000.0, 1000.0)}

    def vary(self, problem, secret):
        n = problem["n"]
        return [{"n": n + 1}, {"n": n - 1}, {"n": secret.randrange(3, 2 * n)}]

    def inputs(self, problem, distribution, generator):
        x = torch.randn(problem["n"], generator=generator)
        if distribution == "offset":
            x += 100.0
        if distribution == "flat":
            x = torch.full_like(x, 3.0) + 1e-3 * x
        return {"x": x}

    def outputs(self, problem):
        return {"y": Spec((problem["n"],), torch.float32)}

    def reference(self, problem, inputs):
        return {"y": _smooth(inputs["x"].double())}

    def attainable(self, problem, inputs):
        return {"y": _smooth(inputs["x"])}

    def scale(self, problem, inputs, reference):
        return {"y": _smooth(inputs["x"].double().abs()).clamp_min(1e-6)}

    def work(self, problem):
        return Work(flops=4 * STEPS * problem["n"], bytes=8 * problem["n"])


def _smooth(x):
    for _ in range(STEPS):
        x = 0.5 * x + 0.25 * (x.roll(1) + x.roll(-1))
    return x
