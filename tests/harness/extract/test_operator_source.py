"""What is written of a module: a file that computes the same, with tensors that are drawn alike."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import nn

from hillclimb.harness.errors import UsageError
from hillclimb.harness.extract.module_groups import ModuleGroup, find_groups
from hillclimb.harness.extract.operator_source import operator_source
from hillclimb.harness.extract.stepped_model import Calling


class RmsNorm(nn.Module):
    """Names a dtype, and has a weight that is all ones."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


class Gated(nn.Module):
    """Of parts, with a buffer."""

    def __init__(self, size: int, wide: int) -> None:
        super().__init__()
        self.gate, self.up = nn.Linear(size, wide, bias=False), nn.Linear(size, wide)
        self.register_buffer("scale", torch.rand(wide))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.silu(self.gate(x)) * self.up(x) * self.scale


class TwoInputs(nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a @ b - a


class Places(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.zeros(3, device=x.device)


class Whole(nn.Module):
    """A model whose only part is looked at."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, *given: torch.Tensor) -> object:
        return self.part(*given)


def group_of(part: nn.Module, *arguments: torch.Tensor) -> ModuleGroup:
    groups = find_groups(Calling(Whole(part), arguments))
    return next(group for group in groups if group.modules == [part])


def load(text: str, folder: Path) -> ModuleType:
    (folder / "written.py").write_text(text)
    spec = importlib.util.spec_from_file_location("written", folder / "written.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MODULES: Sequence[tuple[nn.Module, Sequence[torch.Tensor]]] = [
    (RmsNorm(48), [torch.randn(2, 48)]),
    (RmsNorm(48).to(torch.bfloat16), [torch.randn(1, 1, 48, dtype=torch.bfloat16)]),
    (Gated(16, 40), [torch.randn(3, 16) * 7 + 100]),
    (TwoInputs(), [torch.randn(6, 6), torch.rand(6, 6)]),
    (nn.Linear(9, 5), [torch.randn(9)]),
]


@pytest.mark.parametrize(("module", "arguments"), MODULES, ids=lambda value: type(value).__name__)
def test_it_computes_the_same(module: nn.Module, arguments: Sequence[torch.Tensor], tmp_path: Path) -> None:
    written = load(operator_source(group_of(module, *arguments), "a title").text, tmp_path)
    made = getattr(written, type(module).__name__)(*written.example_sizes())
    names = {name.replace(".", "_"): value for name, value in module.state_dict().items()}
    made.load_state_dict(names)
    torch.testing.assert_close(made(*arguments), module(*arguments))
    drawn = written.example_inputs()
    assert [(one.shape, one.dtype) for one in drawn] == [(one.shape, one.dtype) for one in arguments]


def test_what_is_drawn_is_like_what_was_seen(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = Gated(400, 300)
    written = load(operator_source(group_of(module, torch.randn(50, 400) * 7 + 100), "t").text, tmp_path)
    (drawn,) = written.example_inputs()
    assert abs(float(drawn.mean()) - 100) < 1 and abs(float(drawn.std()) - 7) < 0.5
    made = written.Gated(*written.example_sizes())
    for name, value in module.state_dict().items():
        mine = made.state_dict()[name.replace(".", "_")]
        assert abs(float(mine.std() / value.std()) - 1) < 0.1, name
    assert "scale" in dict(made.named_buffers())
    assert written.Gated.__doc__ == "t."


def test_sizes_have_names_and_can_be_made_smaller(tmp_path: Path) -> None:
    found = operator_source(group_of(Gated(16, 40), torch.randn(3, 16)), "t")
    text = found.text
    assert found.sizes == {"n0": 40, "n1": 16} and found.output == "float32[3,40]"
    assert found.weights["gate_weight"] == "gate.weight" and found.weights["scale"] == "scale"
    assert "N0 = 40" in text and "N1 = 16" in text
    written = load(text.replace("N0 = 40", "N0 = 6").replace("N1 = 16", "N1 = 5"), tmp_path)
    assert written.Gated(*written.example_sizes())(*written.example_inputs()).shape == (3, 6)


@pytest.mark.parametrize(
    ("part", "arguments", "said"),
    [
        (nn.Embedding(9, 4), [torch.tensor([1, 2])], "is called with int64"),
        (nn.GRUCell(4, 4).to(torch.float64), [torch.randn(2, 4, dtype=torch.float64)], None),
        (nn.LSTM(4, 4), [torch.randn(2, 3, 4)], "returns tuple"),
        (Places(), [torch.randn(3)], "names a device"),
    ],
    ids=["whole numbers", "a cell", "two results", "a device"],
)
def test_what_cannot_be_a_case_is_named(
    part: nn.Module, arguments: Sequence[torch.Tensor], said: str | None, tmp_path: Path
) -> None:
    group = group_of(part, *arguments)
    if said is None:
        assert group.unfit == ""
        return
    with pytest.raises(UsageError, match=said):
        operator_source(group, "t")
