"""Groups of modules, and their shares of a step."""

from __future__ import annotations

import time

import pytest
import torch
from torch import nn

from hillclimb.harness.extract.module_groups import find_groups
from hillclimb.harness.extract.module_times import time_groups
from hillclimb.harness.extract.stepped_model import Calling


class Sleeping(nn.Module):
    """Takes a set time, whatever the machine does."""

    def __init__(self, seconds: float, size: int = 4) -> None:
        super().__init__()
        self.seconds = seconds
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        time.sleep(self.seconds)
        return x * self.weight[0]


class Other(Sleeping):
    pass


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Sleeping(0.002), Sleeping(0.002)
        self.wide, self.other = Sleeping(0.002, size=8), Other(0.002)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.other(self.wide(self.second(self.first(x))))


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x, scale=2.0)
        return x


def test_modules_of_one_class_and_shape_are_one_group() -> None:
    groups = {group.name: group for group in find_groups(Calling(Model(), [torch.ones(3)]))}
    assert sorted(groups) == ["block", "other", "sleeping", "sleeping_2"]
    assert (groups["sleeping"].calls, groups["sleeping"].places) == (4, ["first", "second"])
    assert (groups["sleeping_2"].calls, groups["sleeping_2"].places) == (2, ["wide"])
    assert groups["sleeping"].inputs == ("float32[3]",) and groups["sleeping_2"].parameters == ("float32[8]",)
    assert groups["block"].unfit == "is called with scale=2.0"
    assert not any(groups[name].unfit for name in ("sleeping", "other"))


@pytest.mark.parametrize("name", ["LlamaRMSNorm", "MLP", "Conv2d", "GPT2Block"])
def test_names_are_words(name: str) -> None:
    kind = type(name, (Sleeping,), {})
    model = nn.Sequential(kind(0.0))
    (group,) = find_groups(Calling(model, [torch.ones(1)]))
    words = {"LlamaRMSNorm": "llama_rms_norm", "MLP": "mlp", "Conv2d": "conv2d", "GPT2Block": "gpt2_block"}
    assert group.name == words[name]


@pytest.mark.clock
def test_shares_are_those_of_the_time() -> None:
    workload = Calling(Model(), [torch.ones(3)])
    seconds, shares = time_groups(workload, find_groups(workload), 5, on_gpu=False)
    found = {one.name: one for one in shares}
    assert shares[0].name == "block" and found["block"].share > 0.95
    assert found["sleeping"].share == pytest.approx(0.5, abs=0.08)
    assert found["sleeping_2"].share == pytest.approx(0.25, abs=0.06)
    assert found["sleeping"].bound == pytest.approx(1 / (1 - found["sleeping"].share))
    assert found["sleeping"].seconds == pytest.approx(found["sleeping"].share * seconds)
    assert seconds == pytest.approx(0.016, rel=0.3)
