"""State that decays in place, and is renewed where the input is large: state = 0.9 state, or x where |x| > 1."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work


class Contract(Base):
    problems = {"small": {"n": 41}, "odd": {"n": 1003}, "timed": {"n": 20_000}}
    distributions = ("normal", "rare", "wide")
    domains = {"state": (-1000.0, 1000.0), "x": (-1000.0, 1000.0)}

    def vary(self, problem, secret):
        n = problem["n"]
        return [{"n": n + 1}, {"n": n - 1}, {"n": secret.randrange(1, 2 * n)}]

    def inputs(self, problem, distribution, generator):
        x, state = (torch.randn(problem["n"], generator=generator) for _ in range(2))
        if distribution == "rare":
            x *= 0.3
        if distribution == "wide":
            state *= 100
        return {"state": state, "x": x}

    def outputs(self, problem):
        return {"state": Spec((problem["n"],), torch.float32)}

    def reference(self, problem, inputs):
        return {"state": _step(inputs["state"].double(), inputs["x"].double())}

    def attainable(self, problem, inputs):
        return {"state": _step(inputs["state"], inputs["x"])}

    def scale(self, problem, inputs, reference):
        return {"state": reference["state"].abs().clamp_min(1e-6)}

    def work(self, problem):
        return Work(flops=2 * problem["n"], bytes=12 * problem["n"])


def _step(state, x):
    return torch.where(x.abs() > 1, x, 0.9 * state)
