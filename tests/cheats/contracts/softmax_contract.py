"""Softmax along rows of float32; every probability is held to its own size."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work

SMALLEST = 2.0**-60


class Contract(Base):
    problems = {"small": {"n": 5, "m": 3}, "odd": {"n": 2, "m": 1001}, "timed": {"n": 32, "m": 1024}}
    distributions = ("normal", "offset", "wide")
    domains = {"x": (-500.0, 500.0)}

    def vary(self, problem, secret):
        n, m = problem["n"], problem["m"]
        return [{"n": n, "m": m + 1}, {"n": n + 1, "m": m - 1}, {"n": secret.randrange(1, 2 * n), "m": m}]

    def inputs(self, problem, distribution, generator):
        x = torch.randn((problem["n"], problem["m"]), generator=generator)
        if distribution == "offset":
            x += 120.0
        if distribution == "wide":
            x *= 8.0
        return {"x": x}

    def outputs(self, problem):
        return {"y": Spec((problem["n"], problem["m"]), torch.float32)}

    def reference(self, problem, inputs):
        return {"y": torch.softmax(inputs["x"].double(), 1)}

    def attainable(self, problem, inputs):
        return {"y": torch.softmax(inputs["x"], 1)}

    def scale(self, problem, inputs, reference):
        return {"y": reference["y"].clamp_min(SMALLEST)}

    def work(self, problem):
        return Work(flops=5 * problem["n"] * problem["m"], bytes=8 * problem["n"] * problem["m"])
