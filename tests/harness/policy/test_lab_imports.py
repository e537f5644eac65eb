"""What a workspace may take of hillclimb itself: backends, and nothing that loads code or hands on modules."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.harness.case.settings import Policy
from hillclimb.harness.errors import CandidateFault
from hillclimb.harness.policy.policy import check_policy
from hillclimb.harness.records import Reason

IMPORTS = ("hillclimb", "hillclimb.*", "hillclimb.harness.*", "torch")
BACKENDS = "hillclimb.harness.serving.backends"

HONEST = [
    f"from {BACKENDS}.transformers_backend import TransformersBackend\nclass B(TransformersBackend):\n    pass\n",
    f"from {BACKENDS}.backend import Backend, ServedModel as Served\ndef make(model: Served) -> Backend: ...\n",
    f"from {BACKENDS} import mock_backend\nb = mock_backend.MockBackend\n",
    f"import {BACKENDS}.mock_backend as mock\nb = mock.MockBackend\n",
    f"import {BACKENDS}.mock_backend\nb = {BACKENDS}.mock_backend.MockBackend('m')\n",
]

LEADING_OUT = [
    "from hillclimb.harness.candidate.runner import import_kernel\n",
    "from hillclimb.harness.candidate import native_kernel\n",
    "import hillclimb.harness.candidate.runner\n",
    "import hillclimb.harness.candidate.runner as runner\n",
    "import hillclimb\nhillclimb.harness.candidate.runner.import_kernel('x', 'y')\n",
    "import hillclimb as lab\nf = lab.harness.candidate.runner\n",
    "import hillclimb as lab\nf = getattr(lab, 'harness')\n",
    "from hillclimb import harness\nf = harness.candidate.runner\n",
    "from hillclimb.harness import candidate\n",
    f"from {BACKENDS} import transformers_backend as t\nf = t.torch.mm\n",
    f"from {BACKENDS}.transformers_backend import torch\n",
    f"from {BACKENDS}.transformers_backend import Path\n",
    f"from {BACKENDS}.transformers_backend import *\n",
    f"import {BACKENDS}.mock_backend\nf = {BACKENDS}.mock_backend.time\n",
    f"from {BACKENDS} import mock_backend\nf = [mock_backend]\n",
    f"from {BACKENDS} import *\n",
    "from hillclimb import *\n",
    "from hillclimb import judge_tree\n",
]


THROUGH_TORCH = [
    "import torch\nr = torch.sys.modules['hillclimb.harness.candidate.runner']\n",
    "from torch import sys\n",
    "from torch import sys as s, os\n",
    "import torch\ntorch.importlib.import_module('os')\n",
    "import torch as t\nt.os.system('true')\n",
    "import torch\nf = torch.utils._pytree.importlib\n",
    "import torch\nf = torch.cuda.random.contextlib\n",
    "import torch\nf = torch.multiprocessing.Process\n",
    "from torch.utils import _pytree as p\nf = p.functools\n",
    "import torch.nn.functional as F\nf = F.importlib\n",
    "import torch\nf = torch.storage.np.linalg.solve\n",
    "from torch._inductor.codecache import PyCodeCache\n",
    "import torch\nf = torch.foreach._inspect.stack()\n",
]

OF_TORCHS_OWN = (
    "import torch\nx = torch.zeros(4, 4)\ntorch.select(x, 0, 1)\nx.chunk(2)\ntorch.trace(x)\n"
    "torch.random.manual_seed(1)\ntorch.cuda.random.manual_seed(1)\nn = torch.types.Number\n"
    "w = torch.signal.windows.hann(4)\nq = torch.ops.mylib.queue(x)\nc = torch.ops.aten.copy.default\n"
)


@pytest.mark.parametrize("source", THROUGH_TORCH)
def test_torch_hands_on_no_module(tmp_path: Path, source: str) -> None:
    (tmp_path / "backend.py").write_text(source)
    with pytest.raises(CandidateFault, match="another module") as fault:
        check_policy(tmp_path, Policy(imports=IMPORTS, library_calls=True))
    assert fault.value.reason is Reason.POLICY


def test_what_is_torchs_own_may_be_called_as_a_module_is(tmp_path: Path) -> None:
    (tmp_path / "backend.py").write_text(OF_TORCHS_OWN)
    check_policy(tmp_path, Policy(imports=IMPORTS, library_calls=True))


PRODUCTS = [
    f"from {BACKENDS}.mock_backend import MockBackend\nt = MockBackend('m').prefill(0, [1])\nu = t.mm(t)\n",
    f"from {BACKENDS}.mock_backend import MockBackend\nt = MockBackend('m').prefill(0, [1]).softmax(0)\n",
    f"from {BACKENDS}.transformers_backend import TransformersBackend\n",
]


@pytest.mark.parametrize("source", PRODUCTS)
def test_where_no_library_may_be_called_backends_bring_none(tmp_path: Path, source: str) -> None:
    (tmp_path / "backend.py").write_text(source)
    check_policy(tmp_path, Policy(imports=IMPORTS, library_calls=True))
    with pytest.raises(CandidateFault):
        check_policy(tmp_path, Policy(imports=("hillclimb",), library_calls=False))


@pytest.mark.parametrize("source", HONEST)
def test_backends_may_be_used(tmp_path: Path, source: str) -> None:
    (tmp_path / "backend.py").write_text(source)
    check_policy(tmp_path, Policy(imports=IMPORTS, library_calls=True))


@pytest.mark.parametrize("library_calls", [True, False])
@pytest.mark.parametrize("source", LEADING_OUT)
def test_nothing_else_may(tmp_path: Path, source: str, library_calls: bool) -> None:
    (tmp_path / "backend.py").write_text(source)
    with pytest.raises(CandidateFault) as fault:
        check_policy(tmp_path, Policy(imports=IMPORTS, library_calls=library_calls))
    assert fault.value.reason is Reason.POLICY, fault.value.detail
