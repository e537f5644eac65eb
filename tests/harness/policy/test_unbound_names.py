"""Names that stand for what nobody wrote: submodules in a package's globals, helpers of a prompt, types made unseen."""

from __future__ import annotations

from pathlib import Path

import pytest

from hillclimb.harness.policy.policy import check_policy
from tests.harness.policy.test_hidden_uses import CPU, GPU, refused, write

INNER = "import os as zz\n"

PACKAGES = {
    "imported there": "import a.q\ndef f():\n    return q.zz.system('x')\n",
    "imported elsewhere": "def f():\n    return q.zz.system('x')\n",
    "one name of it": "from a.q import one\ndef f():\n    return q.zz\n",
    "under another name": "from . import q as r\ndef f():\n    return [q][0].zz\n",
    "handed on": "import a.q\nw = q\n",
    "bound to something else first": "q = None\ndef f():\n    return q.zz\n",
    "a class of its name": "class q:\n    pass\ndef f():\n    return q.zz\n",
    "an argument of its name": "def g(q):\n    return q\ndef f():\n    return q.zz\n",
    "global": "def f():\n    global q\n    return q.zz\n",
    "another name of the module's": "from a.other import one as q\n",
    "imported in a function that nobody calls": "def f():\n    return q.zz\ndef h():\n    from . import q\n",
    "imported on a condition": "if False:\n    from . import q\ndef f():\n    return q.zz\n",
    "bound, and imported further down": "q = None\ndef f():\n    return q.zz\ndef h():\n    from . import q\n",
}


@pytest.mark.parametrize("text", PACKAGES.values(), ids=PACKAGES)
def test_a_submodule_is_used_only_where_it_is_imported(tmp_path: Path, text: str) -> None:
    files = {"kernel.py": "import a\na.f()\n", "a/__init__.py": text, "a/q.py": "one = 1\n"}
    files["a/other.py"] = "one = 1\n"
    told = refused(write(tmp_path, files), CPU)
    assert "a/__init__.py" in told and "'q'" in told


def test_the_same_one_package_further_in(tmp_path: Path) -> None:
    files = {"kernel.py": "import a.b\n", "a/__init__.py": "", "a/b/q.py": INNER}
    files["a/b/__init__.py"] = "def f():\n    return q.zz\n"
    assert "a/b/__init__.py:2" in refused(write(tmp_path, files), CPU)


@pytest.mark.parametrize(
    "text",
    [
        "from a.q import one\n",
        "from a import q\n",
        "from . import q\nq.one\n",
        "import a.q\n",
    ],
)
def test_a_package_may_import_its_own_modules(tmp_path: Path, text: str) -> None:
    files = {
        "kernel.py": "from a.q import q\nq(1)\n",
        "a/__init__.py": text,
        "a/q.py": "one = 1\ndef q(x):\n    return x\n",
    }
    check_policy(write(tmp_path, files), CPU)


@pytest.mark.parametrize(
    "text",
    [
        "help('tests.evil')\n",
        "h = help\nh('tests.evil')\n",
        "print(credits)\n",
        "type(help)()('tests.evil')\n",
        "for f in (license,):\n    f()\n",
        "f = lambda help: 1\nhelp('tests.evil')\n",
        "def f(help):\n    pass\nhelp('tests.evil')\n",
        "[help for help in ()]\nhelp('tests.evil')\n",
        "class A:\n    help = 1\nhelp('tests.evil')\n",
        "help = 1\ndel help\nhelp('tests.evil')\n",
        "def f():\n    import math as help\nhelp('tests.evil')\n",
        "help('os')\nhelp = None\n",
        "def f():\n    help('os')\nf()\nhelp = None\n",
        "help = 1\ntry:\n    1 // 0\nexcept ZeroDivisionError as help:\n    pass\nhelp('os')\n",
    ],
)
def test_what_people_have_at_a_prompt_is_refused(tmp_path: Path, text: str) -> None:
    refused(write(tmp_path, {"kernel.py": text}), CPU)


def test_a_name_of_ones_own_may_be_called_so(tmp_path: Path) -> None:
    text = "def help(x):\n    return x\n\n\ndef shown(license):\n    return license\n\n\nhelp(1)\n"
    check_policy(write(tmp_path, {"kernel.py": text}), CPU)


TYPES = [
    'M = type("M", (), {"__getattr__": len})\n',
    "class B(metaclass=len):\n    pass\n",
    "class M(type):\n    pass\n",
    "def f():\n    pass\n\n\ntype(f)(f, {})\n",
    "t = type\nt('M', (), {})\n",
    "t = type(len)\nt(1)\n",
    "make = [type][0]\n",
    "made = list(map(type, [1]))\n",
    "(1).__class__(2)\n",
    "k = getattr(1, '__class__')\n",
    "isinstance(1, (t := type))\n",
    "x: (t := type) = 1\n",
    "x: type(len)(1) = 1\n",
    "def f(x: type(len)(1)):\n    pass\n",
    "if (t := type(len)) == 1:\n    pass\n",
    "class C(type(len)):\n    pass\n",
    "class C(**{'metaclass': len}):\n    pass\n",
    "match 1:\n    case type():\n        pass\n",
    "import typing\n\n\nclass T(typing.Type):\n    pass\n",
    "from typing import Type\nt = Type[int]\n",
    "T = type == 1\n",
    "class A:\n    pass\n\n\nT = type(len) == A()\n",
    "T = type(1) in [1]\n",
    "class A:\n    pass\n\n\nT = type(1) in (int, A())\n",
    "class int:\n    pass\n\n\nT = type(len) == int\n",
    "T = type < 1\n",
    "a = {}\nx: a[type] = 1\n",
    "a = 1\nx: a | type = 1\n",
    "def f(x: (yield type)):\n    pass\n",
    "def f(list, type_of):\n    x: list[type] = 1\n",
    "def isinstance(a, b):\n    return b\n\n\nT = isinstance(1, type)\n",
    "def f(print):\n    return print(type(1))\n",
]


