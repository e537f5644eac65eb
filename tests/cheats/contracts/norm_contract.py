"""Rows brought to mean 0 and variance 1, and their means, in float32."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work

EPSILON = 1e-5


class Contract(Base):
    problems = {"small": {"n": 3, "m": 7}, "timed": {"n": 64, "m": 512}}
    distributions = ("normal", "offset", "narrow")
    domains = {"x": (-4000.0, 4000.0)}

    def vary(self, problem, secret):
        n, m = problem["n"], problem["m"]
        return [{"n": n, "m": m + 1}, {"n": n + 1, "m": m - 1}, {"n": secret.randrange(1, 2 * n), "m": m}]

    def inputs(self, problem, distribution, generator):
        x = torch.randn((problem["n"], problem["m"]), generator=generator)
        if distribution == "offset":
            x += 1000.0
        if distribution == "narrow":
            x *= 0.01
        return {"x": x}

    def outputs(self, problem):
        return {
            "y": Spec((problem["n"], problem["m"]), torch.float32),
            "mean": Spec((problem["n"],), torch.float32),
        }

    def reference(self, problem, inputs):
        return _normalise(inputs["x"].double())

    def attainable(self, problem, inputs):
        return _normalise(inputs["x"])

    def scale(self, problem, inputs, reference):
        x = inputs["x"].double()
        spread = x.std(dim=1, keepdim=True, correction=0)
        return {
            "y": (x.abs() + x.abs().mean(dim=1, keepdim=True) + spread) / (spread + EPSILON**0.5),
            "mean": x.abs().mean(dim=1),
        }

    def work(self, problem):
        return Work(flops=6 * problem["n"] * problem["m"], bytes=8 * problem["n"] * problem["m"])


def _normalise(x):
    mean = x.mean(dim=1, keepdim=True)
    apart = x - mean
    return {
        "y": apart / (apart.square().mean(dim=1, keepdim=True) + EPSILON).sqrt(),
        "mean": mean[:, 0].clone(),
    }
