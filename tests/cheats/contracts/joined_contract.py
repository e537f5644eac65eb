"""Two vectors, one after the other: nothing but copying."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work


class Contract(Base):
    problems = {"small": {"n": 33}, "timed": {"n": 4_000_000}}
    distributions = ("normal",)
    domains = {"a": (-1e6, 1e6), "b": (-1e6, 1e6)}

    def vary(self, problem, secret):
        return [{"n": problem["n"] + 1}, {"n": problem["n"] - 1}, {"n": secret.randrange(1, 10_000)}]

    def inputs(self, problem, distribution, generator):
        return {name: torch.randn(problem["n"], generator=generator) for name in ("a", "b")}

    def outputs(self, problem):
        return {"y": Spec((2 * problem["n"],), torch.float32)}

    def reference(self, problem, inputs):
        return {"y": torch.cat([inputs["a"], inputs["b"]]).double()}

    def attainable(self, problem, inputs):
        return {"y": torch.cat([inputs["a"], inputs["b"]])}

    def work(self, problem):
        return Work(flops=1, bytes=16 * problem["n"])
