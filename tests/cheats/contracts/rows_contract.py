"""Softmax along rows of bfloat16 on a GPU; two of the problems are small enough to be interpreted."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work

SMALLEST = 2.0**-100


class Contract(Base):
    problems = {
        "timed": {"rows": 4096, "columns": 4096},
        "odd": {"rows": 9, "columns": 1029},
        "tiny": {"rows": 3, "columns": 5},
    }
    distributions = ("normal", "offset", "rising")
    domains = {"x": (-400.0, 600.0)}

    def vary(self, problem, secret):
        rows, columns = problem["rows"], problem["columns"]
        return [
            {"rows": rows, "columns": columns + 1},
            {"rows": rows + 1, "columns": columns - 1},
            {"rows": secret.randrange(1, 2 * rows), "columns": columns},
        ]

    def inputs(self, problem, distribution, generator):
        shape = problem["rows"], problem["columns"]
        x = torch.randn(shape, generator=generator, dtype=torch.bfloat16, device=generator.device)
        if distribution == "offset":
            x.add_(300)
        if distribution == "rising":
            x.add_(torch.linspace(0, 200, shape[1], dtype=x.dtype, device=x.device))
        return {"x": x}

    def outputs(self, problem):
        return {"y": Spec((problem["rows"], problem["columns"]), torch.bfloat16)}

    def reference(self, problem, inputs):
        return {"y": torch.softmax(inputs["x"].double(), 1)}

    def attainable(self, problem, inputs):
        return {"y": torch.softmax(inputs["x"].float(), 1).bfloat16()}

    def scale(self, problem, inputs, reference):
        return {"y": reference["y"].clamp_min(SMALLEST)}

    def work(self, problem):
        size = problem["rows"] * problem["columns"]
        return Work(flops=5 * size, bytes=4 * size)
