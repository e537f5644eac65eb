"""Files that Triton or numba reads otherwise than Python does."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.harness.policy.policy import check_policy
from tests.harness.policy.test_hidden_uses import CPU, GPU, refused, write

HEAD = "import functools\nimport triton\nimport triton.language as tl\n"

TEXTS = [
    '@triton.jit\n@note("""\ndef k(x):\n    y = 1\n    #""")\ndef k(x):\n    pass\n',
    '@triton.jit(do_not_specialize=["""\ndef k(x): pass\n"""])\ndef k(x):\n    pass\n',
    'def k(x):\n    """Doc.\n\n    def k(x):\n        y = 1 # """\n    None\n',
    'def k(x):\n    f"""{x}\n  async  def k(x): pass\n"""\n',
    '@note("a\\\ndef k(x): pass")\ndef k(x):\n    pass\n',
    'T = """\n\tdef k(x): pass\n"""\n',
    '@triton.autotune(configs=[], key=[b"""\ndef k(x):\n    pass\n"""])\n@triton.jit\ndef k(x):\n    pass\n',
]


@pytest.mark.parametrize("text", TEXTS)
def test_text_that_looks_like_a_function_is_refused(tmp_path: Path, text: str) -> None:
    assert "'def'" in refused(write(tmp_path, {"kernel.py": HEAD + text}), GPU)
    files = {"kernel.py": f"{HEAD}import own\n", "own.py": f"def note(x):\n    return x\n\n\n{text}"}
    assert "own.py" in refused(write(tmp_path / "elsewhere", files), GPU)


def test_strings_may_speak_of_functions(tmp_path: Path) -> None:
    text = '"""What a def is.\n\nThe def of k: `def k(x)`.\n"""\nX = "def k(x): pass"\n'
    check_policy(write(tmp_path, {"kernel.py": text + HEAD}), GPU)


DERIVED = [
    "class J(triton.JITFunction):\n    pass\n",
    "class D(tl.dtype):\n    pass\n",
    "class T(tl.constexpr):\n    pass\n",
    "class S(str):\n    def strip(self):\n        return self\n",
    "class S(str):\n    pass\n",
    "class A(str, Enum):\n    pass\n",
    "class A(str, Enum):\n    X = 'x'\n    def strip(self):\n        return self\n",
    "class A(str, Enum):\n    X = 'x'\n    strip = lambda self: self\n",
]


@pytest.mark.parametrize("text", DERIVED)
def test_classes_that_a_compiler_calls_are_refused(tmp_path: Path, text: str) -> None:
    policy = GPU.model_copy(update={"imports": (*GPU.imports, "enum")})
    assert "derives" in refused(
        write(tmp_path, {"kernel.py": f"{HEAD}from enum import Enum\n{text}"}), policy
    )


@pytest.mark.parametrize("base", ["t", "np.str_", "[str][0]", "*[str]"])
def test_text_of_ones_own_has_no_methods_that_a_compiler_calls(tmp_path: Path, base: str) -> None:
    for method in ("    def strip(self):\n        return self\n", "    upper = len\n"):
        text = f"{HEAD}import numpy as np\nt = str\nclass S({base}):\n{method}"
        refused(write(tmp_path / method[4:7], {"kernel.py": text}), GPU)


def test_a_choice_may_be_text(tmp_path: Path) -> None:
    policy = GPU.model_copy(update={"imports": (*GPU.imports, "enum")})
    text = f'{HEAD}from enum import Enum\nclass A(str, Enum):\n    """Kinds."""\n\n    X = "x"\n'
    check_policy(write(tmp_path, {"kernel.py": text}), policy)


COMPILER = [
    "@tl.core.builtin\ndef f(x, _semantic=None):\n    return _semantic.builder\n",
    "from triton.language.core import builtin\n",
    "@tl.core.extern\ndef f(x):\n    return x\n",
    "tl.core._tensor_member_fn(len)\n",
    "def f(**kw):\n    return kw['g'].gscope\n",
    "def f(g):\n    return g.builtin_namespace\n",
    "def f(g):\n    return g.module_map\n",
    "for m in [tl.random.tl]:\n    m.wraps\n",
    "x = tl.extra.module\n",
    "@functools.wraps(tl.reduce)\ndef f(x, **kw):\n    return kw\n",
    "from pathlib import Path\n@triton.jit\n@functools.wraps(Path.open)\ndef f(x):\n    return x\n",
    "def g(o):\n    @functools.wraps(o.open)\n    def f(x):\n        return x\n    return f\n",
    "def f(k):\n    k.parse = len\n",
    "o = {'ir_override': 'a.ptx'}\n",
    "def f(k):\n    k[(1,)](1, **{'extern_libs': {}})\n",
]


@pytest.mark.parametrize("text", COMPILER)
def test_what_tritons_compiler_hands_over_is_refused(tmp_path: Path, text: str) -> None:
    policy = GPU.model_copy(update={"imports": (*GPU.imports, "pathlib")})
    refused(write(tmp_path, {"kernel.py": HEAD + text}), policy)


def test_a_function_of_ones_own_may_be_wrapped(tmp_path: Path) -> None:
    text = f"{HEAD}def g(o):\n    @functools.wraps(o)\n    def f(x):\n        return o(x)\n    return f\n"
    check_policy(write(tmp_path, {"kernel.py": text}), GPU)


@pytest.mark.parametrize(
    "change",
    [
        "t.name = 'cov'",
        "a.b.name = 'cov'",
        "del t.name",
        "for t.name in ('cov',): t(1)",
        "def r(self):\n    self.name = 'cov'\nr(t)",
    ],
)
def test_a_type_of_numbas_keeps_its_name(tmp_path: Path, change: str) -> None:
    policy = CPU.model_copy(update={"imports": (*CPU.imports, "numba")})
    text = f"import numba\nt = numba.typeof(3)\na = t\n{change}\n"
    refused(write(tmp_path, {"kernel.py": text}), policy)
    own = "import numba\nX = numba.int64\nclass A:\n    name = 'a'\n    def told(self):\n        return self.name\n"
    check_policy(write(tmp_path / "own", {"kernel.py": own}), policy)
