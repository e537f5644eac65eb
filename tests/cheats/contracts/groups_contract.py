"""Sums of groups of rows: `lengths` rows each, one group after the other; and the rows named by `order` gathered."""

import torch

from hillclimb.harness.case.contract import Contract as Base
from hillclimb.harness.case.contract import Spec, Work


class Contract(Base):
    problems = {
        "small": {"rows": 24, "groups": 4, "columns": 3},
        "timed": {"rows": 512, "groups": 16, "columns": 64},
    }
    distributions = ("even", "ragged", "shuffled")
    domains = {"x": (-1000.0, 1000.0)}
    unmixed = "the lengths of the groups add up to the number of rows, and an order names every row once"

    def vary(self, problem, secret):
        rows, groups, columns = problem["rows"], problem["groups"], problem["columns"]
        return [
            {**problem, "rows": rows + groups},
            {**problem, "columns": columns + 1},
            {"rows": secret.randrange(2, 9) * (groups + 1), "groups": groups + 1, "columns": columns},
        ]

    def inputs(self, problem, distribution, generator):
        rows, groups = problem["rows"], problem["groups"]
        x = torch.randn((rows, problem["columns"]), generator=generator)
        lengths = torch.full((groups,), rows // groups, dtype=torch.int64)
        if distribution == "ragged":
            cuts = torch.randperm(rows - 1, generator=generator)[: groups - 1].add_(1).sort().values
            lengths = torch.diff(torch.cat([torch.zeros(1), cuts, torch.full((1,), rows)])).long()
        order = torch.arange(rows)
        if distribution == "shuffled":
            order = torch.randperm(rows, generator=generator)
        return {"x": x, "lengths": lengths, "order": order}

    def outputs(self, problem):
        return {
            "sums": Spec((problem["groups"], problem["columns"]), torch.float32),
            "gathered": Spec((problem["rows"], problem["columns"]), torch.float32),
        }

    def reference(self, problem, inputs):
        return _compute({**inputs, "x": inputs["x"].double()})

    def attainable(self, problem, inputs):
        return _compute(inputs)

    def scale(self, problem, inputs, reference):
        sizes = _compute({**inputs, "x": inputs["x"].double().abs()})
        return {name: value.clamp_min(1e-6) for name, value in sizes.items()}

    def work(self, problem):
        size = problem["rows"] * problem["columns"]
        return Work(flops=size, bytes=8 * size)


def _compute(inputs):
    x, lengths = inputs["x"], inputs["lengths"]
    group = torch.repeat_interleave(torch.arange(len(lengths)), lengths)
    sums = torch.zeros((len(lengths), x.shape[1]), dtype=x.dtype).index_add_(0, group, x)
    return {"sums": sums, "gathered": x[inputs["order"]]}
