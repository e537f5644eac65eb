"""Two vectors, one after the other: nothing but copying."""

import torch

from harness.case.contract import Contract as Base
from harness.case.contract import Spec, Work


class Contract(Base):
    problems = {"small": {"n": 33}, "timed": {"n": 8_000_000}}
    distributions = ("normal",)

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
