"""Names that are not what they look like: renamed in classes, bound in passing, put there by others."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.harness.policy.policy import check_policy
from tests.harness.policy.test_hidden_uses import CPU, GPU, refused, write

RENAMED = [
    "import os as _A__m\nclass A:\n    x = __m.popen('id')\n",
    "import os as _A__m\nclass A:\n    def f(self):\n        return __m.popen\n",
    "class A:\n    class B:\n        def f(self, __x):\n            return __x\n",
    "def f(a):\n    class A:\n        y = a.__m\n",
    "class A:\n    def __f(self):\n        pass\n",
    "class A:\n    def f(self):\n        import math as __m\n",
    "class A:\n    def f(self):\n        global __m\n",
    "class A:\n    x = dict(__m=1)\n",
    "class A:\n    x = [__m for __m in (1,)]\n",
]


@pytest.mark.parametrize("text", RENAMED)
def test_names_that_a_class_renames_are_refused(tmp_path: Path, text: str) -> None:
    assert "in a class" in refused(write(tmp_path, {"kernel.py": text}), CPU)


def test_two_underscores_are_a_name_elsewhere(tmp_path: Path) -> None:
    text = "__x = 1\n\n\nclass A:\n    text = '__m'\n\n    def __init__(self):\n        self._x = __file__\n"
    check_policy(write(tmp_path, {"kernel.py": text}), CPU)


IN_PASSING = [
    "import os\nx = [o := os][0].popen\n",
    "import os\nx = (q := os).popen\n",
    "import os\nx = ((q := os),)\n",
    "import os\nx = max(q := os, key=len)\n",
    "import os\nx = {1: (q := os)}[1].popen\n",
    "import os\nx = (lambda: (q := os))().popen\n",
    "import os\nx = [q := os for _ in (1,)]\n",
]


@pytest.mark.parametrize("text", IN_PASSING)
def test_what_is_named_in_passing_is_handed_on(tmp_path: Path, text: str) -> None:
    refused(write(tmp_path, {"kernel.py": text}), CPU)


@pytest.mark.parametrize("line", ["from . import h", "from p import h", "import p.h as h", "import p.h"])
@pytest.mark.parametrize(
    "use", ["import p\np.h.z.popen\n", "from p import h\nh.z.popen\n", "import p as k\nk.h.z.popen\n"]
)
def test_a_package_that_names_its_own_module_is_followed(tmp_path: Path, line: str, use: str) -> None:
    files = {"kernel.py": use, "p/__init__.py": f"{line}\n", "p/h.py": "import os as z\n"}
    assert "os.popen" in refused(write(tmp_path, files), CPU)
    files["p/h.py"] = "def z(x):\n    return x\n"
    files["kernel.py"] = use.replace(".popen", "(1)")
    check_policy(write(tmp_path / "honest", files), CPU)


LEFT = [
    "x = inspect.signature\n",
    "def f():\n    return inspect\n",
    "if False:\n    inspect = None\ny = inspect\n",
    "try:\n    np = 1 / 0\nexcept ZeroDivisionError:\n    pass\ndef f():\n    return np\n",
    "def g():\n    textwrap = 1\ndef f():\n    return textwrap\n",
    "class A:\n    if 0:\n        ast = 1\n    y = ast\n",
    "y = [ast for _ in (1,)]\n",
    "def f():\n    global ast\n    return ast\n",
    "def f():\n    global partial\n    partial = 1\nx = partial\n",
    "dataclass = 1\ndel dataclass\n",
    "for FunctionRewriter in ():\n    pass\ny = FunctionRewriter\n",
    "y = lambda: interpreter_builder\n",
    "def f():\n    return textwrap\nf()\ntextwrap = None\n",
    "ast = 1\ntry:\n    1 // 0\nexcept ZeroDivisionError as ast:\n    pass\nx = ast\n",
]


@pytest.mark.parametrize("text", LEFT)
def test_what_an_interpreter_leaves_is_not_read(tmp_path: Path, text: str) -> None:
    files = {"kernel.py": text, "other.py": "import triton\n"}
    refused(write(tmp_path, files), GPU)
    if "del " not in text:
        check_policy(write(tmp_path / "without", {"kernel.py": text}), GPU)


def test_its_names_may_be_ones_own(tmp_path: Path) -> None:
    text = """
import math
try:
    import triton
    import triton.language as tl
except ImportError:
    triton = tl = None
if math.pi > 3:
    from functools import partial
else:
    partial = None
try:
    from math import pi as time
except ImportError:
    raise
T: int = 3
inspect, textwrap = 1, [2]


def f(ast, np):
    time = ast + np

    def g():
        return textwrap, inspect, time, math.pi, triton.cdiv(T, 2), tl.constexpr, partial(f, T)
    return g, [inspect for inspect in (1,)]
"""
    check_policy(write(tmp_path, {"kernel.py": text}), GPU)


INSIDES = [
    "import numpy as np\nx = np.random.default_rng.func_globals\n",
    "def f(g):\n    return g._rebuild('u')\n",
    "def f(g):\n    return g._reduce_states()\n",
    "def f(g):\n    return g._reduce_class()\n",
    "def f(g):\n    g.add_overload = len\n",
    "def f(g):\n    g._callback_add_timer = len\n",
    "def f(g):\n    return g.targetdescr\n",
    "def f(g):\n    return getattr(g, 'cast_python_value')\n",
    "import numba\nclass T(numba.types.Array):\n    pass\n",
    "from numba import types\nclass T(types.Tuple):\n    pass\n",
    "class Q:\n    _numba_type_ = 1\n",
    "class Q:\n    def _numba_type_(self):\n        return 1\n",
    "class Q:\n    pass\ndef f(q):\n    q._numba_type_ = 1\n",
]


@pytest.mark.parametrize("text", INSIDES)
def test_what_numba_and_cython_know_of_functions_is_refused(tmp_path: Path, text: str) -> None:
    policy = CPU.model_copy(update={"imports": (*CPU.imports, "numba")})
    refused(write(tmp_path, {"kernel.py": text}), policy)


LANGUAGES = [
    "import triton\n@triton.aggregate\nclass A:\n    x: 'print(1)'\n",
    "from triton.experimental import gluon\n@gluon.aggregate\nclass A:\n    x: 'print(1)'\n",
    "import triton.language as tl\ntl.core._aggregate\n",
    "import triton.language as tl\ntl.core._resolve_aggregate_fields\n",
    "import triton.language as tl\ntl.str_to_ty('i32', None)\n",
    "from triton.language.core import str_to_ty\n",
    "from triton.language.semantic import TritonSemantic\n",
    "import triton.language.semantic as s\ns.driver.set_active\n",
    "def f(s):\n    return s.lang.typing\n",
    "def f(k):\n    k.rewriter.ast_transformer = 1\n",
    "import triton\ntriton.Config({}, ir_override='a.ttgir')\n",
    "import triton\ndef f(k):\n    k[(1,)](triton.cdiv(1, 1), extern_libs={})\n",
    "def f(x, y):\n    return x._addmm_activation(x, y)\n",
]


@pytest.mark.parametrize("text", LANGUAGES)
def test_insides_of_kernel_languages_are_refused(tmp_path: Path, text: str) -> None:
    refused(write(tmp_path, {"kernel.py": text}), GPU)
