"""Products of rows of 16 bits, summed in 64."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work
from hillclimb.harness.case.contracts.neighbours import neighbours

LARGEST = {"normal": 100, "large": 2**15 - 1}


class Contract(Base):
    problems = {"small": {"n": 3, "m": 7}, "odd": {"n": 33, "m": 101}, "timed": {"n": 64, "m": 512}}
    distributions = tuple(LARGEST)
    domains = dict.fromkeys(("a", "b"), (-(2**15), 2**15 - 1))

    def vary(self, problem, secret):
        return neighbours(problem, secret, self.problems, ("n",), ("m",))

    def inputs(self, problem, distribution, generator):
        shape, most = (problem["n"], problem["m"]), LARGEST[distribution]
        return {
            name: torch.randint(-most - 1, most + 1, shape, generator=generator, dtype=torch.int16)
            for name in ("a", "b")
        }

    def outputs(self, problem):
        return {"sums": Spec((problem["n"],), torch.int64)}

    def reference(self, problem, inputs):
        return {"sums": (inputs["a"].long() * inputs["b"].long()).sum(1)}

    def attainable(self, problem, inputs):
        return self.reference(problem, inputs)

    def work(self, problem):
        size = problem["n"] * problem["m"]
        return Work(flops=2 * size, bytes=4 * size)
