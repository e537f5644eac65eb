"""Where the first of the largest numbers of each row is."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work


class Contract(Base):
    problems = {"small": {"n": 5, "m": 7}, "odd": {"n": 61, "m": 33}, "timed": {"n": 64, "m": 512}}
    distributions = ("normal", "coarse", "equal")
    domains = {"x": (-100.0, 100.0)}

    def vary(self, problem, secret):
        n, m = problem["n"], problem["m"]
        return [{"n": n, "m": m + 1}, {"n": n + 1, "m": m - 1}, {"n": secret.randrange(1, 2 * n), "m": m}]

    def inputs(self, problem, distribution, generator):
        x = torch.randn((problem["n"], problem["m"]), generator=generator)
        if distribution == "coarse":
            x = (8 * x).round() / 8
        if distribution == "equal":
            x = x[:, :1].expand(x.shape).clone()
        return {"x": x}

    def outputs(self, problem):
        return {"place": Spec((problem["n"],), torch.int64)}

    def reference(self, problem, inputs):
        x = inputs["x"].double()
        columns = torch.arange(x.shape[1])
        is_largest = x == x.amax(dim=1, keepdim=True)
        return {"place": torch.where(is_largest, columns, x.shape[1]).amin(dim=1)}

    def attainable(self, problem, inputs):
        return self.reference(problem, inputs)

    def work(self, problem):
        return Work(flops=problem["n"] * problem["m"], bytes=4 * problem["n"] * problem["m"])