@pytest.mark.parametrize("text", TYPES)
def test_no_type_is_made_unseen(tmp_path: Path, text: str) -> None:
    for policy in (CPU, GPU):
        told = refused(write(tmp_path, {"kernel.py": text}), policy)
        assert "type" in told.lower() or "class" in text


@pytest.mark.parametrize(
    "text",
    [
        "if type(1) is int:\n    pass\n",
        "if type(1) == int or type(1) != type('a'):\n    pass\n",
        "print(type(1), str(type(1)))\n",
        "good = type(1) in (int, float) and type(1) not in (str, bool)\n",
        "name = type(1).__name__\n",
        "name = (1).__class__.__name__\n",
        "text = f'{type(1)}'\n",
        "good = isinstance(int, type) or issubclass(int, (type, int))\n",
        "def f(x: type, y: type[int] | None = None) -> type:\n    return x\n",
        "class C(dict, total=False):\n    pass\n",
    ],
)
def test_a_type_may_be_compared_and_named(tmp_path: Path, text: str) -> None:
    check_policy(write(tmp_path, {"kernel.py": text}), CPU)


@pytest.mark.parametrize(
    "use",
    [
        "f.func_code.replace(co_names=('exec',))",
        "f.kernel_ir",
        "f.overloads[0].fndesc",
        "f.enable_caching()",
        "f.stats.cache_path",
        "getattr(f, 'func_code')",
        "next(iter(f.overloads.values()))[0]",
        "f.get_compile_result(1)",
        "f.get_metadata()",
        "numba.njit(inline=f)(f)",
        "numba.vectorize(f).add('1')",
        "u = numba.vectorize(f)\n[u][0].add('1')",
    ],
)
def test_what_numba_knows_of_a_function_is_not_read(tmp_path: Path, use: str) -> None:
    text = f"import numba\n\n\n@numba.njit\ndef f(x):\n    return x\n\n\n{use}\n"
    refused(write(tmp_path, {"kernel.py": text}), CPU)


@pytest.mark.parametrize(
    "name",
    [
        "extra.modules",
        "extra.pkgutil.resolve_name",
        "extra.module_from_spec",
        "extra.module_finder",
        "core.typing.get_type_hints",
        "core.wraps",
        "core.knobs",
        "core.contextmanager",
        "core.inspect",
        "semantic.warnings",
        "core.Enum",
        "core",
        "extra",
        "extra.cuda",
        "math",
        "sum.get_capture_scope()",
    ],
)
def test_a_kernel_language_hands_on_nothing_of_pythons(tmp_path: Path, name: str) -> None:
    refused(write(tmp_path, {"kernel.py": f"import triton.language as tl\nx = tl.{name}\n"}), GPU)


def test_its_own_modules_may_be_used(tmp_path: Path) -> None:
    text = "import triton.language as tl\nfrom triton.language.extra import libdevice\n"
    text += "x = tl.math.exp\ny = tl.random.rand\nz = tl.cast\nw = libdevice.exp\n"
    check_policy(write(tmp_path, {"kernel.py": text}), GPU)


@pytest.mark.parametrize(
    "use",
    [
        "f._unsafe_update_src('')",
        "f._src = ''",
        "for f._src in ['']:\n    pass",
        "f.raw_src",
        "f.used_global_vals",
        "f.params[0].annotation_type = 'x'",
        "f.params[0]._param.annotation",
        "triton.Config({}, 1).ir_override = 'x'",
    ],
)
def test_what_triton_knows_of_a_kernel_is_not_read(tmp_path: Path, use: str) -> None:
    text = f"import triton\n\n\n@triton.jit\ndef f(x):\n    pass\n\n\n{use}\n"
    refused(write(tmp_path, {"kernel.py": text}), GPU)


@pytest.mark.parametrize(
    "text",
    [
        "@wraps(object)\nclass B:\n    pass\n",
        "@wraps(object)\n@made\ndef g():\n    pass\n",
        "p = cached_property(len)\np.attrname = '__getattribute__'\n",
    ],
)
def test_functools_sets_no_attributes_of_what_is_no_function(tmp_path: Path, text: str) -> None:
    start = "from functools import cached_property, wraps\n\n\ndef made(f):\n    return f\n\n\n"
    refused(write(tmp_path, {"kernel.py": start + text}), CPU)


def test_wraps_may_stand_before_a_function(tmp_path: Path) -> None:
    text = (
        "from functools import wraps\n\n\ndef made(f):\n    @wraps(f)\n    def g(*x):\n        return f(*x)\n"
    )
    check_policy(write(tmp_path, {"kernel.py": text}), CPU)


@pytest.mark.parametrize("folder", ["evil-1.0.dist-info", "evil.egg-info", "a/evil-1.0.dist-info"])
def test_no_folder_says_what_is_installed(tmp_path: Path, folder: str) -> None:
    files = {
        "kernel.py": "x = 1\n",
        f"{folder}/entry_points.txt": "[numba_extensions]\ninit = tests.evil:f\n",
    }
    assert "what packages are installed" in refused(write(tmp_path, files), CPU)
