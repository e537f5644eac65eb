"""Numbers rounded to whole ones of eight bits, and keys of 64 bits moved on: y = round(16 x), moved = 3 key + 1."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work


class Contract(Base):
    problems = {"small": {"n": 41}, "odd": {"n": 1003}, "timed": {"n": 20_000}}
    distributions = ("normal", "wide", "large_keys")
    domains = {"x": (-100.0, 100.0)}

    def vary(self, problem, secret):
        n = problem["n"]
        return [{"n": n + 1}, {"n": n - 1}, {"n": secret.randrange(1, 2 * n)}]

    def inputs(self, problem, distribution, generator):
        x = torch.randn(problem["n"], generator=generator)
        if distribution == "wide":
            x *= 5.0
        most = 2**61 if distribution == "large_keys" else 2**24
        return {"x": x, "key": torch.randint(-most, most, (problem["n"],), generator=generator)}

    def outputs(self, problem):
        return {"y": Spec((problem["n"],), torch.int8), "moved": Spec((problem["n"],), torch.int64)}

    def reference(self, problem, inputs):
        return {"y": _round(inputs["x"].double()), "moved": 3 * inputs["key"] + 1}

    def attainable(self, problem, inputs):
        return {"y": _round(inputs["x"]).to(torch.int8), "moved": 3 * inputs["key"] + 1}

    def work(self, problem):
        return Work(flops=4 * problem["n"], bytes=21 * problem["n"])


def _round(x):
    return (16 * x).round().clamp(-127, 127)
