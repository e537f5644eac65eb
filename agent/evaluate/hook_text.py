"""Texts of what is written beside a kernel that goes back into a model."""

from __future__ import annotations

from collections.abc import Sequence

from hillclimb.harness.extract.profiled import ExtractedOperator

HOOK = '''"""{module} by the kernel of {name}. `hillclimb put-back` wrote this file."""

from __future__ import annotations

import torch
from backend.environment import as_given
from ops.{name}.{entry} import {function}

MODULE = "{module}"
SHAPES = {shapes}


class {module}Kernel(torch.nn.Module):
    """The model's own module, which still computes whatever the kernel is not for."""

    def __init__(self, module: torch.nn.Module) -> None:
        super().__init__()
        self.module = module
        held = dict([*module.named_parameters(), *module.named_buffers()])
        self.weights = [as_given(held[name].detach()) for name in {weights}]

    def forward(self, {arguments}):  # type: ignore[no-untyped-def]
        """As the module's own."""
        if {test}:
            return self.module({arguments})
        y = torch.empty({output}, dtype=torch.{dtype}, device=x0.device)
        {function}({given}, *self.weights, as_given(y){attributes})
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

SESSION_TEST = '''"""The session {name}, held to the model's own modules."""

from __future__ import annotations

import pytest
import torch
from backend.environment import ACCEPTED, DEVICE
from backend.loading import StockBackend
from backend.session import SessionBackend
from bench.case_model import case_model
from ops.{name}.put_back import make_session

pytestmark = pytest.mark.skipif(DEVICE == "cuda" and not torch.cuda.is_available(), reason="needs a GPU")

PROMPT = [5, 17, 250, 3, 99]


def gap(mine, other):
    mine, other = mine.cpu(), other.cpu()
    return float((mine - other).abs().max() / other.std())


def test_it_computes_what_the_model_computes():
    mine, stock = SessionBackend(case_model(), make_session), StockBackend(case_model())
    for slot in (mine.slots - 1, 0, 0):
        found, wanted = mine.prefill(slot, PROMPT), stock.prefill(slot, PROMPT)
        assert gap(found, wanted) < 5 * ACCEPTED
        for step in range(6):
            token = 7 if step == 3 else int(found.argmax())  # not the likeliest one
            found, wanted = mine.decode({{slot: token}})[0], stock.decode({{slot: token}})[0]
            assert gap(found, wanted) < 5 * ACCEPTED
        mine.reset(slot)
        stock.reset(slot)
'''


def hook_text(name: str, entry: str, function: str, place: ExtractedOperator) -> str:
    """`ops/<name>/hook.py`."""
    names = [f"x{at}" for at in range(len(place.inputs))]
    shapes = [shape_of(text) for text in place.inputs]
    tests = [f"{one}.shape != {shape!r}" for one, shape in zip(names, shapes, strict=True)]
    return HOOK.format(
        module=place.module,
        name=name,
        knob=f"OP_{name.upper()}",
        entry=module_of(entry),
        function=function,
        shapes=repr(place.shapes).replace("'", '"'),
        weights=repr(list(place.weights.values())).replace("'", '"'),
        arguments=", ".join(names),
        test=" or ".join(tests),
        output=", ".join(map(str, shape_of(place.output))),
        dtype=dtype_of(place.output),
        given=", ".join(f"as_given({one}.detach().contiguous())" for one in names),
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


def session_text(name: str, entry: str, function: str) -> str:
    """`ops/<name>/put_back.py` of a session."""
    return (
        f'"""The session {name}. `hillclimb put-back` wrote this file."""\n\n'
        f"from ops.{name}.{module_of(entry)} import {function} as make_session\n\n"
        '__all__ = ["make_session"]\n'
    )


def session_test_text(name: str) -> str:
    """`tests/test_<name>.py` of a session."""
    return SESSION_TEST.format(name=name)


def manifest_text(family: str, knob: str, kernels: Sequence[str], what: str) -> str:
    """One more family of kernel_manifest.yaml, which says what it is."""
    return (
        f"  {family}:\n    doc: {what}, put back as a kernel\n    knob: {knob}\n    implementations:\n"
        f"      stock: {{status: stock}}\n      kernel:\n        kernels: [{', '.join(kernels)}]\n"
        f'        files: ["ops/{family}/*"]\n        tests: [tests/test_{family}.py]\n        status: ready\n'
    )


def installers_text(hooks: Sequence[str], sessions: Sequence[str]) -> str:
    """`ops/extracted.py`, which the backend calls."""
    lines = [
        '"""Kernels in the places of the model\'s own modules. `hillclimb put-back` writes this file."""',
        "",
        "from __future__ import annotations",
        "",
        "from collections.abc import Callable",
        "",
        "import torch",
        *(["from knobs import knob"] if hooks or sessions else []),
        "",
        "INSTALLERS: list[Callable[[torch.nn.Module], None]] = []",
        '"""Those that the knobs choose."""',
        "",
        "SESSIONS: list[Callable[..., Callable[..., None]]] = []",
        '"""Those of them that take the place of the whole model."""',
    ]
    chosen = [(name, "SESSIONS", "put_back", "make_session") for name in sessions]
    chosen += [(name, "INSTALLERS", "hook", "install") for name in hooks]
    for name, among, file, function in chosen:
        lines += [
            "",
            f'if knob("OP_{name.upper()}") == "kernel":',
            f"    from ops.{name}.{file} import {function} as {function}_{name}",
            "",
            f"    {among}.append({function}_{name})",
        ]
    return "\n".join(lines) + "\n"


def module_of(path: str) -> str:
    """The module that a file below the workspace is."""
    return path.removesuffix(".py").replace("/", ".")


def shape_of(text: str) -> tuple[int, ...]:
    """Of float32[1,1,128]."""
    return tuple(int(size) for size in text.partition("[")[2].rstrip("]").split(",") if size)


def dtype_of(text: str) -> str:
    """Of float32[1,1,128]."""
    return text.partition("[")[0]
