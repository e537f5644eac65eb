"""Texts of what is written beside a kernel that goes back into a model."""

from __future__ import annotations

from collections.abc import Sequence

from hillclimb.harness.extract.profiled import ExtractedOperator

HOOK = '''"""{module} by the kernel of {name}. `hillclimb put-back` wrote this file."""

from __future__ import annotations

{imports}
from ops.{name}.{entry} import {function}

MODULE = "{module}"
SHAPES = {shapes}


class {module}Kernel(torch.nn.Module):
    """The model's own module, which still computes whatever the kernel is not for."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        held = dict([*module.named_parameters(), *module.named_buffers()])
        self.weights = [{weight} for name in {weights}]

    def forward(self, {arguments}):  # type: ignore[no-untyped-def]
        """As the module's own."""
        if {test}:
            return self.module({arguments})
        y = torch.empty({output}, dtype=torch.{dtype}{device})
        {function}({given}, *self.weights, {result}{attributes})
        return y


def fits(module: torch.nn.Module) -> bool:
    """Whether the kernel is for a module: by its class, and the sizes of its parameters."""
    found = {{}}
    for name, one in module.named_parameters():
        sizes = ",".join(str(size) for size in one.shape)
        found[name] = f"{{one.dtype}}[{{sizes}}]".removeprefix("torch.")
    return type(module).__name__ == MODULE and found == SHAPES


def install(model: torch.nn.Module) -> None:
    """Put the kernel into every place of the model that it is for. Raises ValueError where there is none."""
    places = [(parent, name) for parent in model.modules() for name, one in parent.named_children() if fits(one)]
    if not places:
        raise ValueError(f"the model has no {{MODULE}} with {{SHAPES}}; set {knob} to stock")
    for parent, name in places:
        parent.add_module(name, {module}Kernel(parent.get_submodule(name)))
'''

TEST = '''"""The kernel of {name}, held to the model's own module."""

from __future__ import annotations

import pytest
import torch
from backend.loading import StockBackend
from backend.environment import DEVICE
from bench.case_model import case_model
from ops.{name}.hook import {module}Kernel, fits

pytestmark = pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="needs a GPU")


@torch.inference_mode()
def test_it_computes_what_the_module_computes():
    model = StockBackend(case_model()).module
    places = [module for module in model.modules() if fits(module)]
    assert places
    drawn = torch.Generator().manual_seed(0)
    for module in places[:3]:
        given = [{draws}]
        mine, exact = {module}Kernel(module)(*given).float(), module(*given).float()
        assert float((mine - exact).abs().max()) <= {allowed} * float(exact.abs().max())
'''


def hook_text(name: str, entry: str, function: str, place: ExtractedOperator, device: str) -> str:
    """`ops/<name>/hook.py`."""
    names = [f"x{at}" for at in range(len(place.inputs))]
    shapes = [shape_of(text) for text in place.inputs]
    on_gpu = device == "cuda"
    tests = [f"{one}.shape != {shape!r}" for one, shape in zip(names, shapes, strict=True)]
    as_given = "{}.contiguous()" if on_gpu else "np.asarray({}.detach().contiguous())"
    return HOOK.format(
        module=place.module,
        name=name,
        knob=f"OP_{name.upper()}",
        imports="import torch" if on_gpu else "import numpy as np\nimport torch",
        entry=entry.removesuffix(".py").replace("/", "."),
        function=function,
        shapes=repr(place.shapes).replace("'", '"'),
        weights=repr(list(place.weights.values())).replace("'", '"'),
        weight="held[name].detach()" if on_gpu else "np.asarray(held[name].detach())",
        arguments=", ".join(names),
        test=" or ".join(tests),
        output=", ".join(map(str, shape_of(place.output))),
        dtype=dtype_of(place.output),
        device=", device=x0.device" if on_gpu else "",
        given=", ".join(as_given.format(one) for one in names),
        result="y" if on_gpu else "np.asarray(y)",
        attributes="".join(f", {key}={value}" for key, value in place.attributes.items()),
    )


def test_text(name: str, place: ExtractedOperator) -> str:
    """`tests/test_<name>.py`."""
    draws = [
        f"torch.randn({shape_of(text)!r}, generator=drawn).to(DEVICE, torch.{dtype_of(text)})"
        for text in place.inputs
    ]
    allowed = 1e-4 if dtype_of(place.output) == "float32" else 0.02
    return TEST.format(name=name, module=place.module, draws=", ".join(draws), allowed=allowed)


def manifest_text(family: str, knob: str, kernels: Sequence[str]) -> str:
    """One more family of kernel_manifest.yaml."""
    return (
        f"  {family}:\n    doc: a module of the model, put back as a kernel\n    knob: {knob}\n    implementations:\n"
        f"      stock: {{status: stock}}\n      kernel:\n        kernels: [{', '.join(kernels)}]\n"
        f'        files: ["ops/{family}/*"]\n        tests: [tests/test_{family}.py]\n        status: ready\n'
    )


def installers_text(names: Sequence[str]) -> str:
    """`ops/extracted.py`, which the backend calls."""
    lines = [
        '"""Kernels in the places of the model\'s own modules. `hillclimb put-back` writes this file."""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Callable",
        "",
        "import torch",
        *(["from knobs import knob"] if names else []),
        "",
        "INSTALLERS: list[Callable[[torch.nn.Module], None]] = []",
        '"""Those that the knobs choose."""',
    ]
    for name in names:
        lines += [
            "",
            f'if knob("OP_{name.upper()}") == "kernel":',
            f"    from ops.{name}.hook import install as install_{name}",
            "",
            f"    INSTALLERS.append(install_{name})",
        ]
    return "\n".join(lines) + "\n"


def shape_of(text: str) -> tuple[int, ...]:
    """Of float32[1,1,128]."""
    return tuple(int(size) for size in text.partition("[")[2].rstrip("]").split(",") if size)


def dtype_of(text: str) -> str:
    """Of float32[1,1,128]."""
    return text.partition("[")[0]
