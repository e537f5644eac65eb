"""Running sums of whole numbers along rows, in 64 bits."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work


class Contract(Base):
    problems = {"small": {"n": 3, "m": 7}, "odd": {"n": 33, "m": 101}, "timed": {"n": 64, "m": 512}}
    distributions = ("normal", "many", "rows")
    domains = {"x": (-(2**31), 2**31 - 1)}

    def vary(self, problem, secret):
        n, m = problem["n"], problem["m"]
        return [{"n": n, "m": m + 1}, {"n": n + 1, "m": m - 1}, {"n": secret.randrange(1, 2 * n), "m": m}]

    def inputs(self, problem, distribution, generator):
        shape = (problem["n"], problem["m"])
        few = torch.randint(-100, 101, shape, generator=generator)
        many = torch.randint(-(2**31), 2**31, shape, generator=generator)
        is_many = (
            torch.rand((shape[0], 1), generator=generator)
            < {"normal": 0, "many": 1, "rows": 0.5}[distribution]
        )
        return {"x": torch.where(is_many, many, few).to(torch.int32)}

    def outputs(self, problem):
        return {"sums": Spec((problem["n"], problem["m"]), torch.int64)}

    def reference(self, problem, inputs):
        return {"sums": inputs["x"].long().cumsum(1)}

    def attainable(self, problem, inputs):
        return self.reference(problem, inputs)

    def work(self, problem):
        size = problem["n"] * problem["m"]
        return Work(flops=size, bytes=12 * size)
