"""How many whole periods there are in times, all of them whole numbers of 64 bits."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

LAST = 10**17


class Contract(Base):
    problems = {"small": {"n": 7}, "odd": {"n": 1001}, "timed": {"n": 20000}}
    distributions = ("normal", "all", "edges")
    domains = {"times": (0, LAST), "periods": (1000, 10**9)}

    def vary(self, problem, secret):
        return neighbours(problem, secret, self.problems, ("n",))

    def inputs(self, problem, distribution, generator):
        shape = (problem["n"],)
        times = torch.randint(0, LAST if distribution == "all" else 10**12, shape, generator=generator)
        periods = torch.randint(1000, 10**9, shape, generator=generator)
        if distribution == "edges":
            times = (times // periods * periods + torch.randint(-1, 2, shape, generator=generator)).clamp_min(
                0
            )
        return {"times": times, "periods": periods}

    def outputs(self, problem):
        return {"counts": Spec((problem["n"],), torch.int64)}

    def reference(self, problem, inputs):
        return {"counts": inputs["times"].div(inputs["periods"], rounding_mode="floor")}

    def attainable(self, problem, inputs):
        return self.reference(problem, inputs)

    def work(self, problem):
        return Work(flops=problem["n"], bytes=24 * problem["n"])
