"""Which numbers are above a bound, and where each larger one lies: nearly all are, and nearly none is."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work


class Contract(Base):
    problems = {"small": {"n": 37}, "odd": {"n": 1001}, "timed": {"n": 20_000}}
    distributions = ("normal", "offset")
    domains = {"x": (-1000.0, 1000.0)}

    def vary(self, problem, secret):
        n = problem["n"]
        return [{"n": n + 1}, {"n": n - 1}, {"n": secret.randrange(1, 2 * n)}]

    def inputs(self, problem, distribution, generator):
        x = torch.randn(problem["n"], generator=generator)
        return {"x": x + 0.01 if distribution == "offset" else x}

    def outputs(self, problem):
        shape = (problem["n"],)
        return {"above": Spec(shape, torch.bool), "place": Spec(shape, torch.int32)}

    def reference(self, problem, inputs):
        x = inputs["x"].double()
        place = torch.where(x > 2.5, torch.arange(len(x)), -1)
        return {"above": (x > -2.5).double(), "place": place.double()}

    def attainable(self, problem, inputs):
        exact = self.reference(problem, inputs)
        return {"above": exact["above"].bool(), "place": exact["place"].int()}

    def work(self, problem):
        return Work(flops=2 * problem["n"], bytes=9 * problem["n"])
